//! Implements [`Kernel`] with the system calls of Linux.
#![allow(unsafe_code)]

use crate::address::{Address, UnixName};
use crate::call::{last_error, named};
use crate::epoll::{Edge, EventData, Registration};
use crate::fd::{Fd, borrow};
use crate::file::FileCall;
use crate::kernel::Kernel;
use crate::message::{IoVec, MessageSlot, MsgHeader};
use crate::newer::NewerCall;
use crate::option::{self, Credentials, DeviceName, Multicast, SocketOption};
use crate::socket::{Domain, Shutdown, SocketType};
use crate::uring::{EnterArg, EnterFlags, Register, RingId, RingParams};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{BorrowedFd, IntoRawFd};
use rustix::fs::FileType;
use rustix::io::{Errno, FdFlags, retry_on_intr as again};
use rustix::io_uring::{
    IoringEnterFlags, io_uring_enter, io_uring_enter_arg, io_uring_getevents_arg, io_uring_ptr,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::net::{
    self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketFlags,
};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;
use std::{ptr, slice};

/// Flags of the sends that do not wait and raise no SIGPIPE, and of the receives that do not wait.
const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
const RECEIVE_MESSAGE_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC;
/// The longest timer or wait. A longer wait wakes up spuriously once a day. io_uring adds the time
/// to its clock without a check for overflow, so a wait of 292 years or more would end at once.
const MAX_WAIT: Duration = Duration::from_secs(86_400);

/// The Linux kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Linux {
    /// Borrows a descriptor for a system call that [`Kernel`] does not have. Panics for
    /// [`Fd::NONE`].
    #[inline]
    pub fn borrow<'a>(fd: Fd) -> BorrowedFd<'a> {
        fd.borrow()
    }

    /// Like [`connect`](Kernel::connect), but takes a borrowed descriptor, so that another thread
    /// can make the call.
    ///
    /// # Errors
    /// The errors of `connect(2)`.
    pub fn connect_borrowed(fd: BorrowedFd<'_>, address: &Address) -> io::Result<()> {
        Ok(again(|| net::connect(fd, &socket_address(address)))?)
    }
}

/// Converts the result of a libc call.
fn answer(value: impl TryInto<usize>) -> Result<usize, Errno> {
    value.try_into().map_err(|_| last_error())
}

/// Converts to microseconds, rounded up, at most `u32::MAX`.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u32::MAX)
}

fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    }
}

fn socket_address(address: &Address) -> SocketAddrAny {
    let bytes = address.as_bytes();
    // SAFETY: the bytes are initialised, and an `Address` is at most as long as `sockaddr_storage`.
    unsafe { SocketAddrAny::read(bytes.as_ptr().cast(), bytes.len() as u32) }
}

fn plain_address(address: &SocketAddrAny) -> Address {
    // SAFETY: `addr_len` bytes at the pointer are initialised, as rustix documents.
    let bytes = unsafe {
        slice::from_raw_parts(address.as_ptr().cast::<u8>(), address.addr_len() as usize)
    };
    Address::from_bytes(bytes)
}

fn address_family(domain: Domain) -> AddressFamily {
    match domain {
        Domain::Inet => AddressFamily::INET,
        Domain::Inet6 => AddressFamily::INET6,
        Domain::Unix => AddressFamily::UNIX,
    }
}

fn socket_type(kind: SocketType) -> net::SocketType {
    match kind {
        SocketType::Stream => net::SocketType::STREAM,
        SocketType::Datagram => net::SocketType::DGRAM,
    }
}

