//! The events of each operation, on each driver.
#![allow(unsafe_code)]

mod common;

use annulus_driver::{MemoryOp, Op, OpKind, Wait};
use annulus_kernel::file::OpenHow;
use annulus_kernel::{Address, Fd, IoVec, MsgHeader};
use annulus_ring::Entry;
use annulus_ring::opcode::{self, Need};
use annulus_skip::skip;
use common::{
    POOL_SIZE, Rig, fill, now, on_each_driver, own_address, owned, pair, pattern, read_later, write,
};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::time::Duration;

fn listener() -> (Fd, SocketAddr) {
    listener_at(([127, 0, 0, 1], 0).into())
}

fn listener_at(address: SocketAddr) -> (Fd, SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (owned(listener.into_raw_fd()), address)
}

fn socket() -> Fd {
    use annulus_kernel::{Domain, Kernel, Linux, SocketType};
    owned(Linux.socket(Domain::Inet, SocketType::Stream, true).unwrap())
}

fn connect(fd: Fd, address: &Address) -> MemoryOp {
    let bytes = address.as_bytes();
    MemoryOp::Connect { fd, address: bytes.as_ptr(), len: bytes.len() as u32 }
}

fn header(parts: &[IoVec]) -> MsgHeader {
    MsgHeader {
        name: std::ptr::null(),
        name_len: 0,
        vectors: parts.as_ptr(),
        vector_count: parts.len(),
        control: std::ptr::null(),
        control_len: 0,
        flags: 0,
    }
}

fn part(bytes: &[u8]) -> IoVec {
    IoVec { base: bytes.as_ptr(), len: bytes.len() }
}

#[test]
fn connects_and_accepts() {
    on_each_driver(|rig| {
        let (listener, address) = listener();
        let accept = rig.start(OpKind::Accept, Op::AcceptMulti { fd: listener });
        let address = Address::from(address);
        for _ in 0..3 {
            let ours = socket();
            let token = rig.start_memory(OpKind::Connect, connect(ours, &address));
            let connected = rig.event(token);
            assert_eq!((connected.result, connected.more), (Ok(0), false));
            let accepted = rig.event(accept);
            assert!(accepted.more, "a multishot accept ended after one connection");
            let remote = owned(accepted.result.unwrap() as RawFd);
            let send = MemoryOp::SendNow { fd: ours, buffer: b"hello".as_ptr(), len: 5 };
            rig.start_memory(OpKind::Send, send);
            assert_eq!(rig.receive(remote, 5), b"hello");
            rig.close(ours);
            rig.close(remote);
        }
        rig.cancel(accept);
        assert_eq!(rig.event(accept).result, Err(Errno::CANCELED));
        rig.close(listener);
        rig.expect_silence();
    });
}

#[test]
fn connecting_a_connected_socket_fails() {
    on_each_driver(|rig| {
        let (listener, address) = listener();
        let (address, fd) = (Address::from(address), socket());
        for result in [Ok(0), Err(Errno::ISCONN)] {
            let token = rig.start_memory(OpKind::Connect, connect(fd, &address));
            assert_eq!(rig.event(token).result, result);
        }
        rig.close(fd);
        rig.close(listener);
        rig.expect_silence();
    });
}

#[test]
fn a_single_accept_has_one_event() {
    on_each_driver(|rig| {
        let (listener, address) = listener();
        let _clients = [TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap()];
        for _ in 0..2 {
            let token = rig.start(OpKind::Accept, Op::Accept { fd: listener });
            let event = rig.event(token);
            assert!(!event.more);
            rig.close(owned(event.result.unwrap() as RawFd));
        }
        rig.expect_silence();
        rig.close(listener);
    });
}

