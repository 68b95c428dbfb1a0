//! A shard, as the program's main sees it.

use crate::net::TcpStream;
use crate::runtime::DriverInfo;
use crate::runtime::handle::Handle;
use crate::tasks::JoinHandle;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

/// One of several runtimes: its index, and handles on all of them. `Send`, cloned freely.
///
/// ```
/// use annulus::shards::{Pinning, Shards};
///
/// let answers = Shards::new(2).pinning(Pinning::None).run(async |shard| {
///     if shard.index() != 0 {
///         return std::io::Result::Ok("served".to_owned());
///     }
///     let name = format!("one of {}", shard.count());
///     // The closure is `Send`; what it makes stays on the shard that it runs on.
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
    /// The index of the shard, from 0 on.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.handles.len()
    }

    /// The CPU it is pinned to.
    pub fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    /// The driver it runs on, and the reason.
    pub fn driver(&self) -> &DriverInfo {
        &self.driver
    }

    /// Handles on all shards' runtimes, by index: to spawn on them, wake them and stop them from any thread.
    pub fn handles(&self) -> &[Handle] {
        &self.handles
    }

    /// Spawns a task on a shard, this one or another. `make` runs there and makes its future, which need not be `Send`.
    ///
    /// # Errors
    /// `InvalidInput` if there is no such shard; an error if its main has returned.
    #[track_caller]
    pub fn spawn_on<M, F>(&self, shard: usize, make: M) -> io::Result<JoinHandle<F::Output>>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send,
    {
        self.find(shard)?.spawn_with(make)
    }

    /// Moves a connection to a shard, where the future that `serve` makes has it. No byte of an open connection is lost: what was
    /// sent is drained first, and bytes received and not yet taken move along.
    ///
    /// Dropping the future before it is ready closes the connection.
    ///
    /// # Errors
    /// As [`TcpStream::into_parts`] and [`spawn_on`](Self::spawn_on); the connection is then closed.
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
            let text = format!("no shard {shard}: there are {}, from 0 on", self.count());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shard({} of {})", self.index, self.count())
    }
}
