//! What to do: whom to call, how many clients, how long.

use crate::mode::Mode;
use crate::server_address::{MAX_PATH, ServerAddress};
use crate::window::Window;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The longest message: 64 MiB.
pub const MAX_LENGTH: usize = 64 << 20;
/// The most clients one run can have.
pub const MAX_CLIENTS: usize = 1_000_000;
/// The most clients with [`Mode::Threads`]: a thread each.
pub const MAX_THREADS: usize = 10_000;
/// The most messages in flight at one connection.
pub const MAX_PIPELINE: usize = 4096;
/// The most bytes in flight at one connection: 64 MiB.
pub const MAX_IN_FLIGHT: usize = MAX_LENGTH;
/// The highest rate of an open loop, in messages a second.
pub const MAX_RATE: f64 = 1e8;

/// One run of the load generator.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server to call.
    pub address: ServerAddress,
    /// Connections.
    pub clients: usize,
    /// Bytes a message: 1 to [`MAX_LENGTH`].
    pub length: usize,
    /// Messages in flight at each connection: 1 to [`MAX_PIPELINE`], and [`MAX_IN_FLIGHT`] bytes at most.
    pub pipeline: usize,
    /// Messages a second over all connections, at fixed times: an open loop. A message for whose time no place in the
    /// pipeline is free goes out late, and its latency counts from its time all the same. `None` is a closed loop: the
    /// next message is meant to start when a reply has freed its place.
    pub rate: Option<f64>,
    /// How long to run before measuring starts, once every client is connected. May be zero.
    pub warm_up: Duration,
    /// How long to measure.
    pub duration: Duration,
    /// The CPU to run on, with every thread of the load; the calling thread's own set is restored afterwards.
    pub pin: Option<usize>,
    /// A client that gets no byte for this long has failed.
    pub reply_timeout: Duration,
    /// How long one connect may take.
    pub connect_timeout: Duration,
    /// Chooses what the clients say.
    pub seed: u64,
    /// What the clients run on.
    pub mode: Mode,
}

impl Plan {
    /// rust_echo_bench's defaults (50 clients, 512 bytes, 60 s), after a second of warm-up.
    pub fn new(address: ServerAddress) -> Plan {
        Plan {
            address,
            clients: 50,
            length: 512,
            pipeline: 1,
            rate: None,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(60),
            pin: None,
            reply_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            seed: 1,
            mode: Mode::default(),
        }
    }

    /// Whether the plan can be carried out at all.
    ///
    /// # Errors
    /// Names the first value that cannot be, its limit, and the way out.
    pub fn validate(&self) -> Result<(), PlanError> {
        self.address.validate()?;
        check_counts(&[
            ("clients", self.clients, 1, MAX_CLIENTS),
            ("bytes a message", self.length, 1, MAX_LENGTH),
            ("messages in flight", self.pipeline, 1, MAX_PIPELINE),
        ])?;
        if self.mode == Mode::Threads && self.clients > MAX_THREADS {
            return Err(PlanError::Threads(self.clients));
        }
        self.check_pace()?;
        check_times(&[
            ("duration", self.duration),
            ("reply time-out", self.reply_timeout),
            ("connect time-out", self.connect_timeout),
        ])
    }

    fn check_pace(&self) -> Result<(), PlanError> {
        let Plan { pipeline, length, .. } = *self;
        if pipeline * length > MAX_IN_FLIGHT {
            return Err(PlanError::InFlight { pipeline, length });
        }
        match self.rate {
            Some(rate) if !(rate > 0.0 && rate <= MAX_RATE) => Err(PlanError::Rate(rate)),
            _ => Ok(()),
        }
    }

    /// The window of a client that begins now. The times of an open loop go round the clients.
    pub(crate) fn window(&self, client: usize, now: u64) -> Window {
        let Some(rate) = self.rate else { return Window::closed(self.length, self.pipeline, now) };
        let step = 1e9 / rate;
        let origin = now as f64 + client as f64 * step;
        Window::open(self.length, self.pipeline, origin, self.clients as f64 * step)
    }
}

