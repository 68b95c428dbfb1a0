//! epoll: the simulated kernel reports the same edges as Linux. Each script runs on both, and the
//! recorded edges are compared.
#![allow(unsafe_code)]

use crate::common::*;
use annulus_kernel::epoll::{Edge, EventFlags, Registration};
use annulus_kernel::*;
use annulus_sim::{Fault, Faults, Link, Sim};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

const READ_EVENTS: EventFlags =
    EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::PRI).union(EventFlags::ET);
const ALL_EVENTS: EventFlags = READ_EVENTS.union(EventFlags::OUT);

/// An epoll instance, the names of the watched descriptors, and the edges of each step.
struct Script {
    kernel: Rc<dyn Kernel>,
    epoll: Fd,
    names: BTreeMap<i32, &'static str>,
    seen: Vec<String>,
}

impl Script {
    fn new(kernel: Rc<dyn Kernel>) -> Self {
        let epoll = owned(kernel.epoll().unwrap());
        Self { kernel, epoll, names: BTreeMap::new(), seen: Vec::new() }
    }

    fn add(&mut self, name: &'static str, fd: Fd, interest: EventFlags) {
        self.names.insert(fd.raw(), name);
        self.kernel.epoll_control(self.epoll, Registration::Add(interest), fd).unwrap();
    }

    /// Takes edges until none arrives for a while, and returns their flags by name.
    fn edges(&self) -> BTreeMap<&'static str, EventFlags> {
        let mut flags = BTreeMap::new();
        loop {
            let mut edges = Vec::with_capacity(2);
            self.kernel.epoll_wait(self.epoll, &mut edges, Some(QUIET_PERIOD)).unwrap();
            if edges.is_empty() {
                return flags;
            }
            for edge in edges {
                let name = self.names[&(edge.data.u64() as i32)];
                *flags.entry(name).or_insert(EventFlags::empty()) |= edge.flags;
            }
        }
    }

    /// Ends a step, and records its edges.
    fn record(&mut self, step: &str) {
        let edges = self.edges();
        self.seen.push(format!("{step}: {edges:?}"));
    }

    fn socket(&self, domain: Domain, kind: SocketType) -> Fd {
        owned(self.kernel.socket(domain, kind, true).unwrap())
    }

    fn bound(&self, kind: SocketType) -> (Fd, Address) {
        let fd = self.socket(Domain::Inet, kind);
        self.kernel.bind(fd, &SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        if kind == SocketType::Stream {
            self.kernel.listen(fd, 8).unwrap();
        }
        (fd, self.kernel.local_address(fd).unwrap())
    }

    /// Returns the two ends of a new connection; the client is the first.
    fn pair(&self) -> (Fd, Fd) {
        let (listener, address) = self.bound(SocketType::Stream);
        let client = self.socket(Domain::Inet, SocketType::Stream);
        while !matches!(self.connect(client, &address), Ok(()) | Err(Errno::ISCONN)) {}
        let server = loop {
            match self.kernel.accept(listener) {
                Ok(number) => break owned(number),
                Err(errno) => assert_eq!(errno, Errno::AGAIN),
            }
        };
        self.kernel.close(listener);
        (client, server)
    }

    fn connect(&self, fd: Fd, to: &Address) -> Result<(), Errno> {
        if !self.kernel.real_descriptors() {
            self.edges();
        }
        self.kernel.connect(fd, to).map_err(|error| errno_of(&error).unwrap())
    }

    fn send(&self, fd: Fd, bytes: &[u8]) -> Result<usize, Errno> {
        let bytes = IoVec { base: bytes.as_ptr(), len: bytes.len() };
        // SAFETY: the bytes are borrowed for the call.
        unsafe { self.kernel.send(fd, bytes, std::ptr::null(), 0) }
    }

    fn receive(&self, fd: Fd, most: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; most];
        // SAFETY: the memory belongs to the vector, which nothing else uses during the call.
        let count = unsafe { self.kernel.receive(fd, bytes.as_mut_ptr(), most as u32)? };
        bytes.truncate(count as usize);
        Ok(bytes)
    }

    /// Receives until nothing is left or the stream ends, and returns the number of bytes.
    fn drain(&self, fd: Fd) -> usize {
        let mut all = 0;
        loop {
            match self.receive(fd, 65_536).map(|bytes| bytes.len()) {
                Ok(0) | Err(Errno::AGAIN) => return all,
                got => all += got.unwrap(),
            }
        }
    }

    /// Sends until the connection accepts no bytes even after a wait, and returns the number of
    /// bytes.
    fn fill_send_buffer(&self, fd: Fd, name: &str) -> usize {
        let mut all = 0;
        loop {
            match self.send(fd, &[7; 65_536]) {
                Ok(count) => all += count,
                Err(errno) => {
                    assert_eq!(errno, Errno::AGAIN);
                    if !self.edges().get(name).is_some_and(|it| it.contains(EventFlags::OUT)) {
                        return all;
                    }
                }
            }
        }
    }
}

