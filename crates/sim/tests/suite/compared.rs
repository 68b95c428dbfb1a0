//! Random programs of socket calls, which run on the simulated kernel and on Linux. After each
//! step, the result and the readiness of every socket must be the same. A failure prints the
//! program.
#![allow(unsafe_code)]

use crate::common::messages::controls;
use crate::common::*;
use annulus_kernel::epoll::{EventFlags, Registration};
use annulus_kernel::*;
use annulus_sim::{Hosts, Random, Sim};
use rustix::io::Errno;
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const SLOTS: u64 = 6;
const STEPS: u64 = 24;
const PROGRAMS: u64 = 40;
/// After this time, the effects of a step have arrived.
const SETTLE_TIME: Duration = Duration::from_millis(1);
const ALL_EVENTS: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::PRI)
    .union(EventFlags::ET);

type Slot = usize;

/// The sockets that a program creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Tcp,
    Udp,
    UnixStream,
    UnixDatagram,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(Slot),
    Pair(Slot, Slot),
    Bind(Slot),
    /// Binds to the address of another socket.
    Share(Slot, Slot),
    Reuse(Slot),
    Listen(Slot, u32),
    Connect(Slot, Slot),
    /// Connects to `AF_UNSPEC`.
    Disconnect(Slot),
    Accept(Slot, Slot),
    Send(Slot, usize),
    SendTo(Slot, Slot, usize),
    /// Passes new sockets with bytes.
    SendSockets(Slot, usize, usize),
    Receive(Slot, u32),
    ReceiveMessage(Slot, usize, usize),
    Shutdown(Slot, Shutdown),
    Close(Slot),
    /// A close resets the connection.
    Linger(Slot),
    Error(Slot),
    Peer(Slot),
}

fn step(random: &mut Random, family: Family) -> Step {
    let stream = matches!(family, Family::Tcp | Family::UnixStream);
    let unix = matches!(family, Family::UnixStream | Family::UnixDatagram);
    let one = random.below(SLOTS) as Slot;
    let other = random.below(SLOTS) as Slot;
    let len = random.pick(&[0, 1, 5, 100]);
    let how = random.pick(&[Shutdown::Read, Shutdown::Write, Shutdown::Both]);
    loop {
        return match random.below(30) {
            0 => Step::Open(one),
            1 if unix && one != other => Step::Pair(one, other),
            2 => Step::Bind(one),
            3 => Step::Share(one, other),
            4 if family == Family::Tcp => Step::Reuse(one),
            5 | 6 if stream || random.chance(100) => Step::Listen(one, random.below(3) as u32),
            7..10 => Step::Connect(one, other),
            10 if family == Family::UnixDatagram => Step::Disconnect(one),
            11 | 12 if stream => Step::Accept(one, other),
            13..16 => Step::Send(one, len),
            16 | 17 if !stream || random.chance(100) => Step::SendTo(one, other, len),
            18 if unix => Step::SendSockets(one, random.between(1, 3) as usize, len),
            19..22 => Step::Receive(one, random.pick(&[0, 1, 3, 64])),
            22 | 23 => {
                let control = random.pick(&[0, 16, 24, 64]);
                Step::ReceiveMessage(one, random.pick(&[0, 1, 64]), control)
            }
            24 | 25 => Step::Shutdown(one, how),
            26 => Step::Close(one),
            27 if family == Family::Tcp => Step::Linger(one),
            28 => Step::Error(one),
            29 => Step::Peer(one),
            _ => continue,
        };
    }
}

struct Run {
    kernel: Rc<dyn Kernel>,
    family: Family,
    settle: Duration,
    quiet: Fd,
    slots: [Option<Fd>; SLOTS as usize],
    /// Whether each socket listens, and whether it was bound explicitly.
    listening: [bool; SLOTS as usize],
    bound: [bool; SLOTS as usize],
    prefix: String,
    names: u32,
}

fn name(errno: Errno) -> String {
    format!("E{}", errno.raw_os_error())
}

fn text<T: std::fmt::Debug>(result: std::io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => name(errno_of(&error).unwrap()),
    }
}

fn sent(result: Result<usize, Errno>) -> String {
    result.map_or_else(name, |count| count.to_string())
}

