//! What a row, a column, or all of a table bring to a cell.

use serde::{Deserialize, Serialize};

/// A figure that a cell shows.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Requests, datagrams or operations a second.
    Rate,
    /// That rate in percent of the first row's.
    Percent,
    /// The average time of a connection, in µs.
    Average,
    /// What one connection in a hundred exceeds, in µs.
    P99,
    /// The average in ms.
    AverageMs,
    /// The p99 in ms.
    P99Ms,
    /// Virtual memory of the server afterwards, in MB.
    VirtualMb,
    /// Resident memory of the server afterwards, in MB.
    ResidentMb,
    /// Resident memory after idling, in MB.
    IdleMb,
    /// Megabytes moved in the document's 30 s.
    Megabytes,
    /// Megabytes a second.
    MegabytesPerSecond,
    /// Seconds of CPU time.
    CpuSeconds,
    /// Seconds that it took.
    RealSeconds,
}

impl Figure {
    /// Whether it is about the server as a whole, after everything.
    pub fn is_of_memory(self) -> bool {
        matches!(self, Figure::VirtualMb | Figure::ResidentMb | Figure::IdleMb)
    }

    /// Decimals that it is shown with.
    pub fn decimals(self) -> usize {
        match self {
            Figure::Rate
            | Figure::Average
            | Figure::P99
            | Figure::VirtualMb
            | Figure::ResidentMb
            | Figure::IdleMb => 0,
            Figure::Percent | Figure::AverageMs | Figure::P99Ms => 1,
            Figure::Megabytes | Figure::MegabytesPerSecond => 2,
            Figure::CpuSeconds | Figure::RealSeconds => 3,
        }
    }
}

/// A row or a column: its name in the document, what it asks for, and of a row the published figures.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Its name; empty for what holds for all of a table.
    #[serde(default)]
    pub name: String,
    /// A figure for each column from the first on; columns that the document doesn't have come last.
    #[serde(default)]
    pub published: Vec<f64>,
    servers: Option<Vec<String>>,
    clients: Option<usize>,
    bytes: Option<usize>,
    entries: Option<u32>,
    cycles: Option<u64>,
    figure: Option<Figure>,
    part: Option<usize>,
}

impl Axis {
    /// This, with what `other` says instead.
    pub(super) fn with(&self, other: &Axis) -> Axis {
        Axis {
            name: String::new(),
            published: Vec::new(),
            servers: other.servers.clone().or_else(|| self.servers.clone()),
            clients: other.clients.or(self.clients),
            bytes: other.bytes.or(self.bytes),
            entries: other.entries.or(self.entries),
            cycles: other.cycles.or(self.cycles),
            figure: other.figure.or(self.figure),
            part: other.part.or(self.part),
        }
    }

    /// Whether it says which servers its cells are about.
    pub(super) fn names_servers(&self) -> bool {
        self.servers.is_some()
    }

    /// What was gathered, if it says what to measure and which figure to show.
    pub(super) fn question(self) -> Result<Question, &'static str> {
        Ok(Question {
            servers: self.servers.filter(|all| !all.is_empty()).ok_or("names no servers")?,
            figure: self.figure.ok_or("names no figure")?,
            clients: self.clients,
            bytes: self.bytes,
            entries: self.entries,
            cycles: self.cycles,
            part: self.part,
        })
    }
}

/// What a cell asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What is measured for it: servers as `bench echo` names them, or contenders of another bench.
    pub servers: Vec<String>,
    /// What it shows of them.
    pub figure: Figure,
    /// Connections.
    pub clients: Option<usize>,
    /// Bytes a message.
    pub bytes: Option<usize>,
    /// Entries of the queue.
    pub entries: Option<u32>,
    /// How often a file is written and read.
    pub cycles: Option<u64>,
    /// Which third of the rounds, or all of them.
    pub part: Option<usize>,
}
