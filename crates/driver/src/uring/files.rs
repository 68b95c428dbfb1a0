//! Calls on files: by the ring where it has the operation, else by worker threads.
//!
//! A locked-down ring is left without them: the calls of the workers are ones that a seccomp filter sees.
#![allow(unsafe_code)]

use super::Uring;
use crate::event::Event;
use crate::token::Token;
use crate::workers::Workers;
use annulus_kernel::Kernel;
use annulus_kernel::file::FileCall;
use annulus_ring::op::{PollMulti, file, poll};
use annulus_ring::{Entry, Probe, SafeEntry};
use rustix::io::Errno;
use std::collections::VecDeque;

/// Calls for a device that are queued before they are started without waiting for the turn. Of more than two the kernel would
/// hold each back until it has seen them all.
const SOON: u32 = 2;

/// What is done with a call.
enum Way {
    /// It goes to the ring.
    Ring(Entry),
    /// A worker makes it; the entry, if any, has the ring tell when workers are done.
    Worker(Option<SafeEntry>),
    /// Done, or failed, already.
    Done,
}

/// Who makes which call, and what came of those that the ring did not make.
#[derive(Debug)]
pub(super) struct Files {
    probe: Probe,
    restricted: bool,
    workers: Option<Workers>,
    /// The workers' bell is listened to.
    listening: bool,
    done: VecDeque<Event>,
}

impl Files {
    /// What the completion of the workers' bell carries.
    pub(super) const BELL: Token = Token::ignored(2);

    pub(super) fn new(probe: Probe, restricted: bool) -> Self {
        Self { probe, restricted, workers: None, listening: false, done: VecDeque::new() }
    }

    /// # Safety
    /// See [`Driver::submit_memory`](crate::Driver::submit_memory).
    unsafe fn submit(&mut self, token: Token, call: *const FileCall, kernel: &dyn Kernel) -> Way {
        // SAFETY: the caller's promise: the call is valid until its terminal event.
        let call = unsafe { *call };
        let has = |code: &u8| !self.restricted && self.probe.has(*code);
        if file::opcode(&call).as_ref().is_some_and(has)
            && let Some(entry) = file::entry(&call)
        {
            return Way::Ring(entry.user_data(token.bits()));
        }
        if !kernel.real_descriptors() {
            // SAFETY: the caller's promise, passed on.
            let answer = unsafe { kernel.file(&call) };
            let result = answer.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO));
            return self.end(token, result);
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { self.employ(token, call) }
    }

    /// # Safety
    /// The memory that the call names is the workers' until its event.
    unsafe fn employ(&mut self, token: Token, call: FileCall) -> Way {
        // SAFETY: the caller's promise, passed on.
        let employed = self.workers().and_then(|workers| unsafe { workers.submit(token, call) });
        match employed {
            Ok(()) => Way::Worker(self.listen()),
            Err(errno) => self.end(token, Err(errno)),
        }
    }

    fn workers(&mut self) -> Result<&Workers, Errno> {
        if self.workers.is_none() {
            self.workers = Some(Workers::new()?);
        }
        Ok(self.workers.as_ref().expect("made above"))
    }

    fn end(&mut self, token: Token, result: Result<u32, Errno>) -> Way {
        self.done.push_back(Event { token, result, more: false, buffer: None });
        Way::Done
    }

    /// The workers' bell has rung; the entry that listens on, where the last one has ended.
    pub(super) fn heard(&mut self, more: bool) -> Option<SafeEntry> {
        self.workers.as_ref()?.collect(&mut self.done);
        self.listening = more;
        self.listen()
    }

    /// The entry that has the ring tell when workers are done, unless one does already.
    fn listen(&mut self) -> Option<SafeEntry> {
        let fd = self.workers.as_ref()?.bell();
        let listens = std::mem::replace(&mut self.listening, true);
        let entry = PollMulti { fd, events: poll::IN }.entry();
        (!listens).then(|| entry.user_data(Self::BELL.bits()))
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

impl Uring {
    /// # Safety
    /// See [`Driver::submit_memory`](crate::Driver::submit_memory).
    #[cold]
    pub(super) unsafe fn submit_file(&mut self, token: Token, call: *const FileCall, soon: bool) {
        let kernel = self.kernel().clone();
        // SAFETY: the caller's promise, passed on.
        match unsafe { self.files.submit(token, call, &*kernel) } {
            Way::Ring(entry) => {
                self.counters.file_ring += 1;
                // SAFETY: as above.
                unsafe { self.push_file(entry, soon) };
            }
            Way::Worker(bell) => {
                self.counters.file_worker += 1;
                bell.into_iter().for_each(|entry| self.push(entry));
            }
            Way::Done => self.counters.file_inline += 1,
        }
    }

    /// # Safety
    /// See [`Ring::push_unchecked`](annulus_ring::Ring::push_unchecked).
    unsafe fn push_file(&mut self, entry: Entry, soon: bool) {
        let registered = self.registered.entry(entry);
        self.counters.file_registered += u64::from(registered.is_some());
        // SAFETY: the caller's promise; the entry's memory lies in its place of the table, or it names none.
        unsafe { self.push_unchecked(registered.unwrap_or(entry)) };
        self.soon += u32::from(soon);
        if self.soon >= SOON {
            self.start_queued();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Kind;
    use annulus_kernel::Linux;
    use annulus_ring::Ring;

    #[test]
    fn the_bell_is_listened_to_once_a_call_is_on_its_way_and_while_it_lasts() {
        let Ok(ring) = Ring::builder().entries(8).build() else { return };
        let mut files = Files::new(ring.probe().unwrap(), false);
        // There are workers, and their first thread could not be had.
        files.workers = Some(Workers::new().unwrap());
        let call = FileCall::Lock { fd: -1, operation: 0 };
        let token = Token::new(Kind::File, 1, 1);
        // SAFETY: the call names no memory.
        let submit = |files: &mut Files| unsafe { files.submit(token, &call, &Linux) };
        assert!(matches!(submit(&mut files), Way::Worker(Some(_))));
        assert!(matches!(submit(&mut files), Way::Worker(None)));
        assert!(files.heard(true).is_none());
        assert!(files.heard(false).is_some());
    }
}
