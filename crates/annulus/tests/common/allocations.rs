//! Counts allocations of a test program. Including this file replaces the program's allocator.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that this thread has allocated and not freed, and the maximum so far.
    static HELD: Cell<[isize; 2]> = const { Cell::new([0; 2]) };
}

fn hold(bytes: isize) {
    _ = HELD.try_with(|held| {
        let [now, most] = held.get();
        held.set([now + bytes, most.max(now + bytes)]);
    });
}

// SAFETY: passes everything on to the system's allocator; the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        hold(layout.size() as isize);
        // SAFETY: the caller fulfils the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        hold(-(layout.size() as isize));
        // SAFETY: the caller fulfils the same contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of bytes that this thread holds now.
#[allow(dead_code, reason = "each test file uses only some of it")]
pub(crate) fn held() -> isize {
    HELD.with(|held| held.get()[0])
}

/// Returns the maximum number of bytes that this thread has held since the last call.
#[allow(dead_code, reason = "each test file uses only some of it")]
pub(crate) fn most_held() -> isize {
    let [now, most] = HELD.get();
    HELD.set([now; 2]);
    most
}

/// Returns the number of allocations of this thread so far.
#[allow(dead_code, reason = "each test file uses only some of it")]
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}
