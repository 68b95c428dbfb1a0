//! TCP: the simulated kernel gives the same results as Linux.

use crate::common::*;
use annulus_kernel::*;
use annulus_ring::*;
use rustix::io::Errno;
use std::net::SocketAddr;

#[test]
fn bytes_sent_are_received_in_both_directions() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        assert_eq!(host.send(client, b"question"), 8);
        assert_eq!(host.recv(server).unwrap(), b"question");
        assert_eq!(host.send(server, b"answer"), 6);
        assert_eq!(host.recv(client).unwrap(), b"answer");
    });
}

#[test]
fn both_ends_report_both_addresses() {
    on_sim_and_linux(|mut host| {
        let (listener, address) = host.listener(1);
        let (client, server) = host.connect_pair(listener, address);
        let own = |fd| host.kernel.local_address(fd).unwrap().to_inet().unwrap();
        let other = |fd| host.kernel.peer_address(fd).unwrap().to_inet().unwrap();
        assert_eq!((own(server), other(client)), (address, address));
        assert_eq!(own(client), other(server));
        let error = host.kernel.peer_address(listener).unwrap_err();
        assert_eq!(errno_of(&error), Some(Errno::NOTCONN));
    });
}

#[test]
fn half_closed_connection_still_carries_the_other_direction() {
    on_sim_and_linux(|mut host| {
        for client_first in [true, false] {
            let (client, server) = host.pair();
            let (first, second) = if client_first { (client, server) } else { (server, client) };
            assert_eq!(host.send(first, b"last bytes"), 10);
            host.kernel.shutdown(first, Shutdown::Write).unwrap();
            assert_eq!(host.recv_to_end(second), b"last bytes");
            assert_eq!(
                host.recv(second).unwrap(),
                b"",
                "the end of the stream was not reported again"
            );
            assert_eq!(host.send(first, b"more"), errno(Errno::PIPE));
            assert_eq!(host.send(second, b"still open"), 10);
            host.kernel.close(second);
            assert_eq!(host.recv_to_end(first), b"still open");
            host.kernel.close(first);
        }
    });
}

#[test]
fn waiting_recv_completes_at_eof() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let buffers = ProvidedBuffers::new(&host.ring, 2, 16);
        host.push(1, recv_multi(server, 0));
        host.reap();
        host.kernel.close(client);
        assert_eq!(fields(&host.wait_for(1)[0]), (1, 0, false));
        buffers.unregister(&host.ring);
    });
}

#[test]
fn abortive_close_resets_the_peer_after_the_data() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        assert_eq!(host.send(client, b"before"), 6);
        host.drain_until_quiet();
        host.kernel.set_option(client, SocketOption::Linger, 0).unwrap();
        host.kernel.close(client);
        host.drain_until_quiet();
        assert_eq!(host.recv(server).unwrap(), b"before");
        assert_eq!(host.recv(server), Err(errno(Errno::CONNRESET)));
        assert_eq!(host.recv(server).unwrap(), b"", "the error was reported twice");
        assert_eq!(host.send(server, b"x"), errno(Errno::PIPE));
    });
}

#[test]
fn close_with_unread_data_resets_the_peer() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        assert_eq!(host.send(server, b"this is not read"), 16);
        host.drain_until_quiet();
        host.kernel.close(client);
        host.drain_until_quiet();
        assert_eq!(host.send(server, b"x"), errno(Errno::CONNRESET));
        assert_eq!(host.send(server, b"x"), errno(Errno::PIPE));
    });
}

#[test]
fn first_send_to_closed_peer_succeeds_and_second_fails() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        host.kernel.close(client);
        host.drain_until_quiet();
        assert_eq!(host.send(server, b"first"), 5);
        host.drain_until_quiet();
        assert_eq!(host.send(server, b"second"), errno(Errno::PIPE));
        assert_eq!(host.recv(server).unwrap(), b"");
    });
}

