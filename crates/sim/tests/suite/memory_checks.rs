//! The simulated kernel checks the memory that it owns: a write that breaks the contract panics,
//! and the message says which memory.

#![allow(unsafe_code)]

use crate::common::*;
use annulus_kernel::*;
use annulus_ring::*;
use annulus_sim::{Sim, SimBuilder};
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// Starts a multishot receive with two buffers, at one end of a connection.
fn armed_receive(builder: SimBuilder) -> (Host, Rc<Sim>, ProvidedBuffers, Fd) {
    let (mut host, sim) = Host::simulated(builder);
    let (client, server) = host.pair();
    let buffers = ProvidedBuffers::new(&host.ring, 2, 1024);
    host.push(1, recv_multi(server, 0));
    host.reap();
    (host, sim, buffers, client)
}

fn panic_of(body: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(body)).expect_err("the body did not panic");
    *panic.downcast::<String>().expect("the panic has no formatted message")
}

/// Writes to a buffer that the kernel owns.
fn write_to_buffer(buffers: &ProvidedBuffers, id: u16, at: usize) {
    // SAFETY: the byte is in the mapping. The write breaks the contract on purpose; no other thread
    // accesses the memory in the simulation.
    unsafe { buffers.address(id).add(at).write(1) };
}

#[test]
fn buffer_overwrite_panics_when_the_kernel_uses_it() {
    let (mut host, _sim, buffers, client) = armed_receive(Sim::builder(1));
    write_to_buffer(&buffers, 0, 7);
    let text = panic_of(|| {
        host.send(client, b"hello");
        host.drain_until_quiet();
    });
    let expected =
        "buffer 0 of group 3 was written to while it was with the kernel (byte 7 of 1024)";
    assert_eq!(text, expected);
}

#[test]
fn buffer_overwrite_panics_in_check_and_unregister() {
    let (host, sim, buffers, _) = armed_receive(Sim::builder(1));
    sim.check();
    assert_eq!(sim.buffers_held(), 2);
    write_to_buffer(&buffers, 1, 1023);
    assert!(panic_of(|| sim.check()).starts_with("buffer 1 of group 3 was written to"));
    assert!(panic_of(|| buffers.unregister(&host.ring)).starts_with("buffer 1 of group 3"));
}

#[test]
fn middle_of_a_buffer_is_checked_with_unlimited_poison() {
    for (span, found) in [(256, false), (usize::MAX, true)] {
        let (_host, sim, buffers, _) = armed_receive(Sim::builder(1).poison(span));
        write_to_buffer(&buffers, 0, 512);
        assert_eq!(catch_unwind(AssertUnwindSafe(|| sim.check())).is_err(), found);
    }
}

#[test]
fn publishing_a_buffer_twice_panics_with_its_id() {
    let (mut host, _sim, mut buffers, _) = armed_receive(Sim::builder(1));
    buffers.publish(1);
    let text = panic_of(|| _ = host.reap());
    assert_eq!(text, "buffer 1 of group 3 was published twice: the kernel still has it");
}

#[test]
fn write_to_memory_of_waiting_recv_panics() {
    let (mut host, sim) = Host::simulated(Sim::builder(1));
    let (client, server) = host.pair();
    let memory = Mapping::anonymous(4096).unwrap();
    let (fd, buffer) = (server, memory.as_ptr());
    host.push(7, op::Recv { fd, buffer, len: 100 }.entry());
    host.reap();
    sim.check();
    // SAFETY: the byte is in the mapping; see `write_to_buffer`.
    unsafe { buffer.add(99).write(1) };
    let expected = "the memory of a receive (user_data 0x7) was written to while it was with the kernel (byte 99)";
    assert_eq!(panic_of(|| sim.check()), expected);
    let arrival = panic_of(|| {
        host.send(client, b"x");
        host.drain_until_quiet();
    });
    assert_eq!(arrival, expected);
}

#[test]
fn change_to_memory_of_waiting_send_panics() {
    let (mut host, sim) = Host::simulated(Sim::builder(1));
    let (client, server) = host.pair();
    let mut bytes = vec![5; 1 << 20];
    host.push(7, send(client, &bytes, WAITALL_FLAGS));
    host.reap();
    sim.check();
    bytes[0] = 6;
    let expected = "the memory of a send (user_data 0x7) was changed while it was with the kernel";
    assert_eq!(panic_of(|| sim.check()), expected);
    let message = panic_of(|| {
        host.recv(server).unwrap();
        host.recv(server).unwrap();
        host.drain_until_quiet();
    });
    assert_eq!(message, expected);
}

#[test]
fn zero_copy_memory_is_checked_until_the_notification() {
    let (mut host, sim) = Host::simulated(Sim::builder(1));
    let (client, _server) = host.pair();
    let mut bytes = vec![5; 1000];
    host.push(7, op::zero_copy(send(client, &bytes, WAITALL_FLAGS), true));
    assert_eq!(fields(&host.wait_for(1)[0]), (7, 1000, true));
    sim.check();
    bytes[0] = 6;
    let expected = "the memory of a send (user_data 0x7) was changed before its notification";
    assert_eq!(panic_of(|| sim.check()), expected);
    bytes[0] = 5;
    assert_eq!(
        host.submit_and_wait(cancel(7)),
        errno(Errno::NOENT),
        "a completed operation was cancelled"
    );
    assert!(host.wait_for(1)[0].is_notification());
    bytes[0] = 6;
    sim.check();
}

#[test]
fn buffer_may_be_written_after_its_completion() {
    let (mut host, sim, mut buffers, client) = armed_receive(Sim::builder(1));
    for _ in 0..5 {
        host.push(2, send(client, b"hello", DONTWAIT_FLAGS).with(EntryFlags::SKIP_SUCCESS));
        let got = host.wait_for(1)[0];
        write_to_buffer(&buffers, got.buffer().unwrap(), 0);
        sim.check();
        buffers.bytes(&got);
    }
    buffers.unregister(&host.ring);
}

#[test]
fn recv_writes_only_the_bytes_it_reports() {
    let (mut host, _sim, buffers, client) = armed_receive(Sim::builder(1));
    host.push(2, send(client, b"hello", DONTWAIT_FLAGS).with(EntryFlags::SKIP_SUCCESS));
    let id = host.wait_for(1)[0].buffer().unwrap();
    // SAFETY: the completion has given the buffer back, and poisoning has initialised all of it.
    let whole = unsafe { std::slice::from_raw_parts(buffers.address(id), 1024) };
    assert_eq!(&whole[..5], b"hello");
    assert!(
        whole[5..].iter().take(200).all(|&byte| byte >= 0x80),
        "bytes beyond the received ones were written"
    );
}
