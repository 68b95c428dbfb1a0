//! The epoll instance: what is watched, and the wait.
#![allow(unsafe_code)]

use super::timer::{Timer, timespec};
use annulus_kernel::{Fd, Linux, named};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

/// Most edges a wait brings; the rest comes with the next one. Few, so that what a descriptor's receive has warmed, here
/// and in the kernel, is still warm for its answer: with 1000 clients, a request cost 8 % less at 32 edges a wait than at
/// 1024; 16 and 64 were no better.
const EDGES: usize = 32;

/// What every descriptor is registered for, once. The edge for room comes only after a send that found none, and the
/// one for a peer's end saves no call to learn it: so both cost nothing until then, and no second registration later.
///
/// For datagram sockets that is not so: there, every datagram that has left is an edge. They ask for it while one waits.
pub(super) const EVERYTHING: EventFlags = ARRIVALS.union(EventFlags::OUT);

/// The same, without the edge for room.
pub(super) const ARRIVALS: EventFlags =
    EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::PRI).union(EventFlags::ET);

/// `epoll_pwait` counts milliseconds. Waits longer than this are rounded up to them; shorter ones get a timer.
const EXACT_BELOW: Duration = Duration::from_millis(20);

/// An epoll instance.
pub(super) struct Poller {
    epoll: OwnedFd,
    edges: Vec<Event>,
    /// Ends waits that are too short for milliseconds.
    timer: Timer,
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(named("epoll_create1"))?;
        let poller = Self { epoll, edges: Vec::with_capacity(EDGES), timer: Timer::new()? };
        poller.add(poller.timer.fd(), EVERYTHING).map_err(named("epoll_ctl"))?;
        Ok(poller)
    }

    /// Watches a descriptor; how ready it is already comes as its first edge.
    pub(super) fn add(&self, fd: Fd, interest: EventFlags) -> Result<(), Errno> {
        match epoll::add(
            &self.epoll,
            Linux::borrow(fd),
            EventData::new_u64(fd.raw() as u64),
            interest,
        ) {
            // Known from an earlier life: told anew all the same.
            Err(Errno::EXIST) => self.change(fd, interest),
            outcome => outcome,
        }
    }

    /// Watches a descriptor for something else; how ready it is comes as an edge.
    pub(super) fn change(&self, fd: Fd, interest: EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, Linux::borrow(fd), EventData::new_u64(fd.raw() as u64), interest)
    }

    /// Watches a descriptor no longer. A closed one goes by itself.
    pub(super) fn remove(&self, fd: Fd) {
        // It fails only where the descriptor is not watched.
        _ = epoll::delete(&self.epoll, Linux::borrow(fd));
    }

    /// Waits for edges: one system call, and another for the timer where the wait is short.
    #[inline]
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.edges.clear();
        let timeout = timeout.filter(|left| !self.is_timed(*left)).map(timespec);
        match epoll::wait(&self.epoll, spare_capacity(&mut self.edges), timeout.as_ref()) {
            // A signal came first: the next turn waits again.
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(named("epoll_pwait")(errno)),
        }
    }

    /// What the last wait brought.
    #[inline]
    pub(super) fn edges(&self) -> impl Iterator<Item = (Fd, EventFlags)> {
        // SAFETY: the number is that of an `Fd` that was added, and the kernel drops a closed one by itself.
        let fd = |number| unsafe { Fd::from_raw(number) };
        self.edges.iter().map(move |edge| (fd(edge.data.u64() as RawFd), edge.flags))
    }

    /// Whether the timer ends the wait, since milliseconds are too coarse for it. It may go off after its wait is over:
    /// then it ends another one for nothing.
    #[inline]
    fn is_timed(&self, left: Duration) -> bool {
        !left.is_zero() && left < EXACT_BELOW && self.timer.set(left).is_ok()
    }
}
