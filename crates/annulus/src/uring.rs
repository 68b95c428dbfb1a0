//! Operations of io_uring that this crate does not have: a program describes the entry, and the
//! runtime submits it with everything else and returns its result.
//!
//! An [`Operation`] owns its memory, so that a dropped future is safe: the runtime cancels the
//! operation and keeps its memory until the kernel no longer uses it. The trait is unsafe, because
//! the compiler cannot check what an entry refers to.
//!
//! This example waits for a futex, as another thread changes it (`IORING_OP_FUTEX_WAIT`, Linux
//! 6.7):
//!
//! ```
//! use annulus::uring::{Entry, Operation, submit};
//! use std::io;
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! const FUTEX_WAIT: u8 = 51;
//! const FUTEX2_SIZE_U32: i32 = 2;
//! const FUTEX2_PRIVATE: i32 = 128;
//!
//! /// Waits until the word no longer has this value and its waiters are woken.
//! struct WaitWhile {
//!     word: Arc<AtomicU32>,
//!     value: u32,
//! }
//!
//! // SAFETY: the `Arc` keeps the word alive until `complete`. The kernel only reads it, atomically,
//! // like the threads that change it.
//! unsafe impl Operation for WaitWhile {
//!     type Output = io::Result<()>;
//!
//!     fn entry(&mut self) -> Entry {
//!         Entry {
//!             opcode: FUTEX_WAIT,
//!             fd: FUTEX2_SIZE_U32 | FUTEX2_PRIVATE, // The kernel reads its flags from here.
//!             addr: self.word.as_ptr() as u64,
//!             off: self.value.into(),
//!             addr3: u32::MAX.into(), // Any waker.
//!             ..Entry::default()
//!         }
//!     }
//!
//!     fn complete(self, result: io::Result<u32>) -> io::Result<()> {
//!         match result {
//!             // The word has already changed.
//!             Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
//!             result => result.map(drop),
//!         }
//!     }
//! }
//!
//! # annulus::run(async {
//! let word = Arc::new(AtomicU32::new(0));
//! let changed = word.clone();
//! let thread = std::thread::spawn(move || {
//!     changed.store(1, Ordering::Release);
//!     let flags = rustix::thread::futex::Flags::PRIVATE;
//!     rustix::thread::futex::wake(&changed, flags, 1)
//! });
//! match submit(WaitWhile { word: word.clone(), value: 0 }).await {
//!     Ok(()) => assert_eq!(word.load(Ordering::Acquire), 1),
//!     // On epoll, in a sandbox, or before Linux 6.7.
//!     Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
//! }
//! thread.join().unwrap()?;
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```
#![allow(unsafe_code)]

use crate::runtime::core::Core;
use crate::runtime::current;
use crate::slots::custom_ops::AbandonedOp;
use crate::tasks::budget;
use annulus_ring::EntryFlags;
use rustix::io::Errno;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The submission entry of an operation (`struct io_uring_sqe`), with the kernel's names. Fields
/// that the kernel uses for several purposes have the name of the most common one. The runtime sets
/// the rest: the flags and `user_data`.
///
/// See [the module](self) for an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The operation, `IORING_OP_…`.
    pub opcode: u8,
    /// Whether a worker thread of the kernel makes the call at once (`IOSQE_ASYNC`), instead of a
    /// first attempt on the loop's thread. For calls that are known to block.
    pub on_worker: bool,
    /// A priority, or flags of some operations.
    pub ioprio: u16,
    /// The descriptor, or flags of some operations.
    pub fd: RawFd,
    /// An offset, a second address (`addr2`), or the command of `URING_CMD` (`cmd_op`).
    pub off: u64,
    /// The address of the memory.
    pub addr: u64,
    /// A length in bytes, or a count.
    pub len: u32,
    /// The flags of the corresponding system call (`rw_flags`, `msg_flags`, `futex_flags`, …).
    pub op_flags: u32,
    /// The index of a registered buffer. All registered buffers belong to the runtime, so this is
    /// zero.
    pub buf_index: u16,
    /// The id of registered credentials. The runtime registers none.
    pub personality: u16,
    /// A second descriptor (`splice_fd_in`), a length (`addr_len`), or a direct descriptor
    /// (`file_index`).
    pub file_index: u32,
    /// A third address, or the first eight bytes of a command (`cmd`).
    pub addr3: u64,
    /// The last eight bytes of a command; otherwise zero.
    pub cmd_end: u64,
}

impl Entry {
    fn encode(self) -> annulus_ring::Entry {
        let flags = if self.on_worker { EntryFlags::ASYNC } else { EntryFlags::empty() };
        annulus_ring::Entry {
            opcode: self.opcode,
            flags: flags.bits(),
            ioprio: self.ioprio,
            fd: self.fd,
            off: self.off,
            addr: self.addr,
            len: self.len,
            op_flags: self.op_flags,
            user_data: 0,
            buf_group: self.buf_index,
            personality: self.personality,
            file_index: self.file_index,
            addr3: self.addr3,
            reserved: self.cmd_end,
        }
    }
}

/// An operation of io_uring that a program defines, with the memory that it uses. [`submit`] starts
/// it. See [the module](self) for an example.
///
/// # Safety
/// From the call of [`entry`](Self::entry) until [`complete`](Self::complete) is called or the
/// value is dropped, the implementation guarantees for the returned entry:
///
/// - **Memory.** All memory that the kernel reads or writes for this operation is valid: it is a
///   part of the value, owned by it, shared with it by reference counting, or `'static`. A borrow
///   does not suffice, because the future may be forgotten. The value itself does not move in this
///   time, so the entry may refer to its fields.
/// - **Aliasing.** No other code writes what the kernel reads, and no other code uses what the
///   kernel writes, unless both do so atomically.
/// - **Descriptors.** The value keeps the descriptors in the entry open, for example as an
///   `OwnedFd` or an `Rc`. They are not descriptors of streams or files of this crate, which the
///   runtime uses itself; a duplicate (`try_clone_to_owned`) is fine.
/// - **One result.** The operation is not a multishot operation. It may have one notification after
///   its result, like `SEND_ZC`: the future is then ready after the notification.
/// - **Nothing else.** The operation changes neither the ring nor other operations: it does not
///   cancel, remove or update operations that it did not start, does not use the buffer groups,
///   registered buffers or registered files of the ring, and sends no messages to the ring
///   (`MSG_RING`).
///
/// The runtime guarantees that it calls `entry` at most once, and `complete` at most once, after
/// the kernel's last use of the memory. If the runtime cannot find out whether that time has come
/// (after a failed driver, or in a forked child), it leaks the value.
pub unsafe trait Operation: 'static {
    /// The result of [`submit`].
    type Output;

    /// Returns the entry. The value stays at its address until [`complete`](Self::complete) or its
    /// drop.
    fn entry(&mut self) -> Entry;

    /// Converts the result of the completion: a number that is not negative, or the error.
    ///
    /// It is also called, and its output dropped, if the future was dropped before, and if the
    /// runtime has ended before. So a result that is a descriptor is not lost if the output owns it
    /// (`OwnedFd`). The error is `ECANCELED` if the operation was cancelled before it did anything.
    fn complete(self, result: io::Result<u32>) -> Self::Output;
}

