//! A shard, as its main sees it.

use crate::net::TcpStream;
use crate::runtime::DriverInfo;
use crate::runtime::handle::Handle;
use crate::task::JoinHandle;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

/// One of several runtimes: which one it is, and the way to all of them. `Send`, cloned freely.
#[derive(Clone)]
pub struct Shard {
    pub(super) index: usize,
    pub(super) cpu: Option<usize>,
    pub(super) driver: Arc<DriverInfo>,
    pub(super) crew: Arc<[Handle]>,
}

impl Shard {
    /// Which one, from 0 on.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.crew.len()
    }

    /// The CPU it is pinned to.
    pub fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    /// Which driver it runs on, and why.
    pub fn driver(&self) -> &DriverInfo {
        &self.driver
    }

    /// The shards' runtimes, by index, this one among them: for other threads to spawn on, to wake and to stop.
    pub fn handles(&self) -> &[Handle] {
        &self.crew
    }

    /// Spawns a task on a shard, this one or another. `make` runs there and makes its future, which need not be `Send`.
    ///
    /// # Errors
    /// Where there is no such shard, or its main has returned.
    #[track_caller]
    pub fn spawn_on<M, F>(&self, shard: usize, make: M) -> io::Result<JoinHandle<F::Output>>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send,
    {
        self.find(shard)?.spawn_with(make)
    }

    /// Moves a connection to a shard, and has it served there by the future that `serve` makes. Nothing of a connection that
    /// lives is lost: what was sent is flushed first, and what was received and not yet taken comes along.
    ///
    /// Dropping the future closes the connection, unless it was ready.
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
        self.crew.get(shard).ok_or_else(|| {
            let text = format!("there is no shard {shard}: there are {}, from 0 on", self.count());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shard({} of {})", self.index, self.count())
    }
}
