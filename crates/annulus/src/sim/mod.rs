//! Runs client and server in one process, on a simulated kernel with virtual time, faults and one
//! seed.
//!
//! The runtime, its driver and the ring are the real ones; only the kernel under them is simulated.
//! The driver is io_uring, or epoll if [`Builder::driver`] selects it or the kernel's [`Profile`]
//! refuses a ring. Time passes only while all tasks wait, so an hour of timers takes no real time.
//! The same seed produces the same run, bit for bit, in every process; `annulus::select!` takes the
//! same branches too. Other sources of randomness do not follow the seed, such as `tokio::select!`,
//! the `select!` of `futures`, or the order of a standard `HashMap` (see [what leaves the
//! simulation](crate::guide::simulated_network#what-leaves-the-simulation)). The differences
//! between the simulated kernel and Linux are listed in `DIVERGENCES.md` of the crate
//! `annulus-sim`. Sockets bound to different addresses behave as if they were on different
//! machines: [`Sim::partition`] separates two of them. The example `cluster` uses this to test the
//! election of leaders.
//!
//! ```
//! use annulus::net::{TcpListener, TcpStream};
//!
//! annulus::sim::run(7, async {
//!     let listener = TcpListener::bind("127.0.0.1:7000")?;
//!     annulus::spawn(async move {
//!         let (mut server, _) = listener.accept().await?;
//!         server.send("hello").await
//!     });
//!     // Faults are drawn from the seed: a connect may fail for lack of memory.
//!     let mut client = loop {
//!         match TcpStream::connect("127.0.0.1:7000").await {
//!             Ok(client) => break client,
//!             Err(_) => annulus::time::sleep(std::time::Duration::from_secs(1)).await,
//!         }
//!     };
//!     let greeting = client.recv().await?.expect("the stream has ended");
//!     assert!(b"hello".starts_with(&*greeting));
//!     std::io::Result::Ok(())
//! })
//! # .unwrap();
//! ```

mod devices;
mod disturb;
mod host;
mod network;
mod pairs;
mod run;
mod seeds;

pub use disturb::{Disturbance, Disturbances};
pub use network::Network;
pub use seeds::{FailedSeed, check, find_failure};

use crate::{Builder, Runtime};
use annulus_kernel::Kernel;
use annulus_sim::Hosts;
use run::RunError;
use std::future::Future;
use std::io;
use std::rc::Rc;

/// The properties of a simulated network, such as latency and bandwidth.
///
/// ```
/// use annulus::net::{TcpListener, TcpStream};
/// use annulus::sim::{Link, Sim, run_on};
/// use annulus::time::Instant;
/// use std::time::Duration;
///
/// let link = Link { latency: Duration::from_millis(40), ..Link::default() };
/// let sim = Sim::builder(1).link(link).build();
/// run_on(&sim, annulus::Runtime::builder(), async {
///     let listener = TcpListener::bind("127.0.0.1:7000")?;
///     let start = Instant::now();
///     let _client = TcpStream::connect("127.0.0.1:7000").await?;
///     assert!(start.elapsed() >= 2 * link.latency); // There and back.
///     # drop(listener);
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[doc(inline)]
pub use annulus_sim::Link;
/// The version of a simulated kernel: the features it has and lacks.
///
/// ```
/// use annulus::sim::{Profile, Sim, run_on};
///
/// let sim = Sim::builder(1).profile(Profile::old()).build();
/// run_on(&sim, annulus::Runtime::builder(), async {
///     let (mut one, mut two) = annulus::net::UnixStream::pair()?;
///     one.send("as on Linux 6.0").await?;
///     assert!(two.recv().await?.is_some());
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[doc(inline)]
pub use annulus_sim::Profile;
/// A simulated kernel, and its counts.
///
/// ```
/// use annulus::sim::{Counts, Sim, run_on};
/// use std::time::Duration;
///
/// let sim = Sim::builder(1).build();
/// run_on(&sim, annulus::Runtime::builder(), async {
///     annulus::time::sleep(Duration::from_secs(3600)).await; // Takes no real time.
///     std::io::Result::Ok(())
/// })?;
/// let Counts { submitted, completed, .. } = sim.counts();
/// println!("{submitted} operations, {completed} completions; {:x}", sim.trace_hash());
/// assert_eq!(sim.sockets(), 0); // Nothing leaked.
/// # std::io::Result::Ok(())
/// ```
#[doc(inline)]
pub use annulus_sim::{Counts, Sim};
/// A simulated disk, and its device.
///
/// A server that has synced its journal finds it again after a power cut, whatever part of the
/// unsynced data survives:
///
/// ```
/// use annulus::fs::{self, File};
/// use annulus::sim::{Device, Disk, Sim, run_on};
/// use std::time::Duration;
///
/// let slow = Device { sync: Duration::from_millis(30), ..Device::default() };
/// let sim = Sim::builder(1).disk(Disk::new(slow)).build();
/// run_on(&sim, annulus::Runtime::builder(), async {
///     let mut journal = File::create("/journal").await?;
///     journal.write_all("synced").await.0?;
///     journal.sync_all().await?;
///     File::open("/").await?.sync_all().await?; // The name, which is not in the file.
///     journal.write_all(", and not").await.0
/// })?;
/// for seed in 0..10 {
///     let sim = Sim::builder(2).disk(sim.disk().after_power_cut(seed)).build();
///     let found = run_on(&sim, annulus::Runtime::builder(), fs::read("/journal"))?;
///     assert!(found.starts_with(b"synced"));
/// }
/// # std::io::Result::Ok(())
/// ```
///
/// A device that is full from some moment on:
///
/// ```
/// use annulus::fs;
/// use annulus::sim::{Device, Sim, run_on};
/// use std::io::{self, ErrorKind};
///
/// let sim = Sim::builder(1).build();
/// run_on(&sim, annulus::Runtime::builder(), async {
///     fs::write("/file", vec![1; 8192]).await?;
///     sim.set_device(Device { capacity: 8192, ..Device::default() });
///     let full = fs::write("/other", vec![1; 8192]).await.unwrap_err();
///     assert_eq!(full.kind(), ErrorKind::StorageFull);
///     io::Result::Ok(())
/// })?;
/// # io::Result::Ok(())
/// ```
#[doc(inline)]
pub use annulus_sim::{Device, Disk};
/// Faults of a simulated kernel, and how often they occur.
///
/// ```
/// use annulus::net::UnixStream;
/// use annulus::sim::{Fault, Faults, Sim, run_on};
///
/// // Half of the receives that can be short return fewer bytes than are available.
/// let sim = Sim::builder(1).faults(Faults::none().with(Fault::ShortRead, 500)).build();
/// run_on(&sim, annulus::Runtime::builder(), async {
///     let (mut one, mut two) = UnixStream::pair()?;
///     one.send("a message").await?;
///     assert_eq!(&*two.recv_exact(9).await?, b"a message");
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[doc(inline)]
pub use annulus_sim::{Fault, Faults};
/// The settings of a simulated kernel, and the generator that may choose them.
///
/// ```
/// use annulus::sim::{Faults, Link, Random, Sim, SimBuilder};
///
/// /// A random network for each seed, without faults.
/// fn kernel(seed: u64) -> SimBuilder {
///     Sim::builder(seed).link(Link::any(&mut Random::new(seed))).faults(Faults::none())
/// }
///
/// for seed in 0..10 {
///     annulus::sim::run_on(&kernel(seed).build(), annulus::Runtime::builder(), async {
///         let (mut one, mut two) = annulus::net::UnixStream::pair()?;
///         one.send("the same, only later").await?;
///         assert_eq!(two.recv_exact(20).await?.len(), 20);
///         std::io::Result::Ok(())
///     })?;
/// }
/// # std::io::Result::Ok(())
/// ```
#[doc(inline)]
pub use annulus_sim::{Random, SimBuilder};

