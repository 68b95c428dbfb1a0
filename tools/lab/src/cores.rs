//! The cores of servers and load.

use std::fs;

use serde::{Deserialize, Serialize};

/// The cores of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Cores {
    /// The core of the servers.
    #[serde(rename = "server_core")]
    pub server: usize,
    /// The core of the load.
    #[serde(rename = "load_core")]
    pub load: usize,
}

impl Cores {
    /// Chooses the cores that are not given from `allowed`, which must not be empty. If neither
    /// core is given, the server gets the first one. Any other choice depends on the core that is
    /// known: the first core that shares no hardware with it, otherwise another core, otherwise the
    /// same core.
    pub fn choose(allowed: &[usize], server: Option<usize>, load: Option<usize>) -> Cores {
        choose(allowed, server, load, siblings)
    }

    /// Returns true if both are the same core, or two hardware threads of one core.
    pub fn are_shared(self) -> bool {
        self.server == self.load || siblings(self.server).contains(&self.load)
    }
}

fn choose(
    allowed: &[usize],
    server: Option<usize>,
    load: Option<usize>,
    siblings: impl Fn(usize) -> Vec<usize>,
) -> Cores {
    let first_but = |others: &[usize]| allowed.iter().copied().find(|core| !others.contains(core));
    let beside = |core: usize| {
        let apart = first_but(&[&siblings(core)[..], &[core]].concat());
        apart.or_else(|| first_but(&[core])).unwrap_or(core)
    };
    let server = server.unwrap_or_else(|| load.map_or(allowed[0], beside));
    Cores { server, load: load.unwrap_or_else(|| beside(server)) }
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

    fn chosen(allowed: &[usize], server: Option<usize>, load: Option<usize>) -> (usize, usize) {
        let Cores { server, load } = choose(allowed, server, load, neighbours);
        (server, load)
    }

    #[test]
    fn the_load_gets_a_core_that_shares_nothing_with_the_server() {
        assert_eq!(chosen(&[0, 1, 2, 3], None, None), (0, 2));
        assert_eq!(chosen(&[5, 6, 7], None, None), (5, 6));
        assert_eq!(chosen(&[0, 1, 2, 3], Some(3), None), (3, 0));
        assert_eq!(chosen(&[0, 1, 2, 3], None, Some(0)), (2, 0));
    }

    #[test]
    fn the_load_gets_a_sibling_or_the_same_core_if_there_is_no_other() {
        assert_eq!(chosen(&[0, 1], None, None), (0, 1));
        assert_eq!(chosen(&[4], None, None), (4, 4));
    }

    #[test]
    fn given_cores_are_used() {
        assert_eq!(chosen(&[0, 1, 2, 3], Some(1), Some(1)), (1, 1));
        assert!(Cores { server: 1, load: 1 }.are_shared());
    }

    #[test]
    fn core_lists_of_the_kernel_are_parsed() {
        assert_eq!(numbers("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(numbers("7"), [7]);
        assert!(numbers("").is_empty());
    }
}
