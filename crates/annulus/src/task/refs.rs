//! How many hold a task, counted so that its own thread needs no locked operation: the whole protocol.
//!
//! The count that all threads share starts with a reserve far above what can ever be held. Home draws its references from
//! that reserve, and notes in a plain cell how many; other threads add and subtract one by one. So while the reserve is
//! in, the count cannot reach zero, and nobody asks. When the task is over, home hands back what it had not drawn. From
//! then on the count is what is held, by anybody, and who takes it to zero was the last.
//!
//! The count is the parent's atomic: `tests/task_refs.rs` puts loom's in its place, and tries every order.

use super::atomic::{AtomicI64, Cell, Ordering, fence};

/// More references than there will ever be, and as far from overflow.
const RESERVE: i64 = 1 << 62;

/// Whoever shares one among threads, which its cell forbids the compiler to allow, sees to it that `home` is true on the
/// task's own thread only.
pub(crate) struct Refs {
    shared: AtomicI64,
    /// Home's own: how many of the reserve are out, below zero where home has dropped what others had made; `None` once
    /// the reserve was handed back. One cell, so that no byte lies outside one: the memory may go while this is borrowed.
    drawn: Cell<Option<i64>>,
}

impl Refs {
    /// So many references, drawn at home.
    pub(crate) fn new(drawn: i64) -> Self {
        Self { shared: AtomicI64::new(RESERVE), drawn: Cell::new(Some(drawn)) }
    }

    /// One more, made from one that is held.
    #[inline]
    pub(crate) fn add(&self, home: bool) {
        if home && let Some(drawn) = self.drawn.get() {
            return self.drawn.set(Some(drawn + 1));
        }
        // Relaxed as in `Arc`: who holds one already keeps the task.
        self.shared.fetch_add(1, Ordering::Relaxed);
    }

    /// One less. True where it was the last: nobody else knows the task any more, and all they did to it is seen.
    #[inline]
    pub(crate) fn release(&self, home: bool) -> bool {
        if home && let Some(drawn) = self.drawn.get() {
            self.drawn.set(Some(drawn - 1));
            return false;
        }
        // Releases what was done with the reference; the fence acquires that of all who came before.
        let last = self.shared.fetch_sub(1, Ordering::Release) == 1;
        if last {
            fence(Ordering::Acquire);
        }
        last
    }

    /// Hands the reserve back. Who calls it, at home, still holds a reference.
    pub(crate) fn settle(&self) {
        if let Some(drawn) = self.drawn.take() {
            // Relaxed: the caller's own reference goes after this, and releases what was done at home.
            self.shared.fetch_add(drawn - RESERVE, Ordering::Relaxed);
        }
    }
}
