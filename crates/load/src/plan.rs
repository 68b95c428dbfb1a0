//! What to do: whom to call, how many clients, how long.

use annulus::DriverChoice;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// The longest message: 64 MiB.
pub const MAX_LENGTH: usize = 64 << 20;
/// The most clients one run can have.
pub const MAX_CLIENTS: usize = 1_000_000;

/// One run of the load generator.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server to call.
    pub address: SocketAddr,
    /// Connections, each with one message in flight.
    pub clients: usize,
    /// Bytes a message: 1 to [`MAX_LENGTH`].
    pub length: usize,
    /// How long to run before measuring starts, once every client is connected. May be zero.
    pub warm_up: Duration,
    /// How long to measure.
    pub duration: Duration,
    /// The CPU to run on; the thread's own set is restored afterwards.
    pub pin: Option<usize>,
    /// A client that gets no byte for this long has failed.
    pub reply_timeout: Duration,
    /// How long one connect may take.
    pub connect_timeout: Duration,
    /// Chooses what the clients say.
    pub seed: u64,
    /// The driver the clients run on.
    pub driver: DriverChoice,
}

impl Plan {
    /// rust_echo_bench's defaults (50 clients, 512 bytes, 60 s), after a second of warm-up.
    pub fn new(address: SocketAddr) -> Plan {
        Plan {
            address,
            clients: 50,
            length: 512,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(60),
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
        if self.address.port() == 0 {
            return Err(PlanError::NoPort(self.address));
        }
        if !(1..=MAX_CLIENTS).contains(&self.clients) {
            return Err(PlanError::Clients(self.clients));
        }
        if !(1..=MAX_LENGTH).contains(&self.length) {
            return Err(PlanError::Length(self.length));
        }
        let times = [
            ("duration", self.duration),
            ("reply time-out", self.reply_timeout),
            ("connect time-out", self.connect_timeout),
        ];
        match times.iter().find(|(_, time)| time.is_zero()) {
            Some((name, _)) => Err(PlanError::Zero(name)),
            None => Ok(()),
        }
    }
}

/// A plan that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// No server listens on port 0.
    NoPort(SocketAddr),
    /// No clients, or more than [`MAX_CLIENTS`].
    Clients(usize),
    /// An empty message, or one above [`MAX_LENGTH`].
    Length(usize),
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
            PlanError::Clients(clients) => {
                write!(f, "{clients} clients: ask for 1 to {MAX_CLIENTS}")
            }
            PlanError::Length(length) => {
                write!(
                    f,
                    "messages of {length} bytes: ask for 1 to {MAX_LENGTH} ({} MiB)",
                    MAX_LENGTH >> 20
                )
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
    }

    #[test]
    fn values_out_of_range_are_named() {
        assert_eq!(check(|plan| plan.length = 0), Err(PlanError::Length(0)));
        assert_eq!(
            check(|plan| plan.length = MAX_LENGTH + 1),
            Err(PlanError::Length(MAX_LENGTH + 1))
        );
        assert_eq!(check(|plan| plan.clients = 0), Err(PlanError::Clients(0)));
        assert_eq!(
            check(|plan| plan.clients = MAX_CLIENTS + 1),
            Err(PlanError::Clients(MAX_CLIENTS + 1))
        );
        assert_eq!(check(|plan| plan.duration = Duration::ZERO), Err(PlanError::Zero("duration")));
        assert!(check(|plan| plan.address.set_port(0)).is_err());
    }

    #[test]
    fn errors_are_one_line_with_value_and_limit() {
        let text = PlanError::Length(0).to_string();
        assert!(
            text.contains("0 bytes") && text.contains("67108864") && !text.contains('\n'),
            "{text}"
        );
    }
}
