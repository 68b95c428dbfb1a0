//! The memory that is allocated: the allocator of this program counts it.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Bytes, less those that this thread has freed for others.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    _ = HELD.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: passes everything to the system's allocator; the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: the caller's contract, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: the caller's contract, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that this thread holds.
pub(crate) fn held() -> isize {
    HELD.with(Cell::get)
}
