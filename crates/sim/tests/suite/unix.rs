//! Unix sockets: the simulated kernel gives the same results as Linux.

use crate::common::messages::*;
use crate::common::*;
use annulus_kernel::*;
use annulus_ring::*;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};

fn unique_name() -> String {
    static NEXT_NAME: AtomicU32 = AtomicU32::new(0);
    let next = NEXT_NAME.fetch_add(1, Ordering::Relaxed);
    format!("annulus-sim-{}-{next}", std::process::id())
}

fn abstract_name() -> Address {
    Address::unix(UnixName::Abstract(unique_name().as_bytes())).unwrap()
}

fn path() -> Address {
    let path = std::env::temp_dir().join(unique_name());
    Address::unix(UnixName::Path(path.as_os_str().as_encoded_bytes())).unwrap()
}

fn socket(host: &Host, kind: SocketType, nonblocking: bool) -> Fd {
    host.new_socket(Domain::Unix, kind, nonblocking).unwrap()
}

fn bound(host: &Host, kind: SocketType, name: &Address) -> Fd {
    let fd = socket(host, kind, false);
    host.kernel.bind(fd, name).unwrap();
    fd
}

fn listener(host: &Host, backlog: u32, name: &Address) -> Fd {
    let fd = bound(host, SocketType::Stream, name);
    host.kernel.listen(fd, backlog).unwrap();
    fd
}

fn connect(host: &mut Host, fd: Fd, to: &Address) -> i32 {
    let bytes = to.as_bytes();
    let len = bytes.len() as u32;
    host.submit_and_wait(op::Connect { fd, address: bytes.as_ptr(), len }.entry())
}

fn same_name(one: &Address, other: &Address) -> bool {
    one.to_unix().unwrap() == other.to_unix().unwrap()
}

#[test]
fn stream_carries_bytes_and_half_closes() {
    on_sim_and_linux(|mut host| {
        let name = abstract_name();
        let listener = listener(&host, 4, &name);
        let client = socket(&host, SocketType::Stream, false);
        assert_eq!(connect(&mut host, client, &name), 0);
        let server = host.accept(listener);
        assert!(same_name(&host.kernel.peer_address(client).unwrap(), &name));
        assert!(same_name(&host.kernel.local_address(server).unwrap(), &name));
        assert_eq!(host.kernel.peer_address(server).unwrap().to_unix().unwrap(), UnixName::Unnamed);
        assert_eq!(host.send(client, b"question"), 8);
        assert_eq!(host.recv(server).unwrap(), b"question");
        host.kernel.shutdown(client, Shutdown::Write).unwrap();
        assert_eq!(host.recv(server).unwrap(), b"");
        assert_eq!(host.send(client, b"x"), errno(Errno::PIPE));
        assert_eq!(host.send(server, b"answer"), 6);
        host.kernel.close(server);
        assert_eq!(host.recv_to_end(client), b"answer");
        assert_eq!(host.kernel.peer_credentials(client).unwrap().pid, std::process::id());
    });
}

#[test]
fn peer_sees_close_at_once() {
    on_sim_and_linux(|mut host| {
        let (one, other) = host.new_pair(SocketType::Stream, false);
        host.kernel.close(other);
        assert_eq!(host.send(one, b"x"), errno(Errno::PIPE));
        assert_eq!(host.recv(one).unwrap(), b"");
        let (one, other) = host.new_pair(SocketType::Stream, false);
        assert_eq!(host.send(one, b"this is not read"), 16);
        assert_eq!(host.send(other, b"before"), 6);
        host.kernel.close(other);
        assert_eq!(host.recv(one).unwrap(), b"before");
        assert_eq!(host.recv(one), Err(errno(Errno::CONNRESET)));
        assert_eq!(host.recv(one).unwrap(), b"");
        let (one, other) = host.new_pair(SocketType::Stream, false);
        host.kernel.shutdown(other, Shutdown::Read).unwrap();
        assert_eq!(host.send(one, b"x"), errno(Errno::PIPE));
    });
}

