//! Sockets that exchange datagrams, with all kinds of sends and receives, and random cancels.

use super::messages::*;
use super::*;
use annulus_kernel::{IoVec, MsgHeader};
use annulus_sim::{Faults, Random, Sim};
use std::collections::BTreeMap;

const SEND_KIND: u64 = 1 << 56;
const RECEIVE_KIND: u64 = 2 << 56;
const CANCEL_KIND: u64 = 3 << 56;
const KIND_MASK: u64 = 0xFF << 56;
const DATAGRAMS_PER_SOCKET: u32 = 40;
const UDP_SOCKET_COUNT: usize = 3;
const MESSAGE_LAYOUT: MessageLayout = MessageLayout { name: 112, control: 64 };
/// Size of the header of a datagram: its sender and number.
const MIN_DATAGRAM_BYTES: usize = 8;
const SEGMENT_BYTES: usize = 50;

/// Counts of the UDP datagrams of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub sent: u32,
    pub received: u32,
    pub twice: u32,
    /// Datagrams that arrived after a later datagram of the same sender.
    pub late: u32,
}

struct Endpoint {
    fd: Fd,
    address: Address,
    /// The peer of a Unix socket.
    peer: Option<usize>,
    /// Whether the socket coalesces datagrams, so that their boundaries are visible only with a
    /// header.
    coalesces: bool,
    next: u32,
    in_flight: Option<Box<Outgoing>>,
    receiving: bool,
    framed: bool,
    memory: Vec<u8>,
    /// For each sender, the numbers of its datagrams in the order of arrival.
    received: BTreeMap<usize, Vec<u32>>,
}

struct Outgoing {
    bytes: Vec<u8>,
    datagrams: u32,
    to: Option<Address>,
    control: Vec<u8>,
    passed: Option<Fd>,
    vector: IoVec,
    header: MsgHeader,
}

pub struct DatagramStress {
    host: Host,
    buffers: ProvidedBuffers,
    random: Random,
    endpoints: Vec<Endpoint>,
    header: Box<MsgHeader>,
    tally: Tally,
    turns: u32,
}

/// Returns the content of the nth datagram of a sender.
fn datagram_bytes(sender: usize, nth: u32, len: usize) -> Vec<u8> {
    let head = (sender as u32).to_le_bytes().into_iter().chain(nth.to_le_bytes());
    let body = (0..).map(|at: u32| (sender as u32 * 31 + nth * 7 + at * 13) as u8);
    head.chain(body).take(len).collect()
}

impl DatagramStress {
    pub fn new(host: Host, seed: u64) -> Self {
        let buffers = ProvidedBuffers::new(&host.ring, 8, 32_768);
        let header = Box::new(header_of(MESSAGE_LAYOUT));
        let random = Random::new(!seed);
        let tally = Tally::default();
        let mut program =
            Self { host, buffers, random, endpoints: Vec::new(), header, tally, turns: 0 };
        (0..UDP_SOCKET_COUNT).for_each(|_| program.open_udp());
        (0..2).for_each(|_| program.open_pair());
        program
    }

    fn open_udp(&mut self) {
        let make = |kernel: &dyn Kernel| kernel.socket(Domain::Inet, SocketType::Datagram, false);
        let fd = owned(self.host.retry_on_emfile(make));
        self.host.kernel.bind(fd, &inet("127.0.0.1:0")).unwrap();
        let coalesces = self.random.chance(500);
        self.host.kernel.set_option(fd, SocketOption::Coalesce, coalesces.into()).unwrap();
        let address = self.host.kernel.local_address(fd).unwrap();
        self.add(fd, address, None);
        self.endpoints.last_mut().unwrap().coalesces = coalesces;
    }

    fn open_pair(&mut self) {
        let (one, other) =
            self.host.retry_on_emfile(|kernel| kernel.socket_pair(SocketType::Datagram, false));
        let first = self.endpoints.len();
        let unnamed = Address::unix(UnixName::Unnamed).unwrap();
        self.add(owned(one), unnamed, Some(first + 1));
        self.add(owned(other), unnamed, Some(first));
    }

    fn add(&mut self, fd: Fd, address: Address, peer: Option<usize>) {
        let (memory, received) = (vec![0; 512], BTreeMap::new());
        let endpoint = Endpoint {
            fd,
            address,
            peer,
            coalesces: false,
            next: 0,
            in_flight: None,
            receiving: false,
            framed: false,
            memory,
            received,
        };
        self.endpoints.push(endpoint);
    }

    /// Runs until everything has been sent, and has arrived or been lost.
    pub fn run(mut self, sim: &Sim) -> (Host, Tally) {
        while !self.is_done() {
            self.start_operations();
            self.turn();
        }
        sim.set_faults(Faults::none());
        for _ in 0..200 {
            (0..self.endpoints.len()).for_each(|index| self.receive(index));
            self.turn();
        }
        self.close();
        self.count();
        self.buffers.unregister(&self.host.ring);
        (self.host, self.tally)
    }

