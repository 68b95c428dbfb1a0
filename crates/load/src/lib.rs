//! The load generator of annulus, as a library.
//!
//! On annulus itself, a task a connection on one thread, or with a blocking thread a connection ([`Mode`]). Each client
//! keeps so many messages in flight, verifies every byte while it streams in, and goes on as replies come (a closed loop)
//! or at fixed times (an open one). Requests are counted by completed responses within the *measured* time; the window
//! opens only when every client is connected and the warm-up is over. Latency runs from the intended start: the moment a
//! reply freed the message's place, or the message's own time.
//!
//! ```no_run
//! use annulus_load::{Plan, run};
//! use std::time::Duration;
//!
//! let mut plan = Plan::new("127.0.0.1:7000".parse().unwrap());
//! plan.duration = Duration::from_secs(5);
//! let report = run(&plan, &mut ()).unwrap();
//! println!("{:.0} requests/s, p99 {} µs", report.requests_per_second, report.latency_us.p99);
//! ```

mod blocking;
mod board;
mod client;
mod conductor;
mod connect;
mod crew;
mod fault;
mod join;
mod measured;
mod mode;
mod pattern;
mod place;
mod plan;
mod report;
mod run;
mod threads;
mod window;

pub mod bulk;
pub mod clock;
pub mod datagrams;
#[doc(hidden)]
pub mod fuzzing;
pub mod limits;
pub mod quiet;
pub mod visits;

pub use annulus::affinity;
pub use mode::Mode;
pub use place::{MAX_PATH, Place, unix_address};
pub use plan::{
    MAX_CLIENTS, MAX_IN_FLIGHT, MAX_LENGTH, MAX_PIPELINE, MAX_RATE, MAX_THREADS, Plan, PlanError,
};
pub use report::{LatencySummary, Report};
pub use run::{LoadError, Observer, Progress, run};
