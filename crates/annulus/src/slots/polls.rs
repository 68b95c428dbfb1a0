//! Polls: readiness of descriptors that other code reads: the runtime's wake descriptor, a signal's pipe, a process's descriptor.
#![allow(unsafe_code)]

use crate::base::io::Io;
use crate::bytes::after::note_waker;
use crate::slots::waits::Waits;
use annulus_driver::{Event, Kind, Op, Slab, Token};
use annulus_kernel::Fd;
use rustix::io::Errno;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::task::{Context, Poll, Waker};

/// Readiness edges of a descriptor. Its owner closes it, after [`Polls::drop_poll`].
struct Readiness {
    fd: Fd,
    /// What a task that polls waits for.
    what: &'static str,
    armed: bool,
    ready: bool,
    waker: Option<Waker>,
    dropped: bool,
}

/// All polls.
#[derive(Default)]
pub(crate) struct Polls(Slab<Readiness>);

impl Polls {
    pub(crate) fn add(&mut self, io: &mut Io, fd: BorrowedFd<'_>, what: &'static str) -> u32 {
        // SAFETY: its owner closes it after the poll was dropped, or with the runtime.
        let fd = unsafe { Fd::from_raw(fd.as_raw_fd()) };
        let readiness =
            Readiness { fd, what, armed: false, ready: false, waker: None, dropped: false };
        let slot = self.0.insert(readiness);
        self.arm(io, slot);
        slot
    }

    /// Ready when the descriptor has become readable since the last time. Read it until it is empty.
    pub(crate) fn poll(&mut self, io: &mut Io, slot: u32, cx: &Context<'_>) -> Poll<()> {
        let poll = self.0.get(slot);
        if mem::take(&mut poll.ready) {
            return Poll::Ready(());
        }
        note_waker(&mut poll.waker, &mut io.after.drops, cx);
        Poll::Pending
    }

    pub(crate) fn on_event(&mut self, io: &mut Io, event: Event) {
        let (slot, generation) = (event.token.slot(), event.token.generation());
        let Some(poll) = self.0.find(slot, generation) else { return io.late(event) };
        poll.ready = true;
        io.after.wakes.extend(poll.waker.take());
        if event.more {
            return;
        }
        poll.armed = false;
        io.in_flight -= 1;
        if poll.dropped {
            self.0.remove(slot);
        } else if !matches!(event.result, Err(Errno::BADF | Errno::INVAL | Errno::PERM)) {
            self.arm(io, slot);
        }
    }

    /// The handle is gone.
    pub(crate) fn drop_poll(&mut self, io: &mut Io, slot: u32) {
        let token = self.token(slot);
        let poll = self.0.get(slot);
        poll.dropped = true;
        io.after.drops.extend(poll.waker.take());
        if poll.armed {
            io.cancel(token);
        } else {
            self.0.remove(slot);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// What tasks wait for here.
    pub(crate) fn add_waits(&mut self, waits: &mut Waits) {
        for slot in self.0.indices() {
            let poll = self.0.get(slot);
            if let Some(waker) = &poll.waker {
                waits.note(waker, || poll.what.into());
            }
        }
    }

    /// Ends all polls. Handles that outlive the runtime find it ended.
    pub(crate) fn stop_all(&mut self, io: &mut Io) {
        for slot in self.0.indices() {
            self.drop_poll(io, slot);
        }
    }

    fn arm(&mut self, io: &mut Io, slot: u32) {
        let token = self.token(slot);
        let poll = self.0.get(slot);
        poll.armed = true;
        io.start(token, Op::Readable { fd: poll.fd });
    }

    fn token(&self, slot: u32) -> Token {
        Token::new(Kind::Poll, self.0.generation(slot), slot)
    }
}