#[test]
fn an_accept_that_does_not_wait_ends_without_a_connection() {
    on_each_driver(|rig| {
        let (listener, address) = listener();
        let token = rig.start(OpKind::Accept, Op::AcceptNow { fd: listener });
        let event = rig.event(token);
        assert!(matches!(event.result, Err(Errno::AGAIN | Errno::CANCELED)), "{event:?}");
        assert!(!event.more);
        let _client = TcpStream::connect(address).unwrap();
        let token = rig.start(OpKind::Accept, Op::AcceptNow { fd: listener });
        let fd = owned(rig.event(token).result.unwrap() as RawFd);
        rig.close(fd);
        rig.expect_silence();
        rig.close(listener);
    });
}

#[test]
fn an_accepted_connection_is_not_reported_again() {
    on_each_driver(|rig| {
        let (listener, address) = listener();
        let _first = TcpStream::connect(address).unwrap();
        let ready = rig.start(OpKind::AcceptReady, Op::ReadableOnce { fd: listener });
        assert_eq!(rig.event(ready).result, Ok(1));
        let accept = rig.start(OpKind::Accept, Op::Accept { fd: listener });
        let fd = owned(rig.event(accept).result.unwrap() as RawFd);
        let ready = rig.start(OpKind::AcceptReady, Op::ReadableOnce { fd: listener });
        rig.expect_silence();
        let _second = TcpStream::connect(address).unwrap();
        assert_eq!(rig.event(ready).result, Ok(1));
        rig.close(fd);
        rig.close(listener);
    });
}

#[test]
fn a_refused_connect_fails() {
    on_each_driver(|rig| {
        let (listener, address) = listener_at(own_address());
        rig.close(listener);
        rig.expect_silence();
        let (fd, address) = (socket(), Address::from(address));
        let token = rig.start_memory(OpKind::Connect, connect(fd, &address));
        let event = rig.event(token);
        assert_eq!((event.result, event.more), (Err(Errno::CONNREFUSED), false));
        rig.close(fd);
    });
}

#[test]
fn a_multishot_receive_continues_until_the_end() {
    on_each_driver(|rig| {
        let (fd, mut peer) = pair();
        let token = rig.start(OpKind::Recv, Op::RecvMulti { fd, limit: 0 });
        for text in ["first", "second", "third"] {
            write(&mut peer, text.as_bytes());
            let event = rig.event(token);
            assert!(event.more);
            assert_eq!(rig.take(event), text.as_bytes());
        }
        drop(peer);
        let end = rig.event(token);
        assert_eq!((end.result, end.more, end.buffer), (Ok(0), false, None));
        rig.close(fd);
        rig.expect_silence();
    });
}

#[test]
fn data_and_end_that_arrive_together_are_both_reported() {
    on_each_driver(|rig| {
        let (fd, mut peer) = pair();
        write(&mut peer, b"last words");
        peer.shutdown(Shutdown::Write).unwrap();
        let token = rig.start(OpKind::Recv, Op::RecvMulti { fd, limit: 0 });
        let event = rig.event(token);
        assert_eq!(rig.take(event), b"last words");
        assert_eq!(rig.event(token).result, Ok(0));
        // The sending direction is still open.
        let send = MemoryOp::SendNow { fd, buffer: b"answer".as_ptr(), len: 6 };
        rig.start_memory(OpKind::Send, send);
        rig.expect_silence();
        rig.close(fd);
        rig.expect_silence();
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
    });
}

#[test]
fn a_limit_ends_a_receive_and_the_next_gets_the_rest() {
    on_each_driver(|rig| {
        if !rig.driver.supports_receive_limit() {
            return;
        }
        let (fd, mut peer) = pair();
        let sent = pattern(5 * POOL_SIZE.buffer as usize);
        write(&mut peer, &sent);
        let mut got = Vec::new();
        // The receive that reaches the limit is the last one. The total may exceed the limit, but
        // no single receive does.
        for limit in [POOL_SIZE.buffer + 1, 1, 2 * POOL_SIZE.buffer, 7] {
            let token = rig.start(OpKind::Recv, Op::RecvMulti { fd, limit });
            let (before, mut more) = (got.len(), true);
            while more {
                let event = rig.event(token);
                assert!(
                    event.result.unwrap() <= limit.min(POOL_SIZE.buffer),
                    "{event:?} of {limit}"
                );
                more = event.more;
                got.extend(rig.take(event));
                assert_eq!(more, got.len() - before < limit as usize);
            }
        }
        assert!(got == sent[..got.len()]);
        rig.close(fd);
    });
}

