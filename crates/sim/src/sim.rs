//! The simulated kernel: the implementation of the trait, and the state that tests can inspect.
#![allow(unsafe_code)]

use crate::counts::Counts;
use crate::faults::Faults;
use crate::fs::Disk;
use crate::memory::{FileRequest, RegisterArgument, SubmittedEntry};
use crate::timeline::nanos;
use crate::world::World;
use annulus_kernel::epoll::{Edge, Registration};
use annulus_kernel::file::FileCall;
use annulus_kernel::{
    Address, Credentials, Domain, EnterArg, EnterFlags, Fd, IoVec, Kernel, MessageSlot, MsgHeader,
    Multicast, Params, Register, RingId, Shutdown, SocketOption, SocketType, msg,
};
use annulus_ring::{Entry, op};
use rustix::event::PollFlags;
use rustix::io::Errno;
use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::Duration;

/// Most bytes of a send: those of whole pages below 2 GiB.
const MAX_SEND_BYTES: usize = 0x7FFF_F000;

/// A kernel in the process, with virtual time, its own network and one seed.
///
/// It belongs to one thread. Time passes in each `enter` and each wait of epoll, a little, and as long as it waits; and in [`compute`](Self::compute). A
/// wait that nothing can end fails with EDEADLK.
pub struct Sim {
    pub(crate) world: RefCell<World>,
}

impl Sim {
    pub(crate) fn new(world: World) -> Self {
        Self { world: RefCell::new(world) }
    }

    /// A hash of all entries, completions and faults with their times. Equal for equal runs.
    pub fn trace_hash(&self) -> u64 {
        self.world.borrow().trace.hash()
    }

    /// The trace as lines of text; empty without [`Builder::trace_text`](crate::Builder::trace_text).
    pub fn trace_lines(&self) -> Vec<String> {
        self.world.borrow().trace.lines().to_vec()
    }

    /// The counters.
    pub fn counts(&self) -> Counts {
        self.world.borrow().counts
    }

    /// Open descriptors, including those of rings.
    pub fn open_descriptors(&self) -> usize {
        self.world.borrow().files.len()
    }

    /// Operations in flight.
    pub fn pending_operations(&self) -> usize {
        self.world.borrow().ops.len()
    }

    /// All that is open and in flight, as lines: for the message of a test that expects nothing.
    pub fn leftovers(&self) -> Vec<String> {
        let world = self.world.borrow();
        let open = world.files.iter().map(|(fd, file)| format!("descriptor {fd}: {file:?}"));
        let hidden = world.files.without_descriptor();
        let hidden = hidden.map(|file| format!("file without descriptor: {file:?}"));
        let ops = world.ops.iter();
        let ops = ops.map(|op| format!("operation {:x}: {:?}", op.user_data, op.body));
        open.chain(hidden).chain(ops).collect()
    }

    /// Sockets that exist: with a descriptor, with an operation, in a backlog, or still sending.
    pub fn sockets(&self) -> usize {
        self.world.borrow().net.len()
    }

    /// Buffers that were published and not used, in all groups of all rings.
    pub fn buffers_held(&self) -> usize {
        self.world.borrow().buffers_held()
    }

    /// Checks all memory that is lent to the kernel now.
    ///
    /// # Panics
    /// If it was written to; the message names the memory.
    pub fn check(&self) {
        self.world.borrow().check();
    }

    /// A copy of the disk with its page cache and nothing open, for another simulation, perhaps after a
    /// [power cut](Disk::after_power_cut).
    pub fn disk(&self) -> Disk {
        self.world.borrow().disk.without_open_files()
    }

    /// Drops pages from the cache that the device has.
    pub fn drop_page_cache(&self) {
        self.world.borrow_mut().disk.drop_cache();
    }

    /// Changes the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.world.borrow_mut().set_faults(faults);
    }

    /// Separates two addresses from now on, until [`repair`](Self::repair): nothing of what one sends arrives at the other, in both
    /// directions. Datagrams are lost. Connections stall, without an error; attempts to connect get no answer, are repeated, and
    /// time out. Data in flight does not arrive either.
    ///
    /// Addresses are those that sockets are bound to. One that is not bound has that of the host it sends to, and no partition
    /// concerns it.
    pub fn partition(&self, a: IpAddr, b: IpAddr) {
        self.world.borrow_mut().net.partition(a, b);
    }

    /// Ends a [`partition`](Self::partition). Data sent over connections meanwhile arrives now, in order. Without such a partition
    /// nothing happens.
    pub fn repair(&self, a: IpAddr, b: IpAddr) {
        self.world.borrow_mut().net.repair(a, b);
    }

    /// Lets time pass in which the program computes. The next enter finds what happened meanwhile.
    pub fn compute(&self, time: Duration) {
        self.world.borrow_mut().pass(nanos(time));
    }

    /// # Safety
    /// Everything that the entry names must be valid during the call.
    unsafe fn try_now(&self, entry: Entry) -> Result<u32, Errno> {
        // SAFETY: the entry says what a call of the trait does, and what it names is valid, which this function demands.
        let entry = unsafe { SubmittedEntry::new(entry) };
        self.world.borrow_mut().try_now(&entry)
    }

    fn call<T>(&self, call: impl FnOnce(&mut World) -> Result<T, Errno>) -> io::Result<T> {
        Ok(call(&mut self.world.borrow_mut())?)
    }
}

