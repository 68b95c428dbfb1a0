//! Sockets that write each other letters, in every way there is, with cancels out of nowhere.

use super::mail::*;
use super::*;
use annulus_kernel::{IoVec, MsgHeader};
use annulus_sim::{Faults, Random, Sim};
use std::collections::BTreeMap;

const SEND: u64 = 1 << 56;
const RECEIVE: u64 = 2 << 56;
const CANCEL: u64 = 3 << 56;
const KIND: u64 = 0xFF << 56;
/// Letters that each socket sends.
const LETTERS: u32 = 40;
const UDP: usize = 3;
const ROOM: Layout = Layout { name: 112, control: 64 };
/// Bytes of a letter that says who wrote it, and as which of its letters.
const LEAST: usize = 8;
const SEGMENT: usize = 50;

/// What became of the UDP datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub sent: u32,
    pub heard: u32,
    pub twice: u32,
    /// Heard behind a later one of the same sender.
    pub late: u32,
}

/// One socket.
struct Post {
    fd: Fd,
    address: Address,
    /// A Unix socket's partner.
    partner: Option<usize>,
    /// Only a frame tells where its datagrams end.
    coalesces: bool,
    next: u32,
    flying: Option<Box<Flight>>,
    receiving: bool,
    framed: bool,
    memory: Vec<u8>,
    /// By sender: how often each of its letters came, and the highest.
    heard: BTreeMap<usize, Vec<u32>>,
}

/// A send, while it is one.
struct Flight {
    bytes: Vec<u8>,
    letters: u32,
    to: Option<Address>,
    control: Vec<u8>,
    passed: Option<Fd>,
    vector: IoVec,
    header: MsgHeader,
}

pub struct Office {
    host: Host,
    lent: Lent,
    random: Random,
    posts: Vec<Post>,
    header: Box<MsgHeader>,
    tally: Tally,
    turns: u32,
}

/// The nth letter of a sender.
fn text(sender: usize, nth: u32, len: usize) -> Vec<u8> {
    let head = (sender as u32).to_le_bytes().into_iter().chain(nth.to_le_bytes());
    let body = (0..).map(|at: u32| (sender as u32 * 31 + nth * 7 + at * 13) as u8);
    head.chain(body).take(len).collect()
}

impl Office {
    pub fn new(host: Host, seed: u64) -> Self {
        let lent = Lent::new(&host.ring, 8, 32_768);
        let header = Box::new(room(ROOM));
        let random = Random::new(!seed);
        let tally = Tally::default();
        let mut office = Self { host, lent, random, posts: Vec::new(), header, tally, turns: 0 };
        (0..UDP).for_each(|_| office.open_udp());
        (0..2).for_each(|_| office.open_pair());
        office
    }

    fn open_udp(&mut self) {
        let make = |kernel: &dyn Kernel| kernel.socket(Domain::Inet, SocketType::Datagram, false);
        let fd = owned(self.host.patiently(make));
        self.host.kernel.bind(fd, &inet("127.0.0.1:0")).unwrap();
        let coalesces = self.random.chance(500);
        self.host.kernel.set_option(fd, SocketOption::Coalesce(coalesces)).unwrap();
        let address = self.host.kernel.local_address(fd).unwrap();
        self.add(fd, address, None);
        self.posts.last_mut().unwrap().coalesces = coalesces;
    }

    fn open_pair(&mut self) {
        let (one, other) =
            self.host.patiently(|kernel| kernel.socket_pair(SocketType::Datagram, false));
        let first = self.posts.len();
        let unnamed = Address::unix(UnixName::Unnamed).unwrap();
        self.add(owned(one), unnamed, Some(first + 1));
        self.add(owned(other), unnamed, Some(first));
    }

    fn add(&mut self, fd: Fd, address: Address, partner: Option<usize>) {
        let (memory, heard) = (vec![0; 512], BTreeMap::new());
        let post = Post {
            fd,
            address,
            partner,
            coalesces: false,
            next: 0,
            flying: None,
            receiving: false,
            framed: false,
            memory,
            heard,
        };
        self.posts.push(post);
    }

