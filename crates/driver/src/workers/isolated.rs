//! Threads for calls that may hang: calls on mounts whose server may never answer. The calls on one
//! mount are a *group*. Only a few calls of a group run at once, so that a server that hangs does
//! not block other groups. Calls on local files have their own threads.

use super::{FileJob, WorkerThreads, Workers};
use crate::event::Event;
use crate::slots::Token;
use annulus_kernel::{Fd, Kernel, Linux};
use std::collections::{HashMap, VecDeque};
use std::sync::PoisonError;
use std::thread::JoinHandle;

/// Maximum number of calls of one group at once.
const MAX_RUNNING_PER_GROUP: usize = 8;
/// Maximum number of threads for all groups.
const MAX_THREADS: usize = 512;
/// Maximum number of idle threads. Any other thread ends when it finds no call.
const MAX_IDLE_THREADS: usize = 4;

/// A unit of work for a thread.
pub(super) enum IsolatedWork {
    Call(FileJob),
    /// Closes a descriptor that no other code uses. Some file systems then wait for an answer from
    /// their server.
    Close(Fd),
}

/// One group: the number of running calls, and the calls that wait for one of them to end.
#[derive(Default)]
struct CallGroup {
    running: usize,
    waiting: VecDeque<IsolatedWork>,
}

/// The calls of all groups.
#[derive(Default)]
pub(super) struct IsolatedCalls {
    /// Groups with calls.
    groups: HashMap<u64, CallGroup>,
    /// Calls that the next free threads will make, already counted as running.
    ready: VecDeque<(u64, IsolatedWork)>,
    threads: Vec<JoinHandle<()>>,
    /// Number of threads that have not ended.
    alive: usize,
    /// Number of threads that wait for a call and have not been woken.
    idle: usize,
    /// Number of threads that have been woken and still have to note it. A condition variable may
    /// wake more threads than it was asked to.
    woken: usize,
}

impl IsolatedCalls {
    fn add(&mut self, group: u64, work: IsolatedWork) {
        let calls = self.groups.entry(group).or_default();
        if calls.running < MAX_RUNNING_PER_GROUP {
            calls.running += 1;
            self.ready.push_back((group, work));
        } else {
            calls.waiting.push_back(work);
        }
    }

    /// Records that a call of a group has ended, so that the next one may start.
    fn ended(&mut self, group: u64) {
        let Some(calls) = self.groups.get_mut(&group) else { return };
        match calls.waiting.pop_front() {
            Some(next) => self.ready.push_back((group, next)),
            None => calls.running -= 1,
        }
        if calls.running == 0 {
            self.groups.remove(&group);
        }
    }

    /// Removes and returns a call that has not started.
    pub(super) fn remove_waiting(&mut self, target: Token) -> Option<FileJob> {
        let is_target =
            |work: &IsolatedWork| matches!(work, IsolatedWork::Call(job) if job.token() == target);
        let found = if let Some(at) = self.ready.iter().position(|(_, work)| is_target(work)) {
            let (group, work) = self.ready.remove(at)?;
            self.ended(group);
            Some(work)
        } else {
            self.groups.values_mut().find_map(|calls| {
                let at = calls.waiting.iter().position(is_target)?;
                calls.waiting.remove(at)
            })
        };
        match found {
            Some(IsolatedWork::Call(job)) => Some(job),
            Some(IsolatedWork::Close(_)) | None => None,
        }
    }

    /// Returns true if no call is running or waiting.
    pub(super) fn is_quiet(&self) -> bool {
        self.groups.is_empty()
    }

    /// Drops the calls that have not started, except closes, and returns the threads to join.
    pub(super) fn close(&mut self) -> Vec<JoinHandle<()>> {
        let closes = |work: &IsolatedWork| matches!(work, IsolatedWork::Close(_));
        self.groups.values_mut().for_each(|calls| calls.waiting.retain(closes));
        let (ready, dropped) =
            std::mem::take(&mut self.ready).into_iter().partition(|(_, work)| closes(work));
        self.ready = ready;
        let dropped: VecDeque<(u64, IsolatedWork)> = dropped;
        dropped.into_iter().for_each(|(group, _)| self.ended(group));
        std::mem::take(&mut self.threads)
    }
}