// SAFETY: the memory of rings is mapped until `unmap`; counts, buffers and results come from what was submitted (`memory`), within
// its lengths; and the number of a descriptor is unique until it is closed.
unsafe impl Kernel for Sim {
    unsafe fn setup(&self, entries: u32, params: &mut Params) -> io::Result<RawFd> {
        self.call(|world| world.setup(entries, params))
    }

    unsafe fn enter(
        &self,
        ring: RingId,
        to_submit: u32,
        min_complete: u32,
        flags: EnterFlags,
        arg: EnterArg,
    ) -> io::Result<u32> {
        self.call(|world| world.enter(ring, to_submit, min_complete, flags, arg))
    }

    unsafe fn register(
        &self,
        ring: Fd,
        what: Register,
        arg: *mut u8,
        count: u32,
    ) -> io::Result<u32> {
        // SAFETY: `arg` points to `count` items of what the registration expects, which this function demands.
        let arg = unsafe { RegisterArgument::new(arg, count) };
        self.call(|world| world.register(ring.raw(), what, arg))
    }

    fn map(&self, ring: Fd, offset: u64, len: usize) -> io::Result<*mut u8> {
        self.call(|world| world.map(ring.raw(), offset, len))
    }

    unsafe fn unmap(&self, address: *mut u8, _: usize) {
        self.world.borrow_mut().unmap(address);
    }

    /// Overwrites the memory with zeros, so that a later use of its bytes is noticed.
    unsafe fn discard(&self, address: *mut u8, len: usize) {
        // SAFETY: the range belongs to the caller and its content is not needed, which this function demands.
        unsafe { std::ptr::write_bytes(address, 0, len) };
        let start = address.expose_provenance() as u64;
        self.world.borrow().poison_again(&(start..start + len as u64));
    }

    fn real_descriptors(&self) -> bool {
        false
    }

    fn runtime_seed(&self) -> Option<u64> {
        Some(self.world.borrow_mut().runtime_seed())
    }

    /// The time that the device takes passes in the whole simulation.
    unsafe fn file(&self, call: &FileCall) -> io::Result<u32> {
        // SAFETY: what the call points to is valid, which this function demands.
        let request = unsafe { FileRequest::new(call) };
        self.call(|world| world.file(&request))
    }