    /// Runs until everything was sent, and everything that will arrive has.
    pub fn run(mut self, sim: &Sim) -> (Host, Tally) {
        while !self.is_done() {
            self.start();
            self.turn();
        }
        sim.set_faults(Faults::none());
        for _ in 0..200 {
            (0..self.posts.len()).for_each(|index| self.receive(index));
            self.turn();
        }
        self.close();
        self.count();
        self.lent.unregister(&self.host.ring);
        (self.host, self.tally)
    }

    fn is_done(&self) -> bool {
        self.posts.iter().all(|post| {
            let heard = |from| post.heard.get(&from).map_or(0, Vec::len) == LETTERS as usize;
            post.next >= LETTERS && post.flying.is_none() && post.partner.is_none_or(heard)
        })
    }

    fn start(&mut self) {
        for index in 0..self.posts.len() {
            if self.random.chance(800) {
                self.receive(index);
            }
            if self.random.chance(600) {
                self.send(index);
            }
            if self.random.chance(30) && self.posts[index].receiving {
                self.push(CANCEL, cancel(RECEIVE | index as u64));
            }
        }
    }

    fn receive(&mut self, index: usize) {
        let post = &mut self.posts[index];
        if std::mem::replace(&mut post.receiving, true) {
            return;
        }
        post.framed = post.coalesces || self.random.chance(700);
        let entry = if post.framed {
            recv_msg_multi(post.fd, &self.header, 0)
        } else {
            let (fd, buffer) = (post.fd, post.memory.as_mut_ptr());
            op::Recv { fd, buffer, len: post.memory.len() as u32 }.entry()
        };
        self.push(RECEIVE | index as u64, entry);
    }

    fn send(&mut self, index: usize) {
        let post = &self.posts[index];
        if post.next >= LETTERS || post.flying.is_some() {
            return;
        }
        let mut flight = match post.partner {
            Some(_) => self.letter(index),
            None => self.mailing(index),
        };
        flight.vector = IoVec { base: flight.bytes.as_ptr(), len: flight.bytes.len() };
        let name = flight.to.as_ref().map(Address::as_bytes);
        flight.header = MsgHeader {
            name: name.map_or(std::ptr::null(), <[u8]>::as_ptr),
            name_len: name.map_or(0, |name| name.len() as u32),
            vectors: &raw const flight.vector,
            vector_count: 1,
            control: flight.control.as_ptr(),
            control_len: flight.control.len(),
            flags: 0,
        };
        let fd = self.posts[index].fd;
        let header = (&raw const flight.header).cast();
        // A full Unix socket must not be waited for: see DIVERGENCES.md.
        let entry = op::SendMsg { fd, header, flags: NOW }.entry();
        self.posts[index].flying = Some(flight);
        self.push(SEND | index as u64, entry);
    }

    /// A letter to a partner, at times with a descriptor.
    fn letter(&mut self, index: usize) -> Box<Flight> {
        let len = self.random.between(LEAST as u64, 300) as usize;
        let bytes = text(index, self.posts[index].next, len);
        let socket = || self.host.new_socket(Domain::Inet, SocketType::Stream, false).ok();
        let passed = if self.random.chance(200) { socket() } else { None };
        let fd = passed.map(|fd: Fd| fd.raw().to_ne_bytes());
        let control = fd.map_or_else(Vec::new, |fd| written(Control::Descriptors(&fd)));
        Flight::new(bytes, 1, None, control, passed)
    }

    /// One datagram, or several in one send.
    fn mailing(&mut self, index: usize) -> Box<Flight> {
        let to = (index + self.random.between(1, UDP as u64 - 1) as usize) % UDP;
        let to = Some(self.posts[to].address);
        let next = self.posts[index].next;
        let letters = self.random.between(1, 4).min((LETTERS - next).into()) as u32;
        if letters == 1 {
            let len = self.random.between(LEAST as u64, 300) as usize;
            return Flight::new(text(index, next, len), 1, to, Vec::new(), None);
        }
        let parts = (0..letters).flat_map(|nth| text(index, next + nth, SEGMENT)).collect();
        Flight::new(parts, letters, to, written(Control::SegmentSize(SEGMENT as u16)), None)
    }

    fn push(&mut self, user_data: u64, entry: impl Into<Entry>) {
        let entry = entry.into().user_data(user_data);
        // SAFETY: what entries name lives in `self` until their terminal completions.
        while unsafe { self.host.ring.push_unchecked(entry) }.is_err() {
            self.host.ring.enter(Wait::No).unwrap();
        }
    }