impl Run {
    fn new(kernel: Rc<dyn Kernel>, family: Family, settle: Duration) -> Self {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("annulus-compared-{}-{run}", std::process::id());
        let quiet = owned(kernel.epoll().unwrap());
        let slots = [None; SLOTS as usize];
        let [listening, bound] = [[false; SLOTS as usize]; 2];
        Self { kernel, family, settle, quiet, slots, listening, bound, prefix, names: 0 }
    }

    fn kind(&self) -> (Domain, SocketType) {
        match self.family {
            Family::Tcp => (Domain::Inet, SocketType::Stream),
            Family::Udp => (Domain::Inet, SocketType::Datagram),
            Family::UnixStream => (Domain::Unix, SocketType::Stream),
            Family::UnixDatagram => (Domain::Unix, SocketType::Datagram),
        }
    }

    fn put(&mut self, slot: Slot, number: i32) {
        (self.listening[slot], self.bound[slot]) = (false, false);
        if let Some(old) = self.slots[slot].replace(owned(number)) {
            self.kernel.close(old);
        }
    }

    fn address(&mut self) -> Address {
        if matches!(self.family, Family::Tcp | Family::Udp) {
            return std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into();
        }
        self.names += 1;
        let name = format!("{}-{}", self.prefix, self.names);
        Address::unix(UnixName::Abstract(name.as_bytes())).unwrap()
    }

    /// Makes the call of a step, and returns its result. Returns `None` if it needs a socket that is
    /// missing, or if `DIVERGENCES.md` says that it differs.
    fn perform(&mut self, step: Step) -> Option<String> {
        let kernel = self.kernel.clone();
        let (domain, kind) = self.kind();
        let fd = |slot: Slot| self.slots[slot];
        Some(match step {
            Step::Open(slot) => {
                let number = kernel.socket(domain, kind, true).unwrap();
                self.put(slot, number);
                String::new()
            }
            Step::Pair(one, other) => {
                let (first, second) = kernel.socket_pair(kind, true).unwrap();
                self.put(one, first);
                self.put(other, second);
                String::new()
            }
            Step::Bind(slot) => {
                let fd = fd(slot)?;
                let address = self.address();
                let result = kernel.bind(fd, &address);
                self.bound[slot] |= result.is_ok();
                text(result)
            }
            Step::Share(_, with) if self.family == Family::Tcp && !self.bound[with] => return None,
            Step::Share(slot, with) => {
                text(kernel.bind(fd(slot)?, &kernel.local_address(fd(with)?).unwrap()))
            }
            Step::Reuse(slot) => text(kernel.set_option(fd(slot)?, SocketOption::ReusePort, 1)),
            Step::Listen(slot, backlog) => {
                let result = kernel.listen(fd(slot)?, backlog);
                self.listening[slot] |= result.is_ok();
                text(result)
            }
            Step::Connect(slot, to) => {
                let (fd, to) = (fd(slot)?, kernel.local_address(fd(to)?).unwrap());
                let own = kernel.local_address(fd).unwrap();
                if self.family == Family::Tcp && own.as_bytes() == to.as_bytes() {
                    return None;
                }
                text(kernel.connect(fd, &to))
            }
            Step::Disconnect(slot) => {
                text(kernel.connect(fd(slot)?, &Address::from_bytes(&[0; 16])))
            }
            Step::Accept(slot, into) => {
                let fd = fd(slot)?;
                match kernel.accept(fd) {
                    Ok(number) => {
                        self.put(into, number);
                        "accepted".to_string()
                    }
                    Err(errno) => name(errno),
                }
            }
            Step::Close(slot) => {
                kernel.close(self.slots[slot].take()?);
                String::new()
            }
            _ => self.transfer(step)?,
        })
    }