    fn is_done(&self) -> bool {
        self.endpoints.iter().all(|endpoint| {
            let received = |from| {
                endpoint.received.get(&from).map_or(0, Vec::len) == DATAGRAMS_PER_SOCKET as usize
            };
            endpoint.next >= DATAGRAMS_PER_SOCKET
                && endpoint.in_flight.is_none()
                && endpoint.peer.is_none_or(received)
        })
    }

    fn start_operations(&mut self) {
        for index in 0..self.endpoints.len() {
            if self.random.chance(800) {
                self.receive(index);
            }
            if self.random.chance(600) {
                self.send(index);
            }
            if self.random.chance(30) && self.endpoints[index].receiving {
                self.push(CANCEL_KIND, cancel(RECEIVE_KIND | index as u64));
            }
        }
    }

    fn receive(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        if std::mem::replace(&mut endpoint.receiving, true) {
            return;
        }
        endpoint.framed = endpoint.coalesces || self.random.chance(700);
        let entry = if endpoint.framed {
            recv_msg_multi(endpoint.fd, &self.header, 0)
        } else {
            let (fd, buffer) = (endpoint.fd, endpoint.memory.as_mut_ptr());
            op::Recv { fd, buffer, len: endpoint.memory.len() as u32 }.entry()
        };
        self.push(RECEIVE_KIND | index as u64, entry);
    }

    fn send(&mut self, index: usize) {
        let endpoint = &self.endpoints[index];
        if endpoint.next >= DATAGRAMS_PER_SOCKET || endpoint.in_flight.is_some() {
            return;
        }
        let mut outgoing = match endpoint.peer {
            Some(_) => self.datagram(index),
            None => self.udp_send(index),
        };
        outgoing.vector = IoVec { base: outgoing.bytes.as_ptr(), len: outgoing.bytes.len() };
        let name = outgoing.to.as_ref().map(Address::as_bytes);
        outgoing.header = MsgHeader {
            name: name.map_or(std::ptr::null(), <[u8]>::as_ptr),
            name_len: name.map_or(0, |name| name.len() as u32),
            vectors: &raw const outgoing.vector,
            vector_count: 1,
            control: outgoing.control.as_ptr(),
            control_len: outgoing.control.len(),
            flags: 0,
        };
        let fd = self.endpoints[index].fd;
        let header = (&raw const outgoing.header).cast();
        // A send must not wait for a full Unix socket; see DIVERGENCES.md.
        let entry = op::SendMsg { fd, header, flags: DONTWAIT_FLAGS }.entry();
        self.endpoints[index].in_flight = Some(outgoing);
        self.push(SEND_KIND | index as u64, entry);
    }

    /// Creates a datagram for a peer, sometimes with a descriptor.
    fn datagram(&mut self, index: usize) -> Box<Outgoing> {
        let len = self.random.between(MIN_DATAGRAM_BYTES as u64, 300) as usize;
        let bytes = datagram_bytes(index, self.endpoints[index].next, len);
        let socket = || self.host.new_socket(Domain::Inet, SocketType::Stream, false).ok();
        let passed = if self.random.chance(200) { socket() } else { None };
        let fd = passed.map(|fd: Fd| fd.raw().to_ne_bytes());
        let control = fd.map_or_else(Vec::new, |fd| encoded_control(Control::Descriptors(&fd)));
        Outgoing::new(bytes, 1, None, control, passed)
    }

    /// Creates one datagram, or a segmented send of several.
    fn udp_send(&mut self, index: usize) -> Box<Outgoing> {
        let to = (index + self.random.between(1, UDP_SOCKET_COUNT as u64 - 1) as usize)
            % UDP_SOCKET_COUNT;
        let to = Some(self.endpoints[to].address);
        let next = self.endpoints[index].next;
        let datagrams = self.random.between(1, 4).min((DATAGRAMS_PER_SOCKET - next).into()) as u32;
        if datagrams == 1 {
            let len = self.random.between(MIN_DATAGRAM_BYTES as u64, 300) as usize;
            return Outgoing::new(datagram_bytes(index, next, len), 1, to, Vec::new(), None);
        }
        let parts = (0..datagrams)
            .flat_map(|nth| datagram_bytes(index, next + nth, SEGMENT_BYTES))
            .collect();
        Outgoing::new(
            parts,
            datagrams,
            to,
            encoded_control(Control::SegmentSize(SEGMENT_BYTES as u16)),
            None,
        )
    }

    fn push(&mut self, user_data: u64, entry: impl Into<Entry>) {
        let entry = entry.into().user_data(user_data);
        // SAFETY: `self` keeps the memory of entries until their terminal completions.
        while unsafe { self.host.ring.push_unchecked(entry) }.is_err() {
            self.host.ring.enter(Wait::No).unwrap();
        }
    }

