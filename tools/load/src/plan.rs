//! A run of the load generator: which server, which workload, how many clients, for how long.

use crate::invalid::{InvalidValue, invalid};
use crate::mix::MAX_MESSAGE_BYTES;
use crate::protocol::Protocol;
use crate::schedule::Schedule;
use crate::server_address::ServerAddress;
use crate::tls::Tls;
use annulus::DriverChoice;
use std::time::Duration;

/// Most bytes in a datagram: the limit of UDP over IPv4.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;
/// Most clients of a run.
pub const MAX_CLIENTS: usize = 1_000_000;
/// Most messages in flight per connection.
pub const MAX_PIPELINE: usize = 4096;
/// Most datagrams in flight per client.
pub const MAX_WINDOW: usize = 1024;
/// Most bytes in flight per connection: 64 MiB.
pub const MAX_IN_FLIGHT_BYTES: usize = MAX_MESSAGE_BYTES;
/// Most event loops of a run: a thread each.
pub const MAX_EVENT_LOOPS: usize = 256;

/// One run of the load generator.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub address: ServerAddress,
    /// The workload of the clients.
    pub workload: Workload,
    /// The protocol of clients of streams.
    pub protocol: Protocol,
    /// How connections of streams are encrypted, if they are.
    pub tls: Option<Tls>,
    /// Clients: 1 to [`MAX_CLIENTS`].
    pub clients: usize,
    /// Bytes per message: 1 to [`MAX_MESSAGE_BYTES`], in datagrams to [`MAX_DATAGRAM_BYTES`].
    pub length: usize,
    /// When the requests of streams are due. A request that is due while the pipeline is full is sent late; its response time still counts from its
    /// due time.
    pub schedule: Schedule,
    /// How long to run before measuring, once every client is connected. May be zero.
    pub warm_up: Duration,
    /// How long to measure.
    pub duration: Duration,
    /// The CPU for every thread of the load. The calling thread's own affinity is restored afterwards.
    pub pin: Option<usize>,
    /// A client of streams that receives nothing for this long has failed; a datagram not echoed for this long is lost.
    pub reply_timeout: Duration,
    /// Limit for one connect.
    pub connect_timeout: Duration,
    /// The seed of the payload.
    pub seed: u64,
    /// The length of the intervals that are recorded: a second, unless a long run asks for fewer.
    pub interval: Duration,
}

impl Plan {
    /// The defaults of rust_echo_bench (50 clients, 512 bytes, 60 s) after a warm-up of one second. A reply may take 5 s, the
    /// echo of a datagram 200 ms.
    pub fn new(address: ServerAddress, workload: impl Into<Workload>) -> Plan {
        let workload = workload.into();
        let reply_timeout = match workload {
            Workload::Datagrams(_) => Duration::from_millis(200),
            Workload::Streams(_) => Duration::from_secs(5),
        };
        Plan {
            address,
            workload,
            protocol: Protocol::Echo,
            tls: None,
            clients: 50,
            length: 512,
            schedule: Schedule::default(),
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(60),
            pin: None,
            reply_timeout,
            connect_timeout: Duration::from_secs(5),
            seed: 1,
            interval: Duration::from_secs(1),
        }
    }

    /// Checks that every value is within its limits.
    ///
    /// # Errors
    /// Names the first invalid value, its limit and a remedy.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        self.address.validate()?;
        self.check_protocol()?;
        check_counts(&[("clients", self.clients, 1, MAX_CLIENTS)])?;
        match self.workload {
            Workload::Streams(streams) => self.check_streams(streams)?,
            Workload::Datagrams(Datagrams { window, segments, .. }) => {
                if let (ServerAddress::Unix(path), true) = (&self.address, segments) {
                    let path = path.display();
                    let text = format!("segments are for UDP: leave them out for {path}");
                    return Err(invalid(text));
                }
                check_counts(&[
                    ("bytes a datagram", self.length, 1, MAX_DATAGRAM_BYTES),
                    ("datagrams in flight", window, 1, MAX_WINDOW),
                ])?;
            }
        }
        check_times(&[
            ("recorded interval", self.interval),
            ("duration", self.duration),
            ("reply time-out", self.reply_timeout),
            ("connect time-out", self.connect_timeout),
        ])
    }

    fn check_streams(&self, streams: Streams) -> Result<(), InvalidValue> {
        let (length, Streams { pipeline, .. }) = (self.length, streams);
        check_counts(&[
            ("bytes a message", length, 1, MAX_MESSAGE_BYTES),
            ("messages in flight", pipeline, 1, MAX_PIPELINE),
            ("threads", streams.threads, 1, MAX_EVENT_LOOPS),
            ("requests per connection", requests_per_connection(streams), 1, usize::MAX),
        ])?;
        if pipeline * length > MAX_IN_FLIGHT_BYTES {
            let most = MAX_IN_FLIGHT_BYTES / length;
            return Err(invalid(format!(
                "{pipeline} messages of {length} bytes in flight are above the {MAX_IN_FLIGHT_BYTES} bytes of a \
                 connection: ask for at most {most}"
            )));
        }
        Ok(())
    }

    /// Only streams have a protocol, encryption and a schedule.
    fn check_protocol(&self) -> Result<(), InvalidValue> {
        let special = [
            ("other protocols than echo", self.protocol != Protocol::Echo),
            ("TLS", self.tls.is_some()),
            ("a schedule", self.schedule != Schedule::default()),
        ];
        let asked = special.iter().find(|(_, is_asked)| *is_asked);
        if let (Some((what, _)), Workload::Datagrams(_)) = (asked, self.workload) {
            let text = format!("{what} with datagrams: only connections have that, leave it out");
            return Err(invalid(text));
        }
        self.schedule.validate()?;
        self.protocol.validate()?;
        self.tls.iter().try_for_each(|tls| tls.validate())
    }

    /// The threads that the clients run on.
    pub(crate) fn threads(&self) -> usize {
        match self.workload {
            Workload::Streams(Streams { threads, .. }) => threads.min(self.clients),
            Workload::Datagrams(_) => 1,
        }
    }
}

