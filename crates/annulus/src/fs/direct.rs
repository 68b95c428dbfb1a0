//! Memory for direct I/O that the kernel holds on to.
#![allow(unsafe_code)]

use super::aligned::AlignedBuf;
use super::buf::{IoBuf, IoBufMut};
use super::free::FreeBuffers;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::runtime::recheck::{Recheck, RecheckQueue};
use crate::unwind::{dispose_each, wake_each};
use crate::waiters::WaiterId;
use annulus_kernel::IoVec;
use annulus_ring::BufferTable;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

/// What buffers are aligned to, and their size a multiple of: every device's direct I/O is content with that.
const STEP: usize = 4096;

/// So many buffers of one size, for direct I/O: aligned, and registered with the runtime's ring, so that the kernel has no pages to
/// look up and pin for each read or write.
///
/// [`File::read_at`](super::File::read_at), [`File::write_at`](super::File::write_at) and what is made of them notice a buffer of
/// their own runtime's pool, or a [slice](IoBuf::slice) of one, and use it as registered. Anywhere else it is plain
/// aligned memory: on epoll, in another runtime, where the kernel registered nothing. [`registered`](Self::registered) tells why.
///
/// The memory stays until the pool and all its buffers are gone, and no operation is under way in it. A clone is the same pool.
///
/// ```no_run
/// use annulus::fs::{DirectPool, OpenOptions};
///
/// # annulus::run(async {
/// let file = OpenOptions::new().read(true).direct(true).open("data").await?;
/// let pool = DirectPool::new(32, 4096)?;
/// let buf = pool.take().await;
/// let (read, buf) = file.read_at(buf, 0).await;
/// println!("{:?}", &buf[..read?]);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct DirectPool(Rc<Shared>);

struct Shared {
    core: Rc<Core>,
    memory: AlignedBuf,
    /// Bytes of a buffer.
    size: usize,
    /// Its name with the driver.
    registration: io::Result<u32>,
    free: RefCell<FreeBuffers>,
}

impl DirectPool {
    /// `count` buffers of `size` bytes each, all zero.
    ///
    /// # Errors
    /// `InvalidInput` where there are none, where the size is no multiple of 4096, or where all of them have more than 1 GiB;
    /// or outside a runtime. That they cannot be registered is none.
    pub fn new(count: usize, size: usize) -> io::Result<Self> {
        let bytes = total(count, size)?;
        let core = current::get()?;
        let memory = AlignedBuf::new(bytes, STEP)?;
        let vector = IoVec { base: IoBuf::as_ptr(&memory), len: bytes };
        // SAFETY: the memory does not move, and is forgotten before it goes: see the drop of `Shared`.
        let registration = unsafe { core.enter()?.io.driver.register_memory(vector) };
        let free = RefCell::new(FreeBuffers::new(count as u32));
        Ok(Self(Rc::new(Shared { core, memory, size, registration, free })))
    }

    /// Whether the kernel holds on to the memory; why not, where it does not.
    ///
    /// # Errors
    /// `Unsupported` on epoll, `OutOfMemory` beyond `RLIMIT_MEMLOCK`, `QuotaExceeded` for a 65th pool, `PermissionDenied` in a
    /// locked-down runtime, `InvalidInput` before Linux 5.19.
    pub fn registered(&self) -> Result<(), &io::Error> {
        self.0.registration.as_ref().map(drop)
    }

    /// Bytes of a buffer.
    pub fn buffer_size(&self) -> usize {
        self.0.size
    }

    /// Buffers that can be taken now: free, and not for a task that waits.
    pub fn available(&self) -> usize {
        self.0.free.borrow().available()
    }

    /// A buffer, as soon as there is one: tasks get theirs in the order in which they asked. It has the bytes of its last use.
    ///
    /// A task that holds buffers while it waits for more may wait for ever.
    ///
    /// # What dropping the future does
    /// A buffer that it was to get goes to the next one. Forgotten instead (`mem::forget`), it delays the others by a turn of the
    /// loop or two.
    pub fn take(&self) -> impl Future<Output = DirectBuf> + use<> {
        Take { pool: self.0.clone(), id: None }
    }

