//! A slot for a descriptor that somebody else fills: the runtime's alarm, a signal's pipe.
#![allow(unsafe_code)]

use crate::runtime::core::Inner;
use crate::slots::streams::note_waker;
use annulus_driver::{Event, Kind, Op, Token};
use annulus_kernel::Fd;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::task::{Context, Poll, Waker};

/// Readiness edges of a descriptor. The descriptor is its owner's, who closes it after [`Inner::drop_poll`].
pub(crate) struct Readiness {
    fd: Fd,
    armed: bool,
    ready: bool,
    waker: Option<Waker>,
    dropped: bool,
}

impl Inner {
    pub(crate) fn add_poll(&mut self, fd: BorrowedFd<'_>) -> u32 {
        // SAFETY: its owner closes it after the poll was dropped, or with the runtime.
        let fd = unsafe { Fd::from_raw(fd.as_raw_fd()) };
        let readiness = Readiness { fd, armed: false, ready: false, waker: None, dropped: false };
        let slot = self.polls.insert(readiness);
        self.arm_poll(slot);
        slot
    }

    /// Ready when the descriptor has become readable since the last time. Read it until it is empty.
    pub(crate) fn poll_ready(&mut self, slot: u32, cx: &Context<'_>) -> Poll<()> {
        let poll = self.polls.get(slot);
        if std::mem::take(&mut poll.ready) {
            return Poll::Ready(());
        }
        note_waker(&mut poll.waker, &mut self.after.drops, cx);
        Poll::Pending
    }

    pub(crate) fn on_poll(&mut self, event: Event) {
        let (slot, generation) = (event.token.slot(), event.token.generation());
        let Some(poll) = self.polls.find(slot, generation) else { return self.late(event) };
        poll.ready = true;
        self.after.wakes.extend(poll.waker.take());
        if event.more {
            return;
        }
        poll.armed = false;
        self.in_flight -= 1;
        if poll.dropped {
            self.polls.remove(slot);
        } else if !matches!(event.result, Err(Errno::BADF | Errno::INVAL | Errno::PERM)) {
            self.arm_poll(slot);
        }
    }

    pub(crate) fn drop_poll(&mut self, slot: u32) {
        let token = self.poll_token(slot);
        let poll = self.polls.get(slot);
        poll.dropped = true;
        self.after.drops.extend(poll.waker.take());
        if poll.armed {
            self.cancel(token);
        } else {
            self.polls.remove(slot);
        }
    }

    fn arm_poll(&mut self, slot: u32) {
        let token = self.poll_token(slot);
        let poll = self.polls.get(slot);
        poll.armed = true;
        let op = Op::Readable { fd: poll.fd };
        self.start(token, op);
    }

    fn poll_token(&self, slot: u32) -> Token {
        Token::new(Kind::Poll, self.polls.generation(slot), slot)
    }
}
