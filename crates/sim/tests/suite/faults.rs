//! The effects of single faults, each at every opportunity.

use crate::common::*;
use annulus_kernel::*;
use annulus_ring::*;
use annulus_sim::{Fault, Faults, Sim};
use rustix::io::Errno;
use std::rc::Rc;

/// Creates a connection and registers buffers without faults. From then on, the fault always
/// occurs.
fn connection_under(fault: Fault) -> (Host, Rc<Sim>, ProvidedBuffers, [Fd; 2]) {
    let (mut host, sim) = Host::simulated(Sim::builder(1));
    let (client, server) = host.pair();
    let buffers = ProvidedBuffers::new(&host.ring, 8, 16);
    sim.set_faults(Faults::none().with(fault, 1000));
    (host, sim, buffers, [client, server])
}

/// Starts a receive, and sends enough to fill two buffers.
fn receive_two(host: &mut Host, [client, server]: [Fd; 2]) -> Vec<(u64, i32, bool)> {
    host.push(1, recv_multi(server, 0));
    host.push(2, send(client, &[1; 32], DONTWAIT_FLAGS).with(EntryFlags::SKIP_SUCCESS));
    host.drain_until_quiet().iter().map(fields).collect()
}

#[test]
fn ends_well_ends_multishots_with_success() {
    let (mut host, sim, _lent, ends) = connection_under(Fault::EndsWell);
    assert_eq!(receive_two(&mut host, ends), [(1, 16, false)]);
    assert_eq!(sim.counts().faults, 1);
    let (listener, address) = host.listener(4);
    host.push(3, op::AcceptMulti { fd: listener }.entry());
    let client = host.socket();
    let bytes = Address::from(address);
    let (address, len) = (bytes.as_bytes().as_ptr(), bytes.as_bytes().len() as u32);
    host.push(4, op::Connect { fd: client, address, len }.entry());
    let taken = host.wait_for(2);
    assert!(taken.iter().any(|c| c.user_data == 3 && c.result > 0 && !c.more()), "{taken:?}");
}

#[test]
fn ends_badly_ends_multishot_with_enomem_after_its_data() {
    let (mut host, _sim, _lent, ends) = connection_under(Fault::EndsBadly);
    let expected = [(1, 16, true), (1, errno(Errno::NOMEM), false)];
    assert_eq!(receive_two(&mut host, ends), expected);
}

#[test]
fn no_buffers_fails_recv_with_enobufs() {
    let (mut host, _sim, _lent, ends) = connection_under(Fault::NoBuffers);
    assert_eq!(receive_two(&mut host, ends), [(1, errno(Errno::NOBUFS), false)]);
}

#[test]
fn no_memory_fails_socket_operations_with_enomem() {
    let (mut host, _sim, _lent, [client, server]) = connection_under(Fault::NoMemory);
    let nomem = errno(Errno::NOMEM);
    assert_eq!(host.send(client, b"x"), nomem);
    assert_eq!(host.recv(server), Err(nomem));
    assert_eq!(host.submit_and_wait(op::Accept { fd: server }.entry()), nomem);
    assert_eq!(host.submit_and_wait(op::Nop.entry()), 0);
}

#[test]
fn short_write_and_short_read_shorten_transfers() {
    let (mut host, sim, _lent, [client, server]) = connection_under(Fault::ShortWrite);
    let short = host.submit_and_wait(send(client, &[1; 100], DONTWAIT_FLAGS));
    assert!((1..100).contains(&short), "{short}");
    assert_eq!(host.send(client, &[1; 100]), 100, "a send that may wait sent less than everything");
    sim.set_faults(Faults::none().with(Fault::ShortRead, 1000));
    host.drain_until_quiet();
    let got = host.recv(server).unwrap().len() as i32;
    assert!((1..short + 100).contains(&got), "{got}");
}

#[test]
fn defer_delays_only_operations_that_may_wait() {
    let (mut host, _sim, _lent, [client, _]) = connection_under(Fault::Defer);
    host.push(1, send(client, b"later", WAITALL_FLAGS));
    host.ring.enter(Wait::No).unwrap();
    assert_eq!((host.ring.ready(), host.ring.has_deferred_work()), (0, true));
    assert_eq!(fields(&host.wait_for(1)[0]), (1, 5, false));
    host.push(2, send(client, b"now", DONTWAIT_FLAGS));
    host.ring.enter(Wait::No).unwrap();
    assert_eq!(host.ring.ready(), 1, "an operation that must not wait was deferred");
}

#[test]
fn cancel_second_completes_the_target_first() {
    let (mut host, _sim, _lent, [_, server]) = connection_under(Fault::CancelSecond);
    host.push(1, recv_multi(server, 0));
    host.push(2, cancel(1));
    let outcomes: Vec<_> = host.wait_for(2).iter().map(fields).collect();
    assert_eq!(outcomes, [(1, errno(Errno::CANCELED), false), (2, 0, false)]);
}

