//! The memory in use, as counted by this program's global allocator.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Bytes allocated minus bytes freed by this thread.
    static HELD_BYTES: Cell<isize> = const { Cell::new(0) };
}

fn add(bytes: isize) {
    _ = HELD_BYTES.try_with(|held| held.set(held.get() + bytes));
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

/// Returns the bytes that this thread has allocated and not freed.
pub(crate) fn held() -> isize {
    HELD_BYTES.with(Cell::get)
}
