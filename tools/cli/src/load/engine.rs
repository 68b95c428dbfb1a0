//! Options of how the clients of a load run.

use annulus_load::{MAX_EVENT_LOOPS, Streams};
use clap::Args;

#[derive(Args, Debug)]
#[command(next_help_heading = "Clients")]
pub(super) struct EngineArgs {
    /// Event loops that share the clients, a thread each [default: 1]
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=MAX_EVENT_LOOPS as u64))]
    pub(super) threads: Option<u64>,
    /// A client whose connection fails ends [default: it connects again, after
    /// 10 ms, and after twice as long with each failure, up to a second]
    #[arg(long, conflicts_with = "per_connection")]
    no_reconnect: bool,
    /// Requests on one connection; then the client makes another one
    /// [default: no limit]
    #[arg(long, value_name = "COUNT", conflicts_with = "per_connection",
          value_parser = clap::value_parser!(u64).range(1..))]
    requests_per_connection: Option<u64>,
    /// Connections to open a second, at the start and later
    /// [default: as fast as the server accepts them, 64 at a time]
    #[arg(long, value_name = "PER SECOND", conflicts_with = "per_connection")]
    connect_rate: Option<f64>,
}

impl EngineArgs {
    /// Sets the options of clients that keep their connections.
    pub(super) fn set(&self, streams: &mut Streams) {
        streams.reconnect = !self.no_reconnect;
        streams.requests_per_connection = self.requests_per_connection;
        streams.connect_rate = self.connect_rate;
        streams.threads = self.threads.unwrap_or(1) as usize;
    }
}
