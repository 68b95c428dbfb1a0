//! Whom to send datagrams, how many at once, how long.

use crate::plan::{MAX_CLIENTS, PlanError, check_counts, check_times};
use crate::server_address::ServerAddress;
use annulus::DriverChoice;
use std::time::Duration;

/// The longest datagram: what UDP over IPv4 has room for.
pub const MAX_DATAGRAM: usize = 65_507;
/// The most datagrams under way at one client.
pub const MAX_WINDOW: usize = 1024;

/// The most datagrams that leave as one: what every kernel with segmentation takes.
const MAX_SEGMENTS: usize = 64;

/// One run with datagrams.
#[derive(Clone, Debug)]
pub struct DatagramPlan {
    /// The server.
    pub address: ServerAddress,
    /// Clients, each with a socket of its own.
    pub clients: usize,
    /// Bytes a datagram: 1 to [`MAX_DATAGRAM`].
    pub length: usize,
    /// Datagrams under way at each client: 1 to [`MAX_WINDOW`].
    pub window: usize,
    /// Send as one what there is room for at once, and have what comes put together (GSO and GRO). For UDP only.
    pub segments: bool,
    /// How long to run before measuring starts. May be zero.
    pub warm_up: Duration,
    /// How long to measure.
    pub duration: Duration,
    /// A datagram whose echo has not come after this long is lost.
    pub timeout: Duration,
    /// The CPU to run on; the thread's own set is restored afterwards.
    pub pin: Option<usize>,
    /// Chooses what is sent.
    pub seed: u64,
    /// What the clients run on.
    pub driver: DriverChoice,
}

impl DatagramPlan {
    /// 50 clients, 512 bytes, one datagram under way each, 60 s after a second of warm-up; lost after 200 ms.
    pub fn new(address: ServerAddress) -> DatagramPlan {
        DatagramPlan {
            address,
            clients: 50,
            length: 512,
            window: 1,
            segments: false,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(60),
            timeout: Duration::from_millis(200),
            pin: None,
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
        if let (ServerAddress::Unix(path), true) = (&self.address, self.segments) {
            return Err(PlanError::Segments(path.clone()));
        }
        check_counts(&[
            ("clients", self.clients, 1, MAX_CLIENTS),
            ("bytes a datagram", self.length, 1, MAX_DATAGRAM),
            ("datagrams in flight", self.window, 1, MAX_WINDOW),
        ])?;
        check_times(&[("duration", self.duration), ("time-out", self.timeout)])
    }

    /// How many datagrams leave as one, at most.
    pub(super) fn max_segments(&self) -> usize {
        if self.segments { (MAX_DATAGRAM / self.length).min(MAX_SEGMENTS) } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_named_with_their_limit() {
        let error = |change: fn(&mut DatagramPlan)| {
            let mut plan = DatagramPlan::new("127.0.0.1:7000".parse().unwrap());
            assert_eq!(plan.validate(), Ok(()));
            change(&mut plan);
            plan.validate().unwrap_err().to_string()
        };
        let long = error(|plan| plan.length = 65_508);
        assert_eq!(long, "65508 bytes a datagram: ask for 1 to 65507");
        assert_eq!(error(|plan| plan.window = 0), "0 datagrams in flight: ask for 1 to 1024");
        assert!(error(|plan| plan.clients = 0).contains("0 clients"));
        let path = error(|plan| {
            (plan.address, plan.segments) = (ServerAddress::Unix("/run/letters".into()), true);
        });
        assert_eq!(path, "segments are for UDP: leave them out for /run/letters");
        assert!(error(|plan| plan.timeout = Duration::ZERO).contains("time-out of zero"));
    }
}
