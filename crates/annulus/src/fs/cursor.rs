//! The cursor of a file, which one call off the loop has at a time, and the calls that wait for it.

use super::cursor_line::CursorLine;
use crate::base::recheck::{Recheck, RecheckQueue};
use crate::runtime::core::Core;
use crate::unwind::{dispose_each, wake_each};
use crate::waiters::WaiterId;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

/// A cursor, whose one permit is given out in the order in which calls asked. A clone is the same one.
#[derive(Clone)]
pub(super) struct Cursor(Rc<Shared>);

struct Shared {
    core: Rc<Core>,
    line: RefCell<CursorLine>,
}

impl Cursor {
    pub(super) fn new(core: Rc<Core>) -> Self {
        Self(Rc::new(Shared { core, line: RefCell::default() }))
    }

    /// Whether a call has it, or is in line for it.
    pub(super) fn is_taken(&self) -> bool {
        self.0.line.borrow().is_taken()
    }

    /// Waits in line, from the first poll on.
    pub(super) fn take(&self) -> Take {
        Take { cursor: self.clone(), id: None }
    }

    /// Changes the line, then notifies the call that is next.
    fn update<R>(&self, change: impl FnOnce(&mut CursorLine) -> R) -> R {
        let mut line = self.0.line.borrow_mut();
        let answer = change(&mut line);
        let next = line.notify_next();
        let recheck = line.needs_recheck();
        drop(line);
        if recheck && let Ok(mut inner) = self.0.core.enter() {
            let weak: Weak<Shared> = Rc::downgrade(&self.0);
            inner.io.rechecks.push(Recheck::Queue(weak));
        }
        wake_each(next);
        answer
    }
}

impl RecheckQueue for Shared {
    fn recheck(&self, wakes: &mut Vec<Waker>) -> bool {
        let mut line = self.line.borrow_mut();
        line.recheck();
        wakes.extend(line.notify_next());
        line.needs_recheck()
    }
}

/// Waits for a cursor. Dropped, it leaves the line.
pub(super) struct Take {
    cursor: Cursor,
    id: Option<WaiterId>,
}

impl Future for Take {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let Self { cursor, id } = &mut *self;
        // Cloned and dropped while nothing is borrowed: both may run foreign code.
        let mut waker = Some(cx.waker().clone());
        let taken = cursor.update(|line| line.poll(id, &mut waker));
        dispose_each(waker);
        if taken { Poll::Ready(Permit(cursor.clone())) } else { Poll::Pending }
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        if self.id.is_some() {
            let id = &mut self.id;
            dispose_each(self.cursor.update(|line| line.leave(id)));
        }
    }
}

/// The use of a cursor, given back when it is dropped.
pub(crate) struct Permit(Cursor);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.update(CursorLine::give_back);
    }
}
