//! A ring with helpers for these tests, on the simulated kernel or on Linux.
#![allow(unsafe_code, dead_code, unreachable_pub)]

pub mod datagram_stress;
pub mod disk;
pub mod messages;
pub mod tcp_stress;

use annulus_kernel::*;
use annulus_ring::*;
use annulus_sim::{Sim, SimBuilder};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

/// After this time without a completion, the tests expect no more. Over the loopback of Linux,
/// bytes arrive faster.
pub const QUIET_PERIOD: Duration = Duration::from_millis(40);
pub const DONTWAIT_FLAGS: u32 = msg::DONTWAIT | msg::WAITALL | msg::NOSIGNAL;
pub const WAITALL_FLAGS: u32 = msg::WAITALL | msg::NOSIGNAL;

pub struct Host {
    pub kernel: Rc<dyn Kernel>,
    pub ring: Ring,
    /// Completions that were taken but not returned yet.
    pub kept: Vec<Completion>,
}

/// Runs a body on the simulated kernel and on Linux.
pub fn on_sim_and_linux(body: impl Fn(Host)) {
    body(Host::simulated(Sim::builder(1)).0);
    body(Host::over(Rc::new(Linux), 8, 64));
}

/// Runs `count` seeds, or `ANNULUS_SIM_SEEDS` seeds, or only the seed in `ANNULUS_SIM_SEED`. A
/// failure prints the command that repeats it.
pub fn each_seed(count: u64, command: &str, body: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let value =
        |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("not a number"));
    if let Some(seed) = value("ANNULUS_SIM_SEED") {
        return body(seed);
    }
    for seed in 0..value("ANNULUS_SIM_SEEDS").unwrap_or(count) {
        let run = std::panic::catch_unwind(|| body(seed));
        run.unwrap_or_else(|_| panic!("replay with: ANNULUS_SIM_SEED={seed} {command}"));
    }
}

/// Wraps a descriptor that a kernel has created for the test.
pub fn owned(number: RawFd) -> Fd {
    // SAFETY: the descriptor belongs to the test, which uses it only with that kernel and closes it
    // once. Tests that use a closed number run on a simulated kernel, where it does not refer to
    // anything in the process.
    unsafe { Fd::from_raw(number) }
}

/// Returns the errno of an error. If the error says which call failed, its errno is only in its
/// text.
pub fn errno_of(error: &std::io::Error) -> Option<Errno> {
    let text = error.to_string();
    let in_text = || text.rsplit_once("(os error ")?.1.strip_suffix(')')?.parse().ok();
    Errno::from_io_error(error).or_else(|| in_text().map(Errno::from_raw_os_error))
}

pub fn errno(errno: Errno) -> i32 {
    -errno.raw_os_error()
}

/// Returns the fields of a completion that do not depend on timing.
pub fn fields(completion: &Completion) -> (u64, i32, bool) {
    (completion.user_data, completion.result, completion.more())
}

impl Host {
    pub fn over(kernel: Rc<dyn Kernel>, entries: u32, completions: u32) -> Self {
        let builder =
            Ring::builder().kernel(kernel.clone()).entries(entries).completions(completions);
        let ring = builder.build().expect("io_uring, which these tests need, is not available");
        Self { kernel, ring, kept: Vec::new() }
    }

    pub fn simulated(builder: SimBuilder) -> (Self, Rc<Sim>) {
        let sim = builder.build();
        (Self::over(sim.clone(), 8, 64), sim)
    }

    pub fn push(&mut self, user_data: u64, entry: impl Into<Entry>) {
        // SAFETY: the tests use memory that outlives the ring, or wait for the terminal completion.
        unsafe { self.ring.push_unchecked(entry.into().user_data(user_data)) }.unwrap();
    }

    /// Submits and takes the completions that are ready, without waiting.
    pub fn reap(&mut self) -> Vec<Completion> {
        self.ring.enter(Wait::Reap).unwrap();
        self.ring.completions().collect()
    }