    /// Makes the call of a step that transfers bytes, or that only asks or shuts down.
    fn transfer(&self, step: Step) -> Option<String> {
        let kernel = &self.kernel;
        let fd = |slot: Slot| self.slots[slot];
        Some(match step {
            Step::Send(slot, len) => {
                let bytes = vec![b'a' + slot as u8; len];
                let vector = IoVec { base: bytes.as_ptr(), len };
                // SAFETY: the bytes are borrowed for the call.
                sent(unsafe { kernel.send(fd(slot)?, vector, std::ptr::null(), 0) })
            }
            Step::SendTo(slot, to, len) => {
                let bytes = vec![b'A' + slot as u8; len];
                let to = kernel.local_address(fd(to)?).unwrap();
                self.send(fd(slot)?, Some(&to), &bytes, &[])
            }
            Step::SendSockets(slot, count, len) => {
                let (fd, bytes) = (fd(slot)?, vec![b'0' + slot as u8; len]);
                let new =
                    || owned(kernel.socket(Domain::Inet, SocketType::Datagram, true).unwrap());
                let passed: Vec<Fd> = (0..count).map(|_| new()).collect();
                let numbers: Vec<u8> =
                    passed.iter().flat_map(|fd| fd.raw().to_ne_bytes()).collect();
                let result = self.send(fd, None, &bytes, &[Control::Descriptors(&numbers)]);
                passed.into_iter().for_each(|fd| kernel.close(fd));
                result
            }
            Step::Receive(slot, most) => {
                let mut bytes = vec![0; most as usize];
                // SAFETY: the memory belongs to the vector, which nothing else uses meanwhile.
                let count = unsafe { kernel.receive(fd(slot)?, bytes.as_mut_ptr(), most) };
                count.map_or_else(name, |count| {
                    format!("{:?}", String::from_utf8_lossy(&bytes[..count as usize]))
                })
            }
            Step::ReceiveMessage(slot, most, control) => self.receive(fd(slot)?, most, control),
            Step::Shutdown(slot, how) => {
                let fd = fd(slot)?;
                let is_connected = self.kernel.peer_address(fd).is_ok();
                if self.listening[slot] || self.family == Family::Tcp && !is_connected {
                    return None;
                }
                text(kernel.shutdown(fd, how))
            }
            Step::Linger(slot) => text(kernel.set_option(fd(slot)?, SocketOption::Linger, 0)),
            Step::Error(slot) => text(kernel.option(fd(slot)?, SocketOption::Error)),
            Step::Peer(slot) => text(kernel.peer_address(fd(slot)?).map(|peer| self.owners(&peer))),
            _ => unreachable!("the caller makes the other calls"),
        })
    }

    /// Returns the slots whose sockets have this address.
    fn owners(&self, address: &Address) -> Vec<Slot> {
        let own = |fd: &Fd| self.kernel.local_address(*fd).unwrap();
        let has = |fd: &Fd| own(fd).as_bytes() == address.as_bytes();
        let slots = self.slots.iter().enumerate();
        slots.filter(|(_, fd)| fd.as_ref().is_some_and(has)).map(|(slot, _)| slot).collect()
    }

