//! Linux: the system calls of rustix behind the trait.
#![allow(unsafe_code)]

mod attempt;
mod epoll;
mod option;

use crate::address::{Address, UnixName};
use crate::call::named;
use crate::epoll::{Edge, Registration};
use crate::fd::{Fd, borrow};
use crate::file::FileCall;
use crate::kernel::Kernel;
use crate::option::{Credentials, DeviceName, SocketOption, SocketQuery};
use crate::socket::{Domain, Shutdown, SocketType};
use crate::uring::{EnterArg, EnterFlags, Params, Register, RingId};
use crate::vectors::{IoVec, MessageSlot, MsgHeader};
use rustix::event::PollFlags;
use rustix::fd::{BorrowedFd, IntoRawFd};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::io_uring::{
    IoringEnterFlags, IoringRegisterOp, io_uring_enter, io_uring_enter_arg, io_uring_getevents_arg,
    io_uring_params, io_uring_ptr, io_uring_register, io_uring_setup,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::net::{
    self, AddressFamily, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketFlags,
};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::io::{self, IoSlice};
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

/// The Linux kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Linux {
    /// A descriptor for a system call that [`Kernel`] does not have. Panics for [`Fd::NONE`].
    #[inline]
    pub fn borrow<'a>(fd: Fd) -> BorrowedFd<'a> {
        fd.borrow()
    }
}

fn register_op(what: Register) -> IoringRegisterOp {
    match what {
        Register::Eventfd => IoringRegisterOp::RegisterEventfd,
        Register::Probe => IoringRegisterOp::RegisterProbe,
        Register::Restrictions => IoringRegisterOp::RegisterRestrictions,
        Register::EnableRings => IoringRegisterOp::RegisterEnableRings,
        Register::Buffers => IoringRegisterOp::RegisterBuffers2,
        Register::BuffersUpdate => IoringRegisterOp::RegisterBuffersUpdate,
        Register::IowqMaxWorkers => IoringRegisterOp::RegisterIowqMaxWorkers,
        Register::RingFds => IoringRegisterOp::RegisterRingFds,
        Register::UnregisterRingFds => IoringRegisterOp::UnregisterRingFds,
        Register::BufferRing => IoringRegisterOp::RegisterPbufRing,
        Register::UnregisterBufferRing => IoringRegisterOp::UnregisterPbufRing,
    }
}

fn timespec(timeout: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    }
}

fn socket_address(address: &Address) -> SocketAddrAny {
    let bytes = address.as_bytes();
    // SAFETY: the bytes are initialised, and an `Address` has at most as many as `sockaddr_storage`.
    unsafe { SocketAddrAny::read(bytes.as_ptr().cast(), bytes.len() as u32) }
}