#[test]
fn send_waits_while_peer_reads_slowly() {
    on_sim_and_linux(|mut host| {
        let (one, other) = host.new_pair(SocketType::Stream, false);
        let bytes: Vec<u8> = (0..4 << 20).map(|i| (i % 251) as u8).collect();
        host.push(1, send(one, &bytes, WAITALL_FLAGS));
        assert_eq!(host.drain_until_quiet(), []);
        let mut got = Vec::new();
        while got.len() < bytes.len() {
            let mut memory = vec![0; 65_536];
            let (fd, buffer) = (other, memory.as_mut_ptr());
            host.push(2, op::Recv { fd, buffer, len: 65_536 }.entry());
            let count = host.wait_for_user_data(2).result as usize;
            got.extend_from_slice(&memory[..count]);
        }
        assert_eq!(host.wait_for_user_data(1).result as usize, bytes.len());
        assert!(got == bytes);
    });
}

#[test]
fn path_outlives_its_socket() {
    on_sim_and_linux(|mut host| {
        let name = path();
        let client = socket(&host, SocketType::Stream, false);
        assert_eq!(connect(&mut host, client, &name), errno(Errno::NOENT));
        let fd = listener(&host, 4, &name);
        assert_eq!(connect(&mut host, client, &name), 0);
        assert_eq!(connect(&mut host, client, &name), errno(Errno::ISCONN));
        let other = socket(&host, SocketType::Stream, false);
        assert_eq!(refused(host.kernel.bind(other, &name)), Errno::ADDRINUSE);
        host.kernel.close(fd);
        assert_eq!(connect(&mut host, other, &name), errno(Errno::CONNREFUSED));
        assert_eq!(refused(host.kernel.bind(other, &name)), Errno::ADDRINUSE);
        host.kernel.unlink(&name);
        assert_eq!(connect(&mut host, other, &name), errno(Errno::NOENT));
        host.kernel.bind(other, &name).unwrap();
        let late = socket(&host, SocketType::Stream, false);
        assert_eq!(connect(&mut host, late, &name), errno(Errno::CONNREFUSED));
        host.kernel.unlink(&name);
    });
}

#[test]
fn listener_close_resets_unaccepted_connections() {
    on_sim_and_linux(|mut host| {
        let name = abstract_name();
        let fd = listener(&host, 4, &name);
        let client = socket(&host, SocketType::Stream, false);
        assert_eq!(connect(&mut host, client, &name), 0);
        host.kernel.close(fd);
        assert_eq!(host.recv(client), Err(errno(Errno::CONNRESET)));
        assert_eq!(connect(&mut host, client, &name), errno(Errno::CONNREFUSED));
        let _other = listener(&host, 4, &name);
        assert_eq!(connect(&mut host, client, &name), errno(Errno::ISCONN));
    });
}

#[test]
fn connect_to_full_backlog_waits_unless_nonblocking() {
    on_sim_and_linux(|mut host| {
        let name = abstract_name();
        let fd = listener(&host, 0, &name);
        let first = socket(&host, SocketType::Stream, false);
        assert_eq!(connect(&mut host, first, &name), 0);
        let hasty = socket(&host, SocketType::Stream, true);
        assert_eq!(refused(host.kernel.connect(hasty, &name)), Errno::AGAIN);
        assert_eq!(connect(&mut host, hasty, &name), errno(Errno::AGAIN));
        let patient = socket(&host, SocketType::Stream, false);
        let bytes = name.as_bytes();
        let (address, len) = (bytes.as_ptr(), bytes.len() as u32);
        host.push(1, op::Connect { fd: patient, address, len }.entry());
        assert_eq!(host.drain_until_quiet(), []);
        host.push(2, op::Accept { fd }.entry());
        assert!(host.wait_for_user_data(2).result > 0);
        assert_eq!(fields(&host.wait_for_user_data(1)), (1, 0, false));
        host.kernel.connect(hasty, &name).unwrap_err();
        host.accept(fd);
        host.kernel.connect(hasty, &name).unwrap();
    });
}