fn requests_per_connection(streams: Streams) -> usize {
    streams.requests_per_connection.map_or(usize::MAX, |count| count as usize)
}

/// Checks counts: name, value, least and most.
pub(crate) fn check_counts(
    counts: &[(&'static str, usize, usize, usize)],
) -> Result<(), InvalidValue> {
    let wrong = counts.iter().find(|(_, value, least, most)| !(least..=most).contains(&value));
    wrong.map_or(Ok(()), |&(what, value, least, most)| {
        Err(invalid(format!("{value} {what}: ask for {least} to {most}")))
    })
}

/// Checks that no duration is zero: name and value.
pub(crate) fn check_times(times: &[(&'static str, Duration)]) -> Result<(), InvalidValue> {
    let wrong = times.iter().find(|(_, time)| time.is_zero());
    wrong.map_or(Ok(()), |(name, _)| {
        Err(invalid(format!("a {name} of zero: ask for more, such as 1s")))
    })
}

/// Most segments in one send: what every kernel with segmentation accepts.
const MAX_SEGMENTS: usize = 64;

/// The workload of the clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// Each client has a connection, and sends messages over the connection.
    Streams(Streams),
    /// Each client sends datagrams from a socket of its own.
    Datagrams(Datagrams),
}

/// Messages over connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streams {
    /// Messages in flight per connection: 1 to [`MAX_PIPELINE`](MAX_PIPELINE), and at most
    /// [`MAX_IN_FLIGHT_BYTES`](MAX_IN_FLIGHT) bytes.
    pub pipeline: usize,
    /// Threads with an event loop each that share the clients: 1 to [`MAX_EVENT_LOOPS`](MAX_EVENT_LOOPS). More than clients are not
    /// started.
    pub threads: usize,
    /// The driver of the event loops.
    pub driver: DriverChoice,
    /// Whether a client whose connection has failed goes on with another one, after a pause: 10 ms, and twice as long with each failure
    /// until a reply comes, up to a second. Otherwise it ends, as it does if its first connect fails. Failures count either way.
    pub reconnect: bool,
    /// Requests on one connection; then the client closes it and makes another one. The time for that is part of no service time, and of
    /// the latency of the next request: with 1, each request connects. With a server at an IPv4 loopback address, connections leave from
    /// [`SOURCE_ADDRESSES`](crate::SOURCE_ADDRESSES).
    pub requests_per_connection: Option<u64>,
}

/// Datagrams and their echoes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Datagrams {
    /// Datagrams in flight per client: 1 to [`MAX_WINDOW`](MAX_WINDOW).
    pub window: usize,
    /// Send with segmentation (GSO) as much as the window allows, receive with coalescing (GRO). UDP only.
    pub segments: bool,
    /// The driver of the clients.
    pub driver: DriverChoice,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams {
            pipeline: 1,
            driver: DriverChoice::default(),
            threads: 1,
            reconnect: false,
            requests_per_connection: None,
        }
    }
}

impl Default for Datagrams {
    fn default() -> Datagrams {
        Datagrams { window: 1, segments: false, driver: DriverChoice::Auto }
    }
}

impl From<Streams> for Workload {
    fn from(streams: Streams) -> Workload {
        Workload::Streams(streams)
    }
}

impl From<Datagrams> for Workload {
    fn from(datagrams: Datagrams) -> Workload {
        Workload::Datagrams(datagrams)
    }
}

