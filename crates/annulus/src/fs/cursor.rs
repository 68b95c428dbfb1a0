//! The cursor of a file, which only one call off the loop holds at a time, and the calls that wait
//! for it.

use super::cursor_line::CursorLine;
use crate::runtime::core::Core;
use crate::slots::loop_state::{Recheck, RecheckQueue};
use crate::unwind::{dispose_each, wake_each};
use crate::waiters::WaiterId;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

/// A cursor with one permit, which calls receive in the order of their requests. A clone refers to
/// the same cursor.
#[derive(Clone)]
pub(super) struct Cursor(Rc<CursorState>);

struct CursorState {
    core: Rc<Core>,
    line: RefCell<CursorLine>,
}

impl Cursor {
    pub(super) fn new(core: Rc<Core>) -> Self {
        Self(Rc::new(CursorState { core, line: RefCell::default() }))
    }

    /// Returns true if a call holds the permit or waits for it.
    pub(super) fn is_taken(&self) -> bool {
        self.0.line.borrow().is_taken()
    }

    /// Returns a future that queues for the permit at its first poll.
    pub(super) fn take(&self) -> TakeCursor {
        TakeCursor { cursor: self.clone(), id: None }
    }

    /// Changes the queue, then notifies the next call.
    fn update<R>(&self, change: impl FnOnce(&mut CursorLine) -> R) -> R {
        let mut line = self.0.line.borrow_mut();
        let answer = change(&mut line);
        let next = line.notify_next();
        let recheck = line.needs_recheck();
        drop(line);
        if recheck && let Ok(mut inner) = self.0.core.borrow() {
            let weak: Weak<CursorState> = Rc::downgrade(&self.0);
            inner.state.rechecks.push(Recheck::Queue(weak));
        }
        wake_each(next);
        answer
    }
}

impl RecheckQueue for CursorState {
    fn recheck(&self, wakes: &mut Vec<Waker>) -> bool {
        let mut line = self.line.borrow_mut();
        line.recheck();
        wakes.extend(line.notify_next());
        line.needs_recheck()
    }
}

/// A future that waits for a cursor. Dropping it leaves the queue.
pub(super) struct TakeCursor {
    cursor: Cursor,
    id: Option<WaiterId>,
}

impl Future for TakeCursor {
    type Output = CursorGuard;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CursorGuard> {
        let Self { cursor, id } = &mut *self;
        // Cloned and dropped while nothing is borrowed, because both may run foreign code.
        let mut waker = Some(cx.waker().clone());
        let taken = cursor.update(|line| line.poll(id, &mut waker));
        dispose_each(waker);
        if taken { Poll::Ready(CursorGuard(cursor.clone())) } else { Poll::Pending }
    }
}

impl Drop for TakeCursor {
    fn drop(&mut self) {
        if self.id.is_some() {
            let id = &mut self.id;
            dispose_each(self.cursor.update(|line| line.leave(id)));
        }
    }
}

/// The exclusive use of a cursor, which dropping the permit ends.
pub(crate) struct CursorGuard(Cursor);

impl Drop for CursorGuard {
    fn drop(&mut self) {
        self.0.update(CursorLine::give_back);
    }
}