#[test]
fn waiting_connect_is_refused_or_cancelled() {
    on_sim_and_linux(|mut host| {
        let name = abstract_name();
        let fd = listener(&host, 0, &name);
        let first = socket(&host, SocketType::Stream, false);
        assert_eq!(connect(&mut host, first, &name), 0);
        let bytes = name.as_bytes();
        let (address, len) = (bytes.as_ptr(), bytes.len() as u32);
        let waiting = [1, 2].map(|n| {
            let fd = socket(&host, SocketType::Stream, false);
            host.push(n, op::Connect { fd, address, len }.entry());
            fd
        });
        assert_eq!(host.drain_until_quiet(), []);
        host.push(9, cancel(1));
        let end = host.wait_for_user_data(1).result;
        assert!(end == errno(Errno::CANCELED) || end == errno(Errno::INTR), "{end}");
        host.kernel.close(fd);
        assert_eq!(host.wait_for_user_data(2).result, errno(Errno::CONNREFUSED));
        assert_eq!(connect(&mut host, waiting[0], &name), errno(Errno::CONNREFUSED));
    });
}

#[test]
fn datagrams_arrive_in_order_and_are_truncated_to_fit() {
    on_sim_and_linux(|mut host| {
        let (one, other) = host.new_pair(SocketType::Datagram, false);
        for len in [1, 0, 5000, 60_000] {
            assert_eq!(host.send(one, &vec![len as u8; len]), len as i32);
        }
        assert_eq!(host.recv(other).unwrap(), [1]);
        assert_eq!(host.recv(other).unwrap(), []);
        let got = host.recv_msg(other, 100, 0, 0).unwrap();
        assert_eq!((got.bytes, got.flags, got.from.is_none()), (vec![136; 100], msg::TRUNC, true));
        assert_eq!(host.recv(other).unwrap().len(), 60_000);
    });
}

#[test]
fn send_that_waited_for_space_arrives_empty() {
    on_sim_and_linux(|mut host| {
        let name = abstract_name();
        let receiver = bound(&host, SocketType::Datagram, &name);
        let sender = bound(&host, SocketType::Datagram, &abstract_name());
        let mut sent = 0;
        let now = msg::DONTWAIT | msg::NOSIGNAL;
        host.kernel.connect(sender, &name).unwrap();
        while host.submit_and_wait(send(sender, &[sent], now)) == 1 {
            sent += 1;
        }
        assert!((2..100).contains(&sent), "{sent} datagrams fit");
        let last = [sent];
        host.push(1, send(sender, &last, WAITALL_FLAGS));
        assert_eq!(host.drain_until_quiet(), []);
        for expected in 0..=sent {
            let mut memory = [0; 8];
            let (fd, buffer) = (receiver, memory.as_mut_ptr());
            host.push(2, op::Recv { fd, buffer, len: 8 }.entry());
            let got = if expected < sent { (1, expected) } else { (0, 0) };
            assert_eq!((host.wait_for_user_data(2).result, memory[0]), got);
        }
        // The waiting send had copied its bytes and dropped them before it found the socket full,
        // so the datagram is empty.
        assert_eq!(host.wait_for_user_data(1).result, 0);
    });
}

#[test]
fn poll_reports_space_in_a_full_socket() {
    on_sim_and_linux(|mut host| {
        let name = abstract_name();
        let receiver = bound(&host, SocketType::Datagram, &name);
        let sender = socket(&host, SocketType::Datagram, false);
        host.kernel.connect(sender, &name).unwrap();
        let now = send(sender, b"x", msg::DONTWAIT | msg::NOSIGNAL);
        while host.submit_and_wait(now) == 1 {}
        host.push(1, op::PollMulti { fd: sender, events: op::poll::OUT }.entry());
        assert_eq!(host.drain_until_quiet(), []);
        while host.recv_now(receiver) == Ok(1) {}
        let ready = host.wait_for_user_data(1);
        assert!(ready.result as u32 & op::poll::OUT != 0 && ready.more(), "{ready:?}");
        host.push(2, now);
        assert_eq!(host.wait_for_user_data(2).result, 1);
    });
}

