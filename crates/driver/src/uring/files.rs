//! Calls on files: by the ring where it has the operation, else by worker threads.
//!
//! A locked-down ring is left without them: the calls of the workers are ones that a seccomp filter sees.
#![allow(unsafe_code)]

use crate::event::Event;
use crate::token::Token;
use crate::workers::Workers;
use annulus_ring::file::FileCall;
use annulus_ring::op::{PollMulti, poll};
use annulus_ring::{Entry, Kernel, Probe, Target};
use rustix::io::Errno;
use std::collections::VecDeque;

/// What is done with a call.
pub(super) enum Way {
    /// It goes to the ring.
    Ring(Entry),
    /// A worker makes it; the entry, if any, has the ring tell when workers are done.
    Worker(Option<Entry>),
    /// Done, or failed, already.
    Done,
}

/// Who makes which call, and what came of those that the ring did not make.
#[derive(Debug)]
pub(super) struct Files {
    probe: Probe,
    restricted: bool,
    workers: Option<Workers>,
    done: VecDeque<Event>,
}

impl Files {
    /// What the completion of the workers' bell carries.
    pub(super) const BELL: Token = Token::ignored(2);

    pub(super) fn new(probe: Probe, restricted: bool) -> Self {
        Self { probe, restricted, workers: None, done: VecDeque::new() }
    }

    /// # Safety
    /// See [`Driver::submit`](crate::Driver::submit).
    pub(super) unsafe fn submit(
        &mut self,
        token: Token,
        call: *const FileCall,
        kernel: &dyn Kernel,
    ) -> Way {
        // SAFETY: the caller's promise: the call is valid until its terminal event.
        let plain = unsafe { &*call };
        let has = |code: &u8| !self.restricted && self.probe.has(*code);
        if plain.opcode().as_ref().is_some_and(has)
            && let Some(entry) = plain.entry()
        {
            return Way::Ring(entry.user_data(token.bits()));
        }
        if !kernel.real_descriptors() {
            // SAFETY: the caller's promise, passed on.
            let answer = unsafe { kernel.file(plain) };
            let result = answer.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO));
            return self.end(token, result);
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { self.employ(token, call) }
    }

    /// # Safety
    /// As [`submit`](Self::submit).
    unsafe fn employ(&mut self, token: Token, call: *const FileCall) -> Way {
        let first = self.workers.is_none();
        if first {
            match Workers::new() {
                Ok(workers) => self.workers = Some(workers),
                Err(e) => {
                    return self.end(token, Err(Errno::from_io_error(&e).unwrap_or(Errno::IO)));
                }
            }
        }
        let workers = self.workers.as_ref().expect("made above");
        // SAFETY: the caller's promise, passed on.
        match unsafe { workers.submit(token, call) } {
            Ok(()) => Way::Worker(first.then(|| Self::listen(workers))),
            Err(errno) => self.end(token, Err(errno)),
        }
    }

    fn end(&mut self, token: Token, result: Result<u32, Errno>) -> Way {
        self.done.push_back(Event { token, result, more: false, buffer: None });
        Way::Done
    }

    /// The workers' bell has rung; the entry that listens on, where the last one has ended.
    pub(super) fn heard(&mut self, more: bool) -> Option<Entry> {
        let workers = self.workers.as_ref()?;
        workers.collect(&mut self.done);
        (!more).then(|| Self::listen(workers))
    }

    fn listen(workers: &Workers) -> Entry {
        let bell = PollMulti { target: Target::Fd(workers.bell()), events: poll::IN };
        bell.entry().user_data(Self::BELL.bits())
    }

    /// Takes back a call that no worker has begun; false where the ring must be asked.
    pub(super) fn cancel(&mut self, target: Token) -> bool {
        self.workers.as_ref().is_some_and(|workers| workers.cancel(target))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.done.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Event> {
        self.done.pop_front()
    }
}
