//! A runtime, from another thread.

use crate::runtime::memory::MemoryLimit;
use crate::runtime::remote::Remote;
use crate::task::refused::refuse;
use crate::task::{self, JoinError, JoinHandle};
use std::fmt;
use std::future::Future;
use std::io;
use std::panic::{Location, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Spawns onto a runtime and wakes it from any thread. `Send`, `Sync`, cloned freely; it does not keep the runtime alive.
///
/// Waking costs no system call while the runtime's loop is awake.
#[derive(Clone)]
pub struct Handle {
    remote: Arc<Remote>,
}

impl Handle {
    pub(crate) fn new(remote: Arc<Remote>) -> Self {
        Self { remote }
    }

    /// Spawns a task on the runtime. It runs there; its result can be awaited anywhere.
    ///
    /// # Errors
    /// After the runtime's end.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> io::Result<JoinHandle<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        if self.remote.is_closed() {
            refuse(future);
            return Err(io::Error::other("the runtime has ended; nothing can be spawned on it"));
        }
        Ok(task::spawn_remotely(&self.remote, future))
    }

    /// Spawns a task whose future is made on the runtime's thread, by `make`: the future itself need not be `Send`.
    /// Aborting the task drops the future, on its thread.
    ///
    /// # Errors
    /// After the runtime's end.
    #[track_caller]
    pub fn spawn_with<M, F>(&self, make: M) -> io::Result<JoinHandle<F::Output>>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send,
    {
        let caller = Location::caller();
        self.spawn(async move { Made(task::spawn_at(make(), caller)).await })
    }

    /// Streams that are open on the runtime, as of its last turn; what it does besides does not count.
    pub fn streams(&self) -> usize {
        self.remote.streams()
    }

    /// The limit on the memory of the runtime's streams and datagram sockets; `None` if it has none. It tells how much it is,
    /// how much is held now, and how many streams are held back, over all runtimes that share it.
    pub fn memory_limit(&self) -> Option<MemoryLimit> {
        self.remote.memory_limit().cloned()
    }

    /// Makes the runtime's loop look around, as if a task had been woken.
    pub fn wake(&self) {
        self.remote.wake();
    }

    /// Asks the runtime's `block_on` to return: it answers an error of the kind `Interrupted`.
    pub fn stop(&self) {
        self.remote.stop();
    }
}

/// A task made for another thread's: it ends with that one, in its way.
struct Made<T>(JoinHandle<T>);

impl<T> Future for Made<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match ready!(Pin::new(&mut self.0).poll(cx)) {
            Ok(value) => Poll::Ready(value),
            // The panic hook has told of it; this goes on to the joiner.
            Err(JoinError::Panicked(panic)) => resume_unwind(panic),
            // The runtime is ending, and drops this task next.
            Err(JoinError::Aborted) => Poll::Pending,
        }
    }
}

impl<T> Drop for Made<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}