/// Runs a script on both kernels, which must report the same edges.
fn same_edges(script: impl Fn(&mut Script)) {
    let seen = |kernel: Rc<dyn Kernel>| {
        let mut run = Script::new(kernel);
        script(&mut run);
        run.kernel.close(run.epoll);
        run.seen
    };
    let sim = Sim::builder(1).build();
    let simulated = seen(sim.clone());
    assert_eq!(
        simulated,
        seen(Rc::new(Linux)),
        "the edges differ: simulated (left), Linux (right)"
    );
    assert_eq!(sim.leftovers(), [""; 0]);
}

#[test]
fn each_change_of_a_connection_is_one_edge() {
    same_edges(|script| {
        let (client, server) = script.pair();
        script.add("client", client, ALL_EVENTS);
        script.add("server", server, ALL_EVENTS);
        script.record("registered");
        script.record("nothing has changed");
        script.send(client, b"abc").unwrap();
        script.record("bytes");
        script.record("bytes that are not read");
        script.send(client, b"def").unwrap();
        script.record("more bytes");
        assert_eq!(script.receive(server, 2).unwrap(), b"ab");
        script.record("read in part");
        let change = Registration::Modify(ALL_EVENTS);
        script.kernel.epoll_control(script.epoll, change, server).unwrap();
        script.record("registered again");
        assert_eq!(script.drain(server), 4);
        script.record("read");
        script.kernel.shutdown(server, Shutdown::Write).unwrap();
        script.record("the server has shut down its sending side");
        assert_eq!(script.receive(client, 9).unwrap(), b"");
        script.send(client, b"last").unwrap();
        script.kernel.shutdown(client, Shutdown::Write).unwrap();
        script.record("so has the client");
        script.kernel.epoll_control(script.epoll, Registration::Delete, client).unwrap();
        let again = script.kernel.epoll_control(script.epoll, Registration::Delete, client);
        assert_eq!(again, Err(Errno::NOENT));
        [client, server].into_iter().for_each(|fd| script.kernel.close(fd));
        script.record("closed");
    });
}

#[test]
fn space_is_an_edge_only_after_a_full_send_buffer() {
    same_edges(|script| {
        let (client, server) = script.pair();
        script.add("client", client, ALL_EVENTS);
        script.record("registered");
        script.send(client, &[1; 1000]).unwrap();
        assert!(script.edges().is_empty());
        script.drain(server);
        script.record("the bytes have arrived");
        let filled = script.fill_send_buffer(client, "client");
        script.record("full");
        // The last bytes arrive only once the receiver has space.
        let mut drained = 0;
        while drained < filled {
            drained += script.drain(server);
            script.seen.extend((!script.edges().is_empty()).then(|| "space".to_owned()));
        }
        script.seen.dedup();
        [client, server].into_iter().for_each(|fd| script.kernel.close(fd));
    });
}

#[test]
fn reset_is_an_edge_with_an_error() {
    same_edges(|script| {
        let (client, server) = script.pair();
        script.add("server", server, READ_EVENTS);
        script.record("registered for arrivals");
        script.kernel.set_option(client, SocketOption::Linger, 0).unwrap();
        script.kernel.close(client);
        script.record("reset");
        assert_eq!(script.receive(server, 9), Err(Errno::CONNRESET));
        script.record("reported");
        script.kernel.close(server);
    });
}

#[test]
fn connects_and_accepts_are_edges() {
    same_edges(|script| {
        let (listener, address) = script.bound(SocketType::Stream);
        script.add("listener", listener, ALL_EVENTS);
        script.record("listening");
        let fds = ["first", "second"].map(|name| {
            let client = script.socket(Domain::Inet, SocketType::Stream);
            assert_eq!(script.connect(client, &address), Err(Errno::INPROGRESS));
            script.add(name, client, ALL_EVENTS);
            script.record(name);
            assert!(matches!(script.connect(client, &address), Ok(()) | Err(Errno::ISCONN)));
            client
        });
        let accepted = owned(script.kernel.accept(listener).unwrap());
        script.record("one of two accepted");
        let other = owned(script.kernel.accept(listener).unwrap());
        assert_eq!(script.kernel.accept(listener), Err(Errno::AGAIN));
        [listener, accepted, other].into_iter().for_each(|fd| script.kernel.close(fd));
        script.record("the other ends are closed");
        let refused = script.socket(Domain::Inet, SocketType::Stream);
        assert_eq!(script.connect(refused, &address), Err(Errno::INPROGRESS));
        script.add("refused", refused, ALL_EVENTS);
        script.record("refused");
        assert_eq!(script.connect(refused, &address), Err(Errno::CONNREFUSED));
        fds.into_iter().chain([refused]).for_each(|fd| script.kernel.close(fd));
    });
}

