//! A kernel that passes calls to Linux, but differs from it in one answer that a test cannot get
//! from the machine.

use annulus_kernel::epoll::{Edge, Registration};
use annulus_kernel::file::FileCall;
use annulus_kernel::{
    Address, Credentials, Domain, EnterArg, EnterFlags, Fd, IoVec, Kernel, Linux, MessageSlot,
    MsgHeader, Register, RingId, RingParams, Shutdown, SocketOption, SocketType,
};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::cell::RefCell;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

/// How this kernel differs from Linux.
#[derive(Debug)]
pub(crate) enum Bent {
    /// `io_uring_setup` returns this errno.
    Refuses(i32),
    /// A wait counts as iowait, as on kernels before 6.15.
    WaitsLoudly,
    /// Like Linux, but records the timeout of every wait.
    NotesTimeouts(Rc<RefCell<Vec<Option<Duration>>>>),
}

// SAFETY: every call is passed to Linux, which fulfils the contract, or fails without any effect.
unsafe impl Kernel for Bent {
    unsafe fn setup(&self, entries: u32, params: &mut RingParams) -> io::Result<RawFd> {
        match self {
            Self::Refuses(errno) => Err(io::Error::from_raw_os_error(*errno)),
            // SAFETY: the caller guarantees what `Linux` requires.
            Self::WaitsLoudly | Self::NotesTimeouts(_) => unsafe { Linux.setup(entries, params) },
        }
    }

    unsafe fn enter(
        &self,
        ring: RingId,
        to_submit: u32,
        min_complete: u32,
        flags: EnterFlags,
        arg: EnterArg,
    ) -> io::Result<u32> {
        let flags = match self {
            Self::WaitsLoudly => flags - EnterFlags::NO_IOWAIT,
            _ => flags,
        };
        if let Self::NotesTimeouts(timeouts) = self
            && min_complete > 0
        {
            timeouts.borrow_mut().push(arg.timeout);
        }
        // SAFETY: the caller guarantees what `Linux` requires.
        unsafe { Linux.enter(ring, to_submit, min_complete, flags, arg) }
    }

    unsafe fn register(
        &self,
        ring: Fd,
        what: Register,
        arg: *mut u8,
        count: u32,
    ) -> io::Result<u32> {
        // SAFETY: the caller guarantees what `Linux` requires.
        unsafe { Linux.register(ring, what, arg, count) }
    }

    fn map(&self, ring: Fd, offset: u64, len: usize) -> io::Result<*mut u8> {
        Linux.map(ring, offset, len)
    }

    unsafe fn unmap(&self, address: *mut u8, len: usize) {
        // SAFETY: the caller guarantees what `Linux` requires.
        unsafe { Linux.unmap(address, len) }
    }

    fn now(&self) -> Duration {
        Linux.now()
    }

    fn tick(&self) -> u64 {
        Linux.tick()
    }

    fn socket(&self, domain: Domain, kind: SocketType, nonblocking: bool) -> io::Result<RawFd> {
        Linux.socket(domain, kind, nonblocking)
    }

    fn socket_pair(&self, kind: SocketType, nonblocking: bool) -> io::Result<(RawFd, RawFd)> {
        Linux.socket_pair(kind, nonblocking)
    }

    fn bind(&self, fd: Fd, address: &Address) -> io::Result<()> {
        Linux.bind(fd, address)
    }

    fn connect(&self, fd: Fd, address: &Address) -> io::Result<()> {
        Linux.connect(fd, address)
    }

    fn unlink(&self, address: &Address) {
        Linux.unlink(address)
    }

    fn listen(&self, fd: Fd, backlog: u32) -> io::Result<()> {
        Linux.listen(fd, backlog)
    }

    fn unacknowledged(&self, fd: Fd) -> usize {
        Linux.unacknowledged(fd)
    }

    fn shutdown(&self, fd: Fd, how: Shutdown) -> io::Result<()> {
        Linux.shutdown(fd, how)
    }

    fn send_now(&self, fd: Fd, slices: &[io::IoSlice<'_>], more: bool) -> io::Result<usize> {
        Linux.send_now(fd, slices, more)
    }

    unsafe fn receive(&self, fd: Fd, buffer: *mut u8, len: u32) -> Result<u32, Errno> {
        // SAFETY: the caller guarantees what `Linux` requires.
        unsafe { Linux.receive(fd, buffer, len) }
    }

    unsafe fn receive_message(&self, fd: Fd, header: *mut MsgHeader) -> Result<u32, Errno> {
        // SAFETY: the caller guarantees what `Linux` requires.
        unsafe { Linux.receive_message(fd, header) }
    }

    unsafe fn receive_messages(&self, fd: Fd, slots: &mut [MessageSlot]) -> Result<usize, Errno> {
        // SAFETY: the caller guarantees what `Linux` requires.
        unsafe { Linux.receive_messages(fd, slots) }
    }

    unsafe fn send(&self, fd: Fd, bytes: IoVec, to: *const u8, len: u16) -> Result<usize, Errno> {
        // SAFETY: the caller guarantees what `Linux` requires.
        unsafe { Linux.send(fd, bytes, to, len) }
    }

    unsafe fn send_message(&self, fd: Fd, header: *const MsgHeader) -> Result<usize, Errno> {
        // SAFETY: the caller guarantees what `Linux` requires.
        unsafe { Linux.send_message(fd, header) }
    }

    fn accept(&self, fd: Fd) -> Result<RawFd, Errno> {
        Linux.accept(fd)
    }

    fn is_ready(&self, fd: Fd, events: PollFlags) -> Result<bool, Errno> {
        Linux.is_ready(fd, events)
    }

    fn epoll(&self) -> io::Result<RawFd> {
        Linux.epoll()
    }

    fn epoll_control(&self, epoll: Fd, change: Registration, fd: Fd) -> Result<(), Errno> {
        Linux.epoll_control(epoll, change, fd)
    }

    fn epoll_wait(
        &self,
        epoll: Fd,
        edges: &mut Vec<Edge>,
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        Linux.epoll_wait(epoll, edges, timeout)
    }

    fn timer(&self) -> io::Result<RawFd> {
        Linux.timer()
    }

    fn set_timer(&self, timer: Fd, after: Duration) -> Result<(), Errno> {
        Linux.set_timer(timer, after)
    }

    fn set_option(&self, fd: Fd, option: SocketOption, value: u32) -> io::Result<()> {
        Linux.set_option(fd, option, value)
    }

    fn option(&self, fd: Fd, option: SocketOption) -> io::Result<u32> {
        Linux.option(fd, option)
    }

    fn peer_credentials(&self, fd: Fd) -> io::Result<Credentials> {
        Linux.peer_credentials(fd)
    }

    fn local_address(&self, fd: Fd) -> io::Result<Address> {
        Linux.local_address(fd)
    }

    fn peer_address(&self, fd: Fd) -> io::Result<Address> {
        Linux.peer_address(fd)
    }

    fn close(&self, fd: Fd) {
        Linux.close(fd)
    }

    unsafe fn file(&self, call: &FileCall) -> io::Result<u32> {
        // SAFETY: the caller guarantees what `Linux` requires.
        unsafe { Linux.file(call) }
    }
}
