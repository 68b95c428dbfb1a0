//! The cores of servers and load.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// A program that opens this file and writes a latency to it limits how deeply cores may sleep: waking
/// one takes at most that long until the file is closed (`Documentation/power/pm_qos_interface.rst`).
const LATENCY_PATH: &str = "/dev/cpu_dma_latency";

/// The cores of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Cores {
    /// The core of the servers.
    #[serde(rename = "server_core")]
    pub server: usize,
    /// The core of the load.
    #[serde(rename = "load_core")]
    pub load: usize,
    /// Whether all cores of the machine are kept from sleeping during the measurement.
    #[serde(rename = "awake", default, skip_serializing_if = "std::ops::Not::not")]
    pub are_awake: bool,
}

/// Keeps all cores of the machine from sleeping until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Awake {
    _file: File,
}

impl Cores {
    /// Creates cores that may sleep.
    pub fn new(server: usize, load: usize) -> Cores {
        Cores { server, load, are_awake: false }
    }

    /// Chooses the first core of `allowed`, which must not be empty, for the servers. The load gets
    /// the first core that shares no hardware with it, otherwise another core, otherwise the same
    /// one.
    pub fn choose(allowed: &[usize]) -> Cores {
        choose(allowed, siblings)
    }

    /// Returns true if both are the same core, or two hardware threads of one core.
    pub fn are_shared(self) -> bool {
        self.server == self.load || siblings(self.server).contains(&self.load)
    }

    /// Returns words for a report, to be added to a list; empty unless cores are kept awake.
    pub fn shown_awake(self) -> &'static str {
        if self.are_awake { ", cores kept awake" } else { "" }
    }

    /// Keeps the cores awake, if that was chosen.
    ///
    /// # Errors
    /// If this user may not do that.
    pub(crate) fn keep_awake(self) -> Result<Option<Awake>> {
        self.are_awake.then(|| Awake::new(Path::new(LATENCY_PATH))).transpose()
    }
}

impl Awake {
    fn new(path: &Path) -> Result<Awake> {
        let shown = path.display();
        let cannot = || format!("cannot keep the cores awake: {shown} (--awake requires root)");
        let mut file = File::options().write(true).open(path).with_context(cannot)?;
        // The maximum latency in microseconds.
        file.write_all(&0_i32.to_ne_bytes()).with_context(cannot)?;
        Ok(Awake { _file: file })
    }
}

fn choose(allowed: &[usize], siblings: impl Fn(usize) -> Vec<usize>) -> Cores {
    let server = allowed[0];
    let first_but = |others: &[usize]| allowed.iter().copied().find(|core| !others.contains(core));
    let apart = first_but(&[&siblings(server)[..], &[server]].concat());
    let load = apart.or_else(|| first_but(&[server])).unwrap_or(server);
    Cores::new(server, load)
}

/// Returns the hardware threads of this core, including itself; empty if the system does not report
/// them.
fn siblings(core: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    fs::read_to_string(path).map_or_else(|_| Vec::new(), |list| numbers(list.trim()))
}

/// Parses a list like `0-2,5`.
fn numbers(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hardware threads per core, with adjacent numbers.
    fn neighbours(core: usize) -> Vec<usize> {
        vec![core & !1, core | 1]
    }

    fn chosen(allowed: &[usize]) -> (usize, usize) {
        let Cores { server, load, .. } = choose(allowed, neighbours);
        (server, load)
    }

    #[test]
    fn the_load_gets_a_core_that_shares_nothing_with_the_server() {
        assert_eq!(chosen(&[0, 1, 2, 3]), (0, 2));
        assert_eq!(chosen(&[5, 6, 7]), (5, 6));
    }

    #[test]
    fn the_load_gets_a_sibling_or_the_same_core_if_there_is_no_other() {
        assert_eq!(chosen(&[0, 1]), (0, 1));
        assert_eq!(chosen(&[4]), (4, 4));
        assert!(Cores::new(1, 1).are_shared());
    }

    #[test]
    fn a_user_who_may_not_keep_cores_awake_is_told_what_is_needed() {
        let refused = Awake::new(Path::new("/proc/version")).expect_err("/proc/version was opened");
        let text = format!("{refused:#}");
        assert!(text.contains("/proc/version (--awake requires root): "), "{text}");
    }

    #[test]
    fn core_lists_of_the_kernel_are_parsed() {
        assert_eq!(numbers("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(numbers("7"), [7]);
        assert!(numbers("").is_empty());
    }
}
