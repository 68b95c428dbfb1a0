//! Tests of the readiness that the driver records for a descriptor, and of the system calls that
//! this saves.

use super::*;
use annulus_kernel::epoll::EventFlags;
use annulus_kernel::{Fd, Linux};
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

const BUFFER_BYTES: u32 = 4096;

/// A driver with an armed receive, and the peer of its connection.
struct Fixture {
    epoll: Epoll,
    socket: TcpStream,
    peer: TcpStream,
}

fn fd(socket: &TcpStream) -> Fd {
    // SAFETY: the fixture keeps the socket open as long as the driver uses the `Fd`.
    unsafe { Fd::from_raw(socket.as_raw_fd()) }
}

impl Fixture {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let pool = PoolSize { buffer: BUFFER_BYTES, count: 16 };
        let mut epoll = Epoll::new(Rc::new(Linux), pool).unwrap();
        let (token, fd) = (Token::new(OpKind::Recv, 0, 0), fd(&socket));
        epoll.submit(token, Op::RecvMulti { fd, limit: 0 });
        Self { epoll, socket, peer }
    }

    /// Returns the length of the next receive, and gives its buffer back.
    fn receive(&mut self) -> u32 {
        while self.epoll.due == 0 {
            self.epoll.refill();
            self.epoll.turn(Wait::UpTo(None)).unwrap();
        }
        let event = self.epoll.next_event().expect("a due descriptor had no event");
        event.buffer.into_iter().for_each(|id| self.epoll.common.pool.give_back(id));
        event.result.unwrap()
    }

    fn will_be_tried(&mut self) -> bool {
        self.epoll.watches.get(fd(&self.socket)).can_read()
    }
}

#[test]
fn a_short_receive_is_not_tried_again() {
    let mut fixture = Fixture::new();
    for _ in 0..3 {
        fixture.peer.write_all(b"ping").unwrap();
        assert_eq!(fixture.receive(), 4);
        assert!(!fixture.will_be_tried());
        assert!(fixture.epoll.next_event().is_none());
    }
}

#[test]
fn a_full_receive_is_tried_again() {
    let mut fixture = Fixture::new();
    fixture.peer.write_all(&[1; BUFFER_BYTES as usize]).unwrap();
    assert_eq!(fixture.receive(), BUFFER_BYTES);
    assert!(fixture.will_be_tried());
    assert!(fixture.epoll.next_event().is_none());
    assert!(
        !fixture.will_be_tried(),
        "the descriptor would be tried again after a try that found nothing"
    );
}

#[test]
fn a_short_receive_before_the_end_is_tried_again() {
    let mut fixture = Fixture::new();
    fixture.peer.write_all(b"bye").unwrap();
    fixture.peer.shutdown(Shutdown::Write).unwrap();
    assert_eq!((fixture.receive(), fixture.receive()), (3, 0));
}

#[test]
fn a_turn_ends_when_its_byte_budget_is_spent() {
    let mut fixture = Fixture::new();
    fixture.peer.write_all(&[1; 2 * BUFFER_BYTES as usize]).unwrap();
    assert_eq!(fixture.receive(), BUFFER_BYTES);
    fixture.epoll.bytes_left = 0;
    assert!(fixture.epoll.next_event().is_none());
    assert!(fixture.epoll.sends_assumed_complete());
    assert_eq!(fixture.receive(), BUFFER_BYTES, "the next turn did not continue");
}

/// An edge with the number of a descriptor can come from an earlier socket that was closed here but
/// lives on as a duplicate.
#[test]
fn a_stale_edge_does_not_hide_the_end() {
    let mut fixture = Fixture::new();
    fixture.peer.write_all(b"bye").unwrap();
    fixture.peer.shutdown(Shutdown::Write).unwrap();
    fixture.epoll.turn(Wait::UpTo(None)).unwrap();
    fixture.epoll.watches.record_edge(fd(&fixture.socket), EventFlags::IN | EventFlags::OUT);
    assert_eq!((fixture.receive(), fixture.receive()), (3, 0));
}

#[test]
fn after_a_try_that_found_nothing_a_short_receive_is_not_tried_again() {
    let mut fixture = Fixture::new();
    assert!(fixture.epoll.watches.record_edge(fd(&fixture.socket), EventFlags::PRI));
    fixture.epoll.queue.push_back(fd(&fixture.socket));
    fixture.epoll.due = 1;
    assert!(fixture.epoll.next_event().is_none(), "a receive without bytes had an event");
    fixture.peer.write_all(b"ping").unwrap();
    assert_eq!(fixture.receive(), 4);
    assert!(!fixture.will_be_tried());
}
