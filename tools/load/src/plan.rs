//! The plan of a run: which server, which workload, how many clients, and for how long.

use crate::invalid::{InvalidValue, counted, invalid};
use crate::mix::MAX_MESSAGE_BYTES;
use crate::part::Part;
use crate::protocol::Protocol;
use crate::recording::MAX_INTERVALS;
use crate::schedule::{Arrivals, Schedule};
use crate::server_address::ServerAddress;
use crate::tls::Tls;
use annulus::DriverChoice;
use std::net::SocketAddr;
use std::time::Duration;

/// The maximum number of bytes in a datagram: the limit of UDP over IPv4.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;
/// The maximum number of clients in a run.
pub const MAX_CLIENTS: usize = 1_000_000;
/// The maximum number of messages in flight per connection.
pub const MAX_PIPELINE: usize = 4096;
/// The maximum number of datagrams in flight per client.
pub const MAX_WINDOW: usize = 1024;
/// The maximum number of bytes in flight per connection: 64 MiB.
pub const MAX_IN_FLIGHT_BYTES: usize = MAX_MESSAGE_BYTES;
/// The maximum number of event loops in a run, each on its own thread.
pub const MAX_EVENT_LOOPS: usize = 256;

/// The maximum length of a run, its warm-up and its intervals: thirty days.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(30 * 24 * 3600);

/// The minimum length of a recorded interval.
const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// The minimum length of a turn.
const MIN_TURN: Duration = Duration::from_millis(1);

/// The plan of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The address of the server.
    pub address: ServerAddress,
    /// Further addresses of the server. Stream connections use `address` and these addresses in
    /// turn.
    pub more_addresses: Vec<SocketAddr>,
    /// Addresses of the server that are not used, which the results mention.
    pub skipped_addresses: Vec<SocketAddr>,
    /// What the clients send: messages over connections, or datagrams.
    pub workload: Workload,
    /// The protocol of stream clients. Datagrams support only [`Protocol::Echo`].
    pub protocol: Protocol,
    /// How stream connections are encrypted, if they are.
    pub tls: Option<Tls>,
    /// Number of clients over all parts: 1 to [`MAX_CLIENTS`].
    pub clients: usize,
    /// Bytes per message: 1 to [`MAX_MESSAGE_BYTES`], or to [`MAX_DATAGRAM_BYTES`] for datagrams.
    pub length: usize,
    /// When requests on streams are due. A request that is due while the pipeline is full is sent
    /// late, but its response time still counts from when it was due.
    pub schedule: Schedule,
    /// How long to run before measuring, once every client is connected. It may be zero, and at
    /// most 30 days.
    pub warm_up: Duration,
    /// How long to measure: at most 30 days.
    pub duration: Duration,
    /// How the clients pause within the measured window, so that several loads can take turns.
    /// `None` if they never pause. For closed loops without think time: a pause does
    /// not delay requests that are due at a scheduled time.
    pub turns: Option<Turns>,
    /// How many requests the clients send together, at least one; then the run ends, unless
    /// `duration` ends it earlier. A client that reconnects also ends after many attempts without a
    /// reply, within 10 to 20 s if connections are refused. Every request is measured, so there is
    /// no warm-up. Streams only.
    pub requests: Option<u64>,
    /// The CPU to which every thread of the load is pinned. The calling thread's own affinity is
    /// restored afterwards.
    pub pin: Option<usize>,
    /// How long a stream client waits for the next byte of a reply before its connection has
    /// failed, and how long a datagram may take before it is lost. `Duration::MAX` means no limit.
    pub reply_timeout: Duration,
    /// The time limit for one connect. `Duration::MAX` leaves it to the system.
    pub connect_timeout: Duration,
    /// The seed of the payload and of all random numbers of the clients.
    pub seed: u64,
    /// The length of recorded intervals: 1 ms to 30 days, and at least a 3,000,000th of `duration`
    /// unless `requests` limits the run.
    pub interval: Duration,
    /// The part of this machine in a run of several machines. `clients`, `requests` and the rate
    /// apply to all parts together.
    pub part: Part,
}

