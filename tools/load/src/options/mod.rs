//! The options of a load, in one type for the command line and for TOML files.

mod address;
mod endpoint;
mod requests;
mod target;
mod targets;
mod values;

pub use address::Address;
use address::ServerAddresses;
pub use endpoint::Endpoint;
pub use requests::{RequestSpec, RequestTable};
#[doc(hidden)]
pub use target::check_round_trip as check_target_round_trip;
pub use values::{parse_bytes, parse_duration};
#[doc(hidden)]
pub use values::{parse_cpu, without_type_names};

use crate::exchange::script::LengthField;
use crate::files::{self, MAX_INPUT_BYTES};
use crate::plan::{Datagrams, MAX_DURATION, Plan, Streams, Workload};
use crate::protocol::Protocol;
use crate::schedule::{Arrivals, Rate, Schedule, ThinkTime};
use crate::server_address::ServerAddress;
use crate::tls::{ClientIdentity, Tls, Trust};
use annulus::DriverChoice;
use clap::{ArgGroup, Args, CommandFactory, FromArgMatches, Parser};
use serde::Deserialize;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use target::Target;
use targets::read_targets;
use values::{length, optional, text};

/// The options of `annulus load`, and the keys of its files.
///
/// ```
/// use annulus_load::Options;
///
/// let options: Options = "tcp://127.0.0.1:7000 -l 128 --rate 10k".parse().unwrap();
/// let plan = options.plan().unwrap();
/// assert_eq!((plan.length, plan.schedule.to_string()), (128, "10000 per second".to_owned()));
/// ```
#[derive(Args, Clone, Debug, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[group(skip)]
#[command(group = ArgGroup::new("framing").args(["reply_until", "reply_length", "reply_length_field"]))]
pub struct Options {
    /// The server: http://HOST:PORT/PATH, tcp://, udp://, unix:/path …
    ///
    /// http://HOST:PORT/PATH, https://, tcp://, tls://, udp://, unix:/path, unix-datagram:/path, or
    /// HOST:PORT; or a FILE.toml with all options of a load [default: 127.0.0.1:7000]
    #[arg(value_name = "TARGET")]
    pub target: Option<String>,
    /// Connect to this Unix socket instead of the target's host
    #[arg(long, value_name = "PATH")]
    pub unix_socket: Option<PathBuf>,
    /// Number of connections [default: 50]
    ///
    /// Or of sockets, for datagrams
    #[arg(short = 'c', long, value_name = "COUNT", value_parser = values::connections)]
    pub connections: Option<usize>,
    /// How long to measure: 500ms, 30, 2m [default: 10]
    ///
    /// In seconds, or with a unit
    #[arg(short = 'd', long, value_name = "TIME", value_parser = values::measured_time)]
    #[serde(deserialize_with = "values::duration")]
    pub duration: Option<Duration>,
    /// How many requests to send: 500, 10k
    ///
    /// Over all connections, without a warm-up. The run ends with the last reply, after --duration
    /// if that is given, or once no connection has got a reply for some 15 seconds
    #[arg(short = 'n', long = "requests", value_name = "COUNT", value_parser = values::count)]
    #[serde(rename = "requests", deserialize_with = "values::request_count")]
    pub count: Option<u64>,
    /// How long to run before measuring [default: 1]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    #[serde(deserialize_with = "values::duration")]
    pub warm_up: Option<Duration>,
    /// Bytes per message of an echo: 128, 16K [default: 512]
    ///
    /// At most 64 MiB
    #[arg(short, long, value_name = "BYTES", value_parser = length)]
    #[serde(deserialize_with = "values::bytes")]
    pub length: Option<usize>,
    /// Requests in flight per connection [default: 1]
    ///
    /// Or per socket, for datagrams
    #[arg(long, value_name = "COUNT", value_parser = values::pipeline)]
    pub pipeline: Option<usize>,
    /// Requests per second, an open loop: 500, 10k
    ///
    /// Over all connections, however fast the server is [default: as fast as replies arrive, a
    /// closed loop]
    #[arg(long, value_name = "PER SECOND", conflicts_with = "think")]
    #[serde(deserialize_with = "optional")]
    pub rate: Option<Rate>,
    /// With --rate: send at equal intervals (constant), like many independent users (poisson), or
    /// collect the requests that are due within each TIME and send them at its end (burst:1ms),
    /// which takes less CPU [default: constant]
    #[arg(
        long,
        value_name = "constant|poisson|burst:TIME",
        requires = "rate",
        conflicts_with = "think"
    )]
    #[serde(deserialize_with = "optional")]
    pub arrivals: Option<Arrivals>,
    /// With --rate: send this many requests together, on as many connections, or with 10:one on one
    /// connection
    #[arg(long, value_name = "COUNT[:one]", requires = "rate", value_parser = values::parse_burst,
          conflicts_with_all = ["arrivals", "think"])]
    #[serde(deserialize_with = "values::burst")]
    pub burst: Option<Arrivals>,
    /// Without --rate: the time between a reply and the next request: 10ms, 5ms..20ms (uniform), or
    /// exp:10ms (exponential, with this mean)
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "optional")]
    pub think: Option<ThinkTime>,
    /// Use a new connection for each message: connect, send, receive, close. Response times include
    /// the connect, service times do not
    #[arg(long)]
    pub per_connection: bool,
    /// Event loops that share the load [default: 1]
    ///
    /// Each runs on its own thread
    #[arg(short = 't', long, value_name = "COUNT", value_parser = values::threads)]
    pub threads: Option<u16>,
    /// Run on this CPU
    #[arg(long, value_name = "CPU", value_parser = parse_cpu)]
    pub pin: Option<usize>,
    /// The driver: auto, uring or epoll
    #[arg(long, default_value = "auto")]
    #[serde(deserialize_with = "text")]
    pub driver: DriverChoice,
    /// How long to wait for a reply [default: 5]
    ///
    /// A connection that receives no byte of a reply for this long fails. A datagram that is not
    /// echoed for this long is lost, after 200ms by default
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    #[serde(deserialize_with = "values::duration")]
    pub reply_timeout: Option<Duration>,
    /// The length of a recorded interval [default: 1]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    #[serde(deserialize_with = "values::duration")]
    pub interval: Option<Duration>,

    /// The HTTP method [default: GET]
    ///
    /// POST by default if there is a body
    #[arg(short = 'm', long, value_name = "METHOD", help_heading = HTTP_HEADING)]
    pub method: Option<String>,
    /// An HTTP header; may be repeated
    ///
    /// Such as 'accept: text/html'
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", help_heading = HTTP_HEADING)]
    #[serde(rename = "header")]
    pub headers: Vec<String>,
    /// The HTTP body
    ///
    /// It is sent as it is
    #[arg(short = 'b', long, value_name = "TEXT", help_heading = HTTP_HEADING, conflicts_with = "body_file")]
    pub body: Option<String>,
    /// A file whose contents are sent as the body
    #[arg(long, value_name = "FILE", help_heading = HTTP_HEADING)]
    pub body_file: Option<PathBuf>,
    /// A request that replaces the target's path: '/PATH', 'METHOD /PATH' or 'METHOD /PATH BODY';
    /// may be repeated, with weights: '9*/a' '1*/b'; or @FILE with one request per line
    #[arg(long = "request", value_name = "REQUEST", help_heading = HTTP_HEADING,
          conflicts_with_all = ["method", "body", "body_file"])]
    #[serde(rename = "request")]
    pub requests: Vec<RequestSpec>,
    /// A file of requests as vegeta reads it (its http and json formats), instead of TARGET; they
    /// are sent in order
    #[arg(long, value_name = "FILE", help_heading = HTTP_HEADING,
          conflicts_with_all = ["target", "method", "body", "body_file", "requests"])]
    pub targets: Option<PathBuf>,
    /// Keep the cookies that the server sets on each connection, and send them as a browser does
    #[arg(long, help_heading = HTTP_HEADING)]
    pub cookies: bool,
    /// Send the requests in order, as a session that each connection repeats, instead of drawing them
    #[arg(long, help_heading = HTTP_HEADING)]
    pub in_order: bool,
    /// A file of comma-separated values: a field {COLUMN} in a request is replaced with the value
    /// in that column of the next row, or with --in-order of the session's row
    #[arg(long, value_name = "FILE", help_heading = HTTP_HEADING)]
    pub data: Option<PathBuf>,
    /// HTTP/2, with or without TLS
    ///
    /// Negotiated by ALPN over TLS, otherwise with prior knowledge; --pipeline sets the number of
    /// concurrent requests per connection
    #[arg(long, help_heading = HTTP_HEADING)]
    pub h2: bool,

    /// A request, with escapes such as \r\n and \x00, and fields such as {client}; may be repeated,
    /// with weights: '9*a' '1*b'; or @FILE, sent as it is
    #[arg(long, value_name = "TEXT", help_heading = SCRIPT_HEADING)]
    pub send: Vec<String>,
    /// The expected reply or HTTP body
    ///
    /// Once for all requests, or once per request; others count as errors. The whole text, length:N,
    /// regex:EXPRESSION, sha256:HEX, or @FILE, compared as it is. With --send, a text may have
    /// escapes and fields
    #[arg(long, value_name = "TEXT", help_heading = SCRIPT_HEADING)]
    pub expect: Vec<String>,
    /// A reply ends with these bytes, with escapes, such as \n
    #[arg(long, value_name = "TEXT", help_heading = SCRIPT_HEADING)]
    pub reply_until: Option<String>,
    /// A reply has this many bytes [default: the length of the expected reply]
    #[arg(long, value_name = "BYTES", help_heading = SCRIPT_HEADING,
          value_parser = values::reply_length)]
    pub reply_length: Option<usize>,
    /// A reply starts with a field that counts the bytes after it: u8, u16be, u32le and so on; add
    /// @OFFSET if it is not at the start, and +N or -N if it counts other bytes
    #[arg(long, value_name = "FIELD", help_heading = SCRIPT_HEADING)]
    #[serde(deserialize_with = "optional")]
    pub reply_length_field: Option<LengthField>,

    /// Trust only the certificates in this file (PEM) [default: those that this system trusts]
    #[arg(long, value_name = "FILE", help_heading = TLS_HEADING)]
    pub tls_ca: Option<PathBuf>,
    /// Do not check the TLS certificate
    ///
    /// Neither its issuer, nor its name, nor its dates
    #[arg(short = 'k', long, conflicts_with = "tls_ca", help_heading = TLS_HEADING)]
    pub insecure: bool,
    /// The name to request, which the certificate must be for [default: the target's host]
    #[arg(long, value_name = "NAME", help_heading = TLS_HEADING)]
    pub tls_server_name: Option<String>,

    /// The certificate to present, for servers that ask for one (PEM)
    #[arg(long = "cert", value_name = "FILE", help_heading = TLS_HEADING)]
    #[serde(rename = "cert")]
    pub certificate: Option<PathBuf>,
    /// The private key of --cert (PEM) [default: the file of --cert]
    #[arg(long, value_name = "FILE", requires = "certificate", help_heading = TLS_HEADING)]
    pub key: Option<PathBuf>,

    // Keys that only files can have.
    /// Requests per connection. After that many, the client opens a new connection.
    #[arg(skip)]
    pub requests_per_connection: Option<u64>,
    /// Whether a client whose connection fails opens another one.
    #[arg(skip = true)]
    pub reconnect: bool,
    /// How long a connect may take.
    #[arg(skip)]
    #[serde(deserialize_with = "values::duration")]
    pub connect_timeout: Option<Duration>,
    /// The seed of the payload and of all random numbers of the clients.
    #[arg(skip)]
    pub seed: Option<u64>,
}