    fn turn(&mut self) {
        self.turns += 1;
        assert!(self.turns < 100_000, "it does not end");
        let wait = Wait::For { completions: 1, timeout: Some(Duration::from_millis(1)) };
        self.host.ring.enter(wait).unwrap();
        let taken: Vec<_> = self.host.ring.completions().collect();
        for done in taken {
            let index = (done.user_data & !KIND) as usize;
            match done.user_data & KIND {
                SEND => self.on_sent(index, done.result),
                RECEIVE => self.on_received(index, done),
                _ => {}
            }
        }
    }

    fn on_sent(&mut self, index: usize, result: i32) {
        let post = &mut self.posts[index];
        let flight = post.flying.take().expect("a send that was started");
        flight.passed.into_iter().for_each(|fd| self.host.kernel.close(fd));
        if result < 0 {
            return;
        }
        assert_eq!(result as usize, flight.bytes.len(), "a datagram goes whole");
        post.next += flight.letters;
        if post.partner.is_none() {
            self.tally.sent += flight.letters;
        }
    }

    fn on_received(&mut self, index: usize, done: Completion) {
        let post = &mut self.posts[index];
        post.receiving = done.more();
        if done.result < 0 {
            return;
        }
        if !post.framed {
            let bytes = post.memory[..done.result as usize].to_vec();
            return self.hear(index, &bytes, None);
        }
        let framed = self.lent.framed(&done, ROOM);
        assert!(!framed.head.is_cut());
        let mut segment = None;
        for control in controls(&framed.control) {
            match control {
                Control::SegmentSize(size) => segment = Some(usize::from(size)),
                Control::Descriptors(fds) => {
                    descriptors(fds).map(owned).for_each(|fd| self.host.kernel.close(fd));
                }
                other => panic!("{other:?} was not asked for"),
            }
        }
        self.hear(index, &framed.bytes, segment);
    }

    /// What came must be letters that were sent.
    fn hear(&mut self, index: usize, bytes: &[u8], segment: Option<usize>) {
        for letter in bytes.chunks(segment.unwrap_or(bytes.len())) {
            let word = |at: usize| u32::from_le_bytes(letter[at..at + 4].try_into().unwrap());
            let (from, nth) = (word(0) as usize, word(4));
            assert!(letter == text(from, nth, letter.len()), "letter {nth} of {from}");
            self.note(index, from, nth);
        }
    }

    fn note(&mut self, index: usize, from: usize, nth: u32) {
        let post = &mut self.posts[index];
        assert!(post.partner.is_none_or(|partner| partner == from), "{from} is a stranger");
        let heard = post.heard.entry(from).or_default();
        if post.partner.is_some() {
            assert_eq!(nth as usize, heard.len(), "within the host, in order and once");
        } else {
            self.tally.late += u32::from(heard.iter().any(|&other| other > nth));
        }
        heard.push(nth);
    }

    fn close(&mut self) {
        for index in 0..self.posts.len() {
            self.push(CANCEL, cancel(RECEIVE | index as u64));
        }
        while self.posts.iter().any(|post| post.receiving) {
            self.turn();
        }
        self.posts.iter().for_each(|post| self.host.kernel.close(post.fd));
    }

    fn count(&mut self) {
        for post in self.posts.iter_mut().filter(|post| post.partner.is_none()) {
            for heard in post.heard.values_mut() {
                let all = heard.len();
                heard.sort_unstable();
                heard.dedup();
                self.tally.heard += all as u32;
                self.tally.twice += (all - heard.len()) as u32;
            }
        }
    }
}

impl Flight {
    fn new(
        bytes: Vec<u8>,
        letters: u32,
        to: Option<Address>,
        control: Vec<u8>,
        passed: Option<Fd>,
    ) -> Box<Self> {
        let vector = IoVec { base: std::ptr::null(), len: 0 };
        Box::new(Self {
            bytes,
            letters,
            to,
            control,
            passed,
            vector,
            header: room(Layout { name: 0, control: 0 }),
        })
    }
}

fn written(control: Control<'_>) -> Vec<u8> {
    let mut room = vec![0; 64];
    let mut writer = ControlWriter::new(&mut room, Direction::Sent);
    assert!(writer.push(control));
    let len = writer.len();
    room.truncate(len);
    room
}