fn plain_address(address: &SocketAddrAny) -> Address {
    // SAFETY: `addr_len` bytes at the pointer are initialised, as rustix documents.
    let bytes = unsafe {
        std::slice::from_raw_parts(address.as_ptr().cast::<u8>(), address.addr_len() as usize)
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

/// Whether a path names a socket.
fn is_socket(path: &[u8]) -> bool {
    let mode = rustix::fs::lstat(path).map(|stat| FileType::from_raw_mode(stat.st_mode));
    mode == Ok(FileType::Socket)
}

// SAFETY: the calls are made to Linux, whose io_uring guarantees what the trait demands.
unsafe impl Kernel for Linux {
    unsafe fn setup(&self, entries: u32, params: &mut Params) -> io::Result<RawFd> {
        // SAFETY: both structures are plain integers with the layout of `struct io_uring_params` (120 bytes, asserted beside
        // `Params`; transmute checks that of rustix), so every bit pattern is valid in both. The call writes only to the
        // structure, which names no other memory: this function demands it.
        unsafe {
            let mut native: io_uring_params = std::mem::transmute(*params);
            let fd = io_uring_setup(entries, &mut native)?;
            *params = std::mem::transmute::<io_uring_params, Params>(native);
            Ok(fd.into_raw_fd())
        }
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
        let time = arg.timeout.map(timespec);
        // SAFETY: the ring is open, and every entry keeps the contract of `push_unchecked`: this function demands both. `time`
        // outlives the call.
        let consumed = unsafe {
            let fd = borrow(ring.fd);
            match &time {
                None => io_uring_enter(fd, to_submit, min_complete, flags)?,
                Some(time) => {
                    let ts = io_uring_ptr::new(std::ptr::from_ref(time).cast_mut().cast());
                    let events = io_uring_getevents_arg { ts, ..Default::default() };
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
        // SAFETY: `arg` points to what the registration expects, which this function demands.
        Ok(unsafe { io_uring_register(Self::borrow(ring), register_op(what), arg.cast(), count)? })
    }

    fn map(&self, ring: Fd, offset: u64, len: usize) -> io::Result<*mut u8> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses overlaps no other, and the advice is for that mapping: a
        // forked child must not have the ring of its parent.
        unsafe {
            let address = mmap(std::ptr::null_mut(), len, prot, flags, Self::borrow(ring), offset)?;
            madvise(address, len, Advice::LinuxDontFork)?;
            Ok(address.cast())
        }
    }

    unsafe fn unmap(&self, address: *mut u8, len: usize) {
        // SAFETY: the range is that of an earlier `map` and not used any more, which this function demands. If it fails, the
        // range stays mapped.
        _ = unsafe { munmap(address.cast(), len) };
    }

    unsafe fn discard(&self, address: *mut u8, len: usize) {
        // SAFETY: the content of the range is not needed, which this function demands. If it fails, the memory stays.
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

    fn tick(&self) -> Duration {
        let time = clock_gettime(ClockId::MonotonicCoarse);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
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
        let connect = || net::connect(Self::borrow(fd), &socket_address(address));
        Ok(rustix::io::retry_on_intr(connect)?)
    }

    fn unlink(&self, address: &Address) {
        if let Ok(UnixName::Path(path)) = address.to_unix()
            && is_socket(path)
        {
            // It fails if the path does not exist any more, which is harmless.
            _ = rustix::fs::unlink(path);
        }
    }

    fn listen(&self, fd: Fd, backlog: u32) -> io::Result<()> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        net::listen(Self::borrow(fd), backlog).map_err(named("listen"))
    }

    fn shutdown(&self, fd: Fd, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => net::Shutdown::Read,
            Shutdown::Write => net::Shutdown::Write,
            Shutdown::Both => net::Shutdown::Both,
        };
        Ok(net::shutdown(Self::borrow(fd), how)?)
    }

    fn send_now(&self, fd: Fd, slices: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let more = if more { SendFlags::MORE } else { SendFlags::empty() };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | more;
        let nothing = &mut SendAncillaryBuffer::default();
        Ok(net::sendmsg(Self::borrow(fd), slices, nothing, flags)?)
    }

    #[inline]
    unsafe fn receive(&self, fd: Fd, buffer: *mut u8, len: u32) -> Result<u32, Errno> {
        // SAFETY: the memory is writable and exclusive, which this function demands.
        unsafe { attempt::receive(fd, buffer, len) }
    }

    unsafe fn receive_message(&self, fd: Fd, header: *mut MsgHeader) -> Result<u32, Errno> {
        // SAFETY: the memory is writable and exclusive, which this function demands.
        unsafe { attempt::receive_message(fd, header) }
    }

    unsafe fn receive_messages(&self, fd: Fd, slots: &mut [MessageSlot]) -> Result<usize, Errno> {
        // SAFETY: the memory is writable and exclusive, which this function demands.
        unsafe { attempt::receive_messages(fd, slots) }
    }

    #[inline]
    unsafe fn send(
        &self,
        fd: Fd,
        bytes: IoVec,
        to: *const u8,
        to_len: u16,
    ) -> Result<usize, Errno> {
        // SAFETY: bytes and address are readable, which this function demands.
        unsafe { attempt::send(fd, bytes, to, to_len) }
    }

    unsafe fn send_message(&self, fd: Fd, header: *const MsgHeader) -> Result<usize, Errno> {
        // SAFETY: the header and all that it names are readable, which this function demands.
        unsafe { attempt::send_message(fd, header) }
    }

    fn accept(&self, fd: Fd) -> Result<RawFd, Errno> {
        attempt::accept(fd)
    }

    fn is_ready(&self, fd: Fd, events: PollFlags) -> Result<bool, Errno> {
        attempt::is_ready(fd, events)
    }

    fn epoll(&self) -> io::Result<RawFd> {
        epoll::create()
    }

    fn epoll_control(&self, epoll: Fd, change: Registration, fd: Fd) -> Result<(), Errno> {
        epoll::control(epoll, change, fd)
    }

    #[inline]
    fn epoll_wait(
        &self,
        epoll: Fd,
        edges: &mut Vec<Edge>,
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        epoll::wait(epoll, edges, timeout)
    }

    fn timer(&self) -> io::Result<RawFd> {
        epoll::timer()
    }

    fn set_timer(&self, timer: Fd, after: Duration) -> Result<(), Errno> {
        epoll::set_timer(timer, after)
    }

    fn share(&self, fd: Fd) -> io::Result<OwnedFd> {
        Self::borrow(fd).try_clone_to_owned()
    }

    fn set_option(&self, fd: Fd, option: SocketOption) -> io::Result<()> {
        option::set(Self::borrow(fd), option).map_err(named("setsockopt"))
    }

    fn option(&self, fd: Fd, query: SocketQuery) -> io::Result<u32> {
        option::read(Self::borrow(fd), query)
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
        // SAFETY: this function demands what `FileCall::call` demands.
        unsafe { call.call() }
    }

    fn close(&self, fd: Fd) {
        debug_assert!(fd.raw() >= 0, "a close of no descriptor");
        // SAFETY: the `Fd` is open, and no copy is used after this, which `Fd::from_raw` demands.
        unsafe { rustix::io::close(fd.raw()) };
    }
}