impl Workers {
    /// Queues a call of a group.
    ///
    /// # Errors
    /// Returns the event of the job if there is no thread and none can be started.
    pub(super) fn submit_isolated(&self, group: u64, job: FileJob) -> Result<(), Event> {
        match self.start_for_isolated() {
            Ok(()) => {
                self.add_isolated(group, IsolatedWork::Call(job));
                Ok(())
            }
            Err(errno) => Err(job.end(Err(errno))),
        }
    }

    /// Closes a descriptor of a group that no other code uses. If there is no thread and none can
    /// be started, the descriptor stays open: a close here might not return.
    pub(crate) fn close_isolated(&self, group: u64, fd: Fd) {
        if self.start_for_isolated().is_ok() {
            self.add_isolated(group, IsolatedWork::Close(fd));
        }
    }

    fn add_isolated(&self, group: u64, work: IsolatedWork) {
        self.0.state().isolated.add(group, work);
        self.0.wake_isolated();
    }

    /// Starts a thread, unless one is idle or the maximum is reached.
    fn start_for_isolated(&self) -> Result<(), rustix::io::Errno> {
        let mut state = self.0.state();
        let isolated = &mut state.isolated;
        if isolated.idle > 0 || isolated.alive >= MAX_THREADS {
            return Ok(());
        }
        isolated.threads.retain(|thread| !thread.is_finished());
        match self.start(WorkerThreads::run_isolated) {
            Ok(thread) => {
                isolated.alive += 1;
                isolated.threads.push(thread);
                Ok(())
            }
            Err(_) if isolated.alive > 0 => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl WorkerThreads {
    /// Wakes an idle thread if a call is ready. Busy threads look for the next call by themselves.
    fn wake_isolated(&self) {
        let mut state = self.state();
        if state.isolated.idle > 0 && !state.isolated.ready.is_empty() {
            state.isolated.idle -= 1;
            state.isolated.woken += 1;
            drop(state);
            self.isolated_work.notify_one();
        }
    }

    /// The main function of a thread for calls that may hang.
    fn run_isolated(&self) {
        while let Some((group, work)) = self.next_isolated() {
            let event = match work {
                IsolatedWork::Call(job) => {
                    let result = job.run();
                    Some(job.end(result))
                }
                IsolatedWork::Close(fd) => {
                    Linux.close(fd);
                    None
                }
            };
            let mut state = self.state();
            state.isolated.ended(group);
            let signals = event.is_some() && !std::mem::replace(&mut state.signalled, true);
            state.done.extend(event);
            drop(state);
            if signals {
                self.notify_done();
            }
        }
    }

    fn next_isolated(&self) -> Option<(u64, IsolatedWork)> {
        let mut state = self.state();
        loop {
            if let Some(next) = state.isolated.ready.pop_front() {
                return Some(next);
            }
            if state.closed || state.isolated.idle >= MAX_IDLE_THREADS {
                state.isolated.alive -= 1;
                return None;
            }
            state.isolated.idle += 1;
            while state.isolated.woken == 0 && !state.closed {
                state = self.isolated_work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.isolated.woken = state.isolated.woken.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{held_lock, submit_hanging, wait_for};
    use super::*;
    use std::thread;

    /// Two calls would be left to a thread that is counted twice, and the second one would wait for
    /// the first, which may hang.
    #[test]
    fn a_thread_that_wakes_without_a_call_is_not_counted_twice() {
        let workers = Workers::new().unwrap();
        let (held, wanted) = held_lock("counted");
        drop(held);
        submit_hanging(&workers, 7, 0, &wanted);
        wait_for(&workers, 1);
        while workers.0.state().isolated.idle == 0 {
            thread::yield_now();
        }
        for _ in 0..1000 {
            workers.0.isolated_work.notify_all();
            thread::yield_now();
            let state = workers.0.state();
            assert_eq!((state.isolated.alive, state.isolated.idle), (1, 1));
        }
    }
}
