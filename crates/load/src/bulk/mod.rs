//! A bulk transfer: datagrams from one socket to another as fast as both can, each end on a thread of its own.
//!
//! Datagrams are numbered. No more than a window of them is unacknowledged; the receiver acknowledges an eighth of a
//! window at a time, by the number that it expects next. What is not acknowledged in time is given up, so that loss
//! stalls nobody: numbers that never came are counted.
//!
//! Each end measures itself: time, and the CPU time of its thread, from when the warm-up is over until the end.

mod plan;
mod receiver;
mod sender;
mod stage;

pub use plan::{BulkPlan, LENGTHS, MAX_WINDOW};

use annulus::{Runtime, affinity};
use receiver::Receiver;
use sender::Sender;
use stage::Stage;
use std::future::Future;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes of a datagram's number.
const HEAD: usize = 8;
/// The number of the datagrams that say that there will be no more.
const END: u64 = u64::MAX;
/// What is not acknowledged after this long is given up.
const PATIENCE: Duration = Duration::from_millis(20);
/// How much longer than it should a transfer may take, on a machine with moods.
const LATE: Duration = Duration::from_secs(5);
/// What either socket asks the kernel to hold: as much as it allows.
const BUFFER: usize = 8 << 20;

/// What came of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkReport {
    /// Datagrams received in the measured time.
    pub received: u64,
    /// Datagrams that were to come in that time and never did.
    pub lost: u64,
    /// The measured time.
    pub time: Duration,
    /// CPU time of the sender's thread.
    pub sender_cpu: Duration,
    /// CPU time of the receiver's thread.
    pub receiver_cpu: Duration,
}

/// Carries out a plan over the loopback, and blocks the calling thread meanwhile.
///
/// # Errors
/// `InvalidInput` for a plan that cannot be carried out; where a core, a socket or a runtime cannot be had; `InvalidData`
/// where what came is not what was sent; `TimedOut` where an end has stopped.
pub fn run(plan: &BulkPlan) -> io::Result<BulkReport> {
    plan.validate().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    for pin in [plan.sender_pin, plan.receiver_pin].into_iter().flatten() {
        affinity::check(pin).map_err(io::Error::other)?;
    }
    let stage = Arc::new(Stage::default());
    let (tell, told) = mpsc::channel();
    let receiving = on_core(plan, plan.receiver_pin, {
        let (plan, stage) = (plan.clone(), Arc::clone(&stage));
        async move || {
            let (receiver, address) = Receiver::open(&plan, stage)?;
            // A sender that is gone already tells why.
            let _ = tell.send(address);
            receiver.run().await
        }
    });
    let sending = on_core(plan, plan.sender_pin, {
        let plan = plan.clone();
        async move || {
            let gone = |_| io::Error::other("the receiver has no socket");
            let server = told.recv().map_err(gone)?;
            Sender::open(&plan, server, stage)?.run().await
        }
    });
    match (end_of(receiving), end_of(sending)) {
        (Ok(received), Ok(sender_cpu)) => Ok(BulkReport { sender_cpu, ..received }),
        // Who waits in vain knows less than who has failed.
        (Err(error), Err(_)) if error.kind() != io::ErrorKind::TimedOut => Err(error),
        (Err(error), Ok(_)) | (_, Err(error)) => Err(error),
    }
}

/// An end on a thread and a runtime of its own.
fn on_core<T: Send + 'static>(
    plan: &BulkPlan,
    pin: Option<usize>,
    end: impl AsyncFnOnce() -> io::Result<T> + Send + 'static,
) -> JoinHandle<io::Result<T>> {
    let (driver, most) = (plan.driver, plan.warm_up() + plan.duration + LATE);
    thread::spawn(move || {
        let _pinned = pin.map(affinity::pin).transpose().map_err(io::Error::other)?;
        let mut runtime = Runtime::builder().driver(driver).grace(Duration::ZERO).build()?;
        runtime.block_on(within(most, end()))?
    })
}

async fn within<T>(most: Duration, end: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let stopped = |_| io::Error::new(io::ErrorKind::TimedOut, "the transfer has stopped");
    annulus::time::timeout(most, end).await.map_err(stopped)?
}

fn end_of<T>(thread: JoinHandle<io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("an end of the transfer panicked")))
}
