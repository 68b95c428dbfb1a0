//! Receive memory: buffers of one size in one reserved range.
//!
//! A buffer is in one of three states: *idle* in the pool, with the *kernel*, or *lent* to a user.
//! The kernel has only as many as turns need (`depth`), and the buffer that was returned last is
//! used first. The memory of buffers that have not been needed for a while goes back to the system.
//! Resident memory is computed from the bytes that receives have written.
#![allow(unsafe_code)]

mod budget;
mod depth;
mod memory;
mod pieces;
mod trim;

use annulus_kernel::Kernel;
pub use budget::ReceiveBudget;
use depth::{Depth, Purpose};
use memory::check_size;
pub use memory::{PoolMemory, PoolSize};
pub(crate) use pieces::AreaSize;
use pieces::Pieces;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Number of refills per period. After each period, the pool is fitted to the demand of that
/// period.
const REFILLS_PER_PERIOD: u32 = 4096;

/// The memory to give back to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trim {
    /// All memory that is not in use, after a time without receives.
    Everything,
    /// Memory that has not been needed since the last trim of the surplus.
    Surplus,
}

impl Trim {
    /// Time that the trim timer runs before it trims the pools.
    pub(crate) const DELAY: Duration = Duration::from_secs(10);

    /// Returns the trim that is due after the delay: everything if the driver had no events
    /// meanwhile, otherwise the surplus.
    pub(crate) fn after(has_rested: bool) -> Self {
        if has_rested { Self::Everything } else { Self::Surplus }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BufferState {
    Idle,
    Kernel,
    Lent,
    LentPiece,
}

struct Buffers {
    state: Box<[BufferState]>,
    /// Bytes of each buffer that receives have written since its memory was discarded, rounded up
    /// to whole pages.
    written: Box<[u32]>,
    /// Largest number of bytes that a receive has written since the last trim of the surplus.
    largest: u32,
    /// Bytes that may be received before the next turn.
    budget: ReceiveBudget,
    /// A depth, and the number of buffers that the budget allows the kernel at that depth; `None`
    /// until computed.
    fitted: Option<(u32, u32)>,
    /// Number of lent buffers from which received bytes may have to be copied to the heap.
    check_from: u32,
    /// Maximum bytes that the next receive may write to a buffer.
    len: u32,
    /// Buffers given back since the last refill; the last is the most likely to be cached.
    returned: Vec<u16>,
    /// Idle buffers with memory.
    idle: Vec<u16>,
    /// Idle buffers without memory.
    cold: Vec<u16>,
    /// The first id that has never been used.
    fresh: u32,
    with_kernel: u32,
    lent: u32,
    /// Buffers taken since the last refill.
    taken: u32,
    depth: Depth,
    least_idle: usize,
    refills: u32,
    used_since_trim: bool,
    /// Pieces of the pool's area, if it has one.
    pieces: Option<Box<Pieces>>,
}

/// Buffers of one size, and the state of each.
pub struct Pool {
    memory: Arc<PoolMemory>,
    kernel: Rc<dyn Kernel>,
    size: PoolSize,
    purpose: Purpose,
    /// The sum of `Buffers::written`.
    resident: Cell<usize>,
    buffers: RefCell<Buffers>,
}

impl Pool {
    /// Creates a pool, and reserves its range of addresses.
    ///
    /// # Errors
    /// Returns `InvalidInput`, with the size, if the size is out of range, or `OutOfMemory`, with
    /// the limit, if the range cannot be reserved.
    pub fn new(size: PoolSize, kernel: Rc<dyn Kernel>) -> io::Result<Rc<Self>> {
        Self::of_purpose(size, kernel, Purpose::STREAMS, None)
    }

    /// Like [`new`](Self::new), with an area whose pieces are lent too.
    ///
    /// # Errors
    /// The same as for [`new`](Self::new).
    pub(crate) fn with_area(
        size: PoolSize,
        kernel: Rc<dyn Kernel>,
        area: AreaSize,
    ) -> io::Result<Rc<Self>> {
        Self::of_purpose(size, kernel, Purpose::STREAMS, Some(area))
    }

    /// Like [`new`](Self::new), but the buffers are never shortened, since that would truncate
    /// datagrams.
    ///
    /// # Errors
    /// The same as for [`new`](Self::new).
    pub fn of_datagrams(size: PoolSize, kernel: Rc<dyn Kernel>) -> io::Result<Rc<Self>> {
        Self::of_purpose(size, kernel, Purpose::DATAGRAMS, None)
    }

    fn of_purpose(
        size: PoolSize,
        kernel: Rc<dyn Kernel>,
        purpose: Purpose,
        area: Option<AreaSize>,
    ) -> io::Result<Rc<Self>> {
        check_size(size)?;
        let memory = PoolMemory::reserve(size, area.map_or(0, |area| area.bytes))?;
        let capacity = size.count as usize;
        let pieces = area.map_or(0, |area| area.pieces as usize);
        let mut buffers = Buffers {
            state: vec![BufferState::Idle; capacity + pieces].into_boxed_slice(),
            written: vec![0; capacity].into_boxed_slice(),
            largest: 0,
            budget: ReceiveBudget::UNLIMITED,
            fitted: None,
            check_from: 0,
            len: size.buffer,
            returned: Vec::with_capacity(capacity),
            idle: Vec::with_capacity(capacity),
            cold: Vec::with_capacity(capacity),
            fresh: 0,
            with_kernel: 0,
            lent: 0,
            taken: 0,
            depth: Depth::new(size.count, purpose),
            least_idle: 0,
            refills: 0,
            used_since_trim: false,
            pieces: area.map(|area| Box::new(Pieces::new(size.count, area))),
        };
        buffers.check_from = buffers.check_from(false);
        let (resident, buffers) = (Cell::new(0), RefCell::new(buffers));
        Ok(Rc::new(Self { memory: Arc::new(memory), kernel, size, purpose, resident, buffers }))
    }

    /// Returns the number of bytes per buffer.
    #[inline]
    pub fn buffer_size(&self) -> u32 {
        self.size.buffer
    }

    /// Returns the number of buffers.
    pub fn capacity(&self) -> u32 {
        self.size.count
    }

    /// Returns the memory of the buffers, which must be kept alive while any buffer is in use.
    #[inline]
    pub fn memory(&self) -> &Arc<PoolMemory> {
        &self.memory
    }

    /// Returns the address of a buffer.
    ///
    /// # Safety
    /// The same as for [`PoolMemory::address`].
    #[inline]
    pub unsafe fn address(&self, id: u16) -> *mut u8 {
        if u32::from(id) >= self.size.count {
            return self.piece_address(id);
        }
        // SAFETY: the caller guarantees that the pool has handed out the id.
        unsafe { self.memory.address(id) }
    }

    /// Returns the number of ids of buffers and pieces.
    pub fn ids(&self) -> u32 {
        self.buffers.borrow().state.len() as u32
    }

    /// Returns the number of buffers that the kernel has now, or the number of free buffers if the
    /// driver itself chooses buffers.
    #[inline]
    pub fn with_kernel(&self) -> u32 {
        self.buffers.borrow().with_kernel
    }

    /// Returns how many buffers each of `streams` streams may take now, so that all of them get
    /// some. Returns `u32::MAX` while the pool can still give the kernel more buffers.
    pub fn buffers_per_stream(&self, streams: usize) -> u32 {
        let buffers = self.buffers.borrow();
        let at_its_limit =
            buffers.depth.is_at_its_limit() || buffers.with_kernel < buffers.depth.buffers();
        let share = buffers.with_kernel / u32::try_from(streams.max(1)).unwrap_or(u32::MAX);
        if at_its_limit { share.max(1) } else { u32::MAX }
    }

    /// Returns the number of resident bytes: memory that was written and has not gone back to the
    /// system.
    #[inline]
    pub fn resident_bytes(&self) -> usize {
        self.resident.get()
    }

    /// Estimates the part of [`resident_bytes`](Self::resident_bytes) that is lent, as if all
    /// buffers with memory had the same amount. The rest is kept for later receives.
    pub fn resident_lent_bytes(&self) -> usize {
        let buffers = self.buffers.borrow();
        let with_memory = buffers.fresh as usize - buffers.cold.len();
        self.resident.get() / with_memory.max(1) * buffers.lent as usize
    }

    /// Sets how much may be received before the next turn. Buffers are shortened to fit, except
    /// datagram buffers.
    #[inline]
    pub fn set_budget(&self, budget: ReceiveBudget) {
        let buffers = &mut *self.buffers.borrow_mut();
        buffers.check_from = buffers.check_from(budget.is_tight);
        (buffers.budget, buffers.fitted) = (budget, None);
    }

    /// Returns the maximum number of bytes for a receive into a [lent](Self::lend) buffer now.
    #[inline]
    pub(crate) fn receive_len(&self) -> u32 {
        self.buffers.borrow().len
    }

    /// Returns the number of buffers lent to users now.
    pub fn lent(&self) -> u32 {
        self.buffers.borrow().lent
    }

    /// Returns true if so many buffers are lent that the next leases should own heap memory.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.buffers.borrow().is_short()
    }

    /// Returns true if `len` bytes in a lent buffer should be copied to the heap: the pool is short
    /// of buffers, or memory is short and the buffer has much more memory than the bytes need.
    #[inline]
    pub fn should_copy_out(&self, id: u16, len: u32) -> bool {
        let buffers = self.buffers.borrow();
        buffers.lent >= buffers.check_from
            && buffers.should_copy_out(id, len.next_multiple_of(self.page_bytes()))
    }

    /// Marks a buffer as lent after a completion has filled it with `bytes` bytes.
    ///
    /// # Panics
    /// Panics if the kernel did not have the buffer: its memory would have two owners.
    #[inline]
    pub(crate) fn mark_lent(&self, id: u16, bytes: u32) {
        let mut buffers = self.buffers.borrow_mut();
        let state = &mut buffers.state[usize::from(id)];
        assert_eq!(*state, BufferState::Kernel, "buffer {id} was taken twice");
        *state = BufferState::Lent;
        buffers.with_kernel -= 1;
        buffers.lent += 1;
        buffers.taken += 1;
        buffers.depth.record_receive(bytes);
        buffers.used_since_trim = true;
        buffers.record_written(id, bytes, self);
    }

    /// Lends the buffer that was returned last, for a driver that chooses buffers itself. Returns
    /// its id and its address, or `None` if all buffers are lent.
    #[inline]
    pub(crate) fn lend(&self) -> Option<(u16, *mut u8)> {
        let mut buffers = self.buffers.borrow_mut();
        let id = buffers.next_id(self.size.count)?;
        buffers.state[usize::from(id)] = BufferState::Lent;
        buffers.with_kernel = buffers.with_kernel.saturating_sub(1);
        buffers.lent += 1;
        buffers.used_since_trim = true;
        // SAFETY: `next_id` has handed out the id.
        Some((id, unsafe { self.memory.address(id) }))
    }

    /// Records that the first `bytes` bytes of a lent buffer have been written.
    #[inline]
    pub fn record_written(&self, id: u16, bytes: u32) {
        self.buffers.borrow_mut().record_written(id, bytes, self);
    }

    /// Takes returned buffers back, for a driver that [`lend`](Self::lend)s buffers itself.
    #[inline]
    pub(crate) fn reclaim_returned(&self) {
        let mut buffers = self.buffers.borrow_mut();
        if self.memory.any_returned() {
            self.memory.take_returned().into_iter().for_each(|id| buffers.take_back(id));
        }
        buffers.least_idle = buffers.least_idle.min(buffers.idle.len());
        buffers.refills += 1;
        buffers.end_turn(self);
        self.fit(&mut buffers, self.size.count);
        let Buffers { idle, returned, .. } = &mut *buffers;
        idle.append(returned);
        buffers.with_kernel = self.size.count - buffers.lent;
    }

    /// Takes a buffer back from a user. The kernel can get it with the next refill.
    ///
    /// # Panics
    /// Panics if the buffer is not lent, for example because it was returned twice.
    #[inline]
    pub fn give_back(&self, id: u16) {
        self.buffers.borrow_mut().take_back(id);
    }

    /// Records that a receive found no buffer, or was not armed because it would have found none.
    #[inline]
    pub fn record_shortage(&self) {
        let buffers = &mut *self.buffers.borrow_mut();
        buffers.depth.record_shortage();
        buffers.fitted = None;
    }

    /// Takes returned buffers back, and passes the buffers that the kernel gets now to `publish`.
    #[inline]
    pub(crate) fn refill(&self, publish: impl FnMut(*mut u8, u32, u16)) {
        if self.count_refill() {
            self.publish_idle(publish);
        }
    }

    /// Counts a refill. Returns true if the refill has work to do: a buffer was taken, returned or
    /// missing since the last one, the budget has changed or is tight, or a period ends.
    #[inline]
    fn count_refill(&self) -> bool {
        let buffers = &mut *self.buffers.borrow_mut();
        buffers.refills += 1;
        buffers.taken > 0
            || buffers.refills >= REFILLS_PER_PERIOD
            || buffers.fitted.is_none()
            || !buffers.returned.is_empty()
            || self.memory.any_returned()
    }

    /// Not inlined, so that a turn that receives nothing into the pool does not pay for it.
    #[inline(never)]
    fn publish_idle(&self, mut publish: impl FnMut(*mut u8, u32, u16)) {
        let mut buffers = self.buffers.borrow_mut();
        if self.memory.any_returned() {
            self.memory.take_returned().into_iter().for_each(|id| buffers.take_back(id));
        }
        buffers.end_turn(self);
        let depth = buffers.depth.buffers();
        let most = self.fit(&mut buffers, depth);
        while buffers.with_kernel < most {
            let Some(id) = buffers.next_id(self.size.count) else { break };
            buffers.state[usize::from(id)] = BufferState::Kernel;
            buffers.with_kernel += 1;
            // SAFETY: `next_id` has handed out the id.
            publish(unsafe { self.memory.address(id) }, buffers.len, id);
        }
        let Buffers { idle, returned, .. } = &mut *buffers;
        idle.append(returned);
        buffers.least_idle = buffers.least_idle.min(buffers.idle.len());
    }

    /// Returns true if receives have used buffers since the last trim of everything.
    #[inline]
    pub fn used_since_trim(&self) -> bool {
        self.buffers.borrow().used_since_trim
    }

    #[inline]
    fn page_bytes(&self) -> u32 {
        self.memory.page as u32
    }
}

impl Buffers {
    /// Returns how many buffers may be lent before the pool is short.
    #[inline]
    fn short_above(&self) -> u32 {
        self.written.len() as u32 / 4 * 3
    }