const HTTP_HEADING: &str = "HTTP, for targets http:// and https://";
const SCRIPT_HEADING: &str =
    "Other protocols, for targets HOST:PORT, tcp://, tls:// and unix:/path";
const TLS_HEADING: &str = "TLS, for targets https:// and tls://";

#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
}

impl Default for Options {
    fn default() -> Options {
        CommandLine::parse_from::<_, &str>([]).options
    }
}

/// Options that do not describe a valid load.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Options contradict each other, or have invalid values.
    #[error("{0}")]
    Usage(String),
    /// A file or name in the options cannot be read or resolved.
    #[error("{0}")]
    Failed(String),
}

pub(super) fn usage(error: impl std::fmt::Display) -> OptionsError {
    OptionsError::Usage(error.to_string())
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, OptionsError> {
    files::read(path, MAX_INPUT_BYTES).map_err(|error| unreadable(path, &error))
}

pub(super) fn read_text(path: &Path) -> Result<String, OptionsError> {
    files::read_text(path, MAX_INPUT_BYTES).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &io::Error) -> OptionsError {
    let text = format!("cannot read {}: {error}", path.display());
    match error.kind() {
        ErrorKind::FileTooLarge | ErrorKind::InvalidData => OptionsError::Usage(text),
        _ => OptionsError::Failed(text),
    }
}

/// Kinds of load, by what their clients exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadKind {
    Echo,
    Datagrams,
    Http,
    Script,
}

