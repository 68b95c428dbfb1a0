//! Many connections at once. Each end sends a stream that the other end checks byte by byte, with all kinds of receives and sends,
//! and random cancels.

use super::end::End;
use super::*;
use annulus_sim::Random;

const ACCEPT: u64 = 1 << 56;
const CONNECT: u64 = 2 << 56;
const RECEIVE: u64 = 3 << 56;
const SEND: u64 = 4 << 56;
const CANCEL: u64 = 5 << 56;
const CLOSE: u64 = 6 << 56;
const KIND: u64 = 0xFF << 56;

/// How much work there is.
pub struct Size {
    pub connections: usize,
    /// Most bytes a direction.
    pub bytes: usize,
    pub buffers: u16,
    pub buffer: usize,
}

/// The program.
pub struct TcpStress {
    host: Host,
    lent: Lent,
    random: Random,
    listener: Fd,
    address: Box<Address>,
    ends: Vec<End>,
    /// Sockets whose connect has not completed.
    connecting: Vec<Fd>,
    size: Size,
    accepting: bool,
    limits: bool,
    turns: u32,
}

impl TcpStress {
    pub fn new(mut host: Host, seed: u64, size: Size) -> Self {
        let (listener, address) = host.listener(size.connections as u32);
        let features = Features::of(&mut host.ring).unwrap();
        let lent = Lent::new(&host.ring, size.buffers, size.buffer);
        Self {
            host,
            lent,
            random: Random::new(seed),
            listener,
            address: Box::new(address.into()),
            ends: Vec::new(),
            connecting: Vec::new(),
            size,
            accepting: false,
            limits: features.has("receive limit"),
            turns: 0,
        }
    }

    /// Runs until every byte of every stream has arrived and every descriptor is closed.
    pub fn run(mut self) -> Host {
        for _ in 0..self.size.connections {
            self.open();
        }
        while !self.is_done() {
            self.start();
            self.turn();
        }
        self.host.kernel.close(self.listener);
        self.push(CANCEL, cancel(ACCEPT));
        while self.accepting {
            self.turn();
        }
        self.lent.unregister(&self.host.ring);
        self.host
    }

    fn open(&mut self) {
        let fd = self.host.socket();
        let number = self.connecting.len() as u64;
        self.connecting.push(fd);
        self.connect(fd, number);
    }

    fn connect(&mut self, fd: Fd, number: u64) {
        let bytes = self.address.as_bytes();
        let (address, len) = (bytes.as_ptr(), bytes.len() as u32);
        let entry = op::Connect { fd, address, len }.entry();
        self.push(CONNECT | number, entry);
    }

    fn add(&mut self, fd: Fd) {
        let stream = self.ends.len();
        let len = self.random.below(self.size.bytes as u64) as usize;
        self.ends.push(End::new(fd, stream, len));
    }

    fn is_done(&self) -> bool {
        self.ends.len() == 2 * self.size.connections && self.ends.iter().all(|end| end.closed)
    }

    /// Pushes an entry; a full queue is emptied first.
    fn push(&mut self, user_data: u64, entry: impl Into<Entry>) {
        let entry = entry.into().user_data(user_data);
        // SAFETY: `self` keeps what entries name until their terminal completions.
        while unsafe { self.host.ring.push_unchecked(entry) }.is_err() {
            self.host.ring.enter(Wait::No).unwrap();
        }
    }

    /// Starts what is not in flight.
    fn start(&mut self) {
        if !self.accepting {
            self.accepting = true;
            let fd = self.listener;
            let multi = self.random.chance(700);
            let single = op::Accept { fd }.entry();
            self.push(ACCEPT, if multi { op::AcceptMulti { fd }.entry() } else { single });
        }
        for index in 0..self.ends.len() {
            if self.random.chance(900) {
                self.start_receive(index);
            }
            if self.random.chance(900) {
                self.start_send(index);
            }
            if self.random.chance(30) && self.ends[index].receiving {
                self.push(CANCEL, cancel(RECEIVE | index as u64));
            }
            self.finish(index);
        }
    }

    fn start_receive(&mut self, index: usize) {
        let end = &mut self.ends[index];
        if end.receiving || end.over {
            return;
        }
        end.receiving = true;
        let fd = end.fd;
        let limit = if self.limits { self.random.pick(&[0, 1, 500, 5000]) } else { 0 };
        let entry = match self.random.below(4) {
            0 => op::RecvSelect { fd, group: GROUP }.entry().into(),
            1 => {
                let buffer = end.memory.as_mut_ptr();
                op::Recv { fd, buffer, len: end.memory.len() as u32 }.entry()
            }
            _ => op::RecvMulti { fd, group: GROUP, limit }.entry().into(),
        };
        self.push(RECEIVE | index as u64, entry);
    }