#[test]
fn an_empty_pool_ends_a_receive_and_loses_nothing() {
    on_each_driver(|rig| {
        let (fd, mut peer) = pair();
        let sent = pattern(3 * POOL_SIZE.buffer as usize * POOL_SIZE.count as usize / 2);
        write(&mut peer, &sent);
        let token = rig.start(OpKind::Recv, Op::RecvMulti { fd, limit: 0 });
        let mut lent = Vec::new();
        let last = loop {
            let event = rig.event(token);
            if event.result.is_err() {
                break event;
            }
            lent.push(event);
        };
        assert_eq!((last.result, last.more), (Err(Errno::NOBUFS), false));
        assert_eq!(lent.len(), POOL_SIZE.count as usize);
        assert_eq!(rig.driver.counters().enobufs, 1);
        assert_eq!(rig.driver.pool().with_kernel(), 0);
        let mut got = Vec::new();
        for event in lent {
            got.extend(rig.take(event));
        }
        let rest = rig.receive(fd, sent.len() - got.len());
        assert!([got, rest].concat() == sent);
        rig.close(fd);
    });
}

#[test]
fn a_receive_fills_memory_of_the_submitter() {
    on_each_driver(|rig| {
        let (fd, mut peer) = pair();
        write(&mut peer, b"0123456789");
        let mut memory = [0u8; 8];
        for expected in [&b"01234567"[..], b"89"] {
            let (buffer, len) = (memory.as_mut_ptr(), memory.len() as u32);
            let token = rig.start_memory(OpKind::Recv, MemoryOp::Recv { fd, buffer, len });
            let event = rig.event(token);
            assert_eq!((event.more, event.buffer), (false, None));
            assert_eq!(&memory[..event.result.unwrap() as usize], expected);
        }
        rig.close(fd);
    });
}

#[test]
fn a_reset_is_an_error() {
    on_each_driver(|rig| {
        let (fd, peer) = pair();
        let token = rig.start(OpKind::Recv, Op::RecvMulti { fd, limit: 0 });
        rig.expect_silence();
        sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        drop(peer);
        let event = rig.event(token);
        assert_eq!((event.result, event.more), (Err(Errno::CONNRESET), false));
        rig.close(fd);
    });
}

#[test]
fn urgent_data_does_not_hide_the_bytes_after_it() {
    on_each_driver(|rig| {
        let (fd, mut peer) = pair();
        let token = rig.start(OpKind::Recv, Op::RecvMulti { fd, limit: 0 });
        write(&mut peer, b"ab");
        rustix::net::send(&peer, b"!", SendFlags::OOB).unwrap();
        write(&mut peer, b"cd");
        let mut got = Vec::new();
        while got.len() < 4 {
            let event = rig.event(token);
            got.extend(rig.take(event));
        }
        assert_eq!(got, b"abcd");
        rig.cancel(token);
        rig.event(token);
        rig.close(fd);
    });
}

#[test]
fn a_send_of_all_bytes_has_no_event() {
    on_each_driver(|rig| {
        let (fd, peer) = pair();
        let (bytes, before) = (pattern(1000), rig.driver.counters().sqes);
        let (buffer, len) = (bytes.as_ptr(), bytes.len() as u32);
        rig.start_memory(OpKind::Send, MemoryOp::SendNow { fd, buffer, len });
        rig.expect_silence();
        assert_eq!(rig.driver.counters().sqes, before + 1);
        assert!(read_later(peer, 1000).join().unwrap() == bytes);
        rig.close(fd);
    });
}

