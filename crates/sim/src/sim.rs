//! The simulated kernel: its implementation of `Kernel`, and the state that tests can inspect.
#![allow(unsafe_code)]

use crate::counts::Counts;
use crate::descriptors::File;
use crate::faults::Faults;
use crate::fs::{Device, Disk};
use crate::memory::{FileRequest, RegisterArgument, SubmittedEntry};
use crate::timeline::nanos;
use crate::world::World;
use annulus_kernel::epoll::{Edge, Registration};
use annulus_kernel::file::FileCall;
use annulus_kernel::{
    Address, Credentials, Domain, EnterArg, EnterFlags, Fd, IoVec, Kernel, MessageSlot, MsgHeader,
    Multicast, Register, RingId, RingParams, Shutdown, SocketOption, SocketType, msg,
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

/// The longest transfer of one call on Linux: 2 GiB less one page.
const MAX_SEND_BYTES: usize = 0x7FFF_F000;

/// A kernel inside the process, with virtual time, its own network and one seed.
///
/// A simulation belongs to one thread. Virtual time passes only in calls, such as an `enter`, an
/// epoll wait, a file call or [`compute`](Self::compute). A wait that nothing can end fails with
/// EDEADLK.
pub struct Sim {
    pub(crate) world: RefCell<World>,
}

impl Sim {
    pub(crate) fn new(world: World) -> Self {
        Self { world: RefCell::new(world) }
    }

    /// Returns a hash of all entries, completions, edges and faults with their times. Equal runs
    /// have equal hashes.
    pub fn trace_hash(&self) -> u64 {
        self.world.borrow().trace.hash()
    }

    /// Returns the trace as lines of text; empty without
    /// [`SimBuilder::trace_text`](crate::SimBuilder::trace_text).
    pub fn trace_lines(&self) -> Vec<String> {
        self.world.borrow().trace.lines().to_vec()
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        self.world.borrow().counts
    }

    /// Returns the number of open descriptors, including those of rings.
    pub fn open_descriptors(&self) -> usize {
        self.world.borrow().files.len()
    }

    /// Returns the number of operations in flight.
    pub fn pending_operations(&self) -> usize {
        self.world.borrow().ops.len()
    }

    /// Returns a line for everything that is open or in flight, for the message of a test that
    /// expects nothing to be left.
    pub fn leftovers(&self) -> Vec<String> {
        let world = self.world.borrow();
        let hidden = world.files.without_descriptor();
        let hidden = hidden.map(|file| format!("without a descriptor: {}", describe(&world, file)));
        let ops = world.ops.iter().map(|op| {
            let socket = op.socket().map(|socket| format!(" on {}", world.net.describe(socket)));
            format!("in flight: {}{}", op.body.name(), socket.unwrap_or_default())
        });
        open_files(&world, |_| true).chain(hidden).chain(ops).collect()
    }

    /// Returns a line for each socket that has a descriptor, for the report of a deadlock: its
    /// descriptor, its addresses, and what it has for its reader.
    pub fn open_sockets(&self) -> Vec<String> {
        open_files(&self.world.borrow(), |file| matches!(file, File::Socket(_))).collect()
    }

    /// Returns the number of sockets that exist, including closed sockets that something still
    /// refers to, such as an operation.
    pub fn sockets(&self) -> usize {
        self.world.borrow().net.len()
    }

    /// Returns the number of published buffers that no receive has used, in all groups of all
    /// rings.
    pub fn buffers_held(&self) -> usize {
        self.world.borrow().buffers_held()
    }

    /// Checks all memory that the kernel owns at the moment.
    ///
    /// # Panics
    /// Panics if that memory was written to. The message says which memory.
    pub fn check(&self) {
        self.world.borrow().check();
    }

    /// Returns a copy of the disk as it is at this moment, with its page cache but without open
    /// files, for another simulation. What is in flight has not happened yet. Use
    /// [`Disk::after_power_cut`] on it to simulate a power cut. Hosts of a network have disks of
    /// their own ([`Hosts::disk_of`](crate::Hosts::disk_of)).
    pub fn disk(&self) -> Disk {
        self.host_disk(None)
    }

    pub(crate) fn host_disk(&self, host: Option<IpAddr>) -> Disk {
        let disks = &mut self.world.borrow_mut().disks;
        let disk = disks.of_host(host);
        disks.at(disk).without_open_files()
    }

    /// Replaces the device of the disk from now on, for example with one that fails or is full.
    pub fn set_device(&self, device: Device) {
        self.set_host_device(None, device);
    }

    pub(crate) fn set_host_device(&self, host: Option<IpAddr>, device: Device) {
        let disks = &mut self.world.borrow_mut().disks;
        let disk = disks.of_host(host);
        disks.at_mut(disk).set_device(device);
    }

    /// Drops all clean pages from the page caches of all disks. Pages that a failed sync has lost
    /// are dropped too, and revert to the content on the device.
    pub fn drop_page_cache(&self) {
        self.world.borrow_mut().disks.drop_cache();
    }

    /// Replaces the faults for the rest of the run.
    pub fn set_faults(&self, faults: Faults) {
        self.world.borrow_mut().set_faults(faults);
    }

    /// Separates two addresses, in both directions, until [`repair`](Self::repair). Datagrams are
    /// lost. Connections stall until the kernel gives them up. Connects get no answer, are retried
    /// and finally time out. Data that is already in flight does not arrive either.
    ///
    /// The addresses are those that sockets are bound to. If no host is set
    /// ([`Hosts::set_host`](crate::Hosts::set_host)), an unbound socket uses the address that it
    /// sends to, so no partition affects it.
    pub fn partition(&self, a: IpAddr, b: IpAddr) {
        self.world.borrow_mut().net.partition(a, b);
    }

    /// Ends a [`partition`](Self::partition). Data that was sent over connections in the meantime
    /// arrives now, in order. Does nothing if the addresses are not separated.
    pub fn repair(&self, a: IpAddr, b: IpAddr) {
        self.world.borrow_mut().net.repair(a, b);
    }

    /// Lets time pass while the program computes, at most a hundred years. The next `enter` sees
    /// the events of that time.
    pub fn compute(&self, time: Duration) {
        const MAX_COMPUTE_TIME: Duration = Duration::from_secs(100 * 365 * 86_400);
        self.world.borrow_mut().pass(nanos(time.min(MAX_COMPUTE_TIME)));
    }

    /// # Safety
    /// All memory that the entry refers to must be valid during the call.
    unsafe fn try_now(&self, entry: Entry) -> Result<u32, Errno> {
        // SAFETY: the entry describes a call of the trait, and the caller guarantees that the
        // memory it refers to is valid.
        let entry = unsafe { SubmittedEntry::new(entry) };
        self.world.borrow_mut().try_now(&entry)
    }

    fn call<T>(&self, call: impl FnOnce(&mut World) -> Result<T, Errno>) -> io::Result<T> {
        Ok(call(&mut self.world.borrow_mut())?)
    }
}

// SAFETY: the memory of rings stays mapped until `unmap`. Counts, buffers and results come from
// what was submitted (see `memory`) and stay within its lengths. The number of a descriptor is
// unique until it is closed.
unsafe impl Kernel for Sim {
    unsafe fn setup(&self, entries: u32, params: &mut RingParams) -> io::Result<RawFd> {
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
        // SAFETY: the caller guarantees that `arg` points to `count` items of the type that the
        // registration expects.
        let arg = unsafe { RegisterArgument::new(arg, count) };
        self.call(|world| world.register(ring.raw(), what, arg))
    }

    fn map(&self, ring: Fd, offset: u64, len: usize) -> io::Result<*mut u8> {
        self.call(|world| world.map(ring.raw(), offset, len))
    }

    unsafe fn unmap(&self, address: *mut u8, _: usize) {
        self.world.borrow_mut().unmap(address);
    }

    /// Overwrites the memory with zeros, so that tests notice a later use of its bytes.
    unsafe fn discard(&self, address: *mut u8, len: usize) {
        // SAFETY: the caller guarantees that the range belongs to it and that its content is not
        // needed.
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

    /// Performs a file call. The time that the device needs passes in the whole simulation.
    unsafe fn file(&self, call: &FileCall) -> io::Result<u32> {
        // SAFETY: the caller guarantees that everything the call points to is valid.
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

    /// Operations of a ring wait even on a non-blocking descriptor, except a Unix connect. Calls
    /// never wait.
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

    fn unacknowledged(&self, fd: Fd) -> usize {
        let count = |world: &mut World| world.unacknowledged(fd.raw());
        count(&mut self.world.borrow_mut())
    }

    fn send_now(&self, fd: Fd, slices: &[IoSlice<'_>], _more: bool) -> io::Result<usize> {
        let (vectors, vector_count) = (slices.as_ptr().cast(), slices.len());
        let header = MsgHeader { vectors, vector_count, ..MsgHeader::EMPTY };
        // SAFETY: an `IoSlice` has the layout of `struct iovec`, like `IoVec`; the slices are
        // borrowed for the call.
        Ok(unsafe { self.send_message(fd, &raw const header)? })
    }

    unsafe fn receive(&self, fd: Fd, buffer: *mut u8, len: u32) -> Result<u32, Errno> {
        // SAFETY: the caller guarantees that the memory is writable and exclusive during the call.
        unsafe { self.try_now(op::Recv { fd, buffer, len }.entry()) }
    }

    unsafe fn receive_message(&self, fd: Fd, header: *mut MsgHeader) -> Result<u32, Errno> {
        let (header, flags) = (header.cast(), msg::TRUNC | msg::CMSG_CLOEXEC);
        // SAFETY: the caller guarantees that the header and the memory it refers to are writable
        // and exclusive during the call.
        unsafe { self.try_now(op::RecvMsg { fd, header, flags }.entry()) }
    }

    unsafe fn receive_messages(&self, fd: Fd, slots: &mut [MessageSlot]) -> Result<usize, Errno> {
        let mut count = 0;
        while let Some(slot) = slots.get_mut(count) {
            // SAFETY: the caller guarantees that the memory the slots refer to is writable and
            // exclusive during the call.
            match unsafe { self.receive_message(fd, &raw mut slot.header) } {
                Ok(len) => (slot.len, count) = (len, count + 1),
                Err(error) if count == 0 => return Err(error),
                // Try again. After a received message, ENOMEM would be an error without an edge,
                // which Linux never reports.
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
        let (buffer, len) = (bytes.base, bytes.len.min(MAX_SEND_BYTES) as u32);
        let send = op::SendTo { fd, buffer, len, name: to, name_len: to_len, flags: 0 };
        // SAFETY: the caller guarantees that bytes and address are readable during the call.
        unsafe { self.try_now(send.entry()).map(|count| count as usize) }
    }

    unsafe fn send_message(&self, fd: Fd, header: *const MsgHeader) -> Result<usize, Errno> {
        let send = op::SendMsg { fd, header: header.cast(), flags: 0 };
        // SAFETY: the caller guarantees that the header and the memory it refers to are readable
        // during the call.
        unsafe { self.try_now(send.entry()).map(|count| count as usize) }
    }

    fn accept(&self, fd: Fd) -> Result<RawFd, Errno> {
        // SAFETY: the entry refers to no memory.
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

/// Returns a line for each descriptor of a file for which `wanted` returns true.
fn open_files(world: &World, wanted: impl Fn(File) -> bool) -> impl Iterator<Item = String> {
    let open = world.files.iter().filter(move |(_, file)| wanted(*file));
    open.map(|(fd, file)| format!("descriptor {fd}: {}", describe(world, file)))
}

fn describe(world: &World, file: File) -> String {
    match file {
        File::Socket(socket) => world.net.describe(socket),
        File::Ring(_) => "ring".to_owned(),
        File::OnDisk(..) => "file".to_owned(),
        File::Epoll(_) => "epoll instance".to_owned(),
        File::Timer(_) => "timer".to_owned(),
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