#[test]
fn datagram_without_receiver_is_refused() {
    on_sim_and_linux(|mut host| {
        let name = path();
        let fd = socket(&host, SocketType::Datagram, false);
        assert_eq!(host.send(fd, b"x"), errno(Errno::NOTCONN));
        assert_eq!(host.send_to(fd, &name, b"x"), errno(Errno::NOENT));
        let receiver = bound(&host, SocketType::Datagram, &name);
        assert_eq!(host.send_to(fd, &name, b"x"), 1);
        host.kernel.connect(fd, &name).unwrap();
        host.kernel.close(receiver);
        assert_eq!(host.send_to(fd, &name, b"x"), errno(Errno::CONNREFUSED));
        assert_eq!(host.send(fd, b"x"), errno(Errno::CONNREFUSED));
        assert_eq!(host.send(fd, b"x"), errno(Errno::NOTCONN));
        host.kernel.unlink(&name);
        for (stream, answer) in [(path(), Errno::PROTOTYPE), (abstract_name(), Errno::CONNREFUSED)]
        {
            let _listener = listener(&host, 1, &stream);
            assert_eq!(host.send_to(fd, &stream, b"x"), errno(answer));
            assert_eq!(refused(host.kernel.connect(fd, &stream)), answer);
            host.kernel.unlink(&stream);
        }
        let huge = vec![0; 1 << 20];
        let other = abstract_name();
        let _receiver = bound(&host, SocketType::Datagram, &other);
        assert_eq!(host.send_to(fd, &other, &huge), errno(Errno::MSGSIZE));
    });
}

#[test]
fn connected_datagram_socket_receives_only_from_peer() {
    on_sim_and_linux(|mut host| {
        let (one, other) = (abstract_name(), abstract_name());
        let a = bound(&host, SocketType::Datagram, &one);
        let b = bound(&host, SocketType::Datagram, &other);
        host.kernel.connect(a, &other).unwrap();
        let third = socket(&host, SocketType::Datagram, false);
        assert_eq!(host.send_to(third, &one, b"x"), errno(Errno::PERM));
        assert_eq!(host.send_to(b, &one, b"x"), 1);
        let got = host.recv_msg(a, 10, 0, 0).unwrap();
        assert!(same_name(&got.from.unwrap(), &other));
    });
}

#[test]
fn empty_datagram_ends_multishot_recv() {
    on_sim_and_linux(|mut host| {
        let (one, other) = host.new_pair(SocketType::Datagram, false);
        let mut buffers = ProvidedBuffers::new(&host.ring, 4, 64);
        host.push(1, recv_multi(other, 0));
        host.reap();
        host.push(2, send(one, b"some", WAITALL_FLAGS));
        let done = host.wait_for_user_data(1);
        assert_eq!((buffers.bytes(&done), done.more()), (b"some".to_vec(), true));
        host.push(3, send(one, b"", WAITALL_FLAGS));
        assert_eq!(fields(&host.wait_for_user_data(1)), (1, 0, false));
        buffers.unregister(&host.ring);
    });
}

fn descriptor_bytes(fds: &[Fd]) -> Vec<u8> {
    fds.iter().flat_map(|fd| fd.raw().to_ne_bytes()).collect()
}

fn passed_descriptors(got: &ReceivedMessage) -> Vec<Fd> {
    let found = got.controls().into_iter().filter_map(|control| match control {
        Control::Descriptors(bytes) => Some(descriptors(bytes).map(owned).collect::<Vec<_>>()),
        _ => None,
    });
    found.flatten().collect()
}

#[test]
fn socket_with_unread_datagrams_from_itself_can_be_closed() {
    on_sim_and_linux(|mut host| {
        let name = abstract_name();
        let fd = bound(&host, SocketType::Datagram, &name);
        assert_eq!(host.send_to(fd, &name, b"hello"), 5);
        host.kernel.close(fd);
    });
}