    fn send(&self, fd: Fd, to: Option<&Address>, bytes: &[u8], passed: &[Control<'_>]) -> String {
        let mut control = [0; 64];
        let mut writer = ControlWriter::new(&mut control, Direction::Sent);
        assert!(passed.iter().all(|&control| writer.push(control)));
        let control_len = writer.len();
        let vector = IoVec { base: bytes.as_ptr(), len: bytes.len() };
        let name = to.map_or(&[][..], Address::as_bytes);
        let header = MsgHeader {
            name: if name.is_empty() { std::ptr::null() } else { name.as_ptr() },
            name_len: name.len() as u32,
            vectors: &raw const vector,
            vector_count: 1,
            control: control.as_ptr(),
            control_len,
            flags: 0,
        };
        // SAFETY: everything that the header points to is borrowed for the call.
        sent(unsafe { self.kernel.send_message(fd, &raw const header) })
    }

    fn receive(&self, fd: Fd, most: usize, control_len: usize) -> String {
        let (mut bytes, mut sender, mut control) = (vec![0; most], [0u8; 128], [0u8; 64]);
        let vector = IoVec { base: bytes.as_mut_ptr(), len: most };
        let mut header = MsgHeader {
            name: sender.as_mut_ptr(),
            name_len: sender.len() as u32,
            vectors: &raw const vector,
            vector_count: 1,
            control: control.as_mut_ptr(),
            control_len,
            flags: 0,
        };
        // SAFETY: everything that the header points to is borrowed for the call.
        let count = match unsafe { self.kernel.receive_message(fd, &raw mut header) } {
            Ok(count) => count as usize,
            Err(errno) => return name(errno),
        };
        let shown = String::from_utf8_lossy(&bytes[..count.min(most)]).into_owned();
        let from = Address::from_bytes(&sender[..header.name_len as usize]);
        let from = (header.name_len > 0).then(|| self.owners(&from));
        let flags = header.flags as u32 & (msg::TRUNC | msg::CTRUNC);
        let mut received = Vec::new();
        for control in controls(&control[..header.control_len.min(control_len)]) {
            match control {
                Control::Descriptors(numbers) => {
                    received.push(format!("{} descriptors", numbers.len() / 4));
                    for number in descriptors(numbers) {
                        self.kernel.close(owned(number));
                    }
                }
                other => received.push(format!("{other:?}")),
            }
        }
        format!("{count} {shown:?} from {from:?} flags {flags:#x} {received:?}")
    }

    /// Waits until the effects of a step have arrived, and returns the readiness of each socket.
    fn readiness(&mut self) -> String {
        let kernel = &self.kernel;
        let mut edges = Vec::with_capacity(SLOTS as usize);
        kernel.epoll_wait(self.quiet, &mut edges, Some(self.settle)).unwrap();
        let epoll = owned(kernel.epoll().unwrap());
        for fd in self.slots.iter().flatten() {
            kernel.epoll_control(epoll, Registration::Add(ALL_EVENTS), *fd).unwrap();
        }
        kernel.epoll_wait(epoll, &mut edges, Some(Duration::ZERO)).unwrap();
        kernel.close(epoll);
        let mut seen = String::new();
        for (slot, fd) in self.slots.iter().enumerate() {
            let Some(fd) = fd else { continue };
            let flags = edges.iter().find(|edge| edge.data.u64() as i32 == fd.raw());
            let flags = flags.map_or(EventFlags::empty(), |edge| edge.flags);
            write!(seen, " {slot}:{flags:?}").unwrap();
        }
        seen.replace("EventFlags", "")
    }

    /// Runs a program, and returns a line for each step.
    fn run(mut self, program: &[Step]) -> Vec<String> {
        let mut lines = Vec::new();
        for &step in program {
            let line = match self.perform(step) {
                Some(result) => format!("{step:?} = {result};{}", self.readiness()),
                None => format!("{step:?}: skipped"),
            };
            lines.push(line);
        }
        for fd in self.slots.into_iter().flatten().chain([self.quiet]) {
            self.kernel.close(fd);
        }
        lines
    }
}

/// Runs a program on both kernels, and panics at the first difference.
fn compare(seed: u64, family: Family) {
    let mut random = Random::new(seed);
    let first = (0..SLOTS as Slot).map(Step::Open);
    let program: Vec<Step> = first.chain((0..STEPS).map(|_| step(&mut random, family))).collect();
    let sim = Sim::builder(seed).build();
    let simulated = Run::new(sim.clone(), family, SETTLE_TIME).run(&program);
    while sim.pass_until(Some(sim.now() + Duration::from_secs(100)))
        && sim.now() < Duration::from_secs(1000)
    {}
    assert_eq!(sim.leftovers(), [""; 0]);
    let on_linux = |settle, steps: &[Step]| {
        let linux = Run::new(Rc::new(Linux), family, settle).run(steps);
        let at = linux.iter().zip(&simulated).position(|(one, other)| one != other);
        at.map(|at| (at, linux))
    };
    let Some((at, _)) = on_linux(SETTLE_TIME, &program) else { return };
    // A busy machine may need more time.
    let Some((at, linux)) = on_linux(QUIET_PERIOD, &program[..=at]) else { return };
    let before = linux[..at].join("\n");
    let (linux, simulated) = (&linux[at], &simulated[at]);
    panic!("{before}\nsimulated: {simulated}\nLinux:     {linux}");
}

/// Compares the programs of the first seeds, and of those in `differed`, whose results have once
/// been different.
fn compare_programs(family: Family, test: &str, differed: &[u64]) {
    let command = format!("cargo test -p annulus-sim --test suite {test}");
    each_seed(PROGRAMS, &command, |seed| compare(seed, family));
    differed.iter().for_each(|&seed| compare(seed, family));
}

#[test]
fn tcp_calls_have_the_results_of_linux() {
    compare_programs(Family::Tcp, "tcp_calls", &[883]);
}

#[test]
fn udp_calls_have_the_results_of_linux() {
    compare_programs(Family::Udp, "udp_calls", &[]);
}

#[test]
fn unix_stream_calls_have_the_results_of_linux() {
    compare_programs(Family::UnixStream, "unix_stream_calls", &[839, 875, 929, 1155, 1375]);
}

#[test]
fn unix_datagram_calls_have_the_results_of_linux() {
    compare_programs(Family::UnixDatagram, "unix_datagram_calls", &[]);
}
