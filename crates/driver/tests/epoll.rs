//! What only the epoll driver has to take care of.
#![allow(unsafe_code)]

mod common;

use annulus_driver::{Kind, Op, Wait};
use annulus_kernel::Fd;
use common::{Rig, now, owned, pair, pattern, write};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

/// Most events that a descriptor brings before others get their turn: rounds, and the last one may fill several buffers.
const SHARE: usize = 32 + 8;

#[test]
fn a_flood_does_not_keep_others_waiting() {
    let mut rig = Rig::epoll();
    let (loud, mut flood) = pair();
    let (quiet, mut peer) = pair();
    let flooding = rig.start(Kind::Receive, Op::ReceiveMulti { fd: loud, limit: 0 });
    let waiting = rig.start(Kind::Receive, Op::ReceiveMulti { fd: quiet, limit: 0 });
    rig.expect_silence();
    // More than one turn's share, all there at once.
    write(&mut flood, &pattern(300_000));
    write(&mut peer, b"me too");
    let (mut before, mut after, mut heard) = (0, 0, false);
    while before + after < 300_000 / 4096 {
        rig.driver.refill();
        rig.driver.turn(Wait::Upto(Some(Duration::from_secs(20)))).unwrap();
        let mut this_turn = 0;
        while let Some(event) = rig.driver.next_event() {
            rig.take(event);
            if event.token == waiting {
                heard = true;
                continue;
            }
            assert_eq!(event.token, flooding);
            this_turn += 1;
            *(if heard { &mut after } else { &mut before }) += 1;
        }
        assert!(this_turn <= SHARE, "{this_turn} events of one descriptor in a turn");
    }
    assert!(heard && before <= SHARE, "{before} events of the flood came first");
}

#[test]
fn a_second_operation_of_a_direction_is_refused() {
    let mut rig = Rig::epoll();
    let (fd, mut peer) = pair();
    let first = rig.start(Kind::Receive, Op::ReceiveLent { fd });
    let second = rig.start(Kind::Receive, Op::ReceiveLent { fd });
    let event = rig.event(second);
    assert_eq!((event.result, event.more), (Err(Errno::BUSY), false));
    write(&mut peer, b"for the first");
    let event = rig.event(first);
    assert_eq!(rig.take(event), b"for the first");
    rig.close(fd);
}

/// A number that only the test of this thread uses, put on a new connection.
fn numbered(number: RawFd) -> (Fd, TcpStream) {
    let (fd, peer) = pair();
    // SAFETY: made by `pair` for us, and closed once, by this owner.
    let first = unsafe { OwnedFd::from_raw_fd(fd.raw()) };
    let copy = rustix::io::fcntl_dupfd_cloexec(first, number).unwrap().into_raw_fd();
    assert_eq!(copy, number, "the number was free");
    (owned(copy), peer)
}

#[test]
fn a_number_used_again_is_another_descriptor() {
    let mut rig = Rig::epoll();
    for round in 0..5u8 {
        let (fd, mut peer) = numbered(500);
        let token = rig.start(Kind::Receive, Op::ReceiveMulti { fd, limit: 0 });
        rig.expect_silence();
        write(&mut peer, &[round]);
        let event = rig.event(token);
        assert_eq!(rig.take(event), [round]);
        rig.cancel(token);
        assert_eq!(rig.event(token).result, Err(Errno::CANCELED));
        rig.close(fd);
    }
}

#[test]
fn a_released_descriptor_lives_on_elsewhere_and_its_number_is_free() {
    let mut rig = Rig::epoll();
    let (fd, mut peer) = numbered(600);
    write(&mut peer, b"one");
    assert_eq!(rig.receive(fd, 3), b"one");
    rig.driver.release(fd);
    // Another driver takes it over, as another thread's runtime would.
    let mut other = Rig::epoll();
    write(&mut peer, b"two");
    assert_eq!(other.receive(fd, 3), b"two");
    other.driver.release(fd);
    // SAFETY: both drivers have let go of it.
    drop(unsafe { OwnedFd::from_raw_fd(fd.raw()) });
    let (next, mut peer) = numbered(600);
    let token = rig.start(Kind::Receive, Op::ReceiveMulti { fd: next, limit: 0 });
    rig.expect_silence();
    write(&mut peer, b"three");
    let event = rig.event(token);
    assert_eq!(rig.take(event), b"three");
}

#[test]
fn an_owner_may_close_what_was_readable_once_that_is_cancelled() {
    let mut rig = Rig::epoll();
    let first = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let alarm = rustix::io::fcntl_dupfd_cloexec(first, 700).unwrap();
    let token = rig.start(Kind::Poll, Op::Readable { fd: owned(alarm.as_raw_fd()) });
    rig.expect_silence();
    rig.cancel(token);
    drop(alarm);
    assert_eq!(rig.event(token).result, Err(Errno::CANCELED));
    let (fd, mut peer) = numbered(700);
    let token = rig.start(Kind::Receive, Op::ReceiveMulti { fd, limit: 0 });
    rig.expect_silence();
    write(&mut peer, b"still heard");
    let event = rig.event(token);
    assert_eq!(rig.take(event), b"still heard");
}

#[test]
fn waits_are_not_cut_short() {
    let mut rig = Rig::epoll();
    for micros in [50, 700, 1500, 19_999, 20_001] {
        let wait = Duration::from_micros(micros);
        let start = now();
        let mut turns = 0;
        while let Some(left) = wait.checked_sub(now() - start).filter(|left| !left.is_zero()) {
            assert!(rig.turn(Wait::Upto(Some(left))).is_empty());
            turns += 1;
        }
        // An earlier timer may still go off, once.
        assert!(turns <= 3, "{turns} turns for one wait of {wait:?}");
    }
}

#[test]
fn one_wait_a_turn_is_counted() {
    let mut rig = Rig::epoll();
    let before = rig.driver.counters().enters;
    rig.expect_silence();
    assert_eq!(rig.driver.counters().enters, before + 3);
}

#[test]
fn the_end_closes_everything_of_its_own() {
    let Rig { driver, .. } = Rig::epoll();
    let pool = driver.pool().clone();
    driver.close().unwrap();
    assert_eq!(Rc::strong_count(&pool), 1, "the driver has let its pool go");
}
