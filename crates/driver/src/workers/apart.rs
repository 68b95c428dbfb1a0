//! Threads for calls that may hang: calls on mounts whose server may never answer. The calls on one
//! mount are a *group*. A few calls of a group run at once and the rest wait, so that a server that
//! hangs does not stop other groups. It does not stop calls on local files either, which have their
//! own threads.

use super::{Job, Shared, Workers};
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
/// Maximum number of threads that wait for more calls. The rest end.
const MAX_IDLE_THREADS: usize = 4;

/// A unit of work for a thread.
pub(super) enum Work {
    Call(Job),
    /// Closes a descriptor that no other code uses. Some file systems notify the server, and wait
    /// for its answer.
    Close(Fd),
}

/// One group: the number of running calls, and the calls that wait for one of them to end.
#[derive(Default)]
struct Group {
    running: usize,
    waiting: VecDeque<Work>,
}

/// The calls of all groups.
#[derive(Default)]
pub(super) struct Apart {
    /// Groups with calls.
    groups: HashMap<u64, Group>,
    /// Calls that the next free threads will make. They already count as running.
    ready: VecDeque<(u64, Work)>,
    threads: Vec<JoinHandle<()>>,
    /// Number of threads that have not ended.
    alive: usize,
    /// Number of threads that wait for a call and have not been woken.
    idle: usize,
}

impl Apart {
    fn add(&mut self, group: u64, work: Work) {
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
    pub(super) fn withdraw(&mut self, target: Token) -> Option<Job> {
        let is_target = |work: &Work| matches!(work, Work::Call(job) if job.token() == target);
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
            Some(Work::Call(job)) => Some(job),
            Some(Work::Close(_)) | None => None,
        }
    }

    /// Returns true if no call is running or waiting.
    pub(super) fn is_quiet(&self) -> bool {
        self.groups.is_empty()
    }

    /// Drops the calls that have not started, and returns the threads to join. Descriptors that are
    /// queued to be closed remain.
    pub(super) fn close(&mut self) -> Vec<JoinHandle<()>> {
        let closes = |work: &Work| matches!(work, Work::Close(_));
        self.groups.values_mut().for_each(|calls| calls.waiting.retain(closes));
        let (ready, dropped) =
            std::mem::take(&mut self.ready).into_iter().partition(|(_, work)| closes(work));
        self.ready = ready;
        let dropped: VecDeque<(u64, Work)> = dropped;
        dropped.into_iter().for_each(|(group, _)| self.ended(group));
        std::mem::take(&mut self.threads)
    }
}

impl Workers {
    /// Queues a call of a group.
    ///
    /// # Errors
    /// Returns the event of the job if there is no thread and none can be started.
    pub(super) fn submit_apart(&self, group: u64, job: Job) -> Result<(), Event> {
        match self.start_for_apart() {
            Ok(()) => {
                self.add_apart(group, Work::Call(job));
                Ok(())
            }
            Err(errno) => Err(job.end(Err(errno))),
        }
    }

    /// Closes a descriptor of a group that no other code uses. If there is no thread and none can
    /// be started, the descriptor stays open: a close here might not return.
    pub(crate) fn close_apart(&self, group: u64, fd: Fd) {
        if self.start_for_apart().is_ok() {
            self.add_apart(group, Work::Close(fd));
        }
    }

    fn add_apart(&self, group: u64, work: Work) {
        self.0.state().apart.add(group, work);
        self.0.wake_apart();
    }

    /// Starts a thread, unless one is idle or the maximum is reached.
    fn start_for_apart(&self) -> Result<(), rustix::io::Errno> {
        let mut state = self.0.state();
        let apart = &mut state.apart;
        if apart.idle > 0 || apart.alive >= MAX_THREADS {
            return Ok(());
        }
        apart.threads.retain(|thread| !thread.is_finished());
        match self.start(Shared::run_apart) {
            Ok(thread) => {
                apart.alive += 1;
                apart.threads.push(thread);
                Ok(())
            }
            Err(_) if apart.alive > 0 => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl Shared {
    /// Wakes an idle thread, if any. The rest check for calls by themselves.
    fn wake_apart(&self) {
        let mut state = self.state();
        if state.apart.idle > 0 && !state.apart.ready.is_empty() {
            state.apart.idle -= 1;
            drop(state);
            self.apart_work.notify_one();
        }
    }

    /// The main function of a thread for calls that may hang.
    fn run_apart(&self) {
        while let Some((group, work)) = self.next_apart() {
            let event = match work {
                Work::Call(job) => {
                    let result = job.run();
                    Some(job.end(result))
                }
                Work::Close(fd) => {
                    Linux.close(fd);
                    None
                }
            };
            let mut state = self.state();
            state.apart.ended(group);
            let signals = event.is_some() && state.done.is_empty();
            state.done.extend(event);
            drop(state);
            if signals {
                self.notify_done();
            }
        }
    }

    fn next_apart(&self) -> Option<(u64, Work)> {
        let mut state = self.state();
        loop {
            if let Some(next) = state.apart.ready.pop_front() {
                return Some(next);
            }
            if state.closed || state.apart.idle >= MAX_IDLE_THREADS {
                state.apart.alive -= 1;
                return None;
            }
            state.apart.idle += 1;
            state = self.apart_work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