#[test]
fn a_send_without_space_reports_it_and_a_waiting_send_continues() {
    on_each_driver(|rig| {
        let (fd, peer) = pair();
        let bytes = pattern(4 << 20);
        let sent = fill(rig, fd, &bytes);
        let (buffer, rest) = (bytes[sent..].as_ptr(), 2 << 20);
        let token = rig.start_memory(OpKind::Send, MemoryOp::Send { fd, buffer, len: rest });
        rig.expect_silence();
        let reader = read_later(peer, sent + rest as usize);
        let event = rig.event(token);
        assert_eq!((event.result, event.more), (Ok(rest), false));
        assert!(reader.join().unwrap() == bytes[..sent + rest as usize]);
        rig.close(fd);
    });
}

#[test]
fn vectors_are_sent_in_order_and_need_outlive_only_the_submission() {
    on_each_driver(|rig| {
        let (fd, peer) = pair();
        let bytes = pattern(4 << 20);
        let (one, two) = bytes.split_at(5);
        let parts = [part(one), part(&two[..7])];
        let now = header(&parts);
        rig.start_memory(
            OpKind::Send,
            MemoryOp::SendVectorNow { fd, header: (&raw const now).cast() },
        );
        rig.expect_silence();
        let sent = 12 + fill(rig, fd, &bytes[12..]);
        let rest = &bytes[sent..];
        let mut parts =
            vec![part(&rest[..1]), part(&rest[1..1 << 20]), part(&rest[1 << 20..2 << 20])];
        let mut waiting = header(&parts);
        let op = MemoryOp::SendVector { fd, header: (&raw const waiting).cast() };
        let token = rig.start_memory(OpKind::Send, op);
        rig.expect_silence();
        parts.fill(part(b"overwritten"));
        waiting.vector_count = 0;
        assert_eq!(waiting.vector_count, 0);
        let reader = read_later(peer, sent + (2 << 20));
        let event = rig.event(token);
        assert_eq!((event.result, event.more), (Ok(2 << 20), false));
        assert!(reader.join().unwrap() == bytes[..sent + (2 << 20)]);
        rig.close(fd);
    });
}

#[test]
fn a_waiting_send_fails_when_the_peer_resets() {
    on_each_driver(|rig| {
        let (fd, peer) = pair();
        let bytes = pattern(4 << 20);
        let sent = fill(rig, fd, &bytes);
        let op = MemoryOp::Send { fd, buffer: bytes[sent..].as_ptr(), len: 1 << 20 };
        let token = rig.start_memory(OpKind::Send, op);
        rig.expect_silence();
        sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        drop(peer);
        let mut event = rig.event(token);
        if event.result.is_ok() {
            // If some bytes were sent before the reset, the send reports their count, and only the
            // next send fails.
            let token = rig.start_memory(OpKind::Send, op);
            event = rig.event(token);
        }
        assert!(matches!(event.result, Err(Errno::CONNRESET | Errno::PIPE)), "{event:?}");
        rig.close(fd);
    });
}

#[derive(Clone, Copy, Debug)]
enum Any {
    Plain(Op),
    Memory(MemoryOp),
}

