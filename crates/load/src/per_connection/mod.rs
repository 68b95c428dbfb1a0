//! A connection a message: connect, send, receive all of it, close; and how long that took.
//!
//! The client of the published BenchEcho tables. So many clients visit the server at once, each with a new connection a
//! message, over one or several event loops. What is timed is the *echo* (from the send to the last byte, the connection
//! being there: what those tables show) and the whole *visit* (from before the connect). Every byte is verified.
//!
//! A connection that the client closes keeps its port for a minute. To a loopback address of IPv4 the clients therefore
//! come from [`SOURCE_ADDRESSES`] addresses, 127.0.0.1 to 127.0.0.16, which have ports each.
//!
//! ```no_run
//! use annulus_load::visits::{self, VisitPlan};
//!
//! let mut plan = VisitPlan::new("127.0.0.1:7000".parse().unwrap());
//! (plan.clients, plan.connections, plan.length) = (1000, 1000, 16 << 10);
//! let report = visits::run(&plan, &mut ()).unwrap();
//! println!("average {} µs, p99 {} µs", report.echo_us.average, report.echo_us.p99);
//! ```

mod connection;
mod plan;
mod report;
mod run;

pub use connection::SOURCE_ADDRESSES;
pub use plan::{MAX_CONNECTIONS, MAX_EVENT_LOOPS, PerConnectionPlan};
pub use report::{PerConnectionReport, TimeSummary};
pub use run::run;
