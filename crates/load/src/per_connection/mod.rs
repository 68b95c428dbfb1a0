//! A connection per message: connect, send, receive, close. This is the client of the published BenchEcho tables.
//!
//! A number of clients work at once, over one or several event loops. Two times are measured for each connection: the echo
//! (from the send to the last byte, as in those tables) and the total (from before the connect). Every byte is verified.
//!
//! The kernel keeps the port of a connection that the client has closed for a minute. Clients of an IPv4 loopback server
//! therefore use [`SOURCE_ADDRESSES`](crate::SOURCE_ADDRESSES) source addresses, 127.0.0.1 to 127.0.0.16, each with ports of its own.

mod connection;
mod run;

pub(crate) use connection::Times;
pub(crate) use run::run;

use crate::measured::Measured;
use crate::plan::Plan;
use crate::report::{Figures, PerConnectionFigures, TimeSummary};

pub(crate) fn figures(plan: &Plan, measured: Measured, times: &[Times]) -> Figures {
    let (seconds, completed) = (measured.length.as_secs_f64(), times.len());
    let each = |total: f64| if completed > 0 { total / completed as f64 } else { 0.0 };
    Figures::PerConnection(PerConnectionFigures {
        connections: plan.connections(),
        threads: plan.threads(),
        completed: completed as u64,
        connections_per_second: measured.per_second(completed as f64),
        elapsed_us_per_connection: each(seconds * 1e6),
        echo_us: TimeSummary::new(times.iter().map(|times| times.echo).collect()),
        total_us: TimeSummary::new(times.iter().map(|times| times.total).collect()),
    })
}
