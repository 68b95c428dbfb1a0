//! What the driver remembers of a descriptor, and the calls it saves by it.

use super::*;
use annulus_kernel::{Fd, Linux};
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

const BUFFER: u32 = 4096;

/// A driver with a receive armed, and the other end of its connection.
struct Scene {
    epoll: Epoll,
    socket: TcpStream,
    peer: TcpStream,
}

fn lent(socket: &TcpStream) -> Fd {
    // SAFETY: each scene holds its socket to the end.
    unsafe { Fd::from_raw(socket.as_raw_fd()) }
}

impl Scene {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let pool = PoolSize { buffer: BUFFER, most: 16 };
        let mut epoll = Epoll::new(Rc::new(Linux), pool).unwrap();
        let (token, fd) = (Token::new(Kind::Receive, 0, 0), lent(&socket));
        epoll.submit(token, Op::ReceiveMulti { fd, limit: 0 });
        Self { epoll, socket, peer }
    }

    /// The next event's length; its buffer goes back.
    fn receive(&mut self) -> u32 {
        while self.epoll.due == 0 {
            self.epoll.refill();
            self.epoll.turn(Wait::Upto(None)).unwrap();
        }
        let event = self.epoll.next_event().expect("what is due brings an event");
        event.buffer.into_iter().for_each(|id| self.epoll.pool.give_back(id));
        event.result.unwrap()
    }

    fn is_tried_again(&mut self) -> bool {
        self.epoll.watches.known(lent(&self.socket)).can_read()
    }
}

#[test]
fn a_short_receive_is_not_tried_again() {
    let mut scene = Scene::new();
    for _ in 0..3 {
        scene.peer.write_all(b"ping").unwrap();
        assert_eq!(scene.receive(), 4);
        assert!(!scene.is_tried_again());
        assert!(scene.epoll.next_event().is_none());
    }
}

#[test]
fn a_full_receive_is() {
    let mut scene = Scene::new();
    scene.peer.write_all(&[1; BUFFER as usize]).unwrap();
    assert_eq!(scene.receive(), BUFFER);
    assert!(scene.is_tried_again());
    assert!(scene.epoll.next_event().is_none());
    assert!(!scene.is_tried_again(), "a try that found nothing is the last");
}

#[test]
fn a_short_receive_before_the_end_is_tried_again() {
    let mut scene = Scene::new();
    scene.peer.write_all(b"bye").unwrap();
    scene.peer.shutdown(Shutdown::Write).unwrap();
    assert_eq!((scene.receive(), scene.receive()), (3, 0));
}

#[test]
fn a_turn_ends_after_its_share_of_bytes() {
    let mut scene = Scene::new();
    scene.peer.write_all(&[1; 2 * BUFFER as usize]).unwrap();
    assert_eq!(scene.receive(), BUFFER);
    scene.epoll.budget = 0;
    assert!(scene.epoll.next_event().is_none());
    assert!(scene.epoll.settled());
    assert_eq!(scene.receive(), BUFFER, "the next turn goes on where this one ended");
}
