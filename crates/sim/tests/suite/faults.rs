//! The effect of each fault alone, at every opportunity.

use crate::common::*;
use annulus_kernel::*;
use annulus_ring::*;
use annulus_sim::{Fault, Faults, Sim};
use rustix::io::Errno;
use std::rc::Rc;

/// A connection made without faults, with buffers; from then on the fault always occurs.
fn under(fault: Fault) -> (Host, Rc<Sim>, Lent, [Fd; 2]) {
    let (mut host, sim) = Host::simulated(Sim::builder(1));
    let (client, server) = host.pair();
    let lent = Lent::new(&host.ring, 8, 16);
    sim.set_faults(Faults::none().with(fault, 1000));
    (host, sim, lent, [client, server])
}

/// A receive, and enough for two buffers to arrive.
fn receive_two(host: &mut Host, [client, server]: [Fd; 2]) -> Vec<(u64, i32, bool)> {
    host.push(1, recv_multi(server, 0));
    host.push(2, send(client, &[1; 32], NOW).with(EntryFlags::SKIP_SUCCESS));
    host.settle().iter().map(fields).collect()
}

#[test]
fn a_multishot_can_end_with_a_success() {
    let (mut host, sim, _lent, ends) = under(Fault::EndsWell);
    assert_eq!(receive_two(&mut host, ends), [(1, 16, false)]);
    assert_eq!(sim.counts().faults, 1);
    let (listener, address) = host.listener(4);
    host.push(3, op::AcceptMulti { fd: listener }.entry());
    let client = host.socket();
    let bytes = Address::from(address);
    let (address, len) = (bytes.as_bytes().as_ptr(), bytes.as_bytes().len() as u32);
    host.push(4, op::Connect { fd: client, address, len }.entry());
    let taken = host.take(2);
    assert!(taken.iter().any(|c| c.user_data == 3 && c.result > 0 && !c.more()), "{taken:?}");
}

#[test]
fn a_multishot_can_end_with_an_error_after_its_data() {
    let (mut host, _sim, _lent, ends) = under(Fault::EndsBadly);
    let expected = [(1, 16, true), (1, errno(Errno::NOMEM), false)];
    assert_eq!(receive_two(&mut host, ends), expected);
}

#[test]
fn a_buffer_group_can_seem_empty() {
    let (mut host, _sim, _lent, ends) = under(Fault::NoBuffers);
    assert_eq!(receive_two(&mut host, ends), [(1, errno(Errno::NOBUFS), false)]);
}

#[test]
fn any_operation_can_fail_with_nomem() {
    let (mut host, _sim, _lent, [client, server]) = under(Fault::NoMemory);
    let nomem = errno(Errno::NOMEM);
    assert_eq!(host.send(client, b"x"), nomem);
    assert_eq!(host.recv(server), Err(nomem));
    assert_eq!(host.once(op::Accept { fd: server }.entry()), nomem);
    assert_eq!(host.once(op::Nop.entry()), 0);
}

#[test]
fn reads_and_writes_can_be_short() {
    let (mut host, sim, _lent, [client, server]) = under(Fault::ShortWrite);
    let short = host.once(send(client, &[1; 100], NOW));
    assert!((1..100).contains(&short), "{short}");
    assert_eq!(host.send(client, &[1; 100]), 100, "a send that may wait continues");
    sim.set_faults(Faults::none().with(Fault::ShortRead, 1000));
    host.settle();
    let got = host.recv(server).unwrap().len() as i32;
    assert!((1..short + 100).contains(&got), "{got}");
}

#[test]
fn an_operation_can_be_deferred() {
    let (mut host, _sim, _lent, [client, _]) = under(Fault::Defer);
    host.push(1, send(client, b"later", ALL));
    host.ring.enter(Wait::No).unwrap();
    assert_eq!((host.ring.ready(), host.ring.work_pending()), (0, true));
    assert_eq!(fields(&host.take(1)[0]), (1, 5, false));
    host.push(2, send(client, b"now", NOW));
    host.ring.enter(Wait::No).unwrap();
    assert_eq!(host.ring.ready(), 1, "an operation that must not wait is not deferred");
}

#[test]
fn a_cancel_can_complete_after_its_target() {
    let (mut host, _sim, _lent, [_, server]) = under(Fault::CancelSecond);
    host.push(1, recv_multi(server, 0));
    host.push(2, cancel(1));
    let outcomes: Vec<_> = host.take(2).iter().map(fields).collect();
    assert_eq!(outcomes, [(1, errno(Errno::CANCELED), false), (2, 0, false)]);
}

