//! Receives into memory that the network stack fills, without a device (Linux 7.1).
#![allow(unsafe_code)]

mod common;

use annulus_driver::{Event, Op, OpKind, ReceiveArea, Uring, UringConfig};
use annulus_kernel::Fd;
use annulus_ring::{DeviceQueue, SetupError};
use annulus_skip::skip;
use common::{Rig, owned, pair, pattern, write};
use rustix::io::Errno;
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;

/// Number of pages of the area.
const PAGES: usize = 16;

/// Returns a rig, or `None` after reporting why it cannot be created.
fn rig() -> Option<Rig> {
    let rig = Rig::receiving_zero_copy(PAGES);
    if rig.is_none() {
        skip!("no zero-copy receives without a device here (Linux 7.1, CAP_NET_ADMIN)");
    }
    rig
}

fn page() -> usize {
    rustix::param::page_size()
}

/// Starts a receive, and returns the events of its pieces and its terminal event.
fn receive(rig: &mut Rig, fd: Fd, limit: u32) -> (Vec<Event>, Event) {
    let token = rig.start(OpKind::Recv, Op::RecvZeroCopy { fd, limit });
    let mut pieces = Vec::new();
    loop {
        let event = rig.event(token);
        if !event.more {
            return (pieces, event);
        }
        pieces.push(event);
    }
}

#[test]
fn pieces_of_many_turns_arrive_in_order_and_are_used_again() {
    let Some(mut rig) = rig() else { return };
    let (fd, mut peer) = pair();
    let token = rig.start(OpKind::Recv, Op::RecvZeroCopy { fd, limit: 0 });
    // An odd number of usual completions, so that a large one meets the end of the queue.
    let nop = rig.start(OpKind::Nop, Op::Nop);
    assert_eq!(rig.event(nop).result, Ok(0));
    for number in 0..3000_u32 {
        let text = format!("message {number}");
        write(&mut peer, text.as_bytes());
        let event = rig.event(token);
        assert!(event.more);
        assert_eq!(String::from_utf8(rig.take(event)).unwrap(), text);
    }
    drop(peer);
    let end = rig.event(token);
    assert_eq!((end.result, end.more, end.buffer), (Ok(0), false, None));
    assert_eq!(rig.driver.counters().zero_copy_receives, 3000);
    rig.close(fd);
    rig.expect_silence();
}

#[test]
fn an_area_whose_pages_are_all_lent_ends_a_receive_and_loses_nothing() {
    let Some(mut rig) = rig() else { return };
    let (fd, mut peer) = pair();
    let sent = pattern(2 * PAGES * page());
    write(&mut peer, &sent);
    let (pieces, last) = receive(&mut rig, fd, 0);
    assert_eq!((last.result, pieces.len()), (Err(Errno::NOMEM), PAGES));
    assert!(rig.driver.record_zero_copy_shortage());
    // Nothing has been returned.
    let (none, last) = receive(&mut rig, fd, 0);
    assert_eq!((last.result, none), (Err(Errno::NOMEM), vec![]));
    let mut got = Vec::new();
    for event in pieces {
        got.extend(rig.take(event));
    }
    assert!(rig.driver.record_zero_copy_shortage());
    while got.len() < sent.len() {
        let left = (sent.len() - got.len()) as u32;
        let (pieces, _) = receive(&mut rig, fd, left.min(page() as u32));
        assert!(!pieces.is_empty(), "returned pages are not used again");
        for event in pieces {
            got.extend(rig.take(event));
        }
        rig.driver.record_zero_copy_shortage();
    }
    assert!(got == sent);
    rig.close(fd);
}

#[test]
fn a_limit_is_exact_and_ends_a_receive_like_the_end_of_the_stream() {
    let Some(mut rig) = rig() else { return };
    let (fd, mut peer) = pair();
    let sent = pattern(3 * page());
    write(&mut peer, &sent);
    let mut got = Vec::new();
    for limit in [1, 7, page(), page() + 1] {
        let (pieces, last) = receive(&mut rig, fd, limit as u32);
        assert_eq!(last.result, Ok(0));
        let before = got.len();
        for event in pieces {
            got.extend(rig.take(event));
        }
        assert_eq!(got.len() - before, limit);
    }
    assert!(got == sent[..got.len()]);
    rig.close(fd);
}

#[test]
fn a_cancelled_receive_loses_nothing_and_other_sockets_are_refused() {
    let Some(mut rig) = rig() else { return };
    let (fd, mut peer) = pair();
    let token = rig.start(OpKind::Recv, Op::RecvZeroCopy { fd, limit: 0 });
    rig.expect_silence();
    rig.cancel(token);
    assert_eq!(rig.event(token).result, Err(Errno::CANCELED));
    write(&mut peer, b"later");
    assert_eq!(rig.receive(fd, 5), b"later");
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let unix = owned(ours.into_raw_fd());
    let (none, refused) = receive(&mut rig, unix, 0);
    assert_eq!((none, refused.result), (vec![], Err(Errno::PROTONOSUPPORT)));
    rig.close(fd);
    rig.close(unix);
}

#[test]
fn an_area_that_the_kernel_refuses_is_an_error_with_a_reason() {
    let queue = Some(DeviceQueue { device: u32::MAX, queue: 0 });
    let receive_area = Some(ReceiveArea { bytes: page(), queue });
    let refused = Uring::new(UringConfig { receive_area, ..UringConfig::default() });
    let refused = refused.expect_err("a ring receives from a device that does not exist");
    if matches!(refused, SetupError::Refused(_)) {
        return skip!("io_uring is blocked here");
    }
    let text = refused.to_string();
    assert!(text.starts_with("zero-copy receive: "), "{text}");
}