#[test]
fn passed_descriptors_stay_open() {
    on_sim_and_linux(|mut host| {
        for kind in [SocketType::Stream, SocketType::Datagram] {
            let (one, other) = host.new_pair(kind, false);
            let (near, far) = host.new_pair(SocketType::Stream, false);
            let rights = descriptor_bytes(&[far, near]);
            assert_eq!(host.send_msg(one, None, b"take", &[Control::Descriptors(&rights)]), 4);
            host.kernel.close(far);
            assert_eq!(host.send(near, b"still open"), 10);
            let got = host.recv_msg(other, 100, 128, msg::CMSG_CLOEXEC).unwrap();
            assert_eq!((&got.bytes[..], got.flags & msg::CTRUNC), (&b"take"[..], 0));
            let fds = passed_descriptors(&got);
            assert_eq!(fds.len(), 2);
            assert_eq!(host.recv(fds[0]).unwrap(), b"still open");
            host.kernel.close(fds[0]);
            assert_eq!(host.send(near, b"x"), errno(Errno::PIPE));
        }
    });
}

#[test]
fn unreceived_descriptors_are_closed() {
    on_sim_and_linux(|mut host| {
        for kind in [SocketType::Stream, SocketType::Datagram] {
            let (one, other) = host.new_pair(kind, false);
            let ends = [(); 3].map(|()| {
                let (near, far) = host.new_pair(SocketType::Stream, false);
                let rights = descriptor_bytes(&[far]);
                assert_eq!(host.send_msg(one, None, b"x", &[Control::Descriptors(&rights)]), 1);
                host.kernel.close(far);
                near
            });
            let got = host.recv_msg(other, 1, 8, 0).unwrap();
            assert_eq!((got.result, got.flags & msg::CTRUNC), (1, msg::CTRUNC));
            assert_eq!(
                host.send(ends[0], b"x"),
                errno(Errno::PIPE),
                "a descriptor that did not fit was not closed"
            );
            assert_eq!(host.recv_some(other, 1), Ok(1));
            assert_eq!(
                host.send(ends[1], b"x"),
                errno(Errno::PIPE),
                "a receive without a header did not close the descriptor"
            );
            assert_eq!(host.send(ends[2], b"x"), 1, "a descriptor in flight was closed");
            host.kernel.close(other);
            assert_eq!(
                host.send(ends[2], b"x"),
                errno(Errno::PIPE),
                "the descriptor in flight was not closed"
            );
        }
    });
}

#[test]
fn recv_does_not_join_two_sends_with_descriptors() {
    on_sim_and_linux(|mut host| {
        let (one, other) = host.new_pair(SocketType::Stream, false);
        let (near, far) = host.new_pair(SocketType::Stream, false);
        let (first, second) = (descriptor_bytes(&[near]), descriptor_bytes(&[far]));
        assert_eq!(host.send(one, b"plain "), 6);
        assert_eq!(host.send_msg(one, None, b"first ", &[Control::Descriptors(&first)]), 6);
        assert_eq!(host.send_msg(one, None, b"second ", &[Control::Descriptors(&second)]), 7);
        assert_eq!(host.send(one, b"last"), 4);
        let texts: [&[u8]; 3] = [b"plain first ", b"second ", b"last"];
        for (text, count) in texts.into_iter().zip([1, 1, 0]) {
            let got = host.recv_msg(other, 100, 128, 0).unwrap();
            assert_eq!((&got.bytes[..], passed_descriptors(&got).len()), (text, count));
        }
    });
}

#[test]
fn passing_an_invalid_descriptor_fails() {
    on_sim_and_linux(|mut host| {
        let (one, _) = host.new_pair(SocketType::Stream, false);
        let rights = descriptor_bytes(&[owned(99_999)]);
        let answer = host.send_msg(one, None, b"x", &[Control::Descriptors(&rights)]);
        assert_eq!(answer, errno(Errno::BADF));
    });
}

#[test]
fn recvmsg_returns_sender_credentials() {
    on_sim_and_linux(|mut host| {
        for kind in [SocketType::Stream, SocketType::Datagram] {
            let (one, other) = host.new_pair(kind, false);
            host.kernel.set_option(other, SocketOption::PassCredentials, 1).unwrap();
            assert_eq!(host.send(one, b"x"), 1);
            let got = host.recv_msg(other, 10, 64, 0).unwrap();
            let sender = host.kernel.peer_credentials(other).unwrap();
            assert_eq!(
                (got.controls(), sender.pid),
                (vec![Control::Credentials(sender)], std::process::id())
            );
        }
    });
}