    /// A buffer, if there is one that no task waits for.
    pub fn try_take(&self) -> Option<DirectBuf> {
        let place = self.0.update(FreeBuffers::take)?;
        Some(DirectBuf { pool: self.0.clone(), place })
    }
}

impl fmt::Debug for DirectPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectPool")
            .field("buffer_size", &self.0.size)
            .field("available", &self.available())
            .field("registered", &self.registered())
            .finish()
    }
}

/// The bytes of all buffers.
fn total(count: usize, size: usize) -> io::Result<usize> {
    let refused = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if count == 0 || size == 0 || !size.is_multiple_of(STEP) {
        let what = format!("{count} direct buffers of {size} bytes");
        return refused(format!("{what}: take at least one, and a multiple of {STEP} bytes"));
    }
    match count.checked_mul(size) {
        Some(bytes) if bytes <= BufferTable::MOST => Ok(bytes),
        _ => refused(format!(
            "{count} direct buffers of {size} bytes: a pool has at most {} bytes; make several",
            BufferTable::MOST
        )),
    }
}

impl Shared {
    /// Changes what is free, then notifies the tasks whose turn it is.
    fn update<R>(self: &Rc<Self>, change: impl FnOnce(&mut FreeBuffers) -> R) -> R {
        let mut free = self.free.borrow_mut();
        let answer = change(&mut free);
        let mut next = free.notify_next();
        let recheck = free.needs_recheck();
        drop(free);
        if recheck && let Ok(mut inner) = self.core.enter() {
            let weak: Weak<Self> = Rc::downgrade(self);
            inner.io.rechecks.push(Recheck::Queue(weak));
        }
        while next.is_some() {
            wake_each(next);
            next = self.free.borrow_mut().notify_next();
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

impl Drop for Shared {
    fn drop(&mut self) {
        // After the runtime's end, and in a forked child, no operation can begin in it.
        if let (Ok(name), Ok(mut inner)) = (&self.registration, self.core.enter()) {
            inner.io.driver.unregister_memory(*name);
        }
    }
}

/// Waits for a buffer.
struct Take {
    pool: Rc<Shared>,
    id: Option<WaiterId>,
}

impl Future for Take {
    type Output = DirectBuf;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<DirectBuf> {
        let Self { pool, id } = &mut *self;
        // Cloned and dropped while nothing is borrowed: a waker may run foreign code.
        let mut waker = Some(cx.waker().clone());
        let place = pool.update(|free| free.poll(id, &mut waker));
        dispose_each(waker);
        place.map_or(Poll::Pending, |place| Poll::Ready(DirectBuf { pool: pool.clone(), place }))
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        if self.id.is_some() {
            dispose_each(self.pool.update(|free| free.leave(&mut self.id)));
        }
    }
}

/// A buffer of a [`DirectPool`], which it goes back to when it is dropped.
pub struct DirectBuf {
    pool: Rc<Shared>,
    place: u32,
}

impl DirectBuf {
    fn start(&self) -> *mut u8 {
        self.pool.memory.start().wrapping_add(self.place as usize * self.pool.size)
    }
}

impl Drop for DirectBuf {
    fn drop(&mut self) {
        self.pool.update(|free| free.give_back(self.place));
    }
}

impl Deref for DirectBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the place is this one's alone, within the pool's memory, which was zeroed.
        unsafe { std::slice::from_raw_parts(self.start(), self.pool.size) }
    }
}

impl DerefMut for DirectBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.pool.size) }
    }
}

// SAFETY: the place is this one's alone, initialised, and does not move with it.
unsafe impl IoBuf for DirectBuf {
    fn as_ptr(&self) -> *const u8 {
        self.start()
    }

    fn bytes_init(&self) -> usize {
        self.pool.size
    }
}

// SAFETY: as above.
unsafe impl IoBufMut for DirectBuf {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start()
    }

    fn bytes_total(&mut self) -> usize {
        self.pool.size
    }

    unsafe fn set_init(&mut self, _count: usize) {}
}

impl fmt::Debug for DirectBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DirectBuf({} bytes)", self.pool.size)
    }
}
