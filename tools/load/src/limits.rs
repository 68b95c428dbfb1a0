//! The limit on open files, which is raised as far as possible.

use crate::invalid::counted;
use annulus_kernel::{Limit, Resource};
use rustix::process::{Resource as Settable, Rlimit, setrlimit};

/// Descriptors reserved for uses other than connections: ring, timer, signals, result files.
const SPARE_DESCRIPTORS: u64 = 16;

/// The process may not open enough files for the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} {} {needed} open files, but the limit is {hard} (soft {soft}): use at most {}, or raise the \
     hard limit (ulimit -Hn)",
    counted(*.connections, "connection"),
    if *.connections == 1 { "needs" } else { "need" },
    .hard.saturating_sub(.needed - .connections)
)]
pub struct OpenFileShortage {
    /// Connections requested.
    pub connections: u64,
    /// Open files needed: for the connections, for files that are already open, and for a reserve.
    pub needed: u64,
    /// The soft limit before it was raised.
    pub soft: u64,
    /// The limit that applies: the hard limit, or the soft limit if it could not be raised.
    pub hard: u64,
}

/// Ensures that `connections` more files can be opened, and raises the soft limit up to the hard
/// limit if necessary.
///
/// # Errors
/// Fails if the hard limit is too low, or if the soft limit is too low and cannot be raised.
pub fn reserve(connections: usize) -> Result<(), OpenFileShortage> {
    let overhead = overhead();
    // The error subtracts the overhead from the sum, so the sum must be exact.
    let connections = (connections as u64).min(u64::MAX - overhead);
    let needed = connections + overhead;
    let limit = Limit::of(Resource::OpenFiles);
    let (soft, hard) = (limit.soft.unwrap_or(u64::MAX), limit.hard.unwrap_or(u64::MAX));
    if needed <= soft {
        return Ok(());
    }
    // If the limit cannot be raised, the soft limit applies.
    let raised = raise_to_hard(limit);
    let hard = if raised { hard } else { soft };
    if needed <= hard { Ok(()) } else { Err(OpenFileShortage { connections, needed, soft, hard }) }
}

/// Raises the soft limit to the hard limit, if the process may.
pub fn raise() {
    raise_to_hard(Limit::of(Resource::OpenFiles));
}

fn raise_to_hard(limit: Limit) -> bool {
    let raised = Rlimit { current: limit.hard, maximum: limit.hard };
    setrlimit(Settable::Nofile, raised).is_ok()
}

/// Returns how many more connections fit under the hard limit.
pub fn available_connections() -> usize {
    let hard = Limit::of(Resource::OpenFiles).hard.unwrap_or(u64::MAX);
    usize::try_from(hard.saturating_sub(overhead())).unwrap_or(usize::MAX)
}

/// Returns the number of open files plus the reserved descriptors.
fn overhead() -> u64 {
    let open = std::fs::read_dir("/proc/self/fd")
        .map_or(SPARE_DESCRIPTORS, |entries| entries.count() as u64);
    open + SPARE_DESCRIPTORS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_error_names_both_limits_and_a_remedy() {
        let shortage =
            OpenFileShortage { connections: 30_000, needed: 30_020, soft: 1024, hard: 20_000 };
        let text = shortage.to_string();
        for part in ["30000", "30020", "1024", "20000", "at most 19980", "ulimit -Hn"] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }

    #[test]
    fn advice_for_a_huge_number_of_connections_fits() {
        let Err(shortage) = reserve(usize::MAX) else { panic!("the limit is infinite") };
        let text = shortage.to_string();
        let (_, advice) = text.split_once("use at most ").unwrap();
        let advised: u64 = advice.split(',').next().unwrap().parse().unwrap();
        assert!(advised < shortage.hard, "{text}");
        let one = OpenFileShortage { connections: 1, needed: 20, soft: 10, hard: 10 };
        assert!(one.to_string().starts_with("1 connection needs 20 open files"), "{one}");
    }

    #[test]
    fn a_few_connections_always_fit() {
        assert_eq!(reserve(1), Ok(()));
        assert!(available_connections() > 1);
    }
}