    pub fn wait_for(&mut self, count: usize) -> Vec<Completion> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let wait = Wait::For { completions: 1, timeout: Some(Duration::from_secs(20)) };
            let entered = self.ring.enter(wait).unwrap();
            assert_ne!(entered, Entered::TimedOut, "no further completion after {taken:?}");
            taken.extend(self.ring.completions());
        }
        taken
    }

    /// Takes completions until none arrives for [`QUIET_PERIOD`].
    pub fn drain_until_quiet(&mut self) -> Vec<Completion> {
        let mut taken = Vec::new();
        loop {
            let wait = Wait::For { completions: 1, timeout: Some(QUIET_PERIOD) };
            let entered = self.ring.enter(wait).unwrap();
            taken.extend(self.ring.completions());
            if entered == Entered::TimedOut {
                return taken;
            }
        }
    }

    /// Submits one operation, and waits for its only completion.
    pub fn submit_and_wait(&mut self, entry: impl Into<Entry>) -> i32 {
        self.push(u64::MAX, entry);
        let taken = self.wait_for(1);
        assert_eq!((taken.len(), taken[0].user_data), (1, u64::MAX), "{taken:?}");
        taken[0].result
    }

    /// Creates a TCP socket; retries while a fault makes it fail with EMFILE.
    pub fn socket(&self) -> Fd {
        owned(self.retry_on_emfile(|kernel| kernel.socket(Domain::Inet, SocketType::Stream, false)))
    }

    pub fn new_socket(
        &self,
        domain: Domain,
        kind: SocketType,
        nonblocking: bool,
    ) -> std::io::Result<Fd> {
        self.kernel.socket(domain, kind, nonblocking).map(owned)
    }

    pub fn new_pair(&self, kind: SocketType, nonblocking: bool) -> (Fd, Fd) {
        let (one, other) = self.kernel.socket_pair(kind, nonblocking).unwrap();
        (owned(one), owned(other))
    }

    /// Creates a descriptor; retries while a fault makes it fail with EMFILE.
    pub fn retry_on_emfile<T>(&self, make: impl Fn(&dyn Kernel) -> std::io::Result<T>) -> T {
        loop {
            match make(&*self.kernel) {
                Ok(made) => return made,
                Err(error) => assert_eq!(errno_of(&error), Some(Errno::MFILE)),
            }
        }
    }

    pub fn listener(&self, backlog: u32) -> (Fd, SocketAddr) {
        let fd = self.socket();
        self.kernel.bind(fd, &Address::from(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
        self.kernel.listen(fd, backlog).unwrap();
        (fd, self.kernel.local_address(fd).unwrap().to_inet().unwrap())
    }

    pub fn connect(&mut self, fd: Fd, to: SocketAddr) -> i32 {
        let address = Address::from(to);
        let bytes = address.as_bytes();
        let len = bytes.len() as u32;
        self.submit_and_wait(op::Connect { fd, address: bytes.as_ptr(), len }.entry())
    }

    pub fn accept(&mut self, listener: Fd) -> Fd {
        let fd = self.submit_and_wait(op::Accept { fd: listener }.entry());
        assert!(fd >= 0, "accept failed with {fd}");
        owned(fd)
    }

    /// Returns the two ends of a new connection.
    pub fn pair(&mut self) -> (Fd, Fd) {
        let (listener, address) = self.listener(16);
        let ends = self.connect_pair(listener, address);
        self.kernel.close(listener);
        ends
    }

    pub fn connect_pair(&mut self, listener: Fd, address: SocketAddr) -> (Fd, Fd) {
        let client = self.socket();
        assert_eq!(self.connect(client, address), 0);
        (client, self.accept(listener))
    }

    pub fn send(&mut self, fd: Fd, bytes: &[u8]) -> i32 {
        self.submit_and_wait(send(fd, bytes, WAITALL_FLAGS))
    }

    /// Receives once, up to 64 KiB.
    pub fn recv(&mut self, fd: Fd) -> Result<Vec<u8>, i32> {
        let mut memory = vec![0; 65_536];
        let len = memory.len() as u32;
        let entry = op::Recv { fd, buffer: memory.as_mut_ptr(), len }.entry();
        let count = self.submit_and_wait(entry);
        memory.truncate(usize::try_from(count).map_err(|_| count)?);
        Ok(memory)
    }

    /// Receives until the end of the stream.
    pub fn recv_to_end(&mut self, fd: Fd) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let part = self.recv(fd).unwrap();
            if part.is_empty() {
                return all;
            }
            all.extend(part);
        }
    }
}

pub fn send(fd: Fd, bytes: &[u8], flags: u32) -> Entry {
    let len = bytes.len() as u32;
    op::Send { fd, buffer: bytes.as_ptr(), len, flags }.entry()
}

pub fn recv_multi(fd: Fd, limit: u32) -> Entry {
    op::RecvMulti { fd, group: BUFFER_GROUP, limit }.entry().into()
}

pub fn cancel(user_data: u64) -> Entry {
    op::Cancel { user_data }.entry().into()
}

pub const BUFFER_GROUP: u16 = 3;

/// Buffers of equal size, and the buffer ring that publishes them.
pub struct ProvidedBuffers {
    pub memory: Mapping,
    pub size: usize,
    entries: BufferRing,
}

impl ProvidedBuffers {
    /// Creates `count` buffers of `size` bytes, and publishes all of them.
    pub fn new(ring: &Ring, count: u16, size: usize) -> Self {
        let memory = Mapping::anonymous(usize::from(count) * size).unwrap();
        let capacity = u32::from(count).next_power_of_two();
        let entries = BufferRing::register(ring, BUFFER_GROUP, capacity).unwrap();
        let mut buffers = Self { memory, size, entries };
        (0..count).for_each(|id| buffers.publish(id));
        buffers
    }

    pub fn address(&self, id: u16) -> *mut u8 {
        // SAFETY: ids are below the number of buffers passed to `new`.
        unsafe { self.memory.as_ptr().add(usize::from(id) * self.size) }
    }

    pub fn publish(&mut self, id: u16) {
        // SAFETY: the memory outlives the registration, since each test unregisters the group or
        // drops the ring first.
        unsafe { self.entries.add(self.address(id), self.size as u32, id) };
        self.entries.publish();
    }

    /// Copies the bytes of a completion, and gives the buffer back.
    pub fn bytes(&mut self, completion: &Completion) -> Vec<u8> {
        let id = completion.buffer().expect("the completion has no buffer");
        let len = completion.result as usize;
        // SAFETY: the completion has given the buffer back, and the kernel has written `len` bytes
        // to it.
        let bytes = unsafe { std::slice::from_raw_parts(self.address(id), len) }.to_vec();
        self.publish(id);
        bytes
    }

    pub fn unregister(self, ring: &Ring) {
        // SAFETY: each test has only one ring, and registered the group with it.
        unsafe { self.entries.unregister(ring) }.unwrap();
    }
}