#[test]
fn refused_connect_can_be_repeated() {
    on_sim_and_linux(|mut host| {
        let (listener, address) = host.listener(1);
        host.kernel.close(listener);
        let client = host.socket();
        assert_eq!(host.connect(client, address), errno(Errno::CONNREFUSED));
        let (_listener, address) = host.listener(1);
        assert_eq!(host.connect(client, address), 0);
        assert_eq!(host.connect(client, address), errno(Errno::ISCONN));
    });
}

#[test]
fn bind_fails_while_address_is_in_use() {
    on_sim_and_linux(|host| {
        let (listener, address) = host.listener(1);
        let other = host.socket();
        let error = host.kernel.bind(other, &Address::from(address)).unwrap_err();
        assert_eq!(errno_of(&error), Some(Errno::ADDRINUSE));
        host.kernel.close(listener);
        host.kernel.bind(other, &Address::from(address)).unwrap();
    });
}

#[test]
fn calls_on_unconnected_socket_fail() {
    on_sim_and_linux(|mut host| {
        let fd = host.socket();
        assert_eq!(host.recv(fd), Err(errno(Errno::NOTCONN)));
        assert_eq!(host.send(fd, b"x"), errno(Errno::PIPE));
        let error = host.kernel.shutdown(fd, Shutdown::Write).unwrap_err();
        assert_eq!(errno_of(&error), Some(Errno::NOTCONN));
        host.kernel.close(fd);
        assert_eq!(host.recv(fd), Err(errno(Errno::BADF)));
    });
}

#[test]
fn listener_shutdown_ends_accepts() {
    on_sim_and_linux(|mut host| {
        let (listener, address) = host.listener(1);
        host.push(1, op::AcceptMulti { fd: listener }.entry());
        host.reap();
        host.kernel.shutdown(listener, Shutdown::Read).unwrap();
        assert_eq!(fields(&host.wait_for(1)[0]), (1, errno(Errno::INVAL), false));
        let client = host.socket();
        assert_eq!(host.connect(client, address), errno(Errno::CONNREFUSED));
    });
}

#[test]
fn operation_continues_after_its_descriptor_is_closed() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let mut buffers = ProvidedBuffers::new(&host.ring, 4, 16);
        host.push(1, recv_multi(server, 0));
        host.reap();
        host.kernel.close(server);
        host.push(9, send(client, b"still read", WAITALL_FLAGS));
        let taken = host.wait_for(2);
        let got = taken.iter().find(|c| c.user_data == 1).unwrap();
        assert_eq!((buffers.bytes(got), got.more()), (b"still read".to_vec(), true));
        host.push(2, cancel(1));
        let ends: Vec<_> = host.wait_for(2).iter().map(fields).collect();
        assert!(
            ends.contains(&(1, errno(Errno::CANCELED), false)) && ends.contains(&(2, 0, false))
        );
        // The last reference is gone, so the connection is closed.
        assert_eq!(host.recv(client).unwrap(), b"");
        buffers.unregister(&host.ring);
    });
}

#[test]
fn multishot_accept_accepts_all_connections() {
    on_sim_and_linux(|mut host| {
        let (listener, address) = host.listener(16);
        host.push(1, op::AcceptMulti { fd: listener }.entry());
        let address = Address::from(address);
        for n in 0..3 {
            let (fd, bytes) = (host.socket(), address.as_bytes());
            let (address, len) = (bytes.as_ptr(), bytes.len() as u32);
            host.push(10 + n, op::Connect { fd, address, len }.entry());
        }
        let taken = host.wait_for(6);
        let accepted: Vec<_> = taken.iter().filter(|c| c.user_data == 1).collect();
        assert_eq!(accepted.len(), 3);
        assert!(accepted.iter().all(|c| c.result > 2 && c.more()));
    });
}