/// Runs a future on a simulated kernel whose network and faults are drawn from the seed.
///
/// # Errors
/// Returns the error of the future; a deadlock with a list of the events that every task waits for
/// and of the open sockets (`Deadlock`); the same list of events if tasks only yield, for a million
/// turns in a row ([`SimBuilder::max_idle_turns`], `TimedOut`); or any other error that ends a
/// runtime.
///
/// # Panics
/// If a task panics and the program does not take the panic, as on a
/// [network](Network#panics-of-programs). The message is the task's panic message, followed by the
/// line that spawned the task and the virtual time. Also panics if memory was changed while the
/// kernel was using it.
#[track_caller]
pub fn run<T, E: From<io::Error>>(
    seed: u64,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let sim = Sim::builder(seed).chaos().build();
    run_on(&sim, Runtime::builder(), future)
}

/// Like [`run`], but on a given kernel and with given runtime settings, such as the driver:
///
/// ```
/// use annulus::sim::{Sim, run_on};
/// use annulus::{DriverChoice, Runtime};
///
/// // As on a machine without io_uring.
/// let builder = Runtime::builder().driver(DriverChoice::Epoll);
/// run_on(&Sim::builder(1).build(), builder, async {
///     let (mut one, mut two) = annulus::net::UnixStream::pair()?;
///     one.send("by epoll").await?;
///     assert_eq!(two.recv().await?.as_deref(), Some(&b"by epoll"[..]));
///     std::io::Result::Ok(())
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// Returns the same errors as [`run`].
///
/// # Panics
/// Under the same conditions as [`run`].
#[track_caller]
pub fn run_on<T, E: From<io::Error>>(
    sim: &Rc<Sim>,
    builder: Builder,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let kernel = sim.clone();
    let mut runtime = builder.kernel(kernel).build()?;
    runtime.core().remote.keep_lost_panics();
    let outcome = runtime.try_block_on(future);
    // The run ends at this moment: the end of the runtime would wait for syncs that no program saw
    // complete.
    sim.abandon_device_work();
    if let Some(panic) = runtime.core().remote.lost_panic() {
        return Ok(RunError::lost(panic, None, sim.now()).fail()?);
    }
    match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            let (text, rest) = match error.kind() {
                io::ErrorKind::Deadlock => (DEADLOCK, format!("{ROOT_WAITS}{}", socket_lines(sim))),
                io::ErrorKind::TimedOut => (ONLY_YIELDS, String::new()),
                _ => return Err(error.into()),
            };
            let waiting = runtime.waiting().into_iter().map(|task| format!("\n  {task}"));
            let text = format!("{text}{}{rest}", waiting.collect::<String>());
            Err(io::Error::new(error.kind(), text).into())
        }
    }
}

/// The text of the error of a run in which tasks only yield.
const ONLY_YIELDS: &str = "the tasks only wake themselves and one another: nothing was sent, received or waited for in \
     many turns in a row; wait for an event instead of yielding, or raise SimBuilder::max_idle_turns";

const DEADLOCK: &str = "deadlock: every task waits, and no event can occur";

/// The line of a deadlock about the root future, whose wait is not recorded.
const ROOT_WAITS: &str =
    "\n  the future of the run also waits; it is not a task, so spawn it to see for what";

/// Returns a line for each open socket, which explains the descriptors that tasks wait for.
fn socket_lines(sim: &Sim) -> String {
    sim.open_sockets().into_iter().map(|socket| format!("\n  {socket}")).collect()
}