/// Submits an operation with the other operations of the turn, and returns its output.
///
/// Cancel-safe with respect to memory: if the future is dropped, the operation is cancelled, unless
/// it has already taken effect, and its memory is kept until the kernel no longer uses it. Whether
/// it took effect is then unknown.
///
/// See [the module](self) for an example.
///
/// # Errors
/// [`Operation::complete`] gets the errors: the kernel's; `Unsupported` on epoll, on a locked-down
/// ring, under a simulated kernel, and if the kernel's io_uring does not have the operation; and an
/// error outside a runtime. If the runtime ends first, the operation is cancelled.
pub fn submit<O: Operation>(operation: O) -> Submitted<O> {
    Submitted(SubmittedState::New(operation))
}

/// The future of [`submit`].
#[must_use = "futures do nothing unless they are awaited"]
pub struct Submitted<O: Operation>(SubmittedState<O>);

enum SubmittedState<O: Operation> {
    New(O),
    InFlight { core: Rc<Core>, slot: u32, held: Held<O> },
    Done,
}

// The operation is pinned in memory of its own.
impl<O: Operation> Unpin for Submitted<O> {}

/// An operation in memory of its own, which the kernel may use. There is no reference to it while
/// it is in flight, and it is not a `Box`, whose memory must not be used through other pointers.
struct Held<O: Operation> {
    operation: NonNull<O>,
    /// The result of an abandoned operation, which is handled when this is dropped.
    result: Option<Result<u32, Errno>>,
}