/// The turns of clients, with a pause after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// How long a turn is measured: 1 ms to 30 days.
    pub length: Duration,
    /// How long the clients run after a pause before they are measured again, since a server whose
    /// memory is no longer in the cache is slower. It may be zero, and at most 30 days.
    pub warm_up: Duration,
}

impl Turns {
    fn check(self) -> Result<(), InvalidValue> {
        if self.length < MIN_TURN {
            let text = format!("a turn must be at least {MIN_TURN:?}, not {:?}", self.length);
            return Err(invalid(text));
        }
        check_lengths(&[("turn", self.length), ("warm-up of a turn", self.warm_up)])
    }
}

impl Plan {
    /// Creates a plan with 50 clients and 512 bytes, like rust_echo_bench, for 10 s after a warm-up
    /// of one second. A stream client waits 5 s for a reply, a datagram client 200 ms for an echo.
    pub fn new(address: ServerAddress, workload: impl Into<Workload>) -> Plan {
        let workload = workload.into();
        let reply_timeout = match workload {
            Workload::Datagrams(_) => Duration::from_millis(200),
            Workload::Streams(_) => Duration::from_secs(5),
        };
        Plan {
            address,
            more_addresses: Vec::new(),
            skipped_addresses: Vec::new(),
            workload,
            protocol: Protocol::Echo,
            tls: None,
            clients: 50,
            length: 512,
            schedule: Schedule::default(),
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(10),
            turns: None,
            requests: None,
            pin: None,
            reply_timeout,
            connect_timeout: Duration::from_secs(5),
            seed: 1,
            interval: Duration::from_secs(1),
            part: Part::WHOLE,
        }
    }

    /// Checks that every value is within its limits.
    ///
    /// # Errors
    /// Fails for the first invalid value. The error contains the value, its limit and a remedy.
    pub fn validate(&self) -> Result<(), InvalidValue> {
        self.address.validate()?;
        self.more_addresses.iter().try_for_each(|more| ServerAddress::from(*more).validate())?;
        self.check_protocol()?;
        check_counts(&[("connections", self.clients, 1, MAX_CLIENTS)])?;
        self.part.check(self.clients, self.requests)?;
        match self.requests {
            Some(0) => return Err(invalid("the number of requests must be at least 1, not 0")),
            Some(_) if !self.warm_up.is_zero() => {
                return Err(invalid(
                    "a number of requests counts from the first one: leave the warm-up out",
                ));
            }
            _ => {}
        }
        match self.workload {
            Workload::Streams(streams) => self.check_streams(streams)?,
            Workload::Datagrams(Datagrams { window, .. }) => check_counts(&[
                ("bytes per datagram", self.length, 1, MAX_DATAGRAM_BYTES),
                ("datagrams in flight", window, 1, MAX_WINDOW),
            ])?,
        }
        check_lengths(&[
            ("warm-up", self.warm_up),
            ("duration", self.duration),
            ("recorded interval", self.interval),
        ])?;
        check_times(&[
            ("recorded interval", self.interval),
            ("duration", self.duration),
            ("reply timeout", self.reply_timeout),
            ("connect timeout", self.connect_timeout),
        ])?;
        self.turns.map_or(Ok(()), Turns::check)?;
        self.check_interval()
    }

    /// Rejects a recorded interval that is so short that the intervals could exhaust the memory.
    fn check_interval(&self) -> Result<(), InvalidValue> {
        let Plan { interval, duration, .. } = *self;
        if interval < MIN_INTERVAL {
            return Err(invalid(format!(
                "the recorded interval must be at least {MIN_INTERVAL:?}, not {interval:?}"
            )));
        }
        let intervals = duration.as_nanos().div_ceil(interval.as_nanos());
        // A run that ends with its last request usually ends long before `duration`.
        if self.requests.is_none() && intervals > u128::from(MAX_INTERVALS) {
            let least = duration.as_nanos().div_ceil(u128::from(MAX_INTERVALS) * 1_000_000);
            return Err(invalid(format!(
                "{duration:?} has {intervals} recorded intervals of {interval:?}, but the limit is \
                 {MAX_INTERVALS}: use an interval of at least {least} ms, or a shorter duration"
            )));
        }
        Ok(())
    }

