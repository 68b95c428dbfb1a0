//! The CPU of each shard.

use crate::affinity;
use std::io;

/// The CPUs that the shards run on.
///
/// ```
/// use annulus::shards::{Pinning, Shards};
///
/// let cpus = annulus::affinity::allowed()?;
/// let last = *cpus.last().unwrap();
/// let shards = Shards::new(2).pinning(Pinning::On(vec![last])); // Both on one CPU.
/// let used = shards.run(async |shard| std::io::Result::Ok(shard.cpu()))?;
/// assert_eq!(used, [Some(last), Some(last)]);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pinning {
    /// One CPU per shard, in order, of those that the calling thread may use. Starts over if there
    /// are more shards.
    #[default]
    Each,
    /// These CPUs, in order. Starts over if there are more shards.
    On(Vec<usize>),
    /// No pinning: the system schedules the shards on any CPU.
    None,
}

impl Pinning {
    /// Returns the CPU of each of `count` shards.
    pub(super) fn cpus(&self, count: usize) -> io::Result<Vec<Option<usize>>> {
        let cpus = match self {
            Self::Each => affinity::allowed()?,
            Self::On(cpus) => cpus.clone(),
            Self::None => return Ok(vec![None; count]),
        };
        if cpus.is_empty() {
            let text =
                "the list of CPUs to pin the shards to is empty; add one, or use Pinning::None";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(cpus.into_iter().map(Some).cycle().take(count).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_reused_if_there_are_more_shards() {
        let cpus = Pinning::On(vec![4, 2]).cpus(3).unwrap();
        assert_eq!(cpus, [Some(4), Some(2), Some(4)]);
        assert_eq!(Pinning::None.cpus(2).unwrap(), [None, None]);
        let allowed = affinity::allowed().unwrap();
        let each = Pinning::Each.cpus(allowed.len() + 1).unwrap();
        assert_eq!((each[0], each[allowed.len()]), (Some(allowed[0]), Some(allowed[0])));
        assert!(Pinning::On(Vec::new()).cpus(1).is_err());
    }
}