/// Checks numbers: of what, the number, the least and the most.
pub(crate) fn check_counts(
    counts: &[(&'static str, usize, usize, usize)],
) -> Result<(), PlanError> {
    let wrong = counts.iter().find(|(_, value, least, most)| !(least..=most).contains(&value));
    wrong.map_or(Ok(()), |&(what, value, least, most)| {
        Err(PlanError::Count { what, value, least, most })
    })
}

/// Checks that no time is zero: its name, and the time.
pub(crate) fn check_times(times: &[(&'static str, Duration)]) -> Result<(), PlanError> {
    let wrong = times.iter().find(|(_, time)| time.is_zero());
    wrong.map_or(Ok(()), |(name, _)| Err(PlanError::Zero(name)))
}

/// A plan that cannot be carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanError {
    /// No server listens on port 0.
    NoPort(SocketAddr),
    /// An empty path, or one above [`MAX_PATH`] bytes.
    Path(PathBuf),
    /// More threads than [`MAX_THREADS`].
    Threads(usize),
    /// More bytes in flight at a connection than [`MAX_IN_FLIGHT`].
    InFlight {
        /// Messages in flight.
        pipeline: usize,
        /// Bytes of each.
        length: usize,
    },
    /// No messages a second, or more than [`MAX_RATE`].
    Rate(f64),
    /// A number outside its range.
    Count {
        /// Of what.
        what: &'static str,
        /// The number.
        value: usize,
        /// The least there may be.
        least: usize,
        /// The most there may be.
        most: usize,
    },
    /// Segments for a Unix socket, which has none.
    Segments(PathBuf),
    /// The named time is zero.
    Zero(&'static str),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::NoPort(address) => write!(
                f,
                "cannot call {address}: nothing listens on port 0, name the server's port"
            ),
            PlanError::Path(path) => write!(
                f,
                "the path '{}' has {} bytes: that of a Unix socket has 1 to {MAX_PATH}",
                path.display(),
                crate::server_address::length(path)
            ),
            PlanError::Threads(clients) => write!(
                f,
                "{clients} clients with a thread each: ask for at most {MAX_THREADS}, or for the uring or epoll driver"
            ),
            PlanError::InFlight { pipeline, length } => write!(
                f,
                "{pipeline} messages of {length} bytes in flight are above the {MAX_IN_FLIGHT} bytes of a connection: \
                 ask for at most {}",
                MAX_IN_FLIGHT / length
            ),
            PlanError::Rate(rate) => {
                write!(f, "{rate} messages a second: ask for more than 0 and at most {MAX_RATE}")
            }
            PlanError::Count { what, value, least, most } => {
                write!(f, "{value} {what}: ask for {least} to {most}")
            }
            PlanError::Segments(path) => {
                write!(f, "segments are for UDP: leave them out for {}", path.display())
            }
            PlanError::Zero(name) => write!(f, "a {name} of zero: ask for more, such as 1s"),
        }
    }
}

impl std::error::Error for PlanError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Plan)) -> Result<(), PlanError> {
        let mut plan = Plan::new("127.0.0.1:7000".parse().unwrap());
        change(&mut plan);
        plan.validate()
    }

    #[test]
    fn the_defaults_are_a_plan() {
        assert_eq!(check(|_| ()), Ok(()));
        assert_eq!(check(|plan| plan.warm_up = Duration::ZERO), Ok(()));
        assert_eq!(check(|plan| plan.length = MAX_LENGTH), Ok(()));
        assert_eq!(check(|plan| plan.pipeline = MAX_PIPELINE), Ok(()));
        assert_eq!(check(|plan| plan.rate = Some(0.5)), Ok(()));
    }

    #[test]
    fn what_is_in_flight_is_bounded() {
        let error = |pipeline, length, rate| {
            let wrong = check(|plan| {
                (plan.pipeline, plan.length, plan.rate) = (pipeline, length, rate);
            });
            wrong.unwrap_err().to_string()
        };
        assert!(error(0, 1, None).contains("ask for 1 to 4096"));
        assert!(error(MAX_PIPELINE + 1, 1, None).contains("4097 messages in flight"));
        assert!(error(65, 1 << 20, None).ends_with("ask for at most 64"));
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2.0 * MAX_RATE] {
            assert!(error(1, 1, Some(rate)).contains("messages a second: ask for more than 0"));
        }
    }

    #[test]
    fn threads_are_bounded_where_clients_have_one_each() {
        let many = |plan: &mut Plan| plan.clients = MAX_THREADS + 1;
        assert_eq!(check(many), Ok(()));
        let error = check(|plan| {
            many(plan);
            plan.mode = Mode::Threads;
        });
        assert_eq!(error, Err(PlanError::Threads(MAX_THREADS + 1)));
    }

    #[test]
    fn values_out_of_range_are_named() {
        let error = |change: fn(&mut Plan)| check(change).unwrap_err().to_string();
        let empty = "0 bytes a message: ask for 1 to 67108864";
        assert_eq!(error(|plan| plan.length = 0), empty);
        assert!(error(|plan| plan.length = MAX_LENGTH + 1).starts_with("67108865 bytes"));
        assert_eq!(error(|plan| plan.clients = 0), "0 clients: ask for 1 to 1000000");
        assert!(error(|plan| plan.clients = MAX_CLIENTS + 1).starts_with("1000001 clients"));
        assert_eq!(check(|plan| plan.duration = Duration::ZERO), Err(PlanError::Zero("duration")));
        assert!(check(|plan| plan.address = "[::1]:0".parse().unwrap()).is_err());
    }
}
