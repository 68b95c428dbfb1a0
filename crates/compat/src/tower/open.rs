//! Open connections, including upgraded ones.

use super::error::Report;
use super::sessions::Hold;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

#[derive(Default)]
pub(super) struct OpenCount {
    count: Cell<usize>,
    waker: RefCell<Option<Waker>>,
    /// The upgraded connections, in the order of their upgrades.
    upgraded: RefCell<BTreeMap<u64, Weak<Open>>>,
    upgrade_count: Cell<u64>,
}

impl OpenCount {
    /// Counts a connection as open until the returned guard is dropped.
    pub(super) fn add(self: &Rc<Self>) -> Rc<Open> {
        self.count.update(|count| count + 1);
        Rc::new(Open { count: self.clone(), upgraded: OnceCell::new() })
    }

    /// Returns true if fewer than `limit` connections are open. Otherwise the task is woken when
    /// the next one ends.
    pub(super) fn is_below(&self, limit: usize, cx: &Context<'_>) -> bool {
        let is_below = self.count.get() < limit;
        if !is_below {
            self.waker.replace(Some(cx.waker().clone()));
        }
        is_below
    }

    /// Fails the reads and writes of all upgraded connections, and reports each one. `limit` is
    /// the time that they had.
    pub(super) fn cut_upgraded(&self, limit: Duration) {
        // The map is not borrowed in the loop, because `report` may drop streams, and they remove
        // themselves from it.
        for open in self.upgraded.take().into_values() {
            if let Some(upgraded) = open.upgrade().as_ref().and_then(|open| open.upgraded.get()) {
                upgraded.cut(limit);
            }
        }
    }
}

/// An open connection. Its stream holds it.
pub(super) struct Open {
    count: Rc<OpenCount>,
    /// Boxed, because most connections are never upgraded.
    upgraded: OnceCell<Box<Upgraded>>,
}

/// State of an upgraded connection.
struct Upgraded {
    number: u64,
    /// The time that the connection had to end, if it was cut.
    cut_after: Cell<Option<Duration>>,
    /// The tasks that wait to read and to write.
    waiters: [RefCell<Option<Waker>>; 2],
    report: Report,
    _session: Hold,
}

/// A direction of an upgraded stream.
#[derive(Clone, Copy)]
pub(super) enum Direction {
    Read,
    Write,
}

impl Open {
    /// Records that the connection has been upgraded.
    pub(super) fn note_upgraded(self: &Rc<Self>, session: Hold, report: Report) {
        let number = self.count.upgrade_count.get();
        self.count.upgrade_count.set(number + 1);
        let upgraded = Upgraded {
            number,
            cut_after: Cell::new(None),
            waiters: Default::default(),
            report,
            _session: session,
        };
        if self.upgraded.set(Box::new(upgraded)).is_ok() {
            self.count.upgraded.borrow_mut().insert(number, Rc::downgrade(self));
        }
    }

    /// Fails if the connection is upgraded and has been cut. Otherwise the task is woken when it is
    /// cut. Returns `Ok` immediately for a connection that is not upgraded.
    pub(super) fn check_cut(&self, direction: Direction, cx: &Context<'_>) -> io::Result<()> {
        let Some(upgraded) = self.upgraded.get() else { return Ok(()) };
        if let Some(limit) = upgraded.cut_after.get() {
            return Err(io::Error::new(ErrorKind::ConnectionAborted, text_of_cut(limit)));
        }
        let mut waiter = upgraded.waiters[direction as usize].borrow_mut();
        if !waiter.as_ref().is_some_and(|waiter| waiter.will_wake(cx.waker())) {
            *waiter = Some(cx.waker().clone());
        }
        Ok(())
    }
}

impl Upgraded {
    fn cut(&self, limit: Duration) {
        self.cut_after.set(Some(limit));
        for waiter in &self.waiters {
            let waiter = waiter.take();
            if let Some(waiter) = waiter {
                waiter.wake();
            }
        }
        (self.report)(text_of_cut(limit).into());
    }
}

fn text_of_cut(limit: Duration) -> String {
    format!("the server shut down, and the upgraded connection did not end within {limit:?}")
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(upgraded) = self.upgraded.get() {
            self.count.upgraded.borrow_mut().remove(&upgraded.number);
        }
        self.count.count.update(|count| count - 1);
        let waker = self.count.waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
