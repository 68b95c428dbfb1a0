//! The messages between the first part of a run and the others.
//!
//! After both sides have proved that they know the token, a part sends [`Join`] and the first part
//! answers [`ToPart::Welcome`] or [`ToPart::Refused`]. Each part then reports every [`Stage`] that
//! it has reached and waits for [`ToPart::Go`], which the first part sends to all parts once all
//! have reached it. While measuring, parts send intervals and the number of responses, and at the
//! end their recording, which [`ToPart::Done`] confirms.

use annulus_load::Plan;
use annulus_load::recording::{Interval, MAX_RECORDING_BYTES, Recording, RunInfo};
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// The name of the protocol in the handshake.
pub(super) const PROTOCOL: &str = "annulus-load-parts";
/// The maximum size of [`Join`] and its answer.
pub(super) const MAX_JOIN_BYTES: usize = 64 << 10;
/// The maximum size of later messages, which may contain a recording.
pub(super) const MAX_MESSAGE_BYTES: usize = MAX_RECORDING_BYTES as usize;
/// How long the handshake of a connection may take.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// After this time without a packet, the system probes a connection.
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// The time between probes.
const PROBE_PERIOD: Duration = Duration::from_secs(2);
/// A connection ends after this many probes without an answer.
const MAX_PROBES: u32 = 5;

/// The settings that must be the same for all parts.
const SHARED_SETTINGS: [&str; 14] = [
    "workload",
    "protocol",
    "tls",
    "length",
    "connections",
    "threads",
    "pipeline",
    "schedule",
    "requests",
    "request",
    "warm_up",
    "duration",
    "interval",
    "seed",
];

/// The first message of a part.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Join {
    /// The number of the part, from 0.
    pub(super) index: usize,
    pub(super) count: usize,
    pub(super) host: String,
    /// The settings that must be the same for all parts.
    pub(super) settings: Map<String, Value>,
}

/// Stages that all parts reach together.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Stage {
    /// All clients are connected; the warm-up starts.
    Connected,
    /// The warm-up is over; measuring starts.
    Measuring,
}

/// Messages to the first part.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum FromPart {
    Reached(Stage),
    Interval(Box<Interval>),
    /// The number of responses so far.
    Responses(u64),
    /// The name of the signal that has interrupted the part.
    Interrupted(String),
    /// Why the run of the part failed.
    Failed(String),
    Recording(Box<Recording>),
}

/// Messages from the first part.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum ToPart {
    Welcome,
    Refused(String),
    Go(Stage),
    /// Which part has been lost, and why. The other parts continue.
    Lost(String),
    /// Why the run ends now.
    Stop(String),
    /// The recording has arrived.
    Done,
}

/// Returns the settings of a plan that must be the same for all parts.
pub(super) fn settings(plan: &Plan) -> Map<String, Value> {
    let settings = serde_json::to_value(RunInfo::planned(plan));
    let Ok(Value::Object(mut settings)) = settings else { return Map::new() };
    settings.retain(|name, _| SHARED_SETTINGS.contains(&name.as_str()));
    settings
}

/// Returns the settings in which another part differs, as text.
pub(super) fn differences(own: &Map<String, Value>, other: &Map<String, Value>) -> Option<String> {
    let value =
        |map: &Map<String, Value>, name: &str| map.get(name).cloned().unwrap_or(Value::Null);
    let differences: Vec<_> = SHARED_SETTINGS
        .iter()
        .map(|name| (name, value(own, name), value(other, name)))
        .filter(|(_, own, other)| own != other)
        .map(|(name, own, other)| format!("{name} {other} instead of {own}"))
        .collect();
    (!differences.is_empty()).then(|| differences.join(", "))
}

/// Configures a connection to send without delay, and to end soon after the other machine has
/// vanished.
pub(super) fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_PERIOD)?;
    sockopt::set_tcp_keepcnt(stream, MAX_PROBES)?;
    // Unacknowledged data ends the connection after the same time as unanswered probes.
    let limit = PROBE_AFTER + PROBE_PERIOD * MAX_PROBES;
    sockopt::set_tcp_user_timeout(stream, limit.as_millis() as u32)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_load::Streams;

    #[test]
    fn different_settings_are_named() {
        let plan = Plan::new("127.0.0.1:7000".parse().unwrap(), Streams::default());
        let other = Plan { clients: 60, address: "127.0.0.2:1".parse().unwrap(), ..plan.clone() };
        let [own, other] = [&plan, &other].map(settings);
        assert_eq!(own.len(), SHARED_SETTINGS.len(), "a shared setting is not in RunInfo");
        assert_eq!(differences(&own, &own), None);
        assert_eq!(differences(&own, &other).as_deref(), Some("connections 60 instead of 50"));
        let all = differences(&own, &Map::new()).unwrap();
        assert!(all.contains("seed null instead of 1"), "{all}");
    }
}