#[test]
fn each_datagram_is_an_edge() {
    same_edges(|script| {
        let ((one, _), (other, address)) =
            (script.bound(SocketType::Datagram), script.bound(SocketType::Datagram));
        script.kernel.connect(one, &address).unwrap();
        script.add("sender", one, READ_EVENTS);
        script.add("receiver", other, READ_EVENTS);
        script.record("registered for arrivals");
        (0..2).for_each(|_| assert_eq!(script.send(one, b"abc"), Ok(3)));
        script.record("two datagrams");
        assert_eq!(script.receive(other, 9).unwrap(), b"abc");
        script.record("one was read");
        assert_eq!(script.send(one, b"abc"), Ok(3));
        script.record("another");
        let change = Registration::Modify(ALL_EVENTS);
        script.kernel.epoll_control(script.epoll, change, one).unwrap();
        script.record("also registered for space");
        assert_eq!(script.send(one, b"abc"), Ok(3));
        script.record("one has left");
        [one, other].into_iter().for_each(|fd| script.kernel.close(fd));
    });
}

#[test]
fn unix_stream_changes_are_edges() {
    same_edges(|script| {
        let (one, other) = script.kernel.socket_pair(SocketType::Stream, true).unwrap();
        let (one, other) = (owned(one), owned(other));
        script.add("one", one, ALL_EVENTS);
        script.add("other", other, ALL_EVENTS);
        script.record("registered");
        assert_eq!(script.send(one, b"abc"), Ok(3));
        script.record("bytes");
        assert_eq!(script.receive(other, 9).unwrap(), b"abc");
        script.record("read");
        script.kernel.shutdown(one, Shutdown::Write).unwrap();
        script.record("one has shut down its sending side");
        script.kernel.close(one);
        script.record("one is closed");
        script.kernel.close(other);
    });
}

#[test]
fn timer_is_an_edge_each_time_it_expires() {
    same_edges(|script| {
        let timer = owned(script.kernel.timer().unwrap());
        script.add("timer", timer, ALL_EVENTS);
        script.record("registered");
        for step in ["expired", "expired again, and not read"] {
            script.kernel.set_timer(timer, Duration::from_millis(1)).unwrap();
            script.record(step);
        }
        script.kernel.set_timer(timer, Duration::from_millis(1)).unwrap();
        script.kernel.set_timer(timer, Duration::from_secs(3600)).unwrap();
        script.record("the second setting counts");
        script.kernel.close(timer);
    });
    Linux.set_timer(owned(Linux.timer().unwrap()), Duration::MAX).unwrap();
}

/// A registration belongs to a file, and ends with the last descriptor of the file. Edges have the
/// descriptor that was registered.
#[test]
fn registration_ends_with_its_file() {
    same_edges(|script| {
        let (client, server) = script.pair();
        script.add("closed", server, ALL_EVENTS);
        script.record("registered");
        let twice =
            script.kernel.epoll_control(script.epoll, Registration::Add(READ_EVENTS), server);
        assert_eq!(twice, Err(Errno::EXIST));
        script.send(client, b"abc").unwrap();
        script.kernel.close(server);
        script.record("closed with unread bytes");
        script.kernel.close(client);
    });
}

/// On Linux, another thread may have reused the number of a closed descriptor, so this is tried
/// only on the simulated kernel.
/// Returns another descriptor of the same file, which has been passed through a Unix socket.
fn duplicate(script: &Script, fd: Fd) -> Fd {
    let (one, other) = script.kernel.socket_pair(SocketType::Datagram, true).unwrap();
    let (one, other) = (owned(one), owned(other));
    let mut control = [0; 64];
    let mut writer = ControlWriter::new(&mut control, Direction::Sent);
    assert!(writer.push(Control::Descriptors(&fd.raw().to_ne_bytes())));
    let control_len = writer.len();
    script.kernel.send_datagram_now(one, &[], &control[..control_len], &[]).unwrap();
    let mut header = MsgHeader { control: control.as_mut_ptr(), control_len, ..MsgHeader::EMPTY };
    // SAFETY: the header and the control memory are borrowed for the call.
    unsafe { script.kernel.receive_message(other, &raw mut header).unwrap() };
    let number = match messages::controls(&control)[..] {
        [Control::Descriptors(bytes)] => descriptors(bytes).next(),
        _ => None,
    };
    [one, other].into_iter().for_each(|fd| script.kernel.close(fd));
    owned(number.expect("no descriptor was passed"))
}

