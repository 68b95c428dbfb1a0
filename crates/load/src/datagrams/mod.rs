//! Datagrams and their echoes: how many come back, how fast, and what became of the rest.
//!
//! Each client has a connected socket of its own and keeps so many datagrams under way. One whose echo has not come
//! within a time-out is given up as lost, and another takes its place: loss is counted and stalls nobody. Datagrams of 8
//! bytes and more carry their number, so that echoes that come twice, late or out of order are told apart, and bytes that
//! go with no other number; shorter ones all say the same, and their echoes are taken in the order of the sends.
//!
//! ```no_run
//! use annulus_load::datagrams::{self, DatagramPlan};
//!
//! let mut plan = DatagramPlan::new("127.0.0.1:7000".parse().unwrap());
//! (plan.clients, plan.length, plan.window) = (50, 128, 4);
//! let report = datagrams::run(&plan, &mut ()).unwrap();
//! println!("{:.0} a second, {} of {} lost", report.datagrams_per_second, report.lost, report.sent);
//! ```

mod client;
mod in_flight;
pub(crate) mod payload;
mod plan;
mod report;
mod run;
mod socket;

pub use plan::{DatagramPlan, MAX_DATAGRAM, MAX_WINDOW};
pub use report::DatagramReport;
pub use run::run;
