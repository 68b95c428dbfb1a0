//! The barrier at which the shards' threads wait until all are set up. The first one that fails
//! stops all of them.

use super::error::{Cause, ShardError};
use crate::runtime::deny_further_rings;
use crate::runtime::handle::Handle;
use crate::unwind::dispose_each;
use annulus_kernel::Linux;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A shard whose runtime has been built.
pub(super) struct Ready {
    pub(super) handle: Handle,
    pub(super) locked_down: bool,
}

/// The state that the threads share until they end.
pub(super) struct StartBarrier<E> {
    state: Mutex<StartState<E>>,
    changed: Condvar,
}

struct StartState<E> {
    ready: Vec<Option<Ready>>,
    /// The handles of all shards, once all are ready.
    handles: Option<Arc<[Handle]>>,
    error: Option<ShardError<E>>,
}

impl<E> StartBarrier<E> {
    pub(super) fn new(count: usize) -> Self {
        let ready = (0..count).map(|_| None).collect();
        let state = StartState { ready, handles: None, error: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Records that a shard is ready, and waits until all are. Returns the handles of all shards.
    ///
    /// # Errors
    /// `Interrupted` if another shard failed; or an error if the process could not be locked down.
    pub(super) fn wait(&self, index: usize, ready: Ready) -> io::Result<Arc<[Handle]>> {
        let mut state = self.lock();
        state.ready[index] = Some(ready);
        if state.error.is_none() && state.ready.iter().all(Option::is_some) {
            state.start()?;
            self.changed.notify_all();
        }
        let waits = |state: &mut StartState<E>| state.handles.is_none() && state.error.is_none();
        let state = self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        state.handles.clone().ok_or_else(|| {
            io::Error::new(io::ErrorKind::Interrupted, "another shard could not be set up")
        })
    }

    /// Stops all shards. Keeps the first failure, because later ones result from it.
    pub(super) fn fail(&self, shard: usize, cause: Cause<E>) {
        let mut error = Some(ShardError { shard, cause });
        let mut state = self.lock();
        state.ready.iter().flatten().for_each(|ready| ready.handle.stop());
        if state.error.is_none() {
            state.error = error.take();
        }
        self.changed.notify_all();
        drop(state);
        // Dropping the error or panic payload of the program may run its code, so this happens
        // after unlocking.
        dispose_each(error);
    }

    /// Returns the results or the first failure. Called once every thread has ended.
    pub(super) fn outcome<T>(self, results: Vec<Option<T>>) -> Result<Vec<T>, ShardError<E>> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = state.error {
            dispose_each(results);
            return Err(error);
        }
        let result = |result: Option<T>| result.expect("a shard without an error has no result");
        Ok(results.into_iter().map(result).collect())
    }

    fn lock(&self) -> MutexGuard<'_, StartState<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E> StartState<E> {
    fn start(&mut self) -> io::Result<()> {
        if self.ready.iter().flatten().any(|ready| ready.locked_down) {
            deny_further_rings(&Linux)?;
        }
        self.handles =
            Some(self.ready.iter().flatten().map(|ready| ready.handle.clone()).collect());
        Ok(())
    }
}