impl Datagrams {
    /// Most datagrams in one send.
    pub(crate) fn max_segments(&self, length: usize) -> usize {
        if self.segments { segments_that_fit(length) } else { 1 }
    }
}

/// How many datagrams of a length one send can carry as segments.
fn segments_that_fit(length: usize) -> usize {
    (MAX_DATAGRAM_BYTES / length).min(MAX_SEGMENTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{MAX_RATE, MAX_THINK_TIME, Rate, ThinkTime};

    fn check(workload: impl Into<Workload>, change: fn(&mut Plan)) -> Result<(), InvalidValue> {
        let mut plan = Plan::new("127.0.0.1:7000".parse().unwrap(), workload);
        change(&mut plan);
        plan.validate()
    }

    #[track_caller]
    fn refused(workload: impl Into<Workload>, change: fn(&mut Plan), part: &str) {
        let error = check(workload, change).unwrap_err().to_string();
        assert!(error.contains(part), "{part} is not in: {error}");
    }

    #[test]
    fn default_and_maximum_values_are_valid() {
        assert_eq!(check(Streams::default(), |_| ()), Ok(()));
        assert_eq!(check(Datagrams::default(), |_| ()), Ok(()));
        assert_eq!(check(Streams::default(), |plan| plan.warm_up = Duration::ZERO), Ok(()));
        assert_eq!(check(Streams::default(), |plan| plan.length = MAX_MESSAGE_BYTES), Ok(()));
        let pipeline = MAX_PIPELINE;
        assert_eq!(
            check(Streams { pipeline, ..Streams::default() }, |plan| {
                plan.schedule = Schedule::open(Rate::constant(0.5));
            }),
            Ok(())
        );
    }

    #[test]
    fn excessive_bytes_in_flight_and_rates_are_rejected() {
        let streams = |pipeline| Streams { pipeline, ..Streams::default() };
        let refused = |pipeline, length, part| {
            let mut plan = Plan::new("127.0.0.1:7000".parse().unwrap(), streams(pipeline));
            plan.length = length;
            let error = plan.validate().unwrap_err().to_string();
            assert!(error.contains(part), "{part} is not in: {error}");
        };
        refused(0, 1, "0 messages in flight: ask for 1 to 4096");
        refused(MAX_PIPELINE + 1, 1, "4097 messages in flight");
        refused(65, 1 << 20, "ask for at most 64");
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2.0 * MAX_RATE] {
            let mut plan = Plan::new("127.0.0.1:7000".parse().unwrap(), streams(1));
            plan.schedule = Schedule::open(Rate::constant(rate));
            let error = plan.validate().unwrap_err().to_string();
            assert!(error.contains("messages a second: ask for more than 0"), "{error}");
        }
    }

    #[test]
    fn schedule_with_datagrams_is_rejected() {
        let open: fn(&mut Plan) = |plan| plan.schedule = Schedule::open(Rate::constant(1.0));
        assert_eq!(check(Streams::default(), open), Ok(()));
        refused(Datagrams::default(), open, "only connections have that");
        let long = |plan: &mut Plan| {
            plan.schedule = Schedule::Closed { think: ThinkTime::Fixed(2 * MAX_THINK_TIME) };
        };
        refused(Streams::default(), long, "a think time of 172800s: ask for at most 86400s");
    }

    #[test]
    fn out_of_range_error_names_the_value_and_its_limits() {
        let streams = Streams::default();
        refused(streams, |plan| plan.length = 0, "0 bytes a message: ask for 1 to 67108864");
        refused(streams, |plan| plan.length = MAX_MESSAGE_BYTES + 1, "67108865 bytes");
        refused(streams, |plan| plan.clients = 0, "0 clients: ask for 1 to 1000000");
        refused(streams, |plan| plan.clients = MAX_CLIENTS + 1, "1000001 clients");
        refused(streams, |plan| plan.duration = Duration::ZERO, "a duration of zero");
        refused(streams, |plan| plan.reply_timeout = Duration::ZERO, "a reply time-out of zero");
        refused(streams, |plan| plan.address = "[::1]:0".parse().unwrap(), "port 0");
    }

    #[test]
    fn datagram_limits_are_checked() {
        let datagrams = Datagrams::default();
        let long = "65508 bytes a datagram: ask for 1 to 65507";
        refused(datagrams, |plan| plan.length = 65_508, long);
        let none = Datagrams { window: 0, ..datagrams };
        refused(none, |_| (), "0 datagrams in flight: ask for 1 to 1024");
        let segments = Datagrams { segments: true, ..datagrams };
        let unix = |plan: &mut Plan| plan.address = ServerAddress::Unix("/run/echo".into());
        refused(segments, unix, "segments are for UDP: leave them out for /run/echo");
    }
}