#[test]
fn data_can_arrive_before_a_cancel() {
    let (mut host, sim, mut lent, [client, server]) = under(Fault::CancelLost);
    let mut answers = Vec::new();
    for single in [true, false, true, true, true, true] {
        let fd = server;
        let once = op::RecvSelect { fd, group: GROUP }.entry().into();
        host.push(1, if single { once } else { recv_multi(server, 0) });
        host.push(9, send(client, b"consumed", NOW).with(EntryFlags::SKIP_SUCCESS));
        host.ring.enter(Wait::No).unwrap();
        while !host.ring.work_pending() {
            host.ring.enter(Wait::No).unwrap();
        }
        host.push(2, cancel(1));
        let taken = host.settle();
        let data = taken.iter().find(|c| c.result == 8).expect("the target has the data");
        assert_eq!((lent.bytes(data), data.more()), (b"consumed".to_vec(), !single));
        let last = taken.iter().rfind(|c| c.user_data == 1).unwrap();
        assert_eq!((last.more(), last.result == 8), (false, single));
        answers.extend(taken.iter().filter(|c| c.user_data == 2).map(|c| c.result));
    }
    let (late, gone) = (errno(Errno::ALREADY), errno(Errno::NOENT));
    assert!(answers.contains(&late) && answers.contains(&gone), "{answers:?}");
    assert_eq!(sim.pending_operations(), 0);
}

#[test]
fn a_late_cancel_still_ends_a_waiting_target() {
    let (mut host, _sim, _lent, [_, server]) = under(Fault::CancelLost);
    host.push(1, recv_multi(server, 0));
    host.push(2, cancel(1));
    let outcomes: Vec<_> = host.take(2).iter().map(fields).collect();
    assert_eq!(outcomes, [(2, errno(Errno::ALREADY), false), (1, errno(Errno::CANCELED), false)]);
}

#[test]
fn enters_can_fail_be_interrupted_or_submit_a_part() {
    let (mut host, sim, _lent, [client, _]) = under(Fault::EnterAgain);
    host.push(1, op::Nop.entry());
    let wait = Wait::For { completions: 1, timeout: None };
    assert_eq!(host.ring.enter(wait).unwrap(), Entered::Busy);
    sim.set_faults(Faults::none().with(Fault::EnterBusy, 1000));
    assert_eq!(host.ring.enter(wait).unwrap(), Entered::Busy);
    assert_eq!((host.ring.pending(), host.ring.ready()), (1, 0), "nothing was consumed");
    sim.set_faults(Faults::none().with(Fault::PartialSubmit, 1000));
    (0..7).for_each(|n| host.push(2 + n, op::Nop.entry()));
    assert_eq!(host.ring.enter(wait).unwrap(), Entered::Done);
    let left = host.ring.pending();
    assert!((1..8).contains(&left) && host.ring.ready() + left == 8);
    sim.set_faults(Faults::none().with(Fault::Interrupt, 1000));
    host.reap();
    let mut memory = [0; 8];
    let (fd, buffer) = (client, memory.as_mut_ptr());
    host.push(20, op::Recv { fd, buffer, len: 8 }.entry());
    assert_eq!(host.ring.enter(wait).unwrap(), Entered::Done, "it has submitted something");
    assert_eq!(host.ring.enter(wait).unwrap(), Entered::Interrupted);
}

#[test]
fn any_call_can_fail_with_mfile() {
    let (mut host, sim, _lent, _) = under(Fault::SocketLimit);
    let error = host.new_socket(Domain::Inet, SocketType::Stream, false).unwrap_err();
    assert_eq!(errno_of(&error), Some(Errno::MFILE));
    sim.set_faults(Faults::none().with(Fault::AcceptLimit, 1000));
    let (listener, _) = host.listener(1);
    host.push(1, op::AcceptMulti { fd: listener }.entry());
    assert_eq!(fields(&host.take(1)[0]), (1, errno(Errno::MFILE), false));
}

#[test]
fn a_reset_by_the_network_resets_both_ends() {
    let (mut host, _sim, _lent, [client, server]) = under(Fault::Reset);
    assert_eq!(host.send(client, b"lost"), 4);
    host.settle();
    assert_eq!(host.recv(server), Err(errno(Errno::CONNRESET)));
    assert_eq!(host.recv(client), Err(errno(Errno::CONNRESET)));
    assert_eq!(host.send(client, b"x"), errno(Errno::PIPE));
}

#[test]
fn work_is_shuffled_except_on_one_socket() {
    let (mut host, _sim, _lent, _) = under(Fault::Shuffle);
    let pairs: Vec<_> = (0..6).map(|_| host.pair()).collect();
    let mut memory = [[0u8; 4]; 12];
    for (n, memory) in memory.iter_mut().enumerate() {
        let (fd, buffer) = (pairs[n / 2].1, memory.as_mut_ptr());
        host.push(n as u64, op::Recv { fd, buffer, len: 4 }.entry());
        host.reap();
    }
    for &(client, _) in &pairs {
        host.push(99, send(client, b"onetwo", NOW).with(EntryFlags::SKIP_SUCCESS));
    }
    let order: Vec<u64> = host.take(12).iter().map(|c| c.user_data).collect();
    assert!(!order.is_sorted(), "{order:?}");
    for n in (0..12).step_by(2) {
        let at = |n| order.iter().position(|&other| other == n);
        assert!(at(n) < at(n + 1), "{order:?}");
        assert_eq!((&memory[n as usize], &memory[n as usize + 1][..2]), (b"onet", &b"wo"[..]));
    }
}