    /// Returns the number of lent buffers from which a lease is checked for a copy to the heap.
    fn check_from(&self, is_tight: bool) -> u32 {
        match &self.pieces {
            // Pieces may be short even if no buffer is lent.
            Some(_) => 0,
            None if is_tight => 1,
            None => self.short_above() + 1,
        }
    }

    #[inline]
    fn is_short(&self) -> bool {
        self.lent > self.short_above()
    }

    #[cold]
    fn should_copy_out(&self, id: u16, used: u32) -> bool {
        let Some(written) = self.written.get(usize::from(id)) else {
            return self.pieces.as_ref().is_some_and(|pieces| pieces.are_short());
        };
        self.is_short() || self.budget.is_tight && written / 2 > used
    }

    /// Records that a receive has written `bytes` bytes to a buffer.
    #[inline]
    fn record_written(&mut self, id: u16, bytes: u32, pool: &Pool) {
        self.largest = self.largest.max(bytes);
        // The memory of a piece is not the pool's.
        let Some(written) = self.written.get_mut(usize::from(id)) else { return };
        if bytes > *written {
            let before = std::mem::replace(written, bytes.next_multiple_of(pool.page_bytes()));
            pool.resident.set(pool.resident.get() + (*written - before) as usize);
        }
    }

    #[inline]
    fn take_back(&mut self, id: u16) {
        let state = &mut self.state[usize::from(id)];
        if *state != BufferState::Lent {
            return self.take_back_piece(id);
        }
        *state = BufferState::Idle;
        self.lent -= 1;
        self.returned.push(id);
    }

    /// Returns the next buffer to use: preferably the one that was returned last, and one that has
    /// never been used only if no other buffer is idle.
    #[inline]
    fn next_id(&mut self, most: u32) -> Option<u16> {
        self.returned.pop().or_else(|| self.idle.pop()).or_else(|| self.cold.pop()).or_else(|| {
            let fresh = self.fresh;
            self.fresh = (fresh + 1).min(most);
            (fresh < most).then_some(fresh as u16)
        })
    }

    #[inline]
    fn end_turn(&mut self, pool: &Pool) {
        self.depth.end_turn(std::mem::take(&mut self.taken));
        if self.refills >= REFILLS_PER_PERIOD {
            self.refills = 0;
            self.shrink(pool);
        }
    }

    /// Fits the depth to the demand of the period, and discards the memory of idle buffers that
    /// none of its turns used.
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
        let Buffers { with_kernel, lent, .. } = *self.buffers.borrow();
        write!(f, "Pool({:?}, {with_kernel} with the kernel, {lent} lent)", self.size)
    }
}

#[cfg(test)]
mod tests;
