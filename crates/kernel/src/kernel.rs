//! The interface to the operating system: the calls that rings and the layers above make.
#![allow(unsafe_code)]

use crate::address::Address;
use crate::epoll::{Edge, Registration};
use crate::fd::Fd;
use crate::file::FileCall;
use crate::message::{IoVec, MessageSlot, MsgHeader};
use crate::option::{Credentials, DeviceName, Multicast, SocketOption};
use crate::socket::{Domain, Shutdown, SocketType};
use crate::uring::{EnterArg, EnterFlags, Register, RingId, RingParams};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

/// The kernel under a driver: Linux, or a simulated one.
///
/// The trait has the calls that drive a ring and map its memory, and those that drive an epoll
/// instance and its timers. Once a descriptor is ready, the epoll driver makes socket calls that do
/// not wait. The layers above make the rest of the calls directly, because a ring would only add
/// latency (`shutdown`, `bind`) or has no operation for them. Calls that create a descriptor return
/// its number; calls on a descriptor take an [`Fd`], which is unsafe to create.
///
/// An error is an errno, or an [`io::Error`] made from one, as on Linux.
///
/// # Safety
/// The layers above trust the kernel's reports when they read and write memory, so an
/// implementation must guarantee that:
///
/// - [`setup`](Self::setup) returns sizes and offsets that describe the memory of
///   [`map`](Self::map), with the layout of io_uring: the masks match the sizes, and every index is
///   within its queue.
/// - [`map`](Self::map) returns a page-aligned pointer to `len` bytes that stay mapped for reading
///   and writing until [`unmap`](Self::unmap).
/// - The count of a completion is at most the length of the operation, and that many bytes have
///   been written. Its buffer was published, and has not been used since. After the terminal
///   completion, the kernel does not access the memory of the operation.
/// - [`file`](Self::file) and the calls that do not wait return at most the length of the call,
///   have written that many bytes, and do not access the memory of the call afterwards.
///   [`receive_messages`](Self::receive_messages) returns at most the number of slots.
/// - A number returned as a descriptor is open, and belongs to the caller.
///
/// Safe code cannot implement this trait:
///
/// ```compile_fail,E0200
/// struct Mine;
///
/// impl annulus_kernel::Kernel for Mine {}
/// ```
pub unsafe trait Kernel {
    /// `io_uring_setup(2)`: creates a ring of `entries`, fills `params`, and returns the
    /// descriptor.
    ///
    /// # Safety
    /// The parameters must refer to no memory and no other ring (`IORING_SETUP_NO_MMAP`,
    /// `IORING_SETUP_ATTACH_WQ`).
    unsafe fn setup(&self, entries: u32, params: &mut RingParams) -> io::Result<RawFd>;

    /// `io_uring_enter(2)`: submits and waits; returns how many entries were consumed.
    ///
    /// # Safety
    /// The ring must be open and belong to this kernel, and the caller must have the right to use
    /// it. For every entry between head and tail of the submission queue, the contract of
    /// `Ring::push_unchecked` in the crate `annulus-ring` must hold.
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
    /// `arg` must point to `count` items of the type that `what` expects, for as long as the kernel
    /// may use them. For a table of buffers, `count` is the size of the item in bytes, and for
    /// [`Register::Query`], which needs no ring, it is 0.
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
    /// `address` and `len` must come from an earlier [`map`](Kernel::map), and no code may use the
    /// memory from now on.
    unsafe fn unmap(&self, address: *mut u8, len: usize);

    /// Returns memory to the system, as `MADV_DONTNEED` does. Best effort: afterwards the range
    /// reads as zero or is unchanged.
    ///
    /// # Safety
    /// The range must be whole pages that belong to the caller and whose content is not needed, and
    /// no code may write there during the call.
    unsafe fn discard(&self, address: *mut u8, len: usize) {
        _ = (address, len);
    }

    /// Returns free heap memory to the system, if the allocator can.
    fn trim_heap(&self) {}

    /// Returns true if descriptors belong to the process, so that other code and other threads can
    /// use them.
    fn real_descriptors(&self) -> bool {
        true
    }

    /// Returns a seed for the random choices of another runtime on this kernel; `None` unless the
    /// kernel is simulated. The seeds of successive calls depend only on the simulation's seed.
    fn runtime_seed(&self) -> Option<u64> {
        None
    }

    /// Makes one step of a busy wait. In a simulated kernel, this lets time pass.
    fn relax(&self) {
        std::hint::spin_loop();
    }