impl<O: Operation> Held<O> {
    fn new(operation: O) -> Self {
        Self { operation: NonNull::from(Box::leak(Box::new(operation))), result: None }
    }

    fn entry(&mut self) -> Entry {
        // SAFETY: `operation` is valid until this is dropped, and this is the only reference,
        // because the operation has not been started.
        unsafe { self.operation.as_mut() }.entry()
    }

    fn into_operation(self) -> O {
        let operation = self.operation;
        mem::forget(self);
        // SAFETY: the pointer comes from a box, and `forget` has prevented the drop.
        *unsafe { Box::from_raw(operation.as_ptr()) }
    }
}

/// Must run only once the kernel no longer uses the memory.
impl<O: Operation> Drop for Held<O> {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from a box, which is freed only here or in `into_operation`.
        let operation = *unsafe { Box::from_raw(self.operation.as_ptr()) };
        if let Some(result) = self.result {
            drop(operation.complete(result.map_err(io::Error::from)));
        }
    }
}

impl<O: Operation> AbandonedOp for Held<O> {
    fn end(mut self: Box<Self>, result: Result<u32, Errno>) -> Box<dyn Any> {
        self.result = Some(result);
        self
    }
}

/// Starts an operation.
///
/// # Errors
/// If it cannot be started, with the operation.
fn start<O: Operation>(operation: O) -> Result<SubmittedState<O>, (io::Error, O)> {
    let core = match current::get() {
        Ok(core) => core,
        Err(error) => return Err((error, operation)),
    };
    let mut held = Held::new(operation);
    // Before the borrow, because this runs code of the program.
    let entry = held.entry().encode();
    let started = core.borrow_running().and_then(|mut inner| {
        let inner = &mut *inner;
        // SAFETY: by the contract of `Operation`, the memory and descriptors of the entry stay
        // valid as long as the operation is neither completed nor dropped. `held` keeps it until
        // the terminal event: here, and in the slot once this is dropped. The entry does not
        // affect other operations.
        unsafe { inner.custom_ops.start(&mut inner.state, entry) }
    });
    match started {
        Ok(slot) => Ok(SubmittedState::InFlight { core, slot, held }),
        Err(error) => Err((error, held.into_operation())),
    }
}

impl<O: Operation> Future for Submitted<O> {
    type Output = O::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O::Output> {
        let this = &mut self.0;
        if matches!(this, SubmittedState::New(_)) {
            // An operation may fail at once every time.
            ready!(budget::poll_take(cx));
            let SubmittedState::New(operation) = mem::replace(this, SubmittedState::Done) else {
                unreachable!("the operation has not been started")
            };
            match start(operation) {
                Ok(started) => *this = started,
                Err((error, operation)) => return Poll::Ready(operation.complete(Err(error))),
            }
        }
        let SubmittedState::InFlight { core, slot, .. } = &*this else {
            panic!("an operation was polled after completion")
        };
        let result = match core.borrow() {
            Ok(mut inner) => {
                let inner = &mut *inner;
                let polled = inner.custom_ops.poll(&mut inner.state, *slot, cx);
                ready!(polled).map_err(io::Error::from)
            }
            Err(_) if core.is_over() => core.take_ended_op(*slot).map_err(io::Error::from),
            // The kernel may still use the memory, and no event will arrive.
            Err(_) => return Poll::Pending,
        };
        let SubmittedState::InFlight { held, .. } = mem::replace(this, SubmittedState::Done) else {
            unreachable!("the operation was in flight")
        };
        Poll::Ready(held.into_operation().complete(result))
    }
}

impl<O: Operation> Drop for Submitted<O> {
    fn drop(&mut self) {
        let SubmittedState::InFlight { core, slot, held } =
            mem::replace(&mut self.0, SubmittedState::Done)
        else {
            return;
        };
        match core.borrow() {
            Ok(mut inner) => {
                let inner = &mut *inner;
                inner.custom_ops.abandon(&mut inner.state, slot, Box::new(held));
            }
            Err(_) if core.is_over() => drop(Box::new(held).end(core.take_ended_op(slot))),
            // A forked child, or a runtime with operations still in flight: the kernel may still
            // use the memory.
            Err(_) => mem::forget(held),
        }
    }
}

impl<O: Operation> fmt::Debug for Submitted<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            SubmittedState::New(_) => "Submitted(new)",
            SubmittedState::InFlight { .. } => "Submitted(in flight)",
            SubmittedState::Done => "Submitted(done)",
        })
    }
}