    fn start_send(&mut self, index: usize) {
        let end = &mut self.ends[index];
        if end.in_flight > 0 || end.shut || end.sent == end.bytes.len() {
            return;
        }
        let left = end.bytes.len() - end.sent;
        end.in_flight = self.random.between(1, left as u64) as usize;
        end.quiet = self.random.chance(500);
        let flags = if end.quiet { NOW } else { ALL };
        let parts = self.random.between(1, 3) as usize;
        let entry = if parts == 1 {
            send(end.fd, &end.bytes[end.sent..end.sent + end.in_flight], flags)
        } else {
            end.message(parts, flags)
        };
        let skip = if end.quiet { EntryFlags::SKIP_SUCCESS } else { EntryFlags::empty() };
        self.push(SEND | index as u64, entry.with(skip));
    }

    /// Shuts down and closes what is done.
    fn finish(&mut self, index: usize) {
        let end = &mut self.ends[index];
        if end.sent == end.bytes.len() && end.in_flight == 0 && !end.shut {
            end.shut = true;
            self.host.kernel.shutdown(end.fd, Shutdown::Write).unwrap();
        }
        if end.shut && end.over && !end.receiving && !end.closed {
            end.closed = true;
            let fd = end.fd;
            if self.random.chance(500) {
                self.host.kernel.close(fd);
            } else {
                self.push(CLOSE, op::Close { fd }.entry().skip_success());
            }
        }
    }

    fn turn(&mut self) {
        self.turns += 1;
        assert!(self.turns < 300_000, "it has not ended: {}", self.state());
        let wait = Wait::For { completions: 1, timeout: Some(Duration::from_millis(1)) };
        self.host.ring.enter(wait).unwrap();
        let taken: Vec<_> = self.host.ring.completions().collect();
        for completion in taken {
            let index = (completion.user_data & !KIND) as usize;
            match completion.user_data & KIND {
                ACCEPT => self.on_accept(completion),
                CONNECT => self.on_connect(index, completion.result),
                RECEIVE => self.on_receive(index, completion),
                SEND => self.on_send(index, completion.result),
                CANCEL => {
                    let answers = [0, errno(Errno::NOENT), errno(Errno::ALREADY)];
                    assert!(answers.contains(&completion.result), "{completion:?}");
                }
                _ => panic!("{completion:?} is unexpected"),
            }
        }
        let ring = &self.host.ring;
        if ring.pending() == 0 && ring.ready() == 0 && !ring.overflowed() {
            self.settle_quiet();
        }
    }

    /// Everything was submitted and all completions were taken: a send without one was sent whole.
    fn settle_quiet(&mut self) {
        for end in self.ends.iter_mut().filter(|end| end.quiet) {
            end.sent += std::mem::take(&mut end.in_flight);
        }
    }

    fn on_accept(&mut self, completion: Completion) {
        self.accepting = completion.more();
        if completion.result >= 0 {
            self.add(owned(completion.result));
        } else {
            let known = [Errno::MFILE, Errno::NOMEM, Errno::CANCELED].map(errno);
            assert!(known.contains(&completion.result), "{completion:?}");
        }
    }

    fn on_connect(&mut self, number: usize, result: i32) {
        let fd = self.connecting[number];
        if result == errno(Errno::NOMEM) {
            self.connect(fd, number as u64);
        } else {
            assert_eq!(result, 0, "a connect");
            self.add(fd);
        }
    }

    fn on_receive(&mut self, index: usize, completion: Completion) {
        if !completion.more() {
            self.ends[index].receiving = false;
        }
        let count = match usize::try_from(completion.result) {
            Ok(count) => count,
            Err(_) => {
                let known = [Errno::CANCELED, Errno::NOBUFS, Errno::NOMEM].map(errno);
                return assert!(known.contains(&completion.result), "{completion:?}");
            }
        };
        let bytes = match completion.buffer() {
            Some(_) => self.lent.bytes(&completion),
            None => self.ends[index].memory[..count].to_vec(),
        };
        self.ends[index].over |= count == 0;
        self.ends[index].check(&bytes);
        if count == 0 {
            self.check_end(index);
        }
    }

    /// At its end, the stream must have been received whole.
    fn check_end(&self, index: usize) {
        let end = &self.ends[index];
        let sender = &self.ends[end.from.expect("a stream begins with its number")];
        assert_eq!(end.received, sender.bytes.len(), "of stream {}", sender.stream);
    }

    fn on_send(&mut self, index: usize, result: i32) {
        let end = &mut self.ends[index];
        end.in_flight = 0;
        match usize::try_from(result) {
            Ok(count) => end.sent += count,
            Err(_) => {
                let known = [Errno::AGAIN, Errno::NOMEM].map(errno);
                assert!(known.contains(&result), "a send: {result}");
            }
        }
    }

    fn state(&self) -> String {
        let count = |what: fn(&End) -> bool| self.ends.iter().filter(|end| what(end)).count();
        format!(
            "{} ends, {} shut, {} over, {} closed, {} sending, {} receiving",
            self.ends.len(),
            count(|end| end.shut),
            count(|end| end.over),
            count(|end| end.closed),
            count(|end| end.in_flight > 0),
            count(|end| end.receiving),
        )
    }
}
