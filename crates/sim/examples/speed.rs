//! Measures simulated operations per second: an echo over many connections, with multishot receives
//! and sends that skip their completion, like the runtime.
//!
//! `cargo run --release -p annulus-sim --example speed`
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "this example measures real time")]

use annulus_kernel::*;
use annulus_ring::*;
use annulus_sim::Sim;
use std::net::SocketAddr;
use std::time::Instant;

const CONNECTION_COUNT: usize = 100;
const MESSAGE_BYTES: usize = 128;
const BUFFER_COUNT: u16 = 512;
const BUFFER_BYTES: usize = 16 * 1024;
const MESSAGE_COUNT: usize = 2_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sim = Sim::builder(1).build();
    let mut ring = Ring::builder().kernel(sim.clone()).build()?;
    let memory = Mapping::anonymous(usize::from(BUFFER_COUNT) * BUFFER_BYTES)?;
    let mut buffers = BufferRing::register(&ring, 0, BUFFER_COUNT.into())?;
    // SAFETY: the ids are below the number of buffers, so the addresses are inside the mapping.
    let address = |id: u16| unsafe { memory.as_ptr().add(usize::from(id) * BUFFER_BYTES) };
    // SAFETY: the memory outlives the ring.
    (0..BUFFER_COUNT).for_each(|id| unsafe { buffers.add(address(id), BUFFER_BYTES as u32, id) });
    buffers.publish();
    let ends = connect(&sim, &mut ring)?;
    for &fd in &ends {
        let receive = op::RecvMulti { fd, group: 0, limit: 0 };
        push(&mut ring, receive.entry().user_data(fd.raw() as u64));
    }
    for &fd in ends.iter().step_by(2) {
        push(&mut ring, reply(fd, address(0), MESSAGE_BYTES as u32));
    }
    let (began, before) = (Instant::now(), sim.counts());
    let mut messages = 0;
    let mut taken = Vec::new();
    while messages < MESSAGE_COUNT {
        ring.enter(Wait::For { completions: 1, timeout: None })?;
        taken.extend(ring.completions());
        messages += taken.len();
        for done in taken.drain(..) {
            let id = done.buffer().ok_or("a receive completed without a buffer")?;
            push(&mut ring, reply(owned(done.user_data as i32), address(id), done.result as u32));
            // SAFETY: the next `enter` copies the bytes of the send above. The buffer is published
            // only after that.
            unsafe { buffers.add(address(id), BUFFER_BYTES as u32, id) };
        }
        // Submit the sends first: buffers that are published before an `enter` may be overwritten
        // in it.
        ring.enter(Wait::No)?;
        buffers.publish();
    }
    let (spent, after) = (began.elapsed().as_secs_f64(), sim.counts());
    let operations =
        (after.submitted + after.completed - before.submitted - before.completed) as f64;
    println!(
        "{:.2} million entries and completions per second ({messages} messages in {spent:.2} s, {} enters)",
        operations / spent / 1e6,
        after.enters - before.enters,
    );
    Ok(())
}

fn owned(number: i32) -> Fd {
    // SAFETY: every number comes from the simulation, and none has been closed.
    unsafe { Fd::from_raw(number) }
}

fn push(ring: &mut Ring, entry: impl Into<Entry>) {
    let entry = entry.into();
    // SAFETY: the memory that the entries refer to outlives the ring.
    while unsafe { ring.push_unchecked(entry) }.is_err() {
        ring.enter(Wait::No).expect("an enter failed without faults");
    }
}

fn reply(fd: Fd, buffer: *const u8, len: u32) -> Entry {
    let flags = msg::DONTWAIT | msg::WAITALL | msg::NOSIGNAL;
    let send = op::Send { fd, buffer, len, flags };
    send.entry().with(EntryFlags::SKIP_SUCCESS)
}

/// Creates the connections, and returns both ends of each.
fn connect(sim: &Sim, ring: &mut Ring) -> Result<Vec<Fd>, Box<dyn std::error::Error>> {
    let listener = owned(sim.socket(Domain::Inet, SocketType::Stream, false)?);
    sim.bind(listener, &SocketAddr::from(([127, 0, 0, 1], 80)).into())?;
    sim.listen(listener, 16)?;
    let address: Address = sim.local_address(listener)?;
    let bytes = address.as_bytes();
    let mut ends = Vec::new();
    for _ in 0..CONNECTION_COUNT {
        let client = owned(sim.socket(Domain::Inet, SocketType::Stream, false)?);
        let (fd, len) = (client, bytes.len() as u32);
        push(ring, op::Connect { fd, address: bytes.as_ptr(), len }.entry());
        push(ring, op::Accept { fd: listener }.entry().user_data(1));
        let mut done = Vec::new();
        while done.len() < 2 {
            ring.enter(Wait::For { completions: 1, timeout: None })?;
            done.extend(ring.completions());
        }
        let accepted =
            done.iter().find(|done| done.user_data == 1).ok_or("the accept did not complete")?;
        ends.extend([client, owned(accepted.result)]);
    }
    Ok(ends)
}
