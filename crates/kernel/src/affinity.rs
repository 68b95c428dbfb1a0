//! Pinning the calling thread to one CPU, and listing the usable CPUs.

use crate::process::{cpus, set_cpus};
use rustix::thread::CpuSet;
use std::fmt;
use std::io;
use std::marker::PhantomData;

/// A guard that keeps a thread pinned. Dropping it restores the CPUs that the thread could use
/// before.
///
/// Not `Send`, because dropping it on another thread would set that thread's CPUs:
///
/// ```compile_fail,E0277
/// let pinned = annulus_kernel::affinity::pin(0).unwrap();
/// std::thread::spawn(move || drop(pinned));
/// ```
///
/// ```
/// use annulus_kernel::affinity::{allowed, pin};
///
/// let before = allowed()?;
/// let pinned = pin(before[0])?;
/// assert_eq!(allowed()?, [before[0]]);
/// drop(pinned);
/// assert_eq!(allowed()?, before);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the pin is undone when this is dropped"]
pub struct Pinned {
    former: CpuSet,
    /// Makes the guard neither `Send` nor `Sync`.
    of_this_thread: PhantomData<*const ()>,
}

/// The error returned for a CPU that this thread cannot run on.
#[derive(Debug)]
pub struct PinError {
    cpu: usize,
    allowed: Vec<usize>,
    source: io::Error,
}

/// Pins the calling thread, and threads that it starts later, to `cpu`.
///
/// # Errors
/// If the machine has no such CPU, or this process may not use it.
pub fn pin(cpu: usize) -> Result<Pinned, PinError> {
    let former = usable(cpu)?;
    let mut wanted = CpuSet::new();
    wanted.set(cpu);
    let set = set_cpus(&wanted);
    set.map_err(|error| PinError { cpu, allowed: members(&former), source: error.into() })?;
    Ok(Pinned { former, of_this_thread: PhantomData })
}

/// Checks that the calling thread may be pinned to `cpu`, without pinning it.
///
/// # Errors
/// The errors of [`pin`].
pub fn check(cpu: usize) -> Result<(), PinError> {
    usable(cpu).map(drop)
}

/// Returns the CPUs that the calling thread may use, or an error if `cpu` is not one of them.
fn usable(cpu: usize) -> Result<CpuSet, PinError> {
    let failed = |allowed: Vec<usize>, source: io::Error| PinError { cpu, allowed, source };
    let allowed = cpus().map_err(|error| failed(Vec::new(), error.into()))?;
    if cpu < CpuSet::MAX_CPU && allowed.is_set(cpu) {
        return Ok(allowed);
    }
    Err(failed(members(&allowed), io::ErrorKind::InvalidInput.into()))
}

/// Returns the CPUs that the calling thread may use.
///
/// # Errors
/// If the kernel refuses the query.
pub fn allowed() -> io::Result<Vec<usize>> {
    Ok(members(&cpus()?))
}

fn members(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // If this fails, because the allowed CPUs have changed in the meantime, the thread stays
        // pinned.
        let _ = set_cpus(&self.former);
    }
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PinError { cpu, allowed, source } = self;
        if allowed.is_empty() || allowed.contains(cpu) {
            return write!(f, "cannot pin to CPU {cpu}: {source}");
        }
        let list = allowed.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "cannot pin to CPU {cpu}: this process may use {list}")
    }
}

impl std::error::Error for PinError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_holds_until_dropped() {
        let before = allowed().unwrap();
        let cpu = *before.last().unwrap();
        let pinned = pin(cpu).unwrap();
        assert_eq!(allowed().unwrap(), [cpu]);
        drop(pinned);
        assert_eq!(allowed().unwrap(), before);
    }

    #[test]
    fn pin_to_missing_cpu_lists_allowed_cpus() {
        let text = pin(100_000).unwrap_err().to_string();
        let first = allowed().unwrap()[0];
        assert!(
            text.contains("CPU 100000") && text.contains(&format!("may use {first}")),
            "{text}"
        );
    }
}
