//! Numbered permits, and the tasks that wait for one: the buffers of a pool, the cursor of a file.

use super::free::FreePermits;
use crate::base::recheck::{Recheck, RecheckQueue};
use crate::runtime::core::Core;
use crate::unwind::{dispose_each, wake_each};
use crate::waiters::WaiterId;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

/// A set of permits, which are given out in the order in which tasks asked. A clone has the same ones.
#[derive(Clone)]
pub(super) struct Permits(Rc<Shared>);

struct Shared {
    core: Rc<Core>,
    free: RefCell<FreePermits>,
}

impl Permits {
    pub(super) fn new(core: Rc<Core>, count: u32) -> Self {
        Self(Rc::new(Shared { core, free: RefCell::new(FreePermits::new(count)) }))
    }

    /// Permits that are free and not for a task in line.
    pub(super) fn available(&self) -> usize {
        self.0.free.borrow().available()
    }

    /// Takes a permit that is not for a task in line.
    pub(super) fn try_take(&self) -> Option<Permit> {
        let number = self.update(FreePermits::take)?;
        Some(Permit { permits: self.clone(), number })
    }

    /// Waits in line, from the first poll on.
    pub(super) fn take(&self) -> Take {
        Take { permits: self.clone(), id: None }
    }

    /// Changes the free permits, then notifies the tasks that are next in line.
    fn update<R>(&self, change: impl FnOnce(&mut FreePermits) -> R) -> R {
        let mut free = self.0.free.borrow_mut();
        let answer = change(&mut free);
        let mut next = free.notify_next();
        let recheck = free.needs_recheck();
        drop(free);
        if recheck && let Ok(mut inner) = self.0.core.enter() {
            let weak: Weak<Shared> = Rc::downgrade(&self.0);
            inner.io.rechecks.push(Recheck::Queue(weak));
        }
        while next.is_some() {
            wake_each(next);
            next = self.0.free.borrow_mut().notify_next();
        }
        answer
    }
}

impl RecheckQueue for Shared {
    fn recheck(&self, wakes: &mut Vec<Waker>) -> bool {
        let mut free = self.free.borrow_mut();
        free.recheck();
        wakes.extend(std::iter::from_fn(|| free.notify_next()));
        free.needs_recheck()
    }
}

/// Waits for a permit. Dropped, it leaves the line.
pub(super) struct Take {
    permits: Permits,
    id: Option<WaiterId>,
}

impl Future for Take {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let Self { permits, id } = &mut *self;
        // Cloned and dropped while nothing is borrowed: both may run foreign code.
        let mut waker = Some(cx.waker().clone());
        let number = permits.update(|free| free.poll(id, &mut waker));
        dispose_each(waker);
        let taken = number.map(|number| Permit { permits: permits.clone(), number });
        taken.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        if self.id.is_some() {
            let id = &mut self.id;
            dispose_each(self.permits.update(|free| free.leave(id)));
        }
    }
}

/// Given back when it is dropped.
pub(crate) struct Permit {
    permits: Permits,
    number: u32,
}

impl Permit {
    pub(super) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.update(|free| free.give_back(self.number));
    }
}
