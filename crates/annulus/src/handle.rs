//! A runtime, from another thread.

use crate::remote::Remote;
use crate::task::{self, JoinHandle};
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

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
            return Err(io::Error::other("the runtime has ended; nothing can be spawned on it"));
        }
        Ok(task::spawn_remotely(&self.remote, future))
    }

    /// Makes the runtime's loop look around, as if a task had been woken.
    pub fn wake(&self) {
        self.remote.ring_the_bell();
    }

    /// Asks the runtime's `block_on` to return: it answers an error of the kind `Interrupted`.
    pub fn stop(&self) {
        self.remote.stop();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}