fn socket_flags(nonblocking: bool) -> SocketFlags {
    let blocking = if nonblocking { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
    SocketFlags::CLOEXEC | blocking
}

/// `epoll_wait(2)`, for filters that refuse `epoll_pwait(2)`. On architectures without
/// `epoll_wait`, libc makes the same call for both.
#[cold]
fn epoll_wait(epoll: Fd, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> Result<(), Errno> {
    let millis = timeout.map_or(-1, |time| time.as_nanos().div_ceil(1_000_000) as i32);
    let space = edges.spare_capacity_mut();
    let count = i32::try_from(space.len()).unwrap_or(i32::MAX);
    // SAFETY: the kernel writes at most `count` events, of the layout of `Edge`, to the vector's
    // spare capacity.
    let found =
        unsafe { answer(libc::epoll_wait(epoll.raw(), space.as_mut_ptr().cast(), count, millis))? };
    // SAFETY: the kernel has written this many events past the vector's end.
    unsafe { edges.set_len(edges.len() + found) };
    Ok(())
}

/// Returns true if the file at a path is a socket.
fn is_socket(path: &[u8]) -> bool {
    let mode = rustix::fs::lstat(path).map(|stat| FileType::from_raw_mode(stat.st_mode));
    mode == Ok(FileType::Socket)
}

impl Linux {
    /// Like [`receive_messages`](Kernel::receive_messages), but by `recvmsg(2)`. After the first
    /// message, it receives another only if no error is pending, because the error would be lost
    /// when the count is returned.
    ///
    /// # Safety
    /// Everything that the slots point to must be writable, and no other code may use it during the
    /// call.
    #[cold]
    unsafe fn receive_one_by_one(
        &self,
        fd: Fd,
        slots: *mut MessageSlot,
        count: usize,
    ) -> Result<usize, Errno> {
        // SAFETY: the caller guarantees that the slots are writable and exclusive.
        let slots = unsafe { slice::from_raw_parts_mut(slots, count) };
        for (received, slot) in slots.iter_mut().enumerate() {
            if received > 0 {
                let mut polled = [PollFd::from_borrowed_fd(fd.borrow(), PollFlags::IN)];
                again(|| poll(&mut polled, Some(&timespec(Duration::ZERO))))?;
                if polled[0].revents() != PollFlags::IN {
                    return Ok(received);
                }
            }
            // SAFETY: the caller guarantees that what the header points to is writable and
            // exclusive.
            match unsafe { self.receive_message(fd, &raw mut slot.header) } {
                Ok(len) => slot.len = len,
                Err(errno) if received == 0 => return Err(errno),
                Err(_) => return Ok(received),
            }
        }
        Ok(count)
    }
}

// SAFETY: Linux implements the calls, and guarantees what the trait requires.
unsafe impl Kernel for Linux {
    unsafe fn setup(&self, entries: u32, params: &mut RingParams) -> io::Result<RawFd> {
        // SAFETY: the call writes only to the structure, which has the layout of `struct
        // io_uring_params` (120 bytes, asserted next to it). The caller guarantees that it refers
        // to no other memory.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, ptr::from_mut(params)) };
        Ok(answer(fd)? as RawFd)
    }

    #[inline]
    unsafe fn enter(
        &self,
        ring: RingId,
        to_submit: u32,
        min_complete: u32,
        flags: EnterFlags,
        arg: EnterArg,
    ) -> io::Result<u32> {
        let bits =
            flags.bits() | if ring.registered { EnterFlags::REGISTERED_RING.bits() } else { 0 };
        let flags = IoringEnterFlags::from_bits_retain(bits);
        let time = arg.timeout.map(|time| timespec(time.min(MAX_WAIT)));
        // SAFETY: the caller guarantees that the ring is open and that every entry meets the
        // contract of `push_unchecked`. `time` outlives the call.
        let consumed = unsafe {
            let fd = borrow(ring.fd);
            match &time {
                None => io_uring_enter(fd, to_submit, min_complete, flags)?,
                Some(time) => {
                    let ts = io_uring_ptr::new(ptr::from_ref(time).cast_mut().cast());
                    let min_wait_usec = arg.min_wait.map_or(0, micros);
                    let events = io_uring_getevents_arg { ts, min_wait_usec, ..Default::default() };
                    let flags = flags | IoringEnterFlags::EXT_ARG;
                    io_uring_enter_arg(fd, to_submit, min_complete, flags, Some(&events))?
                }
            }
        };
        Ok(consumed)
    }

    unsafe fn register(
        &self,
        ring: Fd,
        what: Register,
        arg: *mut u8,
        count: u32,
    ) -> io::Result<u32> {
        let (fd, what) = (ring.raw(), what as u32);
        // SAFETY: the caller guarantees that `arg` points to what the registration expects.
        let answered = unsafe { libc::syscall(libc::SYS_io_uring_register, fd, what, arg, count) };
        Ok(answer(answered)? as u32)
    }

    fn map(&self, ring: Fd, offset: u64, len: usize) -> io::Result<*mut u8> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses overlaps no other, and the
        // advice is for that mapping: a forked child must not have the ring of its parent.
        unsafe {
            let address = mmap(ptr::null_mut(), len, prot, flags, Self::borrow(ring), offset)?;
            madvise(address, len, Advice::LinuxDontFork)?;
            Ok(address.cast())
        }
    }

    unsafe fn unmap(&self, address: *mut u8, len: usize) {
        // SAFETY: the caller guarantees that the range comes from an earlier `map` and is no longer
        // used. If the call fails, the range stays mapped.
        _ = unsafe { munmap(address.cast(), len) };
    }

    unsafe fn discard(&self, address: *mut u8, len: usize) {
        // SAFETY: the caller guarantees that the content of the range is not needed. If the call
        // fails, the memory stays.
        _ = unsafe { madvise(address.cast(), len, Advice::LinuxDontNeed) };
    }

    #[cfg(target_env = "gnu")]
    fn trim_heap(&self) {
        // SAFETY: the call takes the locks of the allocator, and changes no memory that is in use.
        unsafe { libc::malloc_trim(0) };
    }

    fn now(&self) -> Duration {
        let time = clock_gettime(ClockId::Monotonic);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    fn tick(&self) -> u64 {
        let time = clock_gettime(ClockId::MonotonicCoarse);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    fn socket(&self, domain: Domain, kind: SocketType, nonblocking: bool) -> io::Result<RawFd> {
        let (family, kind) = (address_family(domain), socket_type(kind));
        let socket = net::socket_with(family, kind, socket_flags(nonblocking), None);
        let socket = socket.map_err(named("socket"))?;
        Ok(socket.into_raw_fd())
    }

    fn socket_pair(&self, kind: SocketType, nonblocking: bool) -> io::Result<(RawFd, RawFd)> {
        let (kind, flags) = (socket_type(kind), socket_flags(nonblocking));
        let (one, other) =
            net::socketpair(AddressFamily::UNIX, kind, flags, None).map_err(named("socketpair"))?;
        Ok((one.into_raw_fd(), other.into_raw_fd()))
    }

    fn bind(&self, fd: Fd, address: &Address) -> io::Result<()> {
        net::bind(Self::borrow(fd), &socket_address(address)).map_err(named("bind"))
    }

    fn connect(&self, fd: Fd, address: &Address) -> io::Result<()> {
        Self::connect_borrowed(Self::borrow(fd), address)
    }

    fn unlink(&self, address: &Address) {
        if let Ok(UnixName::Path(path)) = address.to_unix()
            && is_socket(path)
        {
            // The call fails if the path no longer exists, which is harmless.
            _ = rustix::fs::unlink(path);
        }
    }

    fn listen(&self, fd: Fd, backlog: u32) -> io::Result<()> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        net::listen(Self::borrow(fd), backlog).map_err(named("listen"))
    }

    fn shutdown(&self, fd: Fd, how: Shutdown) -> io::Result<()> {
        Ok(net::shutdown(Self::borrow(fd), how)?)
    }

    fn unacknowledged(&self, fd: Fd) -> usize {
        let mut count: libc::c_int = 0;
        // SAFETY: the call writes a number of this type.
        let failed = unsafe { libc::ioctl(fd.raw(), libc::TIOCOUTQ, &raw mut count) } != 0;
        if failed { 0 } else { usize::try_from(count).unwrap_or(0) }
    }

    fn send_now(&self, fd: Fd, slices: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let more = if more { SendFlags::MORE } else { SendFlags::empty() };
        let nothing = &mut SendAncillaryBuffer::default();
        Ok(net::sendmsg(Self::borrow(fd), slices, nothing, SEND_FLAGS | more)?)
    }

    #[inline]
    unsafe fn receive(&self, fd: Fd, buffer: *mut u8, len: u32) -> Result<u32, Errno> {
        again(|| {
            // SAFETY: the caller guarantees that the memory is writable and exclusive; it need not
            // be initialised.
            let memory = unsafe {
                slice::from_raw_parts_mut(buffer.cast::<MaybeUninit<u8>>(), len as usize)
            };
            let (_, count) = net::recv(fd.borrow(), memory, RecvFlags::DONTWAIT)?;
            Ok(count as u32)
        })
    }

    unsafe fn receive_message(&self, fd: Fd, header: *mut MsgHeader) -> Result<u32, Errno> {
        let receive = || {
            // SAFETY: the caller guarantees that the memory is writable and exclusive.
            answer(unsafe { libc::recvmsg(fd.raw(), header.cast(), RECEIVE_MESSAGE_FLAGS) })
        };
        Ok(again(receive)? as u32)
    }

    unsafe fn receive_messages(&self, fd: Fd, slots: &mut [MessageSlot]) -> Result<usize, Errno> {
        let (first, count) = (slots.as_mut_ptr().cast(), slots.len() as u32);
        static RECVMMSG: NewerCall = NewerCall::new();
        // The flags have another type in musl.
        let (flags, timeout) = (RECEIVE_MESSAGE_FLAGS as _, ptr::null_mut());
        let all = || {
            // SAFETY: the caller guarantees that the memory of the slots is writable and exclusive.
            again(|| answer(unsafe { libc::recvmmsg(fd.raw(), first, count, flags, timeout) }))
        };
        // SAFETY: the caller guarantees the same for `receive_one_by_one`.
        RECVMMSG.or_older(all, || unsafe {
            self.receive_one_by_one(fd, slots.as_mut_ptr(), slots.len())
        })
    }

    #[inline]
    unsafe fn send(
        &self,
        fd: Fd,
        bytes: IoVec,
        to: *const u8,
        to_len: u16,
    ) -> Result<usize, Errno> {
        // SAFETY: the caller guarantees that bytes and address are readable.
        unsafe {
            if to.is_null() {
                let bytes = slice::from_raw_parts(bytes.base, bytes.len);
                return again(|| net::send(fd.borrow(), bytes, SEND_FLAGS));
            }
            let (start, to, flags) = (bytes.base.cast(), to.cast(), SEND_FLAGS.bits() as i32);
            again(|| answer(libc::sendto(fd.raw(), start, bytes.len, flags, to, to_len.into())))
        }
    }

    unsafe fn send_message(&self, fd: Fd, header: *const MsgHeader) -> Result<usize, Errno> {
        let flags = SEND_FLAGS.bits() as i32;
        // SAFETY: the caller guarantees that the header and everything it points to are readable.
        again(|| answer(unsafe { libc::sendmsg(fd.raw(), header.cast(), flags) }))
    }

    fn accept(&self, fd: Fd) -> Result<RawFd, Errno> {
        static ACCEPT4: NewerCall = NewerCall::new();
        let newer = || again(|| net::accept_with(fd.borrow(), socket_flags(true)));
        let older = || {
            let accepted = again(|| net::accept(fd.borrow()))?;
            rustix::io::fcntl_setfd(&accepted, FdFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&accepted, true)?;
            Ok(accepted)
        };
        Ok(ACCEPT4.or_older(newer, older)?.into_raw_fd())
    }

    fn is_ready(&self, fd: Fd, events: PollFlags) -> Result<bool, Errno> {
        let mut polled = [PollFd::from_borrowed_fd(fd.borrow(), events)];
        Ok(again(|| poll(&mut polled, Some(&timespec(Duration::ZERO))))? > 0)
    }

    fn epoll(&self) -> io::Result<RawFd> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(named("epoll_create1"))?;
        Ok(epoll.into_raw_fd())
    }

    fn epoll_control(&self, epoll: Fd, change: Registration, fd: Fd) -> Result<(), Errno> {
        let (instance, data) = (epoll.borrow(), EventData::new_u64(fd.raw() as u64));
        match change {
            Registration::Add(interest) => epoll::add(instance, fd.borrow(), data, interest),
            Registration::Modify(interest) => epoll::modify(instance, fd.borrow(), data, interest),
            Registration::Delete => epoll::delete(instance, fd.borrow()),
        }
    }

    #[inline]
    fn epoll_wait(
        &self,
        epoll: Fd,
        edges: &mut Vec<Edge>,
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        static EPOLL_PWAIT: NewerCall = NewerCall::new();
        let timeout = timeout.map(|time| time.min(MAX_WAIT));
        let edges = std::cell::RefCell::new(edges);
        let newer = || {
            let timeout = timeout.map(timespec);
            let edges = &mut **edges.borrow_mut();
            epoll::wait(epoll.borrow(), spare_capacity(edges), timeout.as_ref()).map(drop)
        };
        EPOLL_PWAIT.or_older(newer, || epoll_wait(epoll, &mut edges.borrow_mut(), timeout))
    }

    fn timer(&self) -> io::Result<RawFd> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags);
        Ok(timer.map_err(named("timerfd_create"))?.into_raw_fd())
    }

    fn set_timer(&self, timer: Fd, after: Duration) -> Result<(), Errno> {
        let (it_interval, it_value) = (timespec(Duration::ZERO), timespec(after.min(MAX_WAIT)));
        let once = Itimerspec { it_interval, it_value };
        timerfd_settime(timer.borrow(), TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    fn duplicate(&self, fd: Fd) -> io::Result<OwnedFd> {
        Self::borrow(fd).try_clone_to_owned()
    }

    fn set_option(&self, fd: Fd, option: SocketOption, value: u32) -> io::Result<()> {
        option::set(Self::borrow(fd), option, value).map_err(named("setsockopt"))
    }

    fn option(&self, fd: Fd, option: SocketOption) -> io::Result<u32> {
        option::read(Self::borrow(fd), option)
    }

    fn set_multicast(&self, fd: Fd, change: Multicast) -> io::Result<()> {
        option::set_multicast(Self::borrow(fd), change).map_err(named("setsockopt"))
    }

    fn set_device(&self, fd: Fd, name: DeviceName) -> io::Result<()> {
        option::set_device(Self::borrow(fd), name).map_err(named("setsockopt"))
    }

    fn peer_credentials(&self, fd: Fd) -> io::Result<Credentials> {
        option::peer_credentials(Self::borrow(fd))
    }

    fn peer_process(&self, fd: Fd) -> io::Result<RawFd> {
        option::peer_process(Self::borrow(fd)).map_err(named("getsockopt"))
    }

    fn device(&self, fd: Fd) -> io::Result<Option<DeviceName>> {
        option::device(Self::borrow(fd)).map_err(named("getsockopt"))
    }

    fn local_address(&self, fd: Fd) -> io::Result<Address> {
        let own = net::getsockname(Self::borrow(fd)).map_err(named("getsockname"))?;
        Ok(plain_address(&own))
    }

    fn peer_address(&self, fd: Fd) -> io::Result<Address> {
        let peer = net::getpeername(Self::borrow(fd)).map_err(named("getpeername"))?;
        peer.as_ref().map(plain_address).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    unsafe fn file(&self, call: &FileCall) -> io::Result<u32> {
        // SAFETY: the caller guarantees the contract of `FileCall::call`.
        unsafe { call.call() }
    }

    fn close(&self, fd: Fd) {
        debug_assert!(fd.raw() >= 0, "a negative descriptor was closed");
        // SAFETY: the caller of `Fd::from_raw` guarantees that the `Fd` is open and that no copy is
        // used after this.
        _ = unsafe { libc::close(fd.raw()) };
    }
}

const _: () = assert!(
    size_of::<MsgHeader>() == size_of::<libc::msghdr>()
        && size_of::<MessageSlot>() == size_of::<libc::mmsghdr>()
);
