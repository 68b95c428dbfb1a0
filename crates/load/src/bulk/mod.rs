//! A bulk transfer: datagrams from one socket to another as fast as both ends allow, each end on a thread of its own.
//!
//! Datagrams are numbered. At most a window of them is unacknowledged. The receiver acknowledges an eighth of a window at
//! a time, by the next number it expects. The sender gives up what is not acknowledged in time, so that loss does not stall
//! the transfer; numbers that never arrived are counted.
//!
//! Each end measures its own time and the CPU time of its thread, from the end of the warm-up to the end of the transfer.
//! An end that makes no progress for [`BulkPlan::stall_timeout`] fails, so a transfer always ends.

mod plan;
mod receiver;
mod sender;
mod state;

pub use plan::{BulkPlan, LENGTHS, MAX_WINDOW};

use crate::clock;
use crate::idle::{IdleTracker, sweep_interval};
use annulus::{Runtime, affinity, time};
use receiver::Receiver;
use sender::Sender;
use state::TransferState;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes of a datagram's number.
const NUMBER_LEN: usize = 8;
/// The number of a datagram that ends the transfer.
const END: u64 = u64::MAX;
/// The buffer size to request for either socket; the kernel caps it.
const BUFFER: usize = 8 << 20;

/// The result of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkReport {
    /// Datagrams received in the measured time.
    pub received: u64,
    /// Datagrams sent in the measured time that never arrived.
    pub lost: u64,
    /// The measured time: at least [`BulkPlan::duration`].
    pub time: Duration,
    /// CPU time of the sender's thread.
    pub sender_cpu: Duration,
    /// CPU time of the receiver's thread.
    pub receiver_cpu: Duration,
}

/// Runs a plan over the loopback interface. Blocks the calling thread.
///
/// # Errors
/// `InvalidInput` if the plan is invalid; `InvalidData` if a received datagram is not one that was sent; `TimedOut` if one
/// end made no progress for [`BulkPlan::stall_timeout`]; other kinds if a core, a socket or a runtime is not available.
pub fn run(plan: &BulkPlan) -> io::Result<BulkReport> {
    plan.validate().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    for pin in [plan.sender_pin, plan.receiver_pin].into_iter().flatten() {
        affinity::check(pin).map_err(io::Error::other)?;
    }
    let state = Arc::new(TransferState::default());
    let (address_sender, address_receiver) = mpsc::channel();
    let receiving = spawn_pinned(plan, plan.receiver_pin, {
        let (plan, state) = (plan.clone(), Arc::clone(&state));
        async move || {
            let (receiver, address) = Receiver::open(&plan, state)?;
            // If the sender's thread has ended, its own error is reported.
            let _ = address_sender.send(address);
            receiver.run().await
        }
    });
    let sending = spawn_pinned(plan, plan.sender_pin, {
        let plan = plan.clone();
        async move || {
            let gone = |_| io::Error::other("the receiver has no socket");
            let server = address_receiver.recv().map_err(gone)?;
            Sender::open(&plan, server, state).await?.run().await
        }
    });
    match (join(receiving), join(sending)) {
        (Ok(received), Ok(sender_cpu)) => Ok(BulkReport { sender_cpu, ..received }),
        (Err(receiver), Err(sender)) => Err(cause(receiver, sender)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
    }
}

/// The cause, if both ends failed: a time-out or a refused datagram only follows from the failure of the other end.
fn cause(receiver: io::Error, sender: io::Error) -> io::Error {
    let follows = [io::ErrorKind::TimedOut, io::ErrorKind::ConnectionRefused];
    if follows.contains(&receiver.kind()) { sender } else { receiver }
}

/// Runs one end on a thread and a runtime of its own.
fn spawn_pinned<T: Send + 'static>(
    plan: &BulkPlan,
    pin: Option<usize>,
    end: impl AsyncFnOnce() -> io::Result<T> + Send + 'static,
) -> JoinHandle<io::Result<T>> {
    let driver = plan.driver;
    thread::spawn(move || {
        let _pinned = pin.map(affinity::pin).transpose().map_err(io::Error::other)?;
        let mut runtime =
            Runtime::builder().driver(driver).shutdown_timeout(Duration::ZERO).build()?;
        runtime.try_block_on(end())?
    })
}

fn join<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("an end of the transfer panicked")))
}

/// Runs one end until it finishes, or fails once `progress` has not changed for `limit`.
async fn unless_stalled<T>(
    end: impl Future<Output = io::Result<T>>,
    progress: &Cell<u64>,
    limit: Duration,
    stalled: &str,
) -> io::Result<T> {
    let mut end = pin!(end);
    let mut idle = IdleTracker::new(progress.get(), clock::now());
    loop {
        if let Ok(ended) = time::timeout(sweep_interval(limit), end.as_mut()).await {
            return ended;
        }
        if idle.idle_for(progress.get(), clock::now()) >= limit {
            let text = format!("{stalled} for {limit:?}, after {} in all", progress.get());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_that_caused_the_other_is_reported() {
        let kinds = |receiver: io::ErrorKind, sender: io::ErrorKind| {
            cause(receiver.into(), sender.into()).kind()
        };
        use io::ErrorKind::{ConnectionRefused, InvalidData, PermissionDenied, TimedOut};
        assert_eq!(kinds(InvalidData, ConnectionRefused), InvalidData);
        assert_eq!(kinds(InvalidData, TimedOut), InvalidData);
        assert_eq!(kinds(TimedOut, PermissionDenied), PermissionDenied);
        assert_eq!(kinds(TimedOut, TimedOut), TimedOut);
    }
}
