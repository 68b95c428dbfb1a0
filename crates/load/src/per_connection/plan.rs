//! Whom to visit, how often, with how much.

use crate::plan::{MAX_CLIENTS, MAX_LENGTH, PlanError, check_counts, check_times};
use crate::server_address::ServerAddress;
use annulus::DriverChoice;
use std::time::Duration;

/// The most connections of one run.
pub const MAX_CONNECTIONS: usize = 10_000_000;
/// The most event loops of one run: a thread each.
pub const MAX_EVENT_LOOPS: usize = 256;

/// One run of visits.
#[derive(Clone, Debug)]
pub struct PerConnectionPlan {
    /// The server to visit.
    pub address: ServerAddress,
    /// Visits in all: 1 to [`MAX_CONNECTIONS`].
    pub connections: usize,
    /// Visits at once.
    pub clients: usize,
    /// Bytes a message: 1 to [`MAX_LENGTH`].
    pub length: usize,
    /// Event loops that share the clients: 1 to [`MAX_EVENT_LOOPS`].
    pub threads: usize,
    /// The CPU to run on, with every thread of the load.
    pub pin: Option<usize>,
    /// A visit that gets no byte for this long has failed.
    pub reply_timeout: Duration,
    /// How long one connect may take.
    pub connect_timeout: Duration,
    /// Chooses what is sent.
    pub seed: u64,
    /// What the event loops run on.
    pub driver: DriverChoice,
}

impl PerConnectionPlan {
    /// BenchEcho's figures: 100 connections of 16 KiB, all at once, over four event loops.
    pub fn new(address: ServerAddress) -> PerConnectionPlan {
        PerConnectionPlan {
            address,
            connections: 100,
            clients: 100,
            length: 16 << 10,
            threads: 4,
            pin: None,
            reply_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            seed: 1,
            driver: DriverChoice::Auto,
        }
    }

    /// Whether the plan can be carried out at all.
    ///
    /// # Errors
    /// Names the first value that cannot be, its limit, and the way out.
    pub fn validate(&self) -> Result<(), PlanError> {
        self.address.validate()?;
        check_counts(&[
            ("connections", self.connections, 1, MAX_CONNECTIONS),
            ("clients", self.clients, 1, MAX_CLIENTS),
            ("bytes a message", self.length, 1, MAX_LENGTH),
            ("threads", self.threads, 1, MAX_EVENT_LOOPS),
        ])?;
        check_times(&[("reply", self.reply_timeout), ("connect", self.connect_timeout)])
    }

    /// Connections that are there at once, at most: those being closed while the next are being made among them.
    pub(super) fn max_open(&self) -> usize {
        self.connections.min(2 * self.clients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_named_with_their_limit() {
        let error = |change: fn(&mut PerConnectionPlan)| {
            let mut plan = PerConnectionPlan::new("127.0.0.1:7000".parse().unwrap());
            assert_eq!(plan.validate(), Ok(()));
            change(&mut plan);
            plan.validate().unwrap_err().to_string()
        };
        assert_eq!(error(|plan| plan.threads = 257), "257 threads: ask for 1 to 256");
        assert_eq!(error(|plan| plan.connections = 0), "0 connections: ask for 1 to 10000000");
        assert!(error(|plan| plan.length = 0).contains("0 bytes a message"));
        assert!(error(|plan| plan.address = "[::1]:0".parse().unwrap()).contains("port 0"));
        assert!(error(|plan| plan.reply_timeout = Duration::ZERO).contains("zero"));
    }
}