    fn turn(&mut self) {
        self.turns += 1;
        assert!(self.turns < 100_000, "the run has not ended after 100,000 turns");
        let wait = Wait::For { completions: 1, timeout: Some(Duration::from_millis(1)) };
        self.host.ring.enter(wait).unwrap();
        let taken: Vec<_> = self.host.ring.completions().collect();
        for done in taken {
            let index = (done.user_data & !KIND_MASK) as usize;
            match done.user_data & KIND_MASK {
                SEND_KIND => self.on_sent(index, done.result),
                RECEIVE_KIND => self.on_received(index, done),
                _ => {}
            }
        }
    }

    fn on_sent(&mut self, index: usize, result: i32) {
        let endpoint = &mut self.endpoints[index];
        let outgoing = endpoint.in_flight.take().expect("no send is in flight");
        outgoing.passed.into_iter().for_each(|fd| self.host.kernel.close(fd));
        if result < 0 {
            return;
        }
        assert_eq!(result as usize, outgoing.bytes.len(), "a datagram was not sent whole");
        endpoint.next += outgoing.datagrams;
        if endpoint.peer.is_none() {
            self.tally.sent += outgoing.datagrams;
        }
    }

    fn on_received(&mut self, index: usize, done: Completion) {
        let endpoint = &mut self.endpoints[index];
        endpoint.receiving = done.more();
        if done.result < 0 {
            return;
        }
        if !endpoint.framed {
            let bytes = endpoint.memory[..done.result as usize].to_vec();
            return self.check_received(index, &bytes, None);
        }
        let framed = self.buffers.framed(&done, MESSAGE_LAYOUT);
        assert!(!framed.head.is_cut());
        let mut segment = None;
        for control in controls(&framed.control) {
            match control {
                Control::SegmentSize(size) => segment = Some(usize::from(size)),
                Control::Descriptors(fds) => {
                    descriptors(fds).map(owned).for_each(|fd| self.host.kernel.close(fd));
                }
                other => panic!("unexpected control message {other:?}"),
            }
        }
        self.check_received(index, &framed.bytes, segment);
    }

    /// Checks that the bytes are datagrams that were sent.
    fn check_received(&mut self, index: usize, bytes: &[u8], segment: Option<usize>) {
        for datagram in bytes.chunks(segment.unwrap_or(bytes.len())) {
            let word = |at: usize| u32::from_le_bytes(datagram[at..at + 4].try_into().unwrap());
            let (from, nth) = (word(0) as usize, word(4));
            assert!(
                datagram == datagram_bytes(from, nth, datagram.len()),
                "datagram {nth} of socket {from} is corrupt"
            );
            self.record(index, from, nth);
        }
    }

    fn record(&mut self, index: usize, from: usize, nth: u32) {
        let endpoint = &mut self.endpoints[index];
        assert!(endpoint.peer.is_none_or(|peer| peer == from), "socket {from} is not the peer");
        let received = endpoint.received.entry(from).or_default();
        if endpoint.peer.is_some() {
            assert_eq!(
                nth as usize,
                received.len(),
                "a Unix datagram was lost, duplicated or reordered"
            );
        } else {
            self.tally.late += u32::from(received.iter().any(|&other| other > nth));
        }
        received.push(nth);
    }

    fn close(&mut self) {
        for index in 0..self.endpoints.len() {
            self.push(CANCEL_KIND, cancel(RECEIVE_KIND | index as u64));
        }
        while self.endpoints.iter().any(|endpoint| endpoint.receiving) {
            self.turn();
        }
        self.endpoints.iter().for_each(|endpoint| self.host.kernel.close(endpoint.fd));
    }

    fn count(&mut self) {
        for endpoint in self.endpoints.iter_mut().filter(|endpoint| endpoint.peer.is_none()) {
            for received in endpoint.received.values_mut() {
                let all = received.len();
                received.sort_unstable();
                received.dedup();
                self.tally.received += all as u32;
                self.tally.twice += (all - received.len()) as u32;
            }
        }
    }
}

impl Outgoing {
    fn new(
        bytes: Vec<u8>,
        datagrams: u32,
        to: Option<Address>,
        control: Vec<u8>,
        passed: Option<Fd>,
    ) -> Box<Self> {
        let vector = IoVec { base: std::ptr::null(), len: 0 };
        Box::new(Self {
            bytes,
            datagrams,
            to,
            control,
            passed,
            vector,
            header: header_of(MessageLayout { name: 0, control: 0 }),
        })
    }
}

fn encoded_control(control: Control<'_>) -> Vec<u8> {
    let mut buffer = vec![0; 64];
    let mut writer = ControlWriter::new(&mut buffer, Direction::Sent);
    assert!(writer.push(control));
    let len = writer.len();
    buffer.truncate(len);
    buffer
}
