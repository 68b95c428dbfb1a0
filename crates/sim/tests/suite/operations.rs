//! WRITE, WRITEV and READ on sockets, single receives into a buffer group, polls, and zero-copy
//! sends.
#![allow(unsafe_code)]

use crate::common::{
    BUFFER_GROUP, Host, ProvidedBuffers, cancel, errno, fields, on_sim_and_linux, send,
};
use annulus_kernel::{Fd, IoVec, MsgHeader, Shutdown, SocketType, msg};
use annulus_ring::op::{self, rwf};
use annulus_ring::{Entry, EntryFlags, SafeEntry};
use rustix::io::Errno;
use std::ptr;

/// Returns two receives into a buffer group: one without `POLL_FIRST`, and one with it.
fn group_receives(fd: Fd) -> [SafeEntry; 2] {
    let recv = op::RecvSelect { fd, group: BUFFER_GROUP }.entry();
    [recv, recv.poll_first()]
}

fn write(fd: Fd, bytes: &[u8], flags: u32) -> Entry {
    let len = bytes.len() as u32;
    op::Write { fd, buffer: bytes.as_ptr(), len, flags }.entry()
}

fn write_skipping_success(fd: Fd, bytes: &[u8]) -> Entry {
    write(fd, bytes, rwf::NOWAIT).with(EntryFlags::SKIP_SUCCESS)
}

#[test]
fn recv_into_group_completes_at_once_and_after_waiting() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let mut buffers = ProvidedBuffers::new(&host.ring, 2, 64);
        for (number, receive) in group_receives(server).into_iter().enumerate() {
            host.send(client, b"there");
            host.push(1, receive);
            let there = host.wait_for(1)[0];
            assert_eq!((fields(&there), buffers.bytes(&there)), ((1, 5, false), b"there".to_vec()));
            host.push(2, receive);
            assert_eq!(host.drain_until_quiet(), [], "receive {number} did not wait");
            host.push(9, write_skipping_success(client, b"then"));
            let then = host.wait_for(1)[0];
            assert_eq!((fields(&then), buffers.bytes(&then)), ((2, 4, false), b"then".to_vec()));
        }
        buffers.unregister(&host.ring);
    });
}

#[test]
fn recv_into_group_ends_when_cancelled_out_of_buffers_or_at_eof() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let mut buffers = ProvidedBuffers::new(&host.ring, 1, 64);
        for receive in group_receives(server) {
            host.push(1, receive);
            assert_eq!(host.drain_until_quiet(), []);
            host.push(2, cancel(1));
            let outcomes: Vec<_> = host.wait_for(2).iter().map(fields).collect();
            assert!(outcomes.contains(&(1, errno(Errno::CANCELED), false)), "{outcomes:?}");
        }
        host.send(client, b"x");
        let last = group_receives(server)[0];
        host.push(3, last);
        let taken = host.wait_for(1)[0];
        // The test holds the only buffer.
        for receive in group_receives(server) {
            host.send(client, b"y");
            assert_eq!(host.submit_and_wait(receive), errno(Errno::NOBUFS));
        }
        assert_eq!(buffers.bytes(&taken), b"x");
        let mut unread = 2;
        while unread > 0 {
            unread -= host.recv(server).unwrap().len();
        }
        host.kernel.shutdown(client, annulus_kernel::Shutdown::Write).unwrap();
        for receive in group_receives(server) {
            host.push(4, receive);
            let end = host.wait_for(1)[0];
            assert_eq!(end.result, 0);
            if end.buffer().is_some() {
                assert_eq!(buffers.bytes(&end), b"");
            }
        }
        buffers.unregister(&host.ring);
    });
}

#[test]
fn read_on_socket_fills_caller_memory() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let mut memory = [0; 8];
        let (fd, buffer) = (server, memory.as_mut_ptr());
        host.send(client, b"plain");
        assert_eq!(
            host.submit_and_wait(op::Read { fd, buffer, len: 8, offset: u64::MAX }.entry()),
            5
        );
        assert_eq!(&memory[..5], b"plain");
    });
}

/// Writes until there is no space, and returns the last result.
fn fill_send_buffer(host: &mut Host, fd: Fd, big: &[u8]) -> i32 {
    for _ in 0..1000 {
        host.push(3, write_skipping_success(fd, big));
        let answer = host.wait_for(1)[0].result;
        if answer < 0 {
            return answer;
        }
    }
    panic!("a socket accepted all bytes although its peer reads none");
}

#[test]
fn short_write_with_skipped_success_is_reported() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        host.push(1, write_skipping_success(client, b"all of it"));
        assert_eq!(host.drain_until_quiet(), []);
        assert_eq!(host.recv(server).unwrap(), b"all of it");
        let big = vec![1; 32 << 20];
        host.push(2, write_skipping_success(client, &big));
        let short = host.wait_for(1)[0];
        assert!(short.result > 0 && (short.result as usize) < big.len(), "{short:?}");
        assert_eq!(fill_send_buffer(&mut host, client, &big), errno(Errno::AGAIN));
    });
}

