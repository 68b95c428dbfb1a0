//! Receive memory: equal buffers in one reserved range, lent by the ring and given back.
//!
//! A buffer is in one of three places: *idle* here, with the *kernel*, or *lent* to a user. The pool keeps only as many
//! with the kernel as turns need (`depth`), hands out the most recently returned first, and gives the memory of those
//! not needed for a while back to the system. How much memory the buffers have is counted by what receives wrote there.
#![allow(unsafe_code)]

mod budget;
mod depth;
mod size;
mod trim;

use annulus_kernel::{Kernel, Mapping};
pub use budget::Budget;
use depth::Depth;
pub use size::PoolSize;
use size::{cannot_reserve, check, page_size};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Refills between two looks at what was really needed.
const PERIOD: u32 = 4096;

/// Which memory goes back to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trim {
    /// All that is not in use: nothing has happened for a while.
    Everything,
    /// What was not needed since the last time, however few turns that were: the memory of idle buffers that no turn used,
    /// and of those that were once filled further than any receive has come since.
    Surplus,
}

/// The part of a pool that outlives it: the memory itself, and the way back for buffers that went to other threads.
pub struct PoolMemory {
    mapping: Mapping,
    /// Bytes from one buffer to the next one: whole pages, whatever a page is here, so that each can be discarded alone.
    stride: usize,
    page: usize,
    returned: Mutex<Vec<u16>>,
    any_returned: AtomicBool,
}

impl PoolMemory {
    /// The first byte of a buffer.
    ///
    /// The id is not checked here: `Pool::taken` and `Pool::lend` look each one up in the table of buffers, and a second look
    /// costs a dozen instructions a datagram. So safe code cannot call it:
    ///
    /// ```compile_fail,E0133
    /// fn beyond(memory: &annulus_driver::PoolMemory) -> *mut u8 {
    ///     memory.address(u16::MAX)
    /// }
    /// ```
    ///
    /// # Safety
    /// The id must be one that the pool has handed out.
    #[inline]
    pub unsafe fn address(&self, id: u16) -> *mut u8 {
        let offset = usize::from(id) * self.stride;
        debug_assert!(offset < self.mapping.len());
        // SAFETY: ids that are handed out are below the pool's `most`, and the mapping holds that many buffers.
        unsafe { self.mapping.as_ptr().add(offset) }
    }

    /// Gives a buffer back from any thread; the owner takes it in at its next turn.
    pub fn give_back_remotely(&self, id: u16) {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        // Release pairs with the owner's acquire swap: a thread that sees the flag sees the list.
        self.any_returned.store(true, Ordering::Release);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Idle,
    Kernel,
    Lent,
}

struct Book {
    place: Box<[Place]>,
    /// For each buffer the bytes that receives have written to since its memory was discarded, in whole pages.
    written: Box<[u32]>,
    /// The most bytes that a receive of this period brought.
    largest: u32,
    /// Bytes that receives may bring before the next turn, and whether that is little.
    budget: Budget,
    /// Bytes of a buffer that the next receive into it may fill.
    len: u32,
    /// Given back since the last refill; the last one is the warmest.
    returned: Vec<u16>,
    /// Not with the kernel, memory touched.
    idle: Vec<u16>,
    /// Not with the kernel, memory given back to the system.
    cold: Vec<u16>,
    /// Ids from here on were never used.
    fresh: u32,
    with_kernel: u32,
    lent: u32,
    depth: Depth,
    least_idle: usize,
    refills: u32,
    touched: bool,
}

/// The buffers of one size class, and the book of where each one is.
pub struct Pool {
    memory: Arc<PoolMemory>,
    kernel: Rc<dyn Kernel>,
    size: PoolSize,
    /// Buffers may be cut short.
    cuts: bool,
    /// The sum of the book's `written`.
    resident: Cell<usize>,
    book: RefCell<Book>,
}

impl Pool {
    /// Reserves the range.
    ///
    /// # Errors
    /// `InvalidInput` for a size out of range, naming it; `OutOfMemory` where the range cannot be reserved, with the limit.
    pub fn new(size: PoolSize, kernel: Rc<dyn Kernel>) -> io::Result<Rc<Self>> {
        Self::with_buffers(size, kernel, true)
    }

    /// As [`new`](Self::new), with buffers that are never cut short: a datagram would be cut with them.
    ///
    /// # Errors
    /// As there.
    pub fn of_datagrams(size: PoolSize, kernel: Rc<dyn Kernel>) -> io::Result<Rc<Self>> {
        Self::with_buffers(size, kernel, false)
    }

