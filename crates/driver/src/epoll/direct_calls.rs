//! Reads and writes past the page cache (`O_DIRECT`), which Linux makes without a thread.
//!
//! A call is *queued* until it is submitted, at the end of the turn or earlier, and then *running*
//! until its result has been taken. Its end is signalled to the workers' eventfd. A call that would
//! block, or that the file system cannot make this way, is *refused*, and a worker makes it.
#![allow(unsafe_code)]

use crate::event::Event;
use crate::slots::{Slab, Token};
use crate::workers::FileJob;
use annulus_kernel::{AioCall, AioContext, EventFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::mem::forget;

/// Maximum number of running calls. Others stay queued. All contexts of a system may have 65,536
/// by default.
const MAX_RUNNING_CALLS: u32 = 256;

/// Number of refusals in a row after which calls go to workers at once.
const MAX_REFUSALS: u32 = 8;
/// Number of calls that then go to workers before another one is tried without a thread.
const CALLS_PER_TRY: u32 = 1024;

/// The direct calls of one driver.
#[derive(Default)]
pub(super) struct DirectCalls {
    /// Created with the first call.
    context: Option<AioContext>,
    /// The queued and running calls.
    jobs: Slab<FileJob>,
    /// The queued calls, with the indices of their jobs.
    queued: VecDeque<AioCall>,
    /// Number of refusals since the last call that was made.
    refusals: u32,
    /// Number of calls that go to workers at once.
    skips: u32,
}

impl DirectCalls {
    /// Queues a call, whose end will be signalled to the eventfd. Returns the job if a worker must
    /// make the call.
    pub(super) fn queue(&mut self, job: FileJob, eventfd: &EventFd) -> Result<(), FileJob> {
        if !job.is_direct_transfer() || !self.is_available() {
            return Err(job);
        }
        let slot = self.jobs.insert(job);
        match self.jobs.get(slot).direct_entry(u64::from(slot), eventfd) {
            Some(entry) => {
                self.queued.push_back(entry);
                Ok(())
            }
            None => Err(self.jobs.remove(slot)),
        }
    }

    /// Returns true if a call should be tried without a thread.
    fn is_available(&mut self) -> bool {
        if self.skips > 0 {
            self.skips -= 1;
            return false;
        }
        if self.context.is_none() {
            self.context = AioContext::new(MAX_RUNNING_CALLS).ok();
            self.skips = if self.context.is_some() { 0 } else { CALLS_PER_TRY };
        }
        self.context.is_some()
    }

    fn running(&self) -> usize {
        self.jobs.len() - self.queued.len()
    }

    /// Returns the number of queued calls that can be submitted now.
    pub(super) fn startable(&self) -> u32 {
        let room = (MAX_RUNNING_CALLS as usize).saturating_sub(self.running());
        self.queued.len().min(room) as u32
    }

    /// Removes a queued call.
    pub(super) fn remove_queued(&mut self, target: Token) -> Option<FileJob> {
        let jobs = &mut self.jobs;
        let is_target = |entry: &AioCall| jobs.get(entry.data() as u32).token() == target;
        let position = self.queued.iter().position(is_target)?;
        let entry = self.queued.remove(position)?;
        Some(self.jobs.remove(entry.data() as u32))
    }

    /// Submits queued calls, and returns the number of those that have started. Passes the refused
    /// ones to `refused`.
    pub(super) fn start(&mut self, mut refused: impl FnMut(FileJob)) -> usize {
        let before = self.running();
        while self.startable() > 0 {
            let (running, count) = (self.running(), self.startable() as usize);
            let Some(context) = &self.context else { break };
            let entries = &mut self.queued.make_contiguous()[..count];
            // SAFETY: memory and descriptors belong to the jobs until their events have been taken
            // (`FileJob::new`), and events are made of results only.
            match unsafe { context.submit(entries) } {
                Ok(started) => drop(self.queued.drain(..started)),
                // Results will make room.
                Err(Errno::AGAIN) if running > 0 => break,
                Err(_) => {
                    let Some(entry) = self.queued.pop_front() else { break };
                    self.note_refusal();
                    refused(self.jobs.remove(entry.data() as u32));
                }
            }
        }
        self.running() - before
    }

    fn note_refusal(&mut self) {
        self.refusals += 1;
        if self.refusals >= MAX_REFUSALS {
            (self.refusals, self.skips) = (0, CALLS_PER_TRY);
        }
    }

    /// Takes the events of calls that have ended. Passes those that were refused to `refused`.
    pub(super) fn take_events(
        &mut self,
        events: &mut VecDeque<Event>,
        mut refused: impl FnMut(FileJob),
    ) {
        if self.running() == 0 {
            return;
        }
        let Some(context) = self.context.take() else { return };
        context.take_results(|slot, result| {
            let job = self.jobs.remove(slot as u32);
            match result {
                // INTR: a call of this kind cannot be repeated by the kernel.
                Err(Errno::AGAIN | Errno::INTR | Errno::OPNOTSUPP) => {
                    self.note_refusal();
                    refused(job);
                }
                result => {
                    self.refusals = 0;
                    events.push_back(job.end(result));
                }
            }
        });
        self.context = Some(context);
    }
}

impl Drop for DirectCalls {
    /// Keeps the context if calls are running, since its end would wait for them.
    fn drop(&mut self) {
        if self.running() > 0 {
            forget(self.context.take());
        }
    }
}
