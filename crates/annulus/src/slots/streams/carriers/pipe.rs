//! Pipes: streams that are read and written by system calls on the loop, because the ring cannot
//! receive from a pipe as it does from a socket. A pipe usually holds only 64 KiB, so the calls are
//! short.
//!
//! The states are the same as for other streams. A receive polls for readiness and then reads what
//! is available into memory of that size. A send is tried at once; the rest waits until the
//! descriptor is writable.

use super::Carrier;
use crate::memory::HeapMemory;
use crate::slots::loop_state::LoopState;
use crate::slots::streams::chunk_queue::MAX_CHUNKS_PER_SEND;
use crate::slots::streams::recv::RecvEnd;
use crate::slots::streams::send::SendPhase;
use crate::slots::streams::{Stream, StreamResources};
use annulus_kernel::Fd;
use annulus_kernel::pipe::{self, SigPipe};
use rustix::io::Errno;
use std::io::IoSlice;

/// Maximum bytes per read: the default capacity of a pipe.
const MAX_READ_BYTES: u64 = 64 * 1024;

impl Stream {
    /// Turns the stream into a pipe. None of its operations may be in flight.
    pub(crate) fn be_pipe(&mut self, signal: SigPipe) {
        self.carrier = Some(Box::new(Carrier::Pipe(signal)));
    }
}

/// Polls for readiness if a task waits.
pub(super) fn arm(stream: &mut Stream, state: &mut LoopState) -> bool {
    if stream.rx.idle_unless_awaited() {
        stream.poll_readiness(state);
    }
    true
}

/// Reads a pipe that is ready. Returns false if there is nothing to read, so that the caller arms
/// the stream again.
pub(super) fn on_ready(
    stream: &mut Stream,
    state: &mut LoopState,
    polled: Result<u32, Errno>,
) -> bool {
    if stream.dropped {
        return true;
    }
    let read = match polled {
        // The next poll would fail again at once.
        Err(Errno::NOSPC) => Err(Errno::NOSPC),
        _ => read_available(stream, state),
    };
    match read {
        Ok(0) => stream.rx.end = Some(RecvEnd::Eof),
        Ok(_) => {}
        // Another reader has taken the bytes.
        Err(Errno::AGAIN) => return false,
        Err(errno) => stream.rx.end = Some(RecvEnd::Failed(errno)),
    }
    state.deferred.wakes.extend(stream.rx.waker.take());
    true
}

/// Reads into new heap memory. The stream has no unread bytes, because a task waits for some.
fn read_available(stream: &mut Stream, state: &LoopState) -> Result<usize, Errno> {
    let available = pipe::available(stream.fd)?.clamp(1, MAX_READ_BYTES) as u32;
    let size = state.memory.piece(available);
    let mut memory = HeapMemory::zeroed(size as usize, &state.memory.meter);
    let count = pipe::read(stream.fd, &mut memory)?;
    stream.rx.add_on_heap(memory, count as u32);
    Ok(count)
}

/// Sends the queued bytes, or waits for space.
pub(super) fn send(
    stream: &mut Stream,
    shared: &mut StreamResources,
    state: &mut LoopState,
    signal: SigPipe,
    phase: SendPhase,
) {
    let tx = &mut stream.tx;
    let parts = tx.queue.unsent(tx.first_sent).take(MAX_CHUNKS_PER_SEND);
    (tx.flying, tx.flying_chunks) =
        parts.fold((0, 0), |(bytes, chunks), part| (bytes + part.len(), chunks + 1));
    if phase != SendPhase::Now {
        return stream.await_writable(state, phase);
    }
    tx.phase = phase;
    match write(stream, signal, Ok(0)) {
        Ok(count) if count as usize == stream.tx.flying => stream.await_settling(shared),
        outcome => stream.on_sent(shared, state, outcome),
    }
}

/// Writes the bytes in flight, unless the wait for space or the stream has failed. Returns the
/// number of bytes written. The error is `AGAIN` if there was no space.
pub(super) fn write(
    stream: &Stream,
    signal: SigPipe,
    waited: Result<u32, Errno>,
) -> Result<u32, Errno> {
    waited?;
    let tx = &stream.tx;
    if let Some(errno) = tx.error {
        return Err(errno);
    }
    let mut parts = [IoSlice::new(&[]); MAX_CHUNKS_PER_SEND];
    let chunks = usize::from(tx.flying_chunks);
    for (part, bytes) in parts.iter_mut().zip(tx.queue.unsent(tx.first_sent).take(chunks)) {
        *part = IoSlice::new(bytes);
    }
    Ok(pipe::write(stream.fd, &parts[..chunks], signal)? as u32)
}

/// Ends a pipe so that its reader sees the end. The descriptor stays open until the handle is
/// dropped.
///
/// # Errors
/// The process is out of descriptors: the reader sees the end once the handle is dropped.
pub(super) fn end(state: &mut LoopState, fd: Fd) -> Result<(), Errno> {
    state.driver.release(fd);
    pipe::end(fd)
}
