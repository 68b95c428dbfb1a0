//! The simulated kernel as others see it: the seam, and what a test may look at.
#![allow(unsafe_code)]

use crate::builder::Builder;
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
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// A kernel in the process: virtual time, a network of its own, one seed.
///
/// It belongs to one thread. Time passes inside `enter`: a little each time, and as much as it takes if something is waited for; and in
/// [`compute`](Self::compute). A wait that nothing can ever end answers EDEADLK.
pub struct Sim {
    world: RefCell<World>,
}

impl Sim {
    /// A simulation that is decided by `seed`, and by what is asked of it.
    pub fn builder(seed: u64) -> Builder {
        Builder::new(seed)
    }

    pub(crate) fn new(world: World) -> Self {
        Self { world: RefCell::new(world) }
    }

    /// A hash of every entry consumed, completion posted and fault that struck, with its time. Equal for equal runs.
    pub fn trace_hash(&self) -> u64 {
        self.world.borrow().trace.hash()
    }

    /// The trace as text, a line each; empty unless [`Builder::trace_text`] asked for it.
    pub fn trace_lines(&self) -> Vec<String> {
        self.world.borrow().trace.lines().to_vec()
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        self.world.borrow().counts
    }

    /// Descriptors that are open, those of rings included.
    pub fn open_descriptors(&self) -> usize {
        self.world.borrow().files.len()
    }

    /// Operations that were submitted and have not completed.
    pub fn pending_operations(&self) -> usize {
        self.world.borrow().ops.len()
    }

    /// What is open and what is in flight, a line each: for the message of a test that expected nothing.
    pub fn leftovers(&self) -> Vec<String> {
        let world = self.world.borrow();
        let open = world.files.iter().map(|(fd, file)| format!("descriptor {fd}: {file:?}"));
        let hidden = world.files.without_descriptor();
        let hidden = hidden.map(|file| format!("file without descriptor: {file:?}"));
        let ops = world.ops.iter();
        let ops = ops.map(|op| format!("operation {:x}: {:?}", op.user_data, op.body));
        open.chain(hidden).chain(ops).collect()
    }

    /// Sockets that exist: with a descriptor, with an operation, waiting to be accepted, or still sending their last.
    pub fn sockets(&self) -> usize {
        self.world.borrow().net.len()
    }

    /// Buffers that were published and have not been used, in all groups of all rings.
    pub fn buffers_held(&self) -> usize {
        self.world.borrow().buffers_held()
    }

    /// Looks at all memory that is lent to the kernel now.
    ///
    /// # Panics
    /// Where somebody has written to it; the message says to which.
    pub fn check(&self) {
        self.world.borrow().check();
    }

    /// A copy of the disk as it is now, page cache and all, but nothing open: to go on with, perhaps after a
    /// [power cut](Disk::after_power_cut).
    pub fn disk(&self) -> Disk {
        self.world.borrow().disk.set_down()
    }

    /// Empties the page cache, but for what the device does not have.
    pub fn drop_page_cache(&self) {
        self.world.borrow_mut().disk.drop_cache();
    }

    /// Changes what goes wrong from here on.
    pub fn set_faults(&self, faults: Faults) {
        self.world.borrow_mut().set_faults(faults);
    }

    /// Lets time pass in which the program computes: what is due happens, and is found by the next enter.
    pub fn compute(&self, time: Duration) {
        self.world.borrow_mut().pass(nanos(time));
    }

    fn call<T>(&self, call: impl FnOnce(&mut World) -> Result<T, Errno>) -> io::Result<T> {
        Ok(call(&mut self.world.borrow_mut())?)
    }
}

// SAFETY: rings' memory is mapped from the process's own and stays until it is unmapped; counts, buffers and results are checked
// against what was submitted (`memory`); and a descriptor's number names what was opened, until it is closed.
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
        // SAFETY: the caller vouches for `arg` and `count`.
        let arg = unsafe { Argument::new(arg, count) };
        self.call(|world| world.register(ring.raw(), what, arg))
    }

    fn map(&self, ring: Fd, offset: u64, len: usize) -> io::Result<*mut u8> {
        self.call(|world| world.map(ring.raw(), offset, len))
    }

    unsafe fn unmap(&self, address: *mut u8, _: usize) {
        self.world.borrow_mut().unmap(address);
    }

    /// The memory is zero from here on, so that bytes that were still wanted are missed.
    unsafe fn discard(&self, address: *mut u8, len: usize) {
        // SAFETY: the caller vouches for the range, and needs its content no more.
        unsafe { std::ptr::write_bytes(address, 0, len) };
        let start = address.expose_provenance() as u64;
        self.world.borrow().poison_again(&(start..start + len as u64));
    }

    fn real_descriptors(&self) -> bool {
        false
    }

    /// The device's time passes for everybody.
    unsafe fn file(&self, call: &FileCall) -> io::Result<u32> {
        // SAFETY: the caller vouches for what the call points to.
        let request = unsafe { FileRequest::new(call) };
        self.call(|world| world.file(&request))
    }

    fn relax(&self) {
        self.world.borrow_mut().relax();
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.borrow().net.time.now())
    }

    /// On a ring a non-blocking descriptor waits like any other; only a Unix connect does not.
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
            Err(_) => f.write_str("Sim(at work)"),
        }
    }
}