#[test]
fn deleting_a_registration_keeps_that_of_another_descriptor() {
    same_edges(|script| {
        let (client, server) = script.pair();
        let again = duplicate(script, server);
        script.add("server", server, READ_EVENTS);
        script.add("again", again, READ_EVENTS);
        script.record("added");
        script.kernel.epoll_control(script.epoll, Registration::Delete, server).unwrap();
        script.send(client, b"hello").unwrap();
        script.record("hello");
        [client, server, again].into_iter().for_each(|fd| script.kernel.close(fd));
    });
}

#[test]
fn registering_a_closed_descriptor_is_refused() {
    let script = Script::new(Sim::builder(1).build());
    let (client, server) = script.pair();
    script.kernel.close(server);
    let gone = script.kernel.epoll_control(script.epoll, Registration::Add(READ_EVENTS), server);
    assert_eq!(gone, Err(Errno::BADF));
    script.kernel.close(client);
}

#[test]
fn endless_epoll_wait_fails_with_edeadlk() {
    let sim = Sim::builder(1).build();
    let script = Script::new(sim.clone());
    let mut edges = Vec::with_capacity(1);
    assert_eq!(sim.epoll_wait(script.epoll, &mut edges, None), Err(Errno::DEADLK));
    // A timeout ends the wait, rounded up to whole milliseconds.
    let before = sim.now();
    sim.epoll_wait(script.epoll, &mut edges, Some(Duration::from_micros(1200))).unwrap();
    assert_eq!((sim.now() - before).as_millis(), 2);
}

#[test]
fn seed_determines_needless_and_shuffled_edges() {
    let run = |seed| {
        let faults = Faults::none().with(Fault::NeedlessEdge, 300).with(Fault::Shuffle, 500);
        let sim = Sim::builder(seed).faults(faults).link(Link::default()).build();
        let mut script = Script::new(sim.clone());
        let (client, server) = script.pair();
        script.add("client", client, ALL_EVENTS);
        script.add("server", server, ALL_EVENTS);
        for _ in 0..20 {
            let mut edges = Vec::with_capacity(8);
            sim.epoll_wait(script.epoll, &mut edges, Some(QUIET_PERIOD)).unwrap();
            let names = edges.iter().map(|&Edge { data, flags }| (data.u64(), flags.bits()));
            script.seen.push(format!("{:?}", names.collect::<Vec<_>>()));
        }
        (script.seen, sim.trace_hash(), sim.counts().faults)
    };
    assert_eq!(run(1), run(1), "the same seed gave different runs");
    assert!((0..10).any(|seed| run(seed).0 != run(1).0), "all seeds gave the same edges");
    assert!((0..10).all(|seed| run(seed).2 > 0));
}

/// An error after a received message would have no edge of its own. A caller that waits for the
/// next edge would then never get the remaining messages.
#[test]
fn no_memory_fault_occurs_only_before_the_first_message() {
    let sim = Sim::builder(1).build();
    let script = Script::new(sim.clone());
    let (one, other) = sim.socket_pair(SocketType::Datagram, true).unwrap();
    let (one, other) = (owned(one), owned(other));
    let mut refusals = 0;
    for _ in 0..50 {
        sim.set_faults(Faults::none());
        (0..3).for_each(|_| assert_eq!(script.send(one, b"abc"), Ok(3)));
        sim.set_faults(Faults::none().with(Fault::NoMemory, 500));
        let mut slots = [MessageSlot { header: MsgHeader::EMPTY, len: 0 }; 4];
        let received = loop {
            // SAFETY: the headers refer to no memory, so the messages are truncated.
            match unsafe { sim.receive_messages(other, &mut slots) } {
                Err(Errno::NOMEM) => refusals += 1,
                received => break received,
            }
        };
        assert_eq!((received, slots.map(|slot| slot.len)), (Ok(3), [3, 3, 3, 0]));
    }
    assert_ne!(refusals, 0, "the fault never occurred");
    [one, other, script.epoll].into_iter().for_each(|fd| sim.close(fd));
    assert_eq!(sim.leftovers(), [""; 0]);
}

#[test]
fn needless_edge_hides_no_event() {
    let faults = Faults::none().with(Fault::NeedlessEdge, 500);
    let sim = Sim::builder(1).faults(faults).link(Link::default()).build();
    let mut script = Script::new(sim.clone());
    let (client, server) = script.pair();
    script.add("server", server, ALL_EVENTS);
    sim.shutdown(client, Shutdown::Write).unwrap();
    while !script.edges().get("server").is_some_and(|it| it.contains(EventFlags::RDHUP)) {}
    let mut edges = Vec::with_capacity(1);
    for _ in 0..20 {
        sim.epoll_wait(script.epoll, &mut edges, Some(QUIET_PERIOD)).unwrap();
    }
    assert!(!edges.is_empty());
    for Edge { flags, .. } in edges {
        assert!(flags.contains(EventFlags::RDHUP), "{flags:?}");
    }
}
