//! The value that represents a shard in the program's main.

use crate::net::TcpStream;
use crate::runtime::DriverInfo;
use crate::runtime::Handle;
use crate::tasks::JoinHandle;
use annulus_kernel::affinity;
use std::future::Future;
use std::sync::Arc;
use std::{fmt, io};

/// One of several runtimes: its index, and handles to all of them. It is `Send` and cheap to clone.
///
/// ```
/// use annulus::shards::Shards;
///
/// let answers = Shards::new(2).run(async |shard| {
///     if shard.index() != 0 {
///         return std::io::Result::Ok("served".to_owned());
///     }
///     let name = format!("one of {}", shard.count());
///     // The closure is `Send`; the future that it creates stays on the shard.
///     let task = shard.spawn_on(0, move || async move { std::rc::Rc::new(name).to_string() })?;
///     Ok(task.await.unwrap())
/// })?;
/// assert_eq!(answers, ["one of 2", "served"]);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Shard {
    pub(super) index: usize,
    pub(super) cpu: Option<usize>,
    pub(super) driver: Arc<DriverInfo>,
    pub(super) handles: Arc<[Handle]>,
}

impl Shard {
    /// Returns the index of the shard, starting at 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the number of shards.
    pub fn count(&self) -> usize {
        self.handles.len()
    }

    /// Returns the CPU that the shard is pinned to, if any.
    pub fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    /// Returns the driver of the shard and the reason it was chosen.
    pub fn driver(&self) -> &DriverInfo {
        &self.driver
    }

    /// Returns handles to all shards' runtimes, by index, to spawn on them, wake them and stop them
    /// from any thread.
    pub fn handles(&self) -> &[Handle] {
        &self.handles
    }

    /// Spawns a task on this shard or another. `make` runs there and creates the task's future,
    /// which need not be `Send`.
    ///
    /// # Errors
    /// `InvalidInput` if no such shard exists; an error if its main has returned.
    #[track_caller]
    pub fn spawn_on<M, F>(&self, shard: usize, make: M) -> io::Result<JoinHandle<F::Output>>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send,
    {
        self.find(shard)?.spawn_with(make)
    }

    /// Moves a connection to a shard, where the future created by `serve` owns it. An open
    /// connection loses no bytes: sent bytes are drained first, and bytes received but not yet
    /// taken move along.
    ///
    /// Dropping the future before it is ready closes the connection.
    ///
    /// # Errors
    /// The errors of [`TcpStream::into_parts`] and [`spawn_on`](Self::spawn_on). The connection is
    /// then closed.
    pub async fn move_stream<M, F, T>(
        &self,
        stream: TcpStream,
        shard: usize,
        serve: M,
    ) -> io::Result<JoinHandle<io::Result<T>>>
    where
        M: FnOnce(TcpStream) -> F + Send + 'static,
        F: Future<Output = io::Result<T>> + 'static,
        T: Send + 'static,
    {
        let handle = self.find(shard)?;
        let parts = stream.into_parts().await?;
        handle.spawn_with(move || async move { serve(TcpStream::from_parts(parts)?).await })
    }

    fn find(&self, shard: usize) -> io::Result<&Handle> {
        self.handles.get(shard).ok_or_else(|| {
            let text = format!(
                "shard {shard} is out of range: there are {} shards, starting at 0",
                self.count()
            );
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shard({} of {})", self.index, self.count())
    }
}

/// Returns the CPUs that the calling thread may use, for a number of shards or for
/// [`Pinning::On`].
///
/// # Errors
/// If the kernel refuses the query.
pub fn cpus() -> io::Result<Vec<usize>> {
    affinity::allowed()
}

/// The CPUs that the shards run on.
///
/// By default the system chooses. A pinned shard waits while another program runs on its CPU, even
/// if another CPU is idle: raw HTTP servers on two cores that they shared with the clients took
/// 1.16 to 1.19 times the CPU time per request with pinned shards (`arena/README.md`). Pin shards
/// to CPUs that are reserved for them, or for [`Spread::Cpu`](super::Spread::Cpu), which requires
/// it.
///
/// ```
/// use annulus::shards::{Pinning, Shards};
///
/// let cpus = annulus::shards::cpus()?;
/// let last = *cpus.last().unwrap();
/// let shards = Shards::new(2).pinning(Pinning::On(vec![last])); // Both on one CPU.
/// let used = shards.run(async |shard| std::io::Result::Ok(shard.cpu()))?;
/// assert_eq!(used, [Some(last), Some(last)]);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pinning {
    /// One CPU per shard, in order, of those that the calling thread may use. Starts over at the
    /// first one if there are more shards than CPUs.
    Each,
    /// These CPUs, in order. Starts over at the first one if there are more shards than CPUs.
    On(Vec<usize>),
    /// No pinning: the system schedules the shards on any CPU.
    #[default]
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
    fn cpus_are_reused_if_there_are_more_shards_than_cpus() {
        let cpus = Pinning::On(vec![4, 2]).cpus(3).unwrap();
        assert_eq!(cpus, [Some(4), Some(2), Some(4)]);
        assert_eq!(Pinning::None.cpus(2).unwrap(), [None, None]);
        let allowed = affinity::allowed().unwrap();
        let each = Pinning::Each.cpus(allowed.len() + 1).unwrap();
        assert_eq!((each[0], each[allowed.len()]), (Some(allowed[0]), Some(allowed[0])));
        assert!(Pinning::On(Vec::new()).cpus(1).is_err());
    }
}