impl FromStr for Options {
    type Err = OptionsError;

    /// Parses a command line, which is split as a shell does.
    fn from_str(line: &str) -> Result<Options, OptionsError> {
        let words = shlex::split(line);
        let words = words.ok_or_else(|| usage("the line ends within a quotation or an escape"))?;
        // A negative number is the value of an option, so that the error says what is wrong with it.
        let command = CommandLine::command().mut_args(|arg| {
            let is_option = !arg.is_positional() && arg.get_action().takes_values();
            arg.allow_negative_numbers(is_option)
        });
        let matches = command.try_get_matches_from(words);
        let parsed = matches.and_then(|matches| CommandLine::from_arg_matches(&matches));
        let parsed = parsed.map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            usage(first.trim_start_matches("error: "))
        })?;
        Ok(parsed.options)
    }
}

impl Options {
    /// Returns the options in the target's file if the target ends with `.toml` and is not a URL or
    /// another address, and `self` otherwise.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is invalid, or if other options accompany it.
    pub fn resolved(self) -> Result<Options, OptionsError> {
        let is_file = |text: &&str| text.ends_with(".toml") && !endpoint::has_scheme(text);
        let Some(path) = self.target.as_deref().filter(is_file).map(PathBuf::from) else {
            return Ok(self);
        };
        let alone = Options { target: self.target.clone(), ..Options::default() };
        if self != alone {
            let text = format!(
                "{} contains the whole load: move the other options into it",
                path.display()
            );
            return Err(usage(text));
        }
        toml::from_str(&read_text(&path)?).map_err(|error| {
            let why = without_type_names(&error.to_string());
            usage(format!("{}: {why}", path.display()))
        })
    }