#[test]
fn ring_operations_wait_on_nonblocking_socket() {
    on_sim_and_linux(|mut host| {
        let (listener, address) = host.listener(1);
        let nonblocking = |host: &Host| host.new_socket(Domain::Inet, SocketType::Stream, true);
        let client = nonblocking(&host).unwrap();
        assert_eq!(host.connect(client, address), 0);
        let accept = Entry::from(op::Accept { fd: listener }.entry());
        let server =
            owned(host.submit_and_wait(Entry { op_flags: accept.op_flags | 0o4000, ..accept }));
        let mut memory = [0; 8];
        let (fd, buffer) = (server, memory.as_mut_ptr());
        host.push(1, op::Recv { fd, buffer, len: 8 }.entry());
        assert_eq!(host.drain_until_quiet(), []);
        let big = vec![1; 32 << 20];
        host.push(2, send(server, &big, WAITALL_FLAGS));
        assert_eq!(host.drain_until_quiet(), []);
        (1..=2).for_each(|target| host.push(9, cancel(target)));
        assert_eq!(host.wait_for(4).len(), 4);
    });
}

#[test]
fn sendmsg_reads_its_vectors_at_submission() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let mut parts = ["one, ", "two, ", "three"]
            .map(|text: &'static str| IoVec { base: text.as_ptr(), len: text.len() });
        let mut header = MsgHeader {
            name: std::ptr::null(),
            name_len: 0,
            vectors: parts.as_ptr(),
            vector_count: parts.len(),
            control: std::ptr::null(),
            control_len: 0,
            flags: 0,
        };
        let address = (&raw const header).cast();
        let message = op::SendMsg { fd: client, header: address, flags: DONTWAIT_FLAGS };
        host.push(1, message.entry());
        host.ring.enter(Wait::No).unwrap();
        header.vector_count = 0;
        parts.iter_mut().for_each(|part| part.len = 0);
        assert_eq!(fields(&host.wait_for(1)[0]), (1, 15, false));
        assert_eq!(host.recv(server).unwrap(), b"one, two, three");
        assert_eq!((header.vector_count, parts[0].len), (0, 0));
    });
}

#[test]
fn send_waits_while_peer_reads_slowly() {
    on_sim_and_linux(|mut host| {
        let (client, server) = host.pair();
        let bytes: Vec<u8> = (0..8 << 20).map(|i| (i % 251) as u8).collect();
        host.push(1, send(client, &bytes, WAITALL_FLAGS));
        assert_eq!(host.drain_until_quiet(), [], "8 MiB fitted into a socket");
        let mut got = Vec::new();
        while got.len() < bytes.len() {
            let mut memory = vec![0; 65_536];
            let (fd, buffer) = (server, memory.as_mut_ptr());
            host.push(2, op::Recv { fd, buffer, len: 65_536 }.entry());
            let taken = host.wait_for(1);
            for done in taken.iter().filter(|c| c.user_data == 1) {
                assert_eq!(done.result as usize, bytes.len());
            }
            let Some(part) = taken.iter().find(|c| c.user_data == 2) else {
                let part = host.wait_for(1)[0].result as usize;
                got.extend_from_slice(&memory[..part]);
                continue;
            };
            got.extend_from_slice(&memory[..part.result as usize]);
        }
        assert!(got == bytes, "bytes were lost or reordered");
    });
}

#[test]
fn dual_stack_listener_accepts_ipv4() {
    on_sim_and_linux(|mut host| {
        let dual = host.new_socket(Domain::Inet6, SocketType::Stream, false).unwrap();
        let any: SocketAddr = "[::]:0".parse().unwrap();
        host.kernel.bind(dual, &Address::from(any)).unwrap();
        host.kernel.listen(dual, 4).unwrap();
        let port = host.kernel.local_address(dual).unwrap().to_inet().unwrap().port();
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        let (_client, server) = host.connect_pair(dual, to);
        let seen = host.kernel.local_address(server).unwrap().to_inet().unwrap();
        assert_eq!(seen.to_string(), format!("[::ffff:127.0.0.1]:{port}"));
        let newer = host.new_socket(Domain::Inet6, SocketType::Stream, false).unwrap();
        host.kernel.set_option(newer, SocketOption::V6Only, 1).unwrap();
        let error = host.kernel.bind(newer, &Address::from(to)).unwrap_err();
        assert!(errno_of(&error).is_some());
    });
}