#[test]
fn a_cancelled_operation_has_one_event_and_the_cancel_has_none() {
    on_each_driver(|rig| {
        let (fd, _peer) = pair();
        let (listener, _) = listener();
        let counter = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let mut memory = [0u8; 8];
        let (buffer, len) = (memory.as_mut_ptr(), memory.len() as u32);
        let bytes = pattern(4 << 20);
        let sent = fill(rig, fd, &bytes);
        let send = MemoryOp::Send { fd, buffer: bytes[sent..].as_ptr(), len: 1 << 20 };
        let operations = [
            (OpKind::Recv, Any::Plain(Op::RecvMulti { fd, limit: 0 })),
            (OpKind::Recv, Any::Plain(Op::RecvPooled { fd })),
            (OpKind::Recv, Any::Memory(MemoryOp::Recv { fd, buffer, len })),
            (OpKind::Send, Any::Memory(send)),
            (OpKind::Accept, Any::Plain(Op::AcceptMulti { fd: listener })),
            (OpKind::Accept, Any::Plain(Op::Accept { fd: listener })),
            (OpKind::Poll, Any::Plain(Op::Readable { fd: owned(counter.as_raw_fd()) })),
        ];
        for (kind, op) in operations {
            // The operation is cancelled before and after it has started.
            for turns in [0, 1] {
                let token = match op {
                    Any::Plain(op) => rig.start(kind, op),
                    Any::Memory(op) => rig.start_memory(kind, op),
                };
                (0..turns).for_each(|_| rig.expect_silence());
                rig.cancel(token);
                let event = rig.event(token);
                // If a waiting send has already sent some bytes, the result is their count.
                let short = kind == OpKind::Send && event.result.is_ok_and(|count| count < 1 << 20);
                assert!(short || event.result == Err(Errno::CANCELED), "{op:?}: {event:?}");
                assert!(!event.more);
                rig.expect_silence();
            }
        }
        rig.close(fd);
        rig.close(listener);
    });
}

#[test]
fn a_cancelled_send_reports_how_much_was_sent() {
    on_each_driver(|rig| {
        let (fd, peer) = pair();
        let bytes = pattern(4 << 20);
        let sent = fill(rig, fd, &bytes);
        let op = MemoryOp::Send { fd, buffer: bytes[sent..].as_ptr(), len: 2 << 20 };
        let token = rig.start_memory(OpKind::Send, op);
        // More than the bytes that filled the socket: the excess comes from this send.
        let reader = read_later(peer.try_clone().unwrap(), sent + 100_000);
        while !reader.is_finished() {
            let events = rig.turn(Wait::UpTo(Some(Duration::from_millis(1))));
            assert!(events.is_empty(), "{events:?}");
        }
        rig.cancel(token);
        let event = rig.event(token);
        let went = event.result.unwrap() as usize;
        assert!(!event.more && (100_000..2 << 20).contains(&went), "{event:?}");
        rig.close(fd);
        rig.expect_silence();
        let mut got = reader.join().unwrap();
        (&peer).read_to_end(&mut got).unwrap();
        assert!(got == bytes[..sent + went]);
    });
}

#[test]
fn a_turn_until_a_deadline_ends_by_then() {
    on_each_driver(|rig| {
        let in_millis = |millis| now() + Duration::from_millis(millis);
        // Turns may end early, but not again and again.
        let sleep_until = |rig: &mut Rig, deadline: Duration| {
            let mut turns = 0;
            while now() < deadline {
                let events = rig.turn(Wait::Until(deadline));
                turns += 1;
                assert!(events.is_empty() && turns <= 4, "{turns} turns, {events:?}");
            }
        };
        let (fd, peer) = pair();
        let token = rig.start(OpKind::Poll, Op::ReadableOnce { fd });
        sleep_until(rig, in_millis(2));
        (&peer).write_all(b"x").unwrap();
        let far = in_millis(150);
        while !rig.turn(Wait::Until(far)).iter().any(|event| event.token == token) {}
        // A nearer deadline, the one before, which a timer may still wait for, and a later one.
        sleep_until(rig, in_millis(5));
        sleep_until(rig, far);
        sleep_until(rig, in_millis(30));
        rig.close(fd);
    });
}

#[test]
fn a_connect_in_flight_can_be_cancelled() {
    on_each_driver(|rig| {
        // A listener with a full backlog no longer completes handshakes.
        let listener = socket();
        let local = Address::from("127.0.0.1:0".parse::<SocketAddr>().unwrap());
        use annulus_kernel::{Kernel, Linux};
        Linux.bind(listener, &local).unwrap();
        Linux.listen(listener, 0).unwrap();
        let address = Linux.local_address(listener).unwrap();
        let mut attempts = Vec::new();
        for _ in 0..8 {
            let fd = socket();
            attempts.push((fd, rig.start_memory(OpKind::Connect, connect(fd, &address))));
        }
        let mut cancelled = 0;
        for (fd, token) in attempts {
            rig.cancel(token);
            let event = rig.event(token);
            assert!(matches!(event.result, Ok(0) | Err(Errno::CANCELED)), "{event:?}");
            cancelled += u32::from(event.result.is_err());
            rig.close(fd);
        }
        rig.expect_silence();
        assert!(cancelled > 0, "no handshake was cancelled");
        rig.close(listener);
    });
}