#[test]
fn cancel_lost_delivers_data_before_the_cancel() {
    let (mut host, sim, mut buffers, [client, server]) = connection_under(Fault::CancelLost);
    let mut answers = Vec::new();
    for single in [true, false, true, true, true, true] {
        let fd = server;
        let once = op::RecvSelect { fd, group: BUFFER_GROUP }.entry().into();
        host.push(1, if single { once } else { recv_multi(server, 0) });
        host.push(9, send(client, b"consumed", DONTWAIT_FLAGS).with(EntryFlags::SKIP_SUCCESS));
        host.ring.enter(Wait::No).unwrap();
        while !host.ring.has_deferred_work() {
            host.ring.enter(Wait::No).unwrap();
        }
        host.push(2, cancel(1));
        let taken = host.drain_until_quiet();
        let data = taken.iter().find(|c| c.result == 8).expect("the target did not get the data");
        assert_eq!((buffers.bytes(data), data.more()), (b"consumed".to_vec(), !single));
        let last = taken.iter().rfind(|c| c.user_data == 1).unwrap();
        assert_eq!((last.more(), last.result == 8), (false, single));
        answers.extend(taken.iter().filter(|c| c.user_data == 2).map(|c| c.result));
    }
    let (late, gone) = (errno(Errno::ALREADY), errno(Errno::NOENT));
    assert!(answers.contains(&late) && answers.contains(&gone), "{answers:?}");
    assert_eq!(sim.pending_operations(), 0);
}

#[test]
fn cancel_lost_still_ends_a_waiting_target() {
    let (mut host, _sim, _lent, [_, server]) = connection_under(Fault::CancelLost);
    host.push(1, recv_multi(server, 0));
    host.push(2, cancel(1));
    let outcomes: Vec<_> = host.wait_for(2).iter().map(fields).collect();
    assert_eq!(outcomes, [(2, errno(Errno::ALREADY), false), (1, errno(Errno::CANCELED), false)]);
}

#[test]
fn enter_faults_fail_interrupt_or_submit_in_part() {
    let (mut host, sim, _lent, [client, _]) = connection_under(Fault::EnterAgain);
    host.push(1, op::Nop.entry());
    let wait = Wait::For { completions: 1, timeout: None };
    assert_eq!(host.ring.enter(wait).unwrap(), Entered::Busy);
    sim.set_faults(Faults::none().with(Fault::EnterBusy, 1000));
    assert_eq!(host.ring.enter(wait).unwrap(), Entered::Busy);
    assert_eq!((host.ring.pending(), host.ring.ready()), (1, 0), "an entry was consumed");
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
    assert_eq!(host.ring.enter(wait).unwrap(), Entered::Done, "an interrupt hid a submission");
    assert_eq!(host.ring.enter(wait).unwrap(), Entered::Interrupted);
}

#[test]
fn descriptor_faults_fail_socket_and_accept_with_emfile() {
    let (mut host, sim, _lent, _) = connection_under(Fault::SocketLimit);
    let error = host.new_socket(Domain::Inet, SocketType::Stream, false).unwrap_err();
    assert_eq!(errno_of(&error), Some(Errno::MFILE));
    sim.set_faults(Faults::none().with(Fault::AcceptLimit, 1000));
    let (listener, _) = host.listener(1);
    host.push(1, op::AcceptMulti { fd: listener }.entry());
    assert_eq!(fields(&host.wait_for(1)[0]), (1, errno(Errno::MFILE), false));
}

#[test]
fn reset_fault_resets_both_ends() {
    let (mut host, _sim, _lent, [client, server]) = connection_under(Fault::Reset);
    assert_eq!(host.send(client, b"lost"), 4);
    host.drain_until_quiet();
    assert_eq!(host.recv(server), Err(errno(Errno::CONNRESET)));
    assert_eq!(host.recv(client), Err(errno(Errno::CONNRESET)));
    assert_eq!(host.send(client, b"x"), errno(Errno::PIPE));
}

#[test]
fn shuffle_keeps_order_within_a_socket() {
    let (mut host, _sim, _lent, _) = connection_under(Fault::Shuffle);
    let pairs: Vec<_> = (0..6).map(|_| host.pair()).collect();
    let mut memory = [[0u8; 4]; 12];
    for (n, memory) in memory.iter_mut().enumerate() {
        let (fd, buffer) = (pairs[n / 2].1, memory.as_mut_ptr());
        host.push(n as u64, op::Recv { fd, buffer, len: 4 }.entry());
        host.reap();
    }
    for &(client, _) in &pairs {
        host.push(99, send(client, b"onetwo", DONTWAIT_FLAGS).with(EntryFlags::SKIP_SUCCESS));
    }
    let order: Vec<u64> = host.wait_for(12).iter().map(|c| c.user_data).collect();
    assert!(!order.is_sorted(), "{order:?}");
    for n in (0..12).step_by(2) {
        let at = |n| order.iter().position(|&other| other == n);
        assert!(at(n) < at(n + 1), "{order:?}");
        assert_eq!((&memory[n as usize], &memory[n as usize + 1][..2]), (b"onet", &b"wo"[..]));
    }
}
