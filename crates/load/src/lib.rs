//! The load generator of annulus, as a library.
//!
//! A closed loop on annulus itself: one thread, a task a connection. Each client sends a message, waits until all of it
//! has come back, verifies every byte while it streams in, and goes on with the next message. Requests are counted by
//! completed responses within the *measured* time; the window opens only when every client is connected and the warm-up
//! is over. Latency runs from the intended start, which in a closed loop is the start of the send.
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

mod board;
mod client;
mod conductor;
mod connect;
mod crew;
mod fault;
mod pattern;
mod plan;
mod report;
mod run;

pub mod affinity;
pub mod clock;
pub mod limits;
pub mod quiet;

pub use plan::{MAX_CLIENTS, MAX_LENGTH, Plan, PlanError};
pub use report::{LatencySummary, Report};
pub use run::{LoadError, Observer, Progress, run};