    fn check_streams(&self, streams: Streams) -> Result<(), InvalidValue> {
        let (length, Streams { pipeline, .. }) = (self.length, streams);
        check_counts(&[
            ("bytes per message", length, 1, MAX_MESSAGE_BYTES),
            ("messages in flight", pipeline, 1, MAX_PIPELINE),
            ("threads", streams.threads, 1, MAX_EVENT_LOOPS),
            ("requests per connection", requests_per_connection(streams), 1, usize::MAX),
        ])?;
        self.check_burst(pipeline)?;
        if self.protocol.has_cookies() && pipeline > 1 {
            return Err(invalid(format!(
                "with cookies, each request waits for the reply to the one before, but {pipeline} \
                 messages are in flight: use 1"
            )));
        }
        if pipeline * length > MAX_IN_FLIGHT_BYTES {
            let most = MAX_IN_FLIGHT_BYTES / length;
            return Err(invalid(format!(
                "{pipeline} messages of {length} bytes in flight exceed the limit of \
                 {MAX_IN_FLIGHT_BYTES} bytes per connection: use at most {}",
                counted(most, "message")
            )));
        }
        Ok(())
    }

    /// Rejects a burst that does not fit on its connections, so that it cannot be sent together.
    fn check_burst(&self, pipeline: usize) -> Result<(), InvalidValue> {
        let Schedule::Open { arrivals: Arrivals::Together { requests, on_one_connection }, .. } =
            self.schedule
        else {
            return Ok(());
        };
        let clients = if on_one_connection { 1 } else { self.clients };
        let most = pipeline * clients;
        if requests as usize > most {
            return Err(invalid(format!(
                "a burst of {requests} requests does not fit on {} with {pipeline} in flight on \
                 each: use at most {}, more messages in flight, or more connections",
                counted(clients, "connection"),
                counted(most, "request")
            )));
        }
        Ok(())
    }

    /// Rejects settings for datagrams that only streams have, and validates the schedule, the
    /// protocol and TLS.
    fn check_protocol(&self) -> Result<(), InvalidValue> {
        let special = [
            ("a protocol other than echo", self.protocol != Protocol::Echo),
            ("TLS", self.tls.is_some()),
            ("a schedule", self.schedule != Schedule::default()),
            ("a number of requests", self.requests.is_some()),
        ];
        let asked = special.iter().find(|(_, is_asked)| *is_asked);
        if let (Some((what, _)), Workload::Datagrams(_)) = (asked, self.workload) {
            let text =
                format!("{what} cannot be used with datagrams: leave it out, or use connections");
            return Err(invalid(text));
        }
        self.schedule.validate()?;
        self.protocol.validate()?;
        self.tls.iter().try_for_each(|tls| tls.validate())
    }

    /// Returns the internet address for connection `number` of the run, or `None` if the server has
    /// a path.
    pub(crate) fn inet_address(&self, number: usize) -> Option<SocketAddr> {
        let ServerAddress::Inet(first) = self.address else { return None };
        let place = number % (1 + self.more_addresses.len());
        Some(place.checked_sub(1).map_or(first, |place| self.more_addresses[place]))
    }

    /// Returns the number of requests per connection, if it is limited: by the workload, or to one
    /// by a request that says `Connection: close`.
    pub(crate) fn requests_per_connection(&self, streams: Streams) -> Option<u64> {
        if self.protocol.closes_connections() { Some(1) } else { streams.requests_per_connection }
    }

    /// Returns the number of threads on which the clients of this part run. It is the same for all
    /// parts.
    pub(crate) fn threads(&self) -> usize {
        match self.workload {
            Workload::Streams(Streams { threads, .. }) => {
                threads.min(self.clients / self.part.count())
            }
            Workload::Datagrams(_) => 1,
        }
    }

    pub(crate) fn own_clients(&self) -> usize {
        self.part.clients(self.clients)
    }