#[test]
fn a_late_cancel_does_nothing() {
    on_each_driver(|rig| {
        let (fd, mut peer) = pair();
        write(&mut peer, b"x");
        let token = rig.start(OpKind::Recv, Op::RecvPooled { fd });
        let event = rig.event(token);
        assert_eq!(rig.take(event), b"x");
        let next = rig.start(OpKind::Recv, Op::RecvPooled { fd });
        rig.cancel(token);
        rig.expect_silence();
        write(&mut peer, b"y");
        let event = rig.event(next);
        assert_eq!(rig.take(event), b"y");
        rig.close(fd);
    });
}

#[test]
fn every_write_to_an_unread_eventfd_is_an_edge() {
    on_each_driver(|rig| {
        let counter = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let token = rig.start(OpKind::Poll, Op::Readable { fd: owned(counter.as_raw_fd()) });
        rig.expect_silence();
        for _ in 0..5 {
            rustix::io::write(&counter, &1u64.to_ne_bytes()).unwrap();
            let event = rig.event(token);
            assert!(event.more && event.result.is_ok(), "{event:?}");
        }
        rig.cancel(token);
        assert_eq!(rig.event(token).result, Err(Errno::CANCELED));
    });
}

/// Returns an entry that opens the root directory with `O_PATH`, from `AT_FDCWD`.
fn open_root() -> Entry {
    static HOW: OpenHow = OpenHow { flags: 0o10_000_000, mode: 0, resolve: 0 };
    Entry {
        fd: -100,
        addr: c"/".as_ptr() as u64,
        len: size_of::<OpenHow>() as u32,
        off: &raw const HOW as u64,
        ..Entry::new(opcode::OPENAT2, Fd::NONE)
    }
}

/// `IORING_OP_NOP128` and `IORING_OP_URING_CMD128`, with entries of 128 bytes (6.19).
const LARGE: [u8; 2] = [63, 64];

/// An attacker who controls an echo server and can use its ring submits every operation of the
/// kernel that the runtime does not need.
#[test]
fn the_ring_of_a_locked_down_server_opens_no_file_and_still_echoes() {
    let (Some(mut free), Some(mut locked)) = (Rig::uring(false), Rig::uring(true)) else {
        return skip!("io_uring is blocked here");
    };
    let opened = free.answer(open_root()).expect("an unrestricted ring opens no file");
    free.close(owned(opened as RawFd));
    let probe = annulus_ring::Ring::builder().build().unwrap().probe().unwrap();
    let needed = |code| {
        let row = opcode::operation(code);
        row.is_some_and(|row| matches!(row.need, Need::Always | Need::Optional))
    };
    let (fd, peer) = pair();
    let remote = owned(peer.as_raw_fd());
    for round in 0..2 {
        let send = MemoryOp::SendNow { fd, buffer: b"hello".as_ptr(), len: 5 };
        locked.start_memory(OpKind::Send, send);
        assert_eq!(locked.receive(remote, 5), b"hello", "round {round}");
        assert_eq!(locked.answer(open_root()), Err(Errno::ACCESS));
        for code in probe.supported().filter(|code| !needed(*code)) {
            // The ring has no space for operations with large entries, whatever its restrictions.
            let errno = if LARGE.contains(&code) { Errno::INVAL } else { Errno::ACCESS };
            let refused = locked.answer(Entry::new(code, Fd::NONE));
            assert_eq!(refused, Err(errno), "operation {code}");
        }
    }
    locked.close(fd);
}