    /// Returns the plan of the load.
    ///
    /// # Errors
    /// Fails if a value is invalid or a host cannot be resolved. The error contains the value, its
    /// limit and a remedy.
    pub fn plan(&self) -> Result<Plan, OptionsError> {
        self.plan_with(|target| match &self.unix_socket {
            Some(path) => Ok((ServerAddress::Unix(path.clone()), None)),
            None => target.endpoint.servers(),
        })
    }

    /// Returns the plan of the load for a server at a different address than the target's.
    ///
    /// # Errors
    /// Fails like [`plan`](Self::plan).
    pub fn plan_at(&self, address: &ServerAddress) -> Result<Plan, OptionsError> {
        self.plan_with(|_| Ok((address.clone(), None)))
    }

    fn plan_with(
        &self,
        servers: impl Fn(&Target) -> Result<(ServerAddress, Option<ServerAddresses>), OptionsError>,
    ) -> Result<Plan, OptionsError> {
        let file = self.targets.as_deref().map(read_targets).transpose()?;
        let target = match (&file, self.target.as_deref()) {
            (Some(file), None) => file.target.clone(),
            (Some(_), Some(text)) => {
                return Err(usage(format!(
                    "the requests of --targets have URLs, but there is a target {text}: leave one \
                     of them out"
                )));
            }
            (None, text) => {
                let text = text.unwrap_or("127.0.0.1:7000");
                Target::parse(text).map_err(|why| usage(format!("'{text}': {why}")))?
            }
        };
        let kind = self.kind(&target)?;
        self.check(kind, &target)?;
        let workload: Workload = match kind {
            LoadKind::Datagrams => {
                let window = self.pipeline.unwrap_or(1);
                Datagrams { window, driver: self.driver }.into()
            }
            LoadKind::Echo | LoadKind::Http | LoadKind::Script => self.streams().into(),
        };
        let protocol = match kind {
            LoadKind::Echo | LoadKind::Datagrams => Protocol::Echo,
            LoadKind::Http if self.h2 => Protocol::Http2(self.http(&target, file)?),
            LoadKind::Http => Protocol::Http(self.http(&target, file)?),
            LoadKind::Script => Protocol::Script(self.script()?),
        };
        let (address, addresses) = servers(&target)?;
        let (more_addresses, skipped_addresses) =
            addresses.map_or_else(Default::default, |all| (all.more, all.skipped));
        let usual = Plan::new(address, workload);
        let plan = Plan {
            more_addresses,
            skipped_addresses,
            protocol,
            tls: target.scheme.is_encrypted().then(|| self.tls(&target)).transpose()?,
            clients: self.connections.unwrap_or(usual.clients),
            length: self.length.unwrap_or(usual.length),
            schedule: match self.rate {
                None => Schedule::Closed { think: self.think.unwrap_or_default() },
                Some(rate) => {
                    let arrivals = self.burst.or(self.arrivals).unwrap_or_default();
                    Schedule::Open { rate, arrivals }
                }
            },
            warm_up: match (self.warm_up, self.count) {
                (None, Some(_)) => Duration::ZERO,
                (warm_up, _) => warm_up.unwrap_or(usual.warm_up),
            },
            duration: match (self.duration, self.count) {
                (None, Some(_)) => MAX_DURATION,
                (duration, _) => duration.unwrap_or(usual.duration),
            },
            requests: self.count,
            pin: self.pin,
            reply_timeout: self.reply_timeout.unwrap_or(usual.reply_timeout),
            connect_timeout: self.connect_timeout.unwrap_or(usual.connect_timeout),
            seed: self.seed.unwrap_or(usual.seed),
            interval: self.interval.unwrap_or(usual.interval),
            ..usual
        };
        plan.validate().map_err(usage)?;
        Ok(plan)
    }