    /// Returns the planned number of requests of this part, if there is one.
    pub(crate) fn own_requests(&self) -> Option<u64> {
        let own = |requests| self.part.requests(requests, self.threads(), self.clients);
        self.requests.map(own)
    }
}

fn requests_per_connection(streams: Streams) -> usize {
    streams.requests_per_connection.map_or(usize::MAX, |count| count as usize)
}

/// Checks counts, given as name, value, minimum and maximum.
pub(crate) fn check_counts(
    counts: &[(&'static str, usize, usize, usize)],
) -> Result<(), InvalidValue> {
    let wrong = counts.iter().find(|(_, value, least, most)| !(least..=most).contains(&value));
    wrong.map_or(Ok(()), |&(what, value, least, most)| {
        Err(invalid(format!("{what} must be from {least} to {most}, not {value}")))
    })
}

/// Checks that no duration is longer than a run may be, given as name and value.
fn check_lengths(times: &[(&'static str, Duration)]) -> Result<(), InvalidValue> {
    let wrong = times.iter().find(|(_, time)| *time > MAX_DURATION);
    wrong.map_or(Ok(()), |(name, time)| {
        Err(invalid(format!("the {name} must be at most 30 days, not {time:?}")))
    })
}

/// Checks that no duration is zero, given as name and value.
pub(crate) fn check_times(times: &[(&'static str, Duration)]) -> Result<(), InvalidValue> {
    let wrong = times.iter().find(|(_, time)| time.is_zero());
    wrong.map_or(Ok(()), |(name, _)| {
        Err(invalid(format!("the {name} must be above zero, such as 1s")))
    })
}

/// The workload of the clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// Each client sends messages over its own connection.
    Streams(Streams),
    /// Each client sends datagrams from its own socket.
    Datagrams(Datagrams),
}

/// Messages over connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streams {
    /// Messages in flight per connection: 1 to [`MAX_PIPELINE`], and at most
    /// [`MAX_IN_FLIGHT_BYTES`] bytes.
    pub pipeline: usize,
    /// Number of threads that share the clients, each with its own event loop: 1 to
    /// [`MAX_EVENT_LOOPS`]. No thread is started without a client.
    pub threads: usize,
    /// The driver of the event loops.
    pub driver: DriverChoice,
    /// Whether a client opens a new connection after its connection has failed; otherwise the
    /// client ends. It pauses first: 5 to 10 ms, which doubles with each failure until a reply
    /// arrives, up to 0.5 to 1 s. Failures count either way.
    pub reconnect: bool,
    /// Requests per connection; the client then closes it and opens a new one. A header
    /// `Connection: close` in the requests overrides it with 1. Reconnecting is never part of a
    /// service time, but counts in the response time of a request that falls due meanwhile: in a
    /// closed loop without think time, the next one. For a server on an IPv4 loopback address,
    /// connections come from [`SOURCE_ADDRESSES`](crate::SOURCE_ADDRESSES) different addresses.
    pub requests_per_connection: Option<u64>,
}

/// Datagrams and their echoes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Datagrams {
    /// Datagrams in flight per client: 1 to [`MAX_WINDOW`].
    pub window: usize,
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
        Datagrams { window: 1, driver: DriverChoice::Auto }
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
        refused(0, 1, "messages in flight must be from 1 to 4096, not 0");
        refused(MAX_PIPELINE + 1, 1, "from 1 to 4096, not 4097");
        refused(65, 1 << 20, "use at most 64 messages");
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2.0 * MAX_RATE] {
            let mut plan = Plan::new("127.0.0.1:7000".parse().unwrap(), streams(1));
            plan.schedule = Schedule::open(Rate::constant(rate));
            let error = plan.validate().unwrap_err().to_string();
            assert!(
                error.contains("messages per second is out of range: use more than 0"),
                "{error}"
            );
        }
    }

    #[test]
    fn schedule_with_datagrams_is_rejected() {
        let open: fn(&mut Plan) = |plan| plan.schedule = Schedule::open(Rate::constant(1.0));
        assert_eq!(check(Streams::default(), open), Ok(()));
        refused(Datagrams::default(), open, "cannot be used with datagrams");
        let long = |plan: &mut Plan| {
            plan.schedule = Schedule::Closed { think: ThinkTime::Fixed(2 * MAX_THINK_TIME) };
        };
        refused(
            Streams::default(),
            long,
            "the think time of 172800s is too long: use at most 86400s",
        );
    }

    #[test]
    fn burst_must_fit_on_its_connections() {
        let burst = |requests, on_one_connection| {
            let streams = Streams { pipeline: 4, ..Streams::default() };
            let mut plan = Plan::new("127.0.0.1:7000".parse().unwrap(), streams);
            let arrivals = Arrivals::Together { requests, on_one_connection };
            plan.schedule = Schedule::Open { rate: Rate::constant(1.0), arrivals };
            plan.validate().map_err(|error| error.to_string())
        };
        assert_eq!((burst(200, false), burst(4, true)), (Ok(()), Ok(())));
        assert!(burst(201, false).unwrap_err().contains("fit on 50 connections with 4 in flight"));
        assert!(burst(5, true).unwrap_err().contains("fit on 1 connection with 4 in flight"));
    }

    #[test]
    fn number_of_requests_excludes_datagrams_and_a_warm_up() {
        let some: fn(&mut Plan) = |plan| plan.requests = Some(5);
        refused(Streams::default(), some, "leave the warm-up out");
        let cold: fn(&mut Plan) = |plan| (plan.requests, plan.warm_up) = (Some(5), Duration::ZERO);
        assert_eq!(check(Streams::default(), cold), Ok(()));
        refused(Datagrams::default(), cold, "a number of requests cannot be used with datagrams");
        let none: fn(&mut Plan) = |plan| plan.requests = Some(0);
        refused(Streams::default(), none, "the number of requests must be at least 1, not 0");
    }

    #[test]
    fn out_of_range_error_names_the_value_and_its_limits() {
        let streams = Streams::default();
        refused(
            streams,
            |plan| plan.length = 0,
            "bytes per message must be from 1 to 67108864, not 0",
        );
        refused(streams, |plan| plan.length = MAX_MESSAGE_BYTES + 1, "not 67108865");
        refused(streams, |plan| plan.clients = 0, "connections must be from 1 to 1000000, not 0");
        refused(streams, |plan| plan.clients = MAX_CLIENTS + 1, "not 1000001");
        refused(streams, |plan| plan.duration = Duration::ZERO, "the duration must be above zero");
        refused(
            streams,
            |plan| plan.reply_timeout = Duration::ZERO,
            "the reply timeout must be above zero",
        );
        refused(streams, |plan| plan.address = "[::1]:0".parse().unwrap(), "port 0");
    }

    #[test]
    fn recorded_intervals_are_neither_too_short_nor_too_many() {
        let streams = Streams::default();
        let tiny: fn(&mut Plan) = |plan| plan.interval = Duration::from_nanos(1);
        refused(streams, tiny, "the recorded interval must be at least 1ms, not 1ns");
        assert_eq!(check(streams, |plan| plan.interval = MIN_INTERVAL), Ok(()));
        assert_eq!(check(streams, |plan| plan.duration = MAX_DURATION), Ok(()));
        refused(
            streams,
            |plan| (plan.interval, plan.duration) = (MIN_INTERVAL, Duration::from_secs(3601)),
            "3601s has 3601000 recorded intervals of 1ms, but the limit is 3000000: use an \
             interval of at least 2 ms, or a shorter duration",
        );
        let counted = check(streams, |plan| {
            (plan.requests, plan.warm_up) = (Some(5), Duration::ZERO);
            (plan.interval, plan.duration) = (MIN_INTERVAL, MAX_DURATION);
        });
        assert_eq!(counted, Ok(()));
    }

    #[test]
    fn datagram_limits_are_checked() {
        let datagrams = Datagrams::default();
        let long = "bytes per datagram must be from 1 to 65507, not 65508";
        refused(datagrams, |plan| plan.length = 65_508, long);
        let none = Datagrams { window: 0, ..datagrams };
        refused(none, |_| (), "datagrams in flight must be from 1 to 1024, not 0");
    }
}
