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
mod client;
mod connect;
mod fault;
mod join;
mod measured;
mod metrics;
mod mode;
mod payload;
mod phases;
mod plan;
mod pool;
mod report;
mod run;
mod server_address;
mod threads;
mod window;

pub mod bulk;
pub mod clock;
pub mod datagrams;
#[doc(hidden)]
pub mod fuzzing;
pub mod idle;
pub mod limits;
pub mod per_connection;

pub use annulus::affinity;
pub use mode::Mode;
pub use plan::{
    MAX_CLIENTS, MAX_IN_FLIGHT, MAX_LENGTH, MAX_PIPELINE, MAX_RATE, MAX_THREADS, Plan, PlanError,
};
pub use report::{LatencySummary, Report};
pub use run::{LoadError, Observer, Progress, run};
pub use server_address::{MAX_PATH, ServerAddress, unix_address};