    /// Returns the monotonic time since some fixed moment: the only clock of the layers above.
    fn now(&self) -> Duration;

    /// Like [`now`](Self::now), but in nanoseconds, cheaper, and up to some milliseconds late.
    fn tick(&self) -> u64;

    /// `socket(2)`, close-on-exec, and non-blocking if requested. Returns the descriptor.
    fn socket(&self, domain: Domain, kind: SocketType, nonblocking: bool) -> io::Result<RawFd>;

    /// `socketpair(2)` of Unix sockets, close-on-exec, and non-blocking if requested. Returns the
    /// descriptors.
    fn socket_pair(&self, kind: SocketType, nonblocking: bool) -> io::Result<(RawFd, RawFd)>;

    /// `bind(2)`. For a Unix path, it creates the socket's file.
    fn bind(&self, fd: Fd, address: &Address) -> io::Result<()>;

    /// `connect(2)`, for sockets on which it does not wait. It sets the peer of a datagram socket.
    /// On a non-blocking Unix stream it fails with `AGAIN` if the backlog is full. On a
    /// non-blocking TCP socket it fails with `INPROGRESS`, then with `ALREADY` until the outcome is
    /// known, and then returns the outcome.
    fn connect(&self, fd: Fd, address: &Address) -> io::Result<()>;

    /// `unlink(2)` of the path that a Unix socket was bound to. Does nothing if the file at the
    /// path is not a socket, or if the address is not a path.
    fn unlink(&self, address: &Address);

    /// `listen(2)`.
    fn listen(&self, fd: Fd, backlog: u32) -> io::Result<()>;

    /// `shutdown(2)`.
    fn shutdown(&self, fd: Fd, how: Shutdown) -> io::Result<()>;

