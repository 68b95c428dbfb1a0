//! A small event loop that does not belong to annulus and hosts a runtime as its guest.

use annulus::{Guest, GuestNext};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Runs one future next to the turns of a guest. It waits with its own, edge-triggered epoll
/// instance.
pub(crate) struct Host {
    epoll: OwnedFd,
    future: Arc<HostWake>,
    turn: Arc<HostWake>,
}

struct HostWake {
    woken: AtomicBool,
    eventfd: Arc<OwnedFd>,
}

impl HostWake {
    fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    fn take(&self) -> bool {
        self.woken.swap(false, Ordering::Acquire)
    }
}

impl Wake for HostWake {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        rustix::io::write(&*self.eventfd, &1_u64.to_ne_bytes()).unwrap();
    }
}

impl Host {
    pub(crate) fn of(guest: &Guest) -> Self {
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let edges = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, guest, EventData::new_u64(0), edges).unwrap();
        epoll::add(&epoll, &eventfd, EventData::new_u64(1), edges).unwrap();
        let eventfd = Arc::new(eventfd);
        let wake = || Arc::new(HostWake { woken: AtomicBool::new(true), eventfd: eventfd.clone() });
        Self { epoll, future: wake(), turn: wake() }
    }

    /// Runs the future to completion.
    pub(crate) fn run<F: Future>(&self, guest: &mut Guest, future: F) -> io::Result<F::Output> {
        let mut future = pin!(future);
        self.future.woken.store(true, Ordering::Release);
        let (waker, turn) = (Waker::from(self.future.clone()), Waker::from(self.turn.clone()));
        loop {
            if self.future.take()
                && let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return Ok(value);
            }
            self.turn.take();
            match guest.turn(&turn)? {
                GuestNext::Wait(timeout) if !self.future.is_woken() && !self.turn.is_woken() => {
                    self.wait(timeout);
                }
                _ => {}
            }
        }
    }

    fn wait(&self, timeout: Option<Duration>) {
        let timeout = timeout.map(|left| Timespec::try_from(left).unwrap());
        let mut events = Vec::with_capacity(2);
        _ = epoll::wait(
            self.epoll.as_fd(),
            rustix::buffer::spare_capacity(&mut events),
            timeout.as_ref(),
        );
    }
}
