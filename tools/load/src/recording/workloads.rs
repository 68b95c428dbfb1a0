//! Figures that are recorded of some workloads only.

use super::Latencies;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::AddAssign;

/// The kind of workload of the clients of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WorkloadKind {
    /// Requests over connections that stay open. So are all recordings that do not say.
    #[default]
    Streams,
    /// A connection for each request.
    PerConnection,
    /// Datagrams.
    Datagrams,
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkloadKind::Streams => "connections that stay open",
            WorkloadKind::PerConnection => "a connection per message",
            WorkloadKind::Datagrams => "datagrams",
        })
    }
}

/// Results of datagrams that were sent within the measured time, whenever they were found: each is received or lost. Those that
/// the sweep finds count in the interval of the sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramCounts {
    /// Echoed in time.
    pub received: u64,
    /// Not echoed in time.
    pub lost: u64,
    /// Echoes that came too late; their datagrams count as lost.
    pub late: u64,
    /// Echoes beyond the first of a datagram.
    pub duplicated: u64,
    /// Echoed after a datagram that the same client sent later.
    pub reordered: u64,
    /// Echoes in the whole run that match no datagram: wrong length, wrong bytes, or a number never sent.
    pub corrupt: u64,
}

impl DatagramCounts {
    /// The counts with their names, in this order.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("received", self.received),
            ("lost", self.lost),
            ("late", self.late),
            ("duplicated", self.duplicated),
            ("reordered", self.reordered),
            ("corrupt", self.corrupt),
        ]
    }
}

impl AddAssign for DatagramCounts {
    fn add_assign(&mut self, other: DatagramCounts) {
        for (own, others) in [
            (&mut self.received, other.received),
            (&mut self.lost, other.lost),
            (&mut self.late, other.late),
            (&mut self.duplicated, other.duplicated),
            (&mut self.reordered, other.reordered),
            (&mut self.corrupt, other.corrupt),
        ] {
            *own = own.saturating_add(others);
        }
    }
}

/// The phases of a connection that carries one message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases<T> {
    /// Until the connection is made.
    pub connect: T,
    /// From then until the last byte of the message was accepted to be sent.
    pub send: T,
    /// From then to the last byte of the reply; nothing if that came before.
    pub receive: T,
    /// From then until the client has closed: it does not wait for the server.
    pub close: T,
}

impl<T> Phases<T> {
    /// The same of something else.
    pub fn map<U>(&self, mut each: impl FnMut(&T) -> U) -> Phases<U> {
        Phases {
            connect: each(&self.connect),
            send: each(&self.send),
            receive: each(&self.receive),
            close: each(&self.close),
        }
    }

    /// The phases with their names, in this order.
    pub fn named(&self) -> [(&'static str, &T); 4] {
        [
            ("connect", &self.connect),
            ("send", &self.send),
            ("receive", &self.receive),
            ("close", &self.close),
        ]
    }

    /// Each phase with the same one of `others`.
    pub(super) fn zip<'a, U>(&'a mut self, others: &'a Phases<U>) -> [(&'a mut T, &'a U); 4] {
        [
            (&mut self.connect, &others.connect),
            (&mut self.send, &others.send),
            (&mut self.receive, &others.receive),
            (&mut self.close, &others.close),
        ]
    }
}

impl Phases<Latencies> {
    pub(super) fn add(&mut self, other: &Phases<Latencies>) {
        self.zip(other).into_iter().for_each(|(own, other)| own.add(other));
    }
}