    fn with_buffers(size: PoolSize, kernel: Rc<dyn Kernel>, cuts: bool) -> io::Result<Rc<Self>> {
        check(size)?;
        let page = page_size();
        let stride = size.stride();
        let mapping = Mapping::anonymous(size.reserved())
            .map_err(|error| cannot_reserve(size.reserved(), &error))?;
        // Where the system knows no huge pages there is nothing to forgo.
        _ = mapping.forgo_huge_pages();
        let capacity = size.most as usize;
        let book = Book {
            place: vec![Place::Idle; capacity].into_boxed_slice(),
            written: vec![0; capacity].into_boxed_slice(),
            largest: 0,
            budget: Budget::NONE,
            len: size.buffer,
            returned: Vec::with_capacity(capacity),
            idle: Vec::with_capacity(capacity),
            cold: Vec::with_capacity(capacity),
            fresh: 0,
            with_kernel: 0,
            lent: 0,
            depth: Depth::new(size.most),
            least_idle: 0,
            refills: 0,
            touched: false,
        };
        let memory = PoolMemory {
            mapping,
            stride,
            page,
            returned: Mutex::default(),
            any_returned: AtomicBool::new(false),
        };
        let (resident, book) = (Cell::new(0), RefCell::new(book));
        Ok(Rc::new(Self { memory: Arc::new(memory), kernel, size, cuts, resident, book }))
    }

    /// Bytes a buffer.
    #[inline]
    pub fn buffer_size(&self) -> u32 {
        self.size.buffer
    }

    /// Most buffers there can be.
    pub fn capacity(&self) -> u32 {
        self.size.most
    }

    /// The memory behind the buffers, to keep alive as long as any of them is in use.
    #[inline]
    pub fn memory(&self) -> &Arc<PoolMemory> {
        &self.memory
    }

    /// The first byte of a buffer.
    ///
    /// # Safety
    /// As [`PoolMemory::address`].
    #[inline]
    pub unsafe fn address(&self, id: u16) -> *mut u8 {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.memory.address(id) }
    }

    /// Buffers with the kernel now; or, where the driver picks buffers itself, free ones.
    #[inline]
    pub fn with_kernel(&self) -> u32 {
        self.book.borrow().with_kernel
    }

    /// How many buffers each of `streams` may take now, that all get some: no limit while the pool can still bring more
    /// to the kernel than stand there.
    pub fn share(&self, streams: usize) -> u32 {
        let book = self.book.borrow();
        let at_its_limit = book.depth.is_at_its_limit() || book.with_kernel < book.depth.now();
        let share = book.with_kernel / u32::try_from(streams.max(1)).unwrap_or(u32::MAX);
        if at_its_limit { share.max(1) } else { u32::MAX }
    }

    /// Bytes of memory that the buffers have: what was written there and has not gone back to the system.
    #[inline]
    pub fn resident(&self) -> usize {
        self.resident.get()
    }

    /// Sets what receives may bring before the next turn. Buffers are cut short for it, unless those of datagrams, which must
    /// hold a whole one.
    #[inline]
    pub fn set_budget(&self, budget: Budget) {
        self.book.borrow_mut().budget = budget;
    }

