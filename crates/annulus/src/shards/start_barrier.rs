//! Where the threads meet: all are set up before one starts, and the first that fails ends all.

use super::error::{Cause, ShardError};
use crate::runtime::deny_further_rings;
use crate::runtime::handle::Handle;
use crate::unwind::dispose_each;
use annulus_kernel::Linux;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A shard that is set up.
pub(super) struct Ready {
    pub(super) handle: Handle,
    pub(super) locked_down: bool,
}

/// What the threads share until they end.
pub(super) struct Muster<E> {
    state: Mutex<State<E>>,
    changed: Condvar,
}

struct State<E> {
    ready: Vec<Option<Ready>>,
    /// Everybody's handles, once all are ready.
    crew: Option<Arc<[Handle]>>,
    fault: Option<ShardError<E>>,
}

impl<E> Muster<E> {
    pub(super) fn new(count: usize) -> Self {
        let ready = (0..count).map(|_| None).collect();
        let state = State { ready, crew: None, fault: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Tells that a shard is set up, and waits for the others.
    ///
    /// # Errors
    /// Where one of them failed, or the process could not be locked down.
    pub(super) fn report(&self, index: usize, ready: Ready) -> io::Result<Arc<[Handle]>> {
        let mut state = self.lock();
        state.ready[index] = Some(ready);
        if state.fault.is_none() && state.ready.iter().all(Option::is_some) {
            state.start()?;
            self.changed.notify_all();
        }
        let waits = |state: &mut State<E>| state.crew.is_none() && state.fault.is_none();
        let state = self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        state.crew.clone().ok_or_else(|| {
            io::Error::new(io::ErrorKind::Interrupted, "another shard could not be set up")
        })
    }

    /// Ends all. Only the first failure counts: the others follow from it.
    pub(super) fn fail(&self, shard: usize, cause: Cause<E>) {
        let mut fault = Some(ShardError { shard, cause });
        let mut state = self.lock();
        state.ready.iter().flatten().for_each(|ready| ready.handle.stop());
        if state.fault.is_none() {
            state.fault = fault.take();
        }
        self.changed.notify_all();
        drop(state);
        // An error or a panic of the program's own.
        dispose_each(fault);
    }

    /// What came of it all, once every thread has ended.
    pub(super) fn outcome<T>(self, results: Vec<Option<T>>) -> Result<Vec<T>, ShardError<E>> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(fault) = state.fault {
            dispose_each(results);
            return Err(fault);
        }
        let result = |result: Option<T>| result.expect("a shard without a fault has a result");
        Ok(results.into_iter().map(result).collect())
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E> State<E> {
    fn start(&mut self) -> io::Result<()> {
        if self.ready.iter().flatten().any(|ready| ready.locked_down) {
            deny_further_rings(&Linux)?;
        }
        self.crew = Some(self.ready.iter().flatten().map(|ready| ready.handle.clone()).collect());
        Ok(())
    }
}