    fn relax(&self) {
        self.world.borrow_mut().relax();
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.tick())
    }

    fn tick(&self) -> u64 {
        self.world.borrow().net.time.now()
    }

    /// Operations of a ring wait even on a non-blocking descriptor; only a Unix connect does not. Calls never wait.
    fn socket(&self, domain: Domain, kind: SocketType, nonblocking: bool) -> io::Result<RawFd> {
        self.call(|world| world.socket(domain, kind, nonblocking))
    }

    fn socket_pair(&self, kind: SocketType, nonblocking: bool) -> io::Result<(RawFd, RawFd)> {
        self.call(|world| world.socket_pair(kind, nonblocking))
    }

    fn connect(&self, fd: Fd, address: &Address) -> io::Result<()> {
        self.call(|world| world.connect(fd.raw(), address))
    }

    fn unlink(&self, address: &Address) {
        self.world.borrow_mut().net.unlink(address);
    }

    fn option(&self, fd: Fd, option: SocketOption) -> io::Result<u32> {
        self.call(|world| world.option(fd.raw(), option))
    }

    fn peer_credentials(&self, fd: Fd) -> io::Result<Credentials> {
        self.call(|world| world.peer_credentials(fd.raw()))
    }

    fn bind(&self, fd: Fd, address: &Address) -> io::Result<()> {
        self.call(|world| world.bind(fd.raw(), address))
    }

    fn listen(&self, fd: Fd, backlog: u32) -> io::Result<()> {
        self.call(|world| world.listen(fd.raw(), backlog))
    }

    fn shutdown(&self, fd: Fd, how: Shutdown) -> io::Result<()> {
        self.call(|world| world.shutdown(fd.raw(), how))
    }

    fn send_now(&self, fd: Fd, slices: &[IoSlice<'_>], _more: bool) -> io::Result<usize> {
        let (vectors, vector_count) = (slices.as_ptr().cast(), slices.len());
        let header = MsgHeader { vectors, vector_count, ..MsgHeader::EMPTY };
        // SAFETY: an `IoSlice` has the layout of `struct iovec`, as `IoVec`; the slices are borrowed for the call.
        Ok(unsafe { self.send_message(fd, &raw const header)? })
    }

    unsafe fn receive(&self, fd: Fd, buffer: *mut u8, len: u32) -> Result<u32, Errno> {
        // SAFETY: the memory is writable and exclusive during the call, which this function demands.
        unsafe { self.try_now(op::Recv { fd, buffer, len }.entry()) }
    }

    unsafe fn receive_message(&self, fd: Fd, header: *mut MsgHeader) -> Result<u32, Errno> {
        let (header, flags) = (header.cast(), msg::TRUNC | msg::CMSG_CLOEXEC);
        // SAFETY: the header and what it names are writable and exclusive during the call, which this function demands.
        unsafe { self.try_now(op::RecvMsg { fd, header, flags }.entry()) }
    }

    unsafe fn receive_messages(&self, fd: Fd, slots: &mut [MessageSlot]) -> Result<usize, Errno> {
        let mut count = 0;
        while let Some(slot) = slots.get_mut(count) {
            // SAFETY: what the slots name is writable and exclusive during the call, which this function demands.
            match unsafe { self.receive_message(fd, &raw mut slot.header) } {
                Ok(len) => (slot.len, count) = (len, count + 1),
                Err(error) if count == 0 => return Err(error),
                // Behind a message this would be an error without an edge, which Linux has none of.
                Err(Errno::NOMEM) => {}
                Err(error) => {
                    self.world.borrow_mut().keep_error(fd.raw(), error);
                    break;
                }
            }
        }
        Ok(count)
    }

    unsafe fn send(
        &self,
        fd: Fd,
        bytes: IoVec,
        to: *const u8,
        to_len: u16,
    ) -> Result<usize, Errno> {
        // As on Linux, a call transfers no more than 2 GiB less a page.
        let (buffer, len) = (bytes.base, bytes.len.min(MAX_SEND_BYTES) as u32);
        let send = op::SendTo { fd, buffer, len, name: to, name_len: to_len, flags: 0 };
        // SAFETY: bytes and address are readable during the call, which this function demands.
        unsafe { self.try_now(send.entry()).map(|count| count as usize) }
    }

    unsafe fn send_message(&self, fd: Fd, header: *const MsgHeader) -> Result<usize, Errno> {
        let send = op::SendMsg { fd, header: header.cast(), flags: 0 };
        // SAFETY: the header and what it names are readable during the call, which this function demands.
        unsafe { self.try_now(send.entry()).map(|count| count as usize) }
    }

    fn accept(&self, fd: Fd) -> Result<RawFd, Errno> {
        // SAFETY: the entry names no memory.
        unsafe { self.try_now(op::Accept { fd }.entry().into()).map(|socket| socket as RawFd) }
    }

    fn is_ready(&self, fd: Fd, events: PollFlags) -> Result<bool, Errno> {
        self.world.borrow_mut().is_ready_now(fd.raw(), events)
    }

    fn epoll(&self) -> io::Result<RawFd> {
        self.call(World::epoll)
    }

    fn epoll_control(&self, epoll: Fd, change: Registration, fd: Fd) -> Result<(), Errno> {
        self.world.borrow_mut().epoll_control(epoll.raw(), change, fd.raw())
    }

    fn epoll_wait(
        &self,
        epoll: Fd,
        edges: &mut Vec<Edge>,
        timeout: Option<Duration>,
    ) -> Result<(), Errno> {
        self.world.borrow_mut().epoll_wait(epoll.raw(), edges, timeout)
    }

    fn timer(&self) -> io::Result<RawFd> {
        self.call(World::timer)
    }

    fn set_timer(&self, timer: Fd, after: Duration) -> Result<(), Errno> {
        self.world.borrow_mut().set_timer(timer.raw(), after)
    }

    fn set_option(&self, fd: Fd, option: SocketOption, value: u32) -> io::Result<()> {
        self.call(|world| world.set_option(fd.raw(), option, value))
    }

    fn set_multicast(&self, fd: Fd, change: Multicast) -> io::Result<()> {
        self.call(|world| world.set_multicast(fd.raw(), change))
    }

    fn local_address(&self, fd: Fd) -> io::Result<Address> {
        self.call(|world| world.local_address(fd.raw()))
    }

    fn peer_address(&self, fd: Fd) -> io::Result<Address> {
        self.call(|world| world.peer_address(fd.raw()))
    }

    fn close(&self, fd: Fd) {
        _ = self.call(|world| world.close(fd.raw()));
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.world.try_borrow() {
            Ok(world) => f
                .debug_struct("Sim")
                .field("now", &Duration::from_nanos(world.net.time.now()))
                .field("descriptors", &world.files)
                .field("counts", &world.counts)
                .finish_non_exhaustive(),
            Err(_) => f.write_str("Sim(borrowed)"),
        }
    }
}
