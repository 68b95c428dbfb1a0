//! The seam: everything this project asks of an operating system on a ring's behalf.
#![allow(unsafe_code)]

use crate::address::Address;
use crate::fd::Fd;
use crate::file::FileCall;
use crate::option::{Credentials, SocketOption, SocketQuery};
use crate::socket::{Domain, Shutdown, SocketType};
use crate::uring::{EnterArg, EnterFlags, Params, Register, RingId};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// What stands under a ring: Linux, or a simulated kernel.
///
/// Three calls drive the ring itself, two map its memory. The rest are plain system calls that the layers above make because a
/// ring would only add a detour (`shutdown`, `bind`) or has no operation for them. Calls that make a descriptor answer its
/// number; calls on one take an [`Fd`], whose maker answers for the number.
///
/// Errors are [`io::Error`]s made from an errno, as Linux would answer.
///
/// # Safety
/// The layers above read and write memory as a kernel tells them to. So an implementation must keep to these:
///
/// - [`setup`](Self::setup) answers sizes and offsets that describe the memory of [`map`](Self::map), laid out as io_uring's:
///   the masks fit the sizes, and an index names an entry within its queue.
/// - [`map`](Self::map) answers the first of `len` bytes, aligned to a page, that stay mapped for reading and writing until
///   [`unmap`](Self::unmap).
/// - A completion's count is at most the length that was asked for, and that many bytes were written; its buffer was published,
///   and not given back since. From the terminal completion on, the kernel touches none of the operation's memory.
/// - [`file`](Self::file) answers at most the length that was asked for, has written that many bytes, and touches none of the
///   call's memory afterwards.
/// - A number that was answered as a descriptor is open, and is the caller's alone.
///
/// Safe code can make no kernel of its own:
///
/// ```compile_fail,E0200
/// struct Mine;
///
/// impl annulus_kernel::Kernel for Mine {}
/// ```
pub unsafe trait Kernel {
    /// `io_uring_setup(2)`: makes a ring of `entries`, answering in `params`; the answer is its descriptor.
    ///
    /// # Safety
    /// The parameters must name no memory and no other ring (`IORING_SETUP_NO_MMAP`, `IORING_SETUP_ATTACH_WQ`).
    unsafe fn setup(&self, entries: u32, params: &mut Params) -> io::Result<RawFd>;

    /// `io_uring_enter(2)`: submits and waits; returns how many entries were consumed.
    ///
    /// # Safety
    /// The ring must be one of this kernel's, open, and the caller's to use. Every entry between the submission queue's head and
    /// tail must keep the promise of `Ring::push_unchecked` in the crate `annulus-ring`.
    unsafe fn enter(
        &self,
        ring: RingId,
        to_submit: u32,
        min_complete: u32,
        flags: EnterFlags,
        arg: EnterArg,
    ) -> io::Result<u32>;

    /// `io_uring_register(2)`.
    ///
    /// # Safety
    /// `arg` must point to what `what` expects, `count` items of it, for as long as the kernel may use it.
    unsafe fn register(
        &self,
        ring: Fd,
        what: Register,
        arg: *mut u8,
        count: u32,
    ) -> io::Result<u32>;

    /// `mmap(2)` of a ring's memory at `offset`.
    fn map(&self, ring: Fd, offset: u64, len: usize) -> io::Result<*mut u8>;

    /// `munmap(2)`.
    ///
    /// # Safety
    /// `address` and `len` must be those of an earlier [`map`](Kernel::map), and nothing may refer to it any more.
    unsafe fn unmap(&self, address: *mut u8, len: usize);

    /// Gives memory back to the system; it reads as zero when next touched. Doing nothing is a legal answer.
    ///
    /// # Safety
    /// The range must be whole pages of the caller's own memory whose content nobody needs any more, and nothing may
    /// write there during the call.
    unsafe fn discard(&self, address: *mut u8, len: usize) {
        _ = (address, len);
    }

    /// Gives what is free of the process's heap back to the system, if its allocator can.
    fn trim_heap(&self) {}

    /// Whether descriptors are the process's own, so that they mean something to other code and other threads.
    fn real_descriptors(&self) -> bool {
        true
    }

    /// A moment of a wait that looks instead of sleeping. A simulated kernel lets time pass.
    fn relax(&self) {
        std::hint::spin_loop();
    }

    /// Monotonic time since some fixed moment: the only clock of everything above.
    fn now(&self) -> Duration;

    /// As [`now`](Self::now), some milliseconds late at most, and cheaper to ask.
    fn tick(&self) -> Duration {
        self.now()
    }

    /// `socket(2)`, close-on-exec; non-blocking if asked for. The answer is its descriptor.
    fn socket(&self, domain: Domain, kind: SocketType, nonblocking: bool) -> io::Result<RawFd>;

    /// `socketpair(2)` of Unix sockets, close-on-exec; non-blocking if asked for. The answers are their descriptors.
    fn socket_pair(&self, kind: SocketType, nonblocking: bool) -> io::Result<(RawFd, RawFd)>;

    /// `bind(2)`. A Unix path comes into being with it.
    fn bind(&self, fd: Fd, address: &Address) -> io::Result<()>;

    /// `connect(2)`, for what is decided at once: datagram sockets, whose peer it sets, and Unix streams, which a
    /// full backlog refuses (`WouldBlock`, on a non-blocking socket).
    fn connect(&self, fd: Fd, address: &Address) -> io::Result<()>;

    /// `unlink(2)` of the path that a Unix socket was bound to. Nothing happens where it names no socket any more, or
    /// where the address is no path.
    fn unlink(&self, address: &Address);

    /// `listen(2)`.
    fn listen(&self, fd: Fd, backlog: u32) -> io::Result<()>;

    /// `shutdown(2)`.
    fn shutdown(&self, fd: Fd, how: Shutdown) -> io::Result<()>;

    /// `setsockopt(2)`.
    fn set_option(&self, fd: Fd, option: SocketOption) -> io::Result<()>;

    /// `getsockopt(2)`.
    fn option(&self, fd: Fd, query: SocketQuery) -> io::Result<u32>;

    /// `SO_PEERCRED`: who connected, listened, or made the pair, at that time.
    fn peer_credentials(&self, fd: Fd) -> io::Result<Credentials>;

    /// `getsockname(2)`.
    fn local_address(&self, fd: Fd) -> io::Result<Address>;

    /// `getpeername(2)`.
    fn peer_address(&self, fd: Fd) -> io::Result<Address>;

    /// A call on files, there and then: it waits for as long as the call does.
    ///
    /// # Safety
    /// As [`FileCall::call`], on this kernel.
    unsafe fn file(&self, call: &FileCall) -> io::Result<u32>;

    /// `close(2)`. Errors are not reported: the descriptor is gone in any case.
    fn close(&self, fd: Fd);
}