    /// `sendmsg(2)` on a stream without waiting for space (`MSG_DONTWAIT`), and without a signal if
    /// the peer has closed. Takes bytes in the order of the slices, and returns their number. With
    /// `more`, the kernel may briefly hold the bytes back for those of the next call (`MSG_MORE`).
    fn send_now(&self, fd: Fd, slices: &[IoSlice<'_>], more: bool) -> io::Result<usize>;

    /// Returns the number of bytes, including a FIN, that the peer of a TCP connection has not
    /// acknowledged (`SIOCOUTQ`); 0 if unknown.
    fn unacknowledged(&self, fd: Fd) -> usize;

    /// Sends a datagram with control messages to an address in the kernel's layout, without waiting
    /// for space, by [`send_message`](Self::send_message).
    fn send_datagram_now(&self, fd: Fd, to: &[u8], control: &[u8], bytes: &[u8]) -> io::Result<()> {
        let vector = IoVec { base: bytes.as_ptr(), len: bytes.len() };
        let header = MsgHeader {
            name: to.as_ptr(),
            name_len: to.len() as u32,
            vectors: &raw const vector,
            vector_count: 1,
            control: control.as_ptr(),
            control_len: control.len(),
            flags: 0,
        };
        // SAFETY: everything that the header points to is borrowed for the call, which only reads
        // it.
        unsafe { self.send_message(fd, &raw const header)? };
        Ok(())
    }

    /// `recv(2)` of at most `len` bytes. Like the following calls up to [`accept`](Self::accept),
    /// it fails with `AGAIN` instead of waiting, and is repeated if a signal interrupts it.
    ///
    /// # Safety
    /// The memory must be writable, and no other code may use it during the call.
    unsafe fn receive(&self, fd: Fd, buffer: *mut u8, len: u32) -> Result<u32, Errno>;

    /// `recvmsg(2)` of one message. Returns its whole length, even if it was truncated. Received
    /// descriptors are close-on-exec.
    ///
    /// # Safety
    /// The header and everything it points to must be writable, and no other code may use them
    /// during the call.
    unsafe fn receive_message(&self, fd: Fd, header: *mut MsgHeader) -> Result<u32, Errno>;

    /// `recvmmsg(2)`: like [`receive_message`](Self::receive_message), but receives as many
    /// messages as are available, up to one per slot.
    ///
    /// If some slots stay empty, either no more messages were available or an error stopped the
    /// call. On Linux only an error that was reported to the socket can stop it after the first
    /// message, and such an error is an edge. So a caller that waits for edges need not call again
    /// before the next edge.
    ///
    /// # Safety
    /// Everything that the slots point to must be writable, and no other code may use it during the
    /// call.
    unsafe fn receive_messages(&self, fd: Fd, slots: &mut [MessageSlot]) -> Result<usize, Errno>;

    /// `sendto(2)`, without a signal if the peer has closed. With a null address, it sends to the
    /// peer of a connected socket.
    ///
    /// # Safety
    /// Bytes and address must be readable.
    unsafe fn send(&self, fd: Fd, bytes: IoVec, to: *const u8, to_len: u16)
    -> Result<usize, Errno>;

    /// `sendmsg(2)`, without a signal if the peer has closed.
    ///
    /// # Safety
    /// The header and everything it points to must be readable.
    unsafe fn send_message(&self, fd: Fd, header: *const MsgHeader) -> Result<usize, Errno>;

    /// `accept4(2)` on a non-blocking listener. Returns a non-blocking, close-on-exec descriptor.
    fn accept(&self, fd: Fd) -> Result<RawFd, Errno>;

    /// `poll(2)`: returns true if any of these events, or an error, is pending now.
    fn is_ready(&self, fd: Fd, events: PollFlags) -> Result<bool, Errno>;

    /// `epoll_create1(2)`: creates an instance, which is closed like any descriptor.
    fn epoll(&self) -> io::Result<RawFd>;

    /// `epoll_ctl(2)`. Descriptors are registered for edges (`EPOLLET`), each under its number.
    fn epoll_control(&self, epoll: Fd, change: Registration, fd: Fd) -> Result<(), Errno>;

    /// `epoll_wait(2)`: appends as many edges as are ready and the vector has spare capacity for. A
    /// timeout is rounded up to milliseconds.
    fn epoll_wait(
        &self,
        epoll: Fd,
        edges: &mut Vec<Edge>,
        timeout: Option<Duration>,
    ) -> Result<(), Errno>;

    /// `timerfd_create(2)`: creates a timer, which does not run yet. Every expiry is an edge, even
    /// if the timer has not been read since the last one.
    fn timer(&self) -> io::Result<RawFd>;

    /// `timerfd_settime(2)`: makes the timer expire once, after this long. Replaces an earlier
    /// setting.
    fn set_timer(&self, timer: Fd, after: Duration) -> Result<(), Errno>;

    /// `fcntl(2)` with `F_DUPFD_CLOEXEC`: returns another descriptor of the same file, for code
    /// that makes Linux calls itself.
    ///
    /// # Errors
    /// `Unsupported` by default.
    fn duplicate(&self, fd: Fd) -> io::Result<OwnedFd> {
        _ = fd;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// `setsockopt(2)`.
    fn set_option(&self, fd: Fd, option: SocketOption, value: u32) -> io::Result<()>;

    /// `getsockopt(2)`.
    fn option(&self, fd: Fd, option: SocketOption) -> io::Result<u32>;

    /// `setsockopt(2)` for multicast.
    ///
    /// # Errors
    /// `Unsupported` by default.
    fn set_multicast(&self, fd: Fd, change: Multicast) -> io::Result<()> {
        _ = (fd, change);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// `SO_BINDTODEVICE`: binds a socket to an interface.
    ///
    /// # Errors
    /// `Unsupported` by default.
    fn set_device(&self, fd: Fd, name: DeviceName) -> io::Result<()> {
        _ = (fd, name);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// `SO_PEERCRED`: returns the credentials of the process that connected, listened or created
    /// the pair, as they were then.
    fn peer_credentials(&self, fd: Fd) -> io::Result<Credentials>;

    /// `SO_PEERPIDFD` (6.5): returns a new descriptor of the process that
    /// [`peer_credentials`](Self::peer_credentials) describes.
    ///
    /// # Errors
    /// `Unsupported` by default.
    fn peer_process(&self, fd: Fd) -> io::Result<RawFd> {
        _ = fd;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// `SO_BINDTODEVICE`: returns the interface that a socket is bound to.
    ///
    /// # Errors
    /// `Unsupported` by default.
    fn device(&self, fd: Fd) -> io::Result<Option<DeviceName>> {
        _ = fd;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// `getsockname(2)`.
    fn local_address(&self, fd: Fd) -> io::Result<Address>;

    /// `getpeername(2)`.
    fn peer_address(&self, fd: Fd) -> io::Result<Address>;

    /// Makes a file call, and blocks as long as the call does.
    ///
    /// # Safety
    /// The contract of [`FileCall::call`], on this kernel.
    unsafe fn file(&self, call: &FileCall) -> io::Result<u32>;

    /// `close(2)`. Errors are not reported: the descriptor is closed in any case.
    fn close(&self, fd: Fd);
}