#[test]
fn write_waits_for_space_and_sends_what_fits() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let big = vec![1; 32 << 20];
        // On Linux, the loopback may move bytes in the meantime, which frees space.
        for _ in 0..3 {
            fill_send_buffer(&mut host, client, &big);
            assert_eq!(host.drain_until_quiet(), []);
        }
        host.push(5, write(client, &big, 0));
        assert_eq!(host.drain_until_quiet(), []);
        // Read enough to free space on both kernels.
        let mut read = 0;
        let short = loop {
            read += receive_part(&mut host, server);
            if let Some(done) = host.reap().first().copied() {
                break done;
            }
            assert!(read < big.len(), "{read} bytes were read, but there is still no space");
        };
        assert_eq!(short.user_data, 5);
        assert!(short.result > 0 && (short.result as usize) < big.len(), "{short:?}");
    });
}

/// Receives some bytes, while another operation may complete.
fn receive_part(host: &mut Host, fd: Fd) -> usize {
    let mut memory = vec![0; 1 << 16];
    let len = memory.len() as u32;
    let fd = op::Recv { fd, buffer: memory.as_mut_ptr(), len };
    host.push(6, fd.entry());
    host.ring.enter(annulus_ring::Wait::For { completions: 1, timeout: None }).unwrap();
    let first = host.ring.peek(0).expect("no completion is ready");
    if first.user_data == 5 {
        return 0;
    }
    host.ring.completions().next().map_or(0, |done| done.result as usize)
}

#[test]
fn writev_sends_vectors_in_order() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let parts =
            [&b"one "[..], b"", b"two "].map(|part| IoVec { base: part.as_ptr(), len: part.len() });
        let (fd, vectors) = (client, parts.as_ptr());
        assert_eq!(host.submit_and_wait(op::Writev { fd, vectors, count: 3, flags: 0 }.entry()), 8);
        assert_eq!(host.recv(server).unwrap(), b"one two ");
    });
}

#[test]
fn poll_reports_readiness_once() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let poll = op::Poll { fd: server, events: op::poll::IN }.entry();
        host.push(1, poll);
        assert_eq!(host.drain_until_quiet(), []);
        host.push(9, write_skipping_success(client, b"ready"));
        let taken = host.drain_until_quiet();
        assert_eq!(taken.iter().map(fields).collect::<Vec<_>>(), [(1, 1, false)]);
        // The socket is still readable.
        assert_eq!(host.submit_and_wait(poll), 1);
    });
}

#[test]
fn poll_reports_ends_and_errors() {
    const RDHUP: u32 = 0x2000;
    const ALL: u32 = op::poll::IN | op::poll::OUT | RDHUP;
    on_sim_and_linux(|mut host| {
        let fresh = host.socket();
        let events_of =
            |host: &mut Host, fd| host.submit_and_wait(op::Poll { fd, events: ALL }.entry());
        let mut seen = vec![events_of(&mut host, fresh)];
        let (client, server) = host.pair();
        seen.push(events_of(&mut host, client));
        host.push(1, op::Poll { fd: client, events: RDHUP }.entry());
        assert_eq!(host.drain_until_quiet(), []);
        host.kernel.shutdown(server, Shutdown::Write).unwrap();
        seen.push(host.wait_for(1)[0].result);
        host.kernel.shutdown(client, Shutdown::Write).unwrap();
        seen.push(events_of(&mut host, client));
        let (gone, address) = host.listener(1);
        host.kernel.close(gone);
        assert_eq!(host.connect(fresh, address), errno(Errno::CONNREFUSED));
        seen.push(events_of(&mut host, fresh));
        assert_eq!(seen, [0x14, 0x4, 0x2000, 0x2015, 0x2015], "{seen:x?}");
    });
}

fn zero_copy_send(fd: Fd, bytes: &[u8]) -> Entry {
    op::zero_copy(send(fd, bytes, msg::WAITALL), false)
}

#[test]
fn zero_copy_send_has_two_completions() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        host.push(1, zero_copy_send(client, b"there"));
        let taken = host.wait_for(2);
        assert_eq!((fields(&taken[0]), fields(&taken[1])), ((1, 5, true), (1, 0, false)));
        assert!(!taken[0].is_notification() && taken[1].is_notification());
        assert_eq!(host.recv(server).unwrap(), b"there");
        let parts = [&b"and "[..], b"back"].map(|p| IoVec { base: p.as_ptr(), len: p.len() });
        let header = MsgHeader { vectors: parts.as_ptr(), vector_count: 2, ..MsgHeader::EMPTY };
        let (fd, flags) = (server, msg::WAITALL);
        let message = op::SendMsg { fd, header: ptr::from_ref(&header).cast(), flags };
        host.push(2, op::zero_copy(message.entry(), true));
        let taken = host.wait_for(2);
        assert_eq!((fields(&taken[0]), taken[1].is_notification()), ((2, 8, true), true));
        assert_eq!(host.recv(client).unwrap(), b"and back");
    });
}

#[test]
fn unsupported_zero_copy_send_fails() {
    on_sim_and_linux(|mut host| {
        let (one, _other) = host.new_pair(SocketType::Stream, false);
        host.push(1, zero_copy_send(one, b"there"));
        assert_eq!(host.wait_for(1)[0].result, errno(Errno::OPNOTSUPP));
        host.drain_until_quiet();
        let (client, _server) = host.pair();
        host.push(2, zero_copy_send(client, b"there").with(EntryFlags::SKIP_SUCCESS));
        assert_eq!(fields(&host.wait_for(1)[0]), (2, errno(Errno::INVAL), false));
    });
}