    fn streams(&self) -> Streams {
        Streams {
            pipeline: self.pipeline.unwrap_or(1),
            threads: self.threads.map_or(1, usize::from),
            driver: self.driver,
            reconnect: self.reconnect,
            requests_per_connection: self
                .requests_per_connection
                .or(self.per_connection.then_some(1)),
        }
    }

    fn kind(&self, target: &Target) -> Result<LoadKind, OptionsError> {
        match (target.scheme.is_http(), !self.send.is_empty(), target.endpoint.is_stream()) {
            (true, true, _) => Err(usage(format!(
                "{target} is an HTTP target, but --send defines another protocol: leave one of \
                 them out"
            ))),
            (true, ..) => Ok(LoadKind::Http),
            (_, true, true) => Ok(LoadKind::Script),
            (_, true, false) => Err(usage(format!(
                "{target} uses datagrams, but --send is for connections: leave one of them out"
            ))),
            (.., true) => Ok(LoadKind::Echo),
            (.., false) => Ok(LoadKind::Datagrams),
        }
    }

    /// Rejects options that have no effect on this kind of load.
    fn check(&self, kind: LoadKind, target: &Target) -> Result<(), OptionsError> {
        const NEEDS_STREAMS: (&str, &[LoadKind]) = (
            "a target over TCP or unix:/path, which has connections",
            &[LoadKind::Echo, LoadKind::Http, LoadKind::Script],
        );
        const NEEDS_HTTP: (&str, &[LoadKind]) =
            ("a target http://… or https://…", &[LoadKind::Http]);
        const NEEDS_SEND: (&str, &[LoadKind]) = ("--send", &[LoadKind::Script]);
        const NEEDS_REQUESTS: (&str, &[LoadKind]) =
            ("--send or a target http://… or https://…", &[LoadKind::Http, LoadKind::Script]);
        let with = [
            (!self.headers.is_empty(), "--header", NEEDS_HTTP),
            (self.method.is_some(), "--method", NEEDS_HTTP),
            (self.body.is_some(), "--body", NEEDS_HTTP),
            (self.body_file.is_some(), "--body-file", NEEDS_HTTP),
            (!self.requests.is_empty(), "--request", NEEDS_HTTP),
            (self.h2, "--h2", NEEDS_HTTP),
            (self.cookies, "--cookies", NEEDS_HTTP),
            (self.data.is_some(), "--data", NEEDS_REQUESTS),
            (self.in_order, "--in-order", NEEDS_REQUESTS),
            (!self.expect.is_empty(), "--expect", NEEDS_REQUESTS),
            (self.reply_until.is_some(), "--reply-until", NEEDS_SEND),
            (self.reply_length.is_some(), "--reply-length", NEEDS_SEND),
            (self.reply_length_field.is_some(), "--reply-length-field", NEEDS_SEND),
            (self.length.is_some(), "--length", ("echo", &[LoadKind::Echo, LoadKind::Datagrams])),
            (self.per_connection, "--per-connection", NEEDS_STREAMS),
            (self.threads.is_some(), "--threads", NEEDS_STREAMS),
        ];
        let wrong = with.iter().find(|(given, _, (_, kinds))| *given && !kinds.contains(&kind));
        let (option, other) = match wrong {
            Some((_, option, (other, _))) => (*option, *other),
            None if target.scheme.is_encrypted() => return Ok(()),
            None => match self.tls_option() {
                Some(option) => (option, "a target https://… or tls://…"),
                None => return Ok(()),
            },
        };
        Err(usage(format!("{option} does nothing without {other}: add that, or leave it out")))
    }