    /// Bytes that a receive into a buffer may bring now, for a driver that [`lend`](Self::lend)s them.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.book.borrow().len
    }

    /// Buffers lent to users now.
    pub fn lent(&self) -> u32 {
        self.book.borrow().lent
    }

    /// True if so much is lent that the next leases had better own heap memory.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.book.borrow().is_short(self.size.most)
    }

    /// True if the `len` bytes in a lent buffer had better be copied to heap memory: the pool is short, or memory is, and
    /// the buffer has much more of it.
    #[inline]
    pub fn wastes(&self, id: u16, len: u32) -> bool {
        let book = self.book.borrow();
        let is_large = || book.written[usize::from(id)] / 2 > len.next_multiple_of(self.page());
        book.is_short(self.size.most) || book.budget.is_tight && is_large()
    }

    /// A completion named this buffer, filled with so many bytes: it is lent from here on.
    ///
    /// # Panics
    /// Where the kernel did not have it: that would be two owners for one memory.
    #[inline]
    pub(crate) fn taken(&self, id: u16, bytes: u32) {
        let mut book = self.book.borrow_mut();
        let place = &mut book.place[usize::from(id)];
        assert_eq!(*place, Place::Kernel, "buffer {id} was taken twice");
        *place = Place::Lent;
        book.with_kernel -= 1;
        book.lent += 1;
        book.depth.count(bytes);
        book.touched = true;
        book.note(id, bytes, self);
    }

    /// Lends the buffer that was returned last, for a driver that picks buffers itself; `None` where all are lent.
    #[inline]
    pub(crate) fn lend(&self) -> Option<u16> {
        let mut book = self.book.borrow_mut();
        let id = book.next(self.size.most)?;
        book.place[usize::from(id)] = Place::Lent;
        book.with_kernel = book.with_kernel.saturating_sub(1);
        book.lent += 1;
        book.touched = true;
        Some(id)
    }

    /// So many bytes of a lent buffer, from its beginning, were written to.
    #[inline]
    pub fn filled(&self, id: u16, bytes: u32) {
        self.book.borrow_mut().note(id, bytes, self);
    }

    /// Takes returned buffers in, for a driver that [`lend`](Self::lend)s them.
    #[inline]
    pub(crate) fn restock(&self) {
        let mut book = self.book.borrow_mut();
        if self.memory.any_returned.load(Ordering::Relaxed) {
            self.take_in_remote(&mut book);
        }
        book.least_idle = book.least_idle.min(book.idle.len());
        book.end_turn(self);
        self.fit(&mut book, self.size.most);
        let Book { idle, returned, .. } = &mut *book;
        idle.append(returned);
        book.with_kernel = self.size.most - book.lent;
    }

    /// A user is done with a buffer. It goes back to the kernel with the next turn.
    ///
    /// # Panics
    /// Where it was not lent: a double return.
    #[inline]
    pub fn give_back(&self, id: u16) {
        self.book.borrow_mut().take_in(id);
    }

    /// A receive found no buffer with the kernel, or was not armed because it would not.
    #[inline]
    pub fn starved(&self) {
        self.book.borrow_mut().depth.fall_short();
    }

    /// Takes returned buffers in and passes to `publish` those that the kernel should get now.
    #[inline]
    pub(crate) fn refill(&self, mut publish: impl FnMut(*mut u8, u32, u16)) {
        let mut book = self.book.borrow_mut();
        if self.memory.any_returned.load(Ordering::Relaxed) {
            self.take_in_remote(&mut book);
        }
        book.end_turn(self);
        let depth = book.depth.now();
        let most = self.fit(&mut book, depth);
        while book.with_kernel < most {
            let Some(id) = book.next(self.size.most) else { break };
            book.place[usize::from(id)] = Place::Kernel;
            book.with_kernel += 1;
            // SAFETY: `next` has handed the id out.
            publish(unsafe { self.memory.address(id) }, book.len, id);
        }
        let Book { idle, returned, .. } = &mut *book;
        idle.append(returned);
        book.least_idle = book.least_idle.min(book.idle.len());
    }

    /// Whether receives have touched memory since the last `trim`.
    #[inline]
    pub fn touched(&self) -> bool {
        self.book.borrow().touched
    }

    /// Bytes a page of the system. Buffers are strides of whole pages.
    #[inline]
    fn page(&self) -> u32 {
        self.memory.page as u32
    }

    fn take_in_remote(&self, book: &mut Book) {
        // Acquire pairs with the release store in `give_back_remotely`.
        if self.memory.any_returned.swap(false, Ordering::Acquire) {
            let ids = std::mem::take(
                &mut *self.memory.returned.lock().unwrap_or_else(PoisonError::into_inner),
            );
            ids.into_iter().for_each(|id| book.take_in(id));
        }
    }
}

impl Book {
    #[inline]
    fn is_short(&self, most: u32) -> bool {
        self.lent > most / 4 * 3
    }

    /// A receive has written so many bytes to a buffer.
    #[inline]
    fn note(&mut self, id: u16, bytes: u32, pool: &Pool) {
        self.largest = self.largest.max(bytes);
        let written = &mut self.written[usize::from(id)];
        if bytes > *written {
            let before = std::mem::replace(written, bytes.next_multiple_of(pool.page()));
            pool.resident.set(pool.resident.get() + (*written - before) as usize);
        }
    }

    #[inline]
    fn take_in(&mut self, id: u16) {
        let place = &mut self.place[usize::from(id)];
        assert_eq!(*place, Place::Lent, "buffer {id} was given back twice");
        *place = Place::Idle;
        self.lent -= 1;
        self.returned.push(id);
    }

    /// The next buffer for the kernel: warmest first, a new one last.
    #[inline]
    fn next(&mut self, most: u32) -> Option<u16> {
        self.returned.pop().or_else(|| self.idle.pop()).or_else(|| self.cold.pop()).or_else(|| {
            let fresh = self.fresh;
            self.fresh = (fresh + 1).min(most);
            (fresh < most).then_some(fresh as u16)
        })
    }

    #[inline]
    fn end_turn(&mut self, pool: &Pool) {
        self.depth.end_turn();
        self.refills += 1;
        if self.refills == PERIOD {
            self.refills = 0;
            self.shrink(pool);
        }
    }

    /// Fits the depth to what turns took lately, and gives back the memory of buffers that no turn of the period used.
    fn shrink(&mut self, pool: &Pool) {
        self.depth.end_period();
        let Self { idle, cold, written, .. } = self;
        let known = cold.len();
        cold.extend(idle.drain(..self.least_idle));
        cold[known..].sort_unstable();
        pool.discard(&cold[known..], written);
        self.least_idle = self.idle.len();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let book = self.book.borrow();
        f.debug_struct("Pool")
            .field("size", &self.size)
            .field("with_kernel", &book.with_kernel)
            .field("lent", &book.lent)
            .field("depth", &book.depth.now())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
