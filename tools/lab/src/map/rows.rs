//! The definitions of the rows, read from the catalogue.

use serde::Deserialize;

use crate::describe::Selection;
use crate::usage_error::UsageError;

const CATALOGUE: &str = include_str!("../../catalogue/map.toml");

/// Contenders that are found by name in every run.
const RUNTIMES: [(&str, MarkKind); 2] =
    [("compio", MarkKind::Compio), ("monoio", MarkKind::Monoio)];

/// The definition of a row: a cell of a run, and the contenders to compare there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RowDefinition {
    /// What the servers do.
    pub workload: String,
    /// The cell in a few words.
    pub detail: String,
    /// The name of the run, which is a file of the catalogue.
    pub run: String,
    /// The cell, as its values: `50x128`.
    pub cell: String,
    /// Our contenders. The best of them is compared.
    #[serde(default = "own_drivers")]
    pub ours: Vec<String>,
    /// The contender that ratios refer to.
    #[serde(default = "tokio")]
    pub against: String,
    /// What `against` is called if it is not tokio.
    #[serde(default)]
    pub against_name: Option<String>,
    /// The contender that is written in C or C++.
    #[serde(default)]
    pub c: Option<String>,
    /// The contender that is tokio as an expert writes it.
    #[serde(default)]
    pub expert: Option<String>,
    /// The figure that is compared.
    #[serde(default)]
    pub figure: RowFigure,
}

fn own_drivers() -> Vec<String> {
    ["uring", "epoll"].map(String::from).into()
}

fn tokio() -> String {
    "tokio".into()
}

/// The figure that a row compares.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum RowFigure {
    /// The metric that decides the verdicts of the run, in one cell.
    #[default]
    Cost,
    /// Resident memory after the run and a while without load. It is read once, so it has no
    /// interval.
    IdleMemory,
}

/// What a mark stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// Our best driver.
    Best,
    /// Our epoll driver, if it is not the best.
    Epoll,
    /// Our io_uring driver, if it is not the best.
    Uring,
    /// compio.
    Compio,
    /// monoio.
    Monoio,
    /// A program in C or C++.
    C,
    /// tokio as an expert writes it.
    Expert,
}

impl MarkKind {
    /// All kinds in the order of the legend.
    pub const ALL: [MarkKind; 7] = [
        MarkKind::Best,
        MarkKind::Epoll,
        MarkKind::Compio,
        MarkKind::Monoio,
        MarkKind::C,
        MarkKind::Expert,
        MarkKind::Uring,
    ];

    /// Returns the name in the legend.
    pub fn name(self) -> &'static str {
        match self {
            MarkKind::Best => "our best",
            MarkKind::Epoll => "our epoll",
            MarkKind::Uring => "our ring",
            MarkKind::Compio => "compio",
            MarkKind::Monoio => "monoio",
            MarkKind::C => "C or C++",
            MarkKind::Expert => "tokio, expert",
        }
    }
}

impl RowDefinition {
    /// Returns the rows of these workloads, or all rows if there are no names.
    ///
    /// # Errors
    /// If a name is unknown. The error lists all names.
    pub fn named(names: &[String]) -> Result<Vec<RowDefinition>, UsageError> {
        let all = RowDefinition::all();
        if let Some(unknown) =
            names.iter().find(|name| all.iter().all(|row| row.workload != **name))
        {
            let mut known: Vec<String> = all.into_iter().map(|row| row.workload).collect();
            known.dedup();
            let known = known.join("; ");
            return Err(UsageError(format!("unknown workload '{unknown}': the map has {known}")));
        }
        Ok(all
            .into_iter()
            .filter(|row| names.is_empty() || names.contains(&row.workload))
            .collect())
    }

    /// Returns every row, in the order of the map.
    pub fn all() -> Vec<RowDefinition> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            row: Vec<RowDefinition>,
        }
        let file: File = toml::from_str(CATALOGUE).expect("the rows of the map are invalid");
        file.row
    }

    /// Returns the part of the run that the row needs. A short one has only our contenders and the
    /// one that ratios refer to.
    pub fn patterns(&self, is_short: bool) -> Vec<String> {
        let others = self.others().map(|(name, _)| name.to_owned()).filter(|_| !is_short);
        let contenders = self.ours.iter().cloned().chain([self.against.clone()]).chain(others);
        contenders.chain([format!("/{}", self.cell)]).collect()
    }

    /// Returns the selection of the cell.
    pub(super) fn selection(&self) -> Selection {
        Selection::new([format!("/{}", self.cell).as_str()])
    }

    /// Returns the contenders that get a mark beside ours, with what they are.
    pub(super) fn others(&self) -> impl Iterator<Item = (&str, MarkKind)> {
        let named = [(&self.c, MarkKind::C), (&self.expert, MarkKind::Expert)];
        let named = named.into_iter().filter_map(|(name, kind)| Some((name.as_deref()?, kind)));
        RUNTIMES.into_iter().chain(named).filter(|(name, _)| *name != self.against)
    }

    /// Returns what the ratios refer to, unless it is tokio.
    pub(super) fn other_rival(&self) -> Option<&str> {
        let name = self.against_name.as_deref().unwrap_or(&self.against);
        (name != "tokio").then_some(name)
    }

    /// Returns the cell in a few words, with what the ratios refer to if that is not tokio.
    pub(super) fn shown_detail(&self) -> String {
        match self.other_rival() {
            Some(name) => format!("{} ÷ {name}", self.detail),
            None => self.detail.clone(),
        }
    }
}
