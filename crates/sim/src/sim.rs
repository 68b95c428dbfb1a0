//! The simulated kernel: the implementation of the trait, and what tests can inspect.
#![allow(unsafe_code)]

use crate::counts::Counts;
use crate::faults::Faults;
use crate::fs::Disk;
use crate::memory::{Argument, FileRequest};
use crate::timeline::nanos;
use crate::world::World;
use annulus_kernel::file::FileCall;
use annulus_kernel::{
    Address, Credentials, Domain, EnterArg, EnterFlags, Fd, Kernel, Params, Register, RingId,
    Shutdown, SocketOption, SocketQuery, SocketType,
};
use rustix::io::Errno;
use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::Duration;

/// A kernel in the process, with virtual time, its own network and one seed.
///
/// It belongs to one thread. Time passes in each `enter`, a little, and as long as it waits; and in [`compute`](Self::compute). A
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

    /// What is open and in flight, as lines: for the message of a test that expects nothing.
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
    /// time out. What is in flight does not arrive either.
    ///
    /// Addresses are those that sockets are bound to. One that is not bound has that of the host it sends to, and no partition
    /// concerns it.
    pub fn partition(&self, a: IpAddr, b: IpAddr) {
        self.world.borrow_mut().net.partition(a, b);
    }

    /// Ends a [`partition`](Self::partition). What was sent over connections meanwhile arrives now, in order. Without such a partition
    /// nothing happens.
    pub fn repair(&self, a: IpAddr, b: IpAddr) {
        self.world.borrow_mut().net.repair(a, b);
    }

    /// Lets time pass in which the program computes. The next enter finds what happened meanwhile.
    pub fn compute(&self, time: Duration) {
        self.world.borrow_mut().pass(nanos(time));
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
        let arg = unsafe { Argument::new(arg, count) };
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
        Duration::from_nanos(self.world.borrow().net.time.now())
    }

    /// Operations of a ring wait even on a non-blocking descriptor; only a Unix connect does not.
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

    fn option(&self, fd: Fd, query: SocketQuery) -> io::Result<u32> {
        self.call(|world| world.option(fd.raw(), query))
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
        self.call(|world| world.send_now(fd.raw(), slices))
    }

    fn send_datagram_now(&self, fd: Fd, to: &[u8], control: &[u8], bytes: &[u8]) -> io::Result<()> {
        self.call(|world| world.send_datagram_now(fd.raw(), to, control, bytes))
    }

    fn set_option(&self, fd: Fd, option: SocketOption) -> io::Result<()> {
        self.call(|world| world.set_option(fd.raw(), option))
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