    fn tls_option(&self) -> Option<&'static str> {
        let all = [
            (self.tls_ca.is_some(), "--tls-ca"),
            (self.insecure, "--insecure"),
            (self.tls_server_name.is_some(), "--tls-server-name"),
            (self.certificate.is_some(), "--cert"),
            (self.key.is_some(), "--key"),
        ];
        all.iter().find(|(given, _)| *given).map(|(_, option)| *option)
    }

    /// Returns how connections to the target are encrypted.
    fn tls(&self, target: &Target) -> Result<Tls, OptionsError> {
        let trust = match (self.insecure, &self.tls_ca) {
            (true, _) => Trust::Unchecked,
            (false, Some(path)) => Trust::Roots(path.clone()),
            (false, None) => Trust::System,
        };
        let server_name = self.tls_server_name.clone();
        let server_name = server_name.unwrap_or_else(|| target.certificate_name().to_owned());
        if self.key.is_some() && self.certificate.is_none() {
            return Err(usage("--key does nothing without --cert: add that, or leave it out"));
        }
        let identity = self.certificate.clone().map(|certificate| {
            let key = self.key.clone().unwrap_or_else(|| certificate.clone());
            ClientIdentity { certificate, key }
        });
        Ok(Tls { server_name, trust, identity })
    }
}

#[cfg(test)]
mod tests;
