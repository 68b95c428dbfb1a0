//! Cases that only the epoll driver must handle.
#![allow(unsafe_code)]

mod common;

use annulus_driver::{Op, OpKind, Wait};
use annulus_kernel::Fd;
use common::{Rig, now, owned, pair, pattern, write};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

/// Maximum number of events of one descriptor before others are served, with some slack.
const MAX_EVENTS_PER_TURN: usize = 32 + 8;

#[test]
fn a_flood_does_not_delay_other_descriptors() {
    let mut rig = Rig::epoll();
    let (loud, mut flood) = pair();
    let (quiet, mut peer) = pair();
    let flooding = rig.start(OpKind::Recv, Op::RecvMulti { fd: loud, limit: 0 });
    let waiting = rig.start(OpKind::Recv, Op::RecvMulti { fd: quiet, limit: 0 });
    rig.expect_silence();
    // The peer sends more than the driver receives from one descriptor in a turn.
    write(&mut flood, &pattern(300_000));
    write(&mut peer, b"me too");
    let (mut before, mut after, mut heard) = (0, 0, false);
    while before + after < 300_000 / 4096 {
        rig.driver.refill();
        rig.driver.turn(Wait::UpTo(Some(Duration::from_secs(20)))).unwrap();
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
        assert!(this_turn <= MAX_EVENTS_PER_TURN, "{this_turn} events of one descriptor in a turn");
    }
    assert!(heard && before <= MAX_EVENTS_PER_TURN, "{before} events of the flood arrived first");
}

#[test]
fn a_second_operation_in_a_direction_fails_with_busy() {
    let mut rig = Rig::epoll();
    let (fd, mut peer) = pair();
    let first = rig.start(OpKind::Recv, Op::RecvPooled { fd });
    let second = rig.start(OpKind::Recv, Op::RecvPooled { fd });
    let event = rig.event(second);
    assert_eq!((event.result, event.more), (Err(Errno::BUSY), false));
    write(&mut peer, b"for the first");
    let event = rig.event(first);
    assert_eq!(rig.take(event), b"for the first");
    rig.close(fd);
}

/// Creates a connection whose descriptor is `number`, which no other test may use.
fn connection_with_number(number: RawFd) -> (Fd, TcpStream) {
    let (fd, peer) = pair();
    // SAFETY: `pair` created the descriptor for this test, and this owner closes it once.
    let first = unsafe { OwnedFd::from_raw_fd(fd.raw()) };
    let copy = rustix::io::fcntl_dupfd_cloexec(first, number).unwrap().into_raw_fd();
    assert_eq!(copy, number, "the number is not free");
    (owned(copy), peer)
}

#[test]
fn a_reused_number_is_another_descriptor() {
    let mut rig = Rig::epoll();
    for round in 0..5u8 {
        let (fd, mut peer) = connection_with_number(500);
        let token = rig.start(OpKind::Recv, Op::RecvMulti { fd, limit: 0 });
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
fn a_released_descriptor_can_be_used_elsewhere() {
    let mut rig = Rig::epoll();
    let (fd, mut peer) = connection_with_number(600);
    write(&mut peer, b"one");
    assert_eq!(rig.receive(fd, 3), b"one");
    rig.driver.release(fd);
    // Another driver uses the descriptor, as a runtime on another thread would.
    let mut other = Rig::epoll();
    write(&mut peer, b"two");
    assert_eq!(other.receive(fd, 3), b"two");
    other.driver.release(fd);
    // SAFETY: both drivers have released the descriptor, and this is its only close.
    drop(unsafe { OwnedFd::from_raw_fd(fd.raw()) });
    let (next, mut peer) = connection_with_number(600);
    let token = rig.start(OpKind::Recv, Op::RecvMulti { fd: next, limit: 0 });
    rig.expect_silence();
    write(&mut peer, b"three");
    let event = rig.event(token);
    assert_eq!(rig.take(event), b"three");
}

#[test]
fn a_polled_descriptor_can_be_closed_after_its_release() {
    let mut rig = Rig::epoll();
    let first = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let eventfd = rustix::io::fcntl_dupfd_cloexec(first, 700).unwrap();
    let token = rig.start(OpKind::Poll, Op::Readable { fd: owned(eventfd.as_raw_fd()) });
    rig.expect_silence();
    rig.cancel(token);
    rig.driver.release(owned(eventfd.as_raw_fd()));
    drop(eventfd);
    assert_eq!(rig.event(token).result, Err(Errno::CANCELED));
    let (fd, mut peer) = connection_with_number(700);
    let token = rig.start(OpKind::Recv, Op::RecvMulti { fd, limit: 0 });
    rig.expect_silence();
    write(&mut peer, b"still read");
    let event = rig.event(token);
    assert_eq!(rig.take(event), b"still read");
}

#[test]
fn waits_last_as_long_as_requested() {
    let mut rig = Rig::epoll();
    for micros in [50, 700, 1500, 19_999, 20_001] {
        let wait = Duration::from_micros(micros);
        let start = now();
        let mut turns = 0;
        while let Some(left) = wait.checked_sub(now() - start).filter(|left| !left.is_zero()) {
            assert!(rig.turn(Wait::UpTo(Some(left))).is_empty());
            turns += 1;
        }
        // The timer of the previous wait may still expire once.
        assert!(turns <= 3, "{turns} turns for one wait of {wait:?}");
    }
}

#[test]
fn each_turn_counts_one_enter() {
    let mut rig = Rig::epoll();
    let before = rig.driver.counters().enters;
    rig.expect_silence();
    assert_eq!(rig.driver.counters().enters, before + 3);
}

#[test]
fn dropping_the_driver_closes_everything_it_opened() {
    let Rig { driver, .. } = Rig::epoll();
    let pool = driver.pool().clone();
    driver.close().unwrap();
    assert_eq!(Rc::strong_count(&pool), 1, "the dropped driver still holds the pool");
}
