//! The parameters that a row, a column or a table contributes to its cells.

use serde::{Deserialize, Serialize};

/// A figure of a cell.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Requests, datagrams or operations per second.
    Rate,
    /// The rate in percent of the first contender's rate.
    Percent,
    /// The mean latency, in µs.
    Average,
    /// The 99th percentile of the latency, in µs.
    P99,
    /// The mean latency, in ms.
    AverageMs,
    /// The 99th percentile of the latency, in ms.
    P99Ms,
    /// Virtual memory of the server at the end, in MB.
    VirtualMb,
    /// Resident memory of the server at the end, in MB.
    ResidentMb,
    /// Resident memory after idling, in MB.
    IdleMb,
    /// Megabytes moved in a run of 30 s, as in the document.
    Megabytes,
    /// Megabytes per second.
    MegabytesPerSecond,
    /// Seconds of CPU time.
    CpuSeconds,
    /// Elapsed seconds.
    RealSeconds,
}

impl Figure {
    /// Returns true if the figure is memory, which belongs to a server's whole run and not to a
    /// cell.
    pub fn is_of_memory(self) -> bool {
        matches!(self, Figure::VirtualMb | Figure::ResidentMb | Figure::IdleMb)
    }

    /// Returns the number of decimals to display.
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

/// A row or a column: its name in the document, the parameters of its cells, and for a row the
/// published figures.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The name of the row or column; empty for the entry of a whole table.
    #[serde(default)]
    pub name: String,
    /// One figure per column, in order. The document may lack figures only for the last columns.
    #[serde(default)]
    pub published: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(alias = "workers")]
    pub(crate) connections: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cycles: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    figure: Option<Figure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// The third of the rounds, from 1; all rounds if `None`.
    pub(crate) part: Option<usize>,
}

impl Axis {
    /// Returns this entry, overridden by `other`.
    pub(crate) fn with(&self, other: &Axis) -> Axis {
        Axis {
            name: String::new(),
            published: Vec::new(),
            servers: other.servers.clone().or_else(|| self.servers.clone()),
            connections: other.connections.or(self.connections),
            bytes: other.bytes.or(self.bytes),
            entries: other.entries.or(self.entries),
            cycles: other.cycles.or(self.cycles),
            figure: other.figure.or(self.figure),
            part: other.part.or(self.part),
        }
    }

    /// Returns true if the entry names the servers of cells.
    pub(crate) fn names_servers(&self) -> bool {
        self.servers.is_some()
    }

    /// Returns the question of a cell, or the missing parameter.
    pub(crate) fn question(mut self) -> Result<Question, &'static str> {
        Ok(Question {
            servers: self.servers.take().filter(|all| !all.is_empty()).ok_or("needs servers")?,
            figure: self.figure.ok_or("needs a figure")?,
            of: self,
        })
    }
}

/// The question of a cell: what to measure, and which figure to show.
#[derive(Clone, Debug)]
pub struct Question {
    /// The servers to measure, named as in `bench echo`, or the contenders of another bench.
    pub servers: Vec<String>,
    /// The figure to show.
    pub figure: Figure,
    /// The parameters of the cell.
    pub(crate) of: Axis,
}
