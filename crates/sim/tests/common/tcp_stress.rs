//! Many connections at once. Each end sends a stream that the other end checks byte by byte, with
//! all kinds of receives and sends, and random cancels.

use super::*;
use annulus_sim::Random;

const ACCEPT_KIND: u64 = 1 << 56;
const CONNECT_KIND: u64 = 2 << 56;
const RECEIVE_KIND: u64 = 3 << 56;
const SEND_KIND: u64 = 4 << 56;
const CANCEL_KIND: u64 = 5 << 56;
const CLOSE_KIND: u64 = 6 << 56;
const KIND_MASK: u64 = 0xFF << 56;

pub struct StressSize {
    pub connections: usize,
    /// Maximum bytes per direction.
    pub bytes: usize,
    pub buffers: u16,
    pub buffer: usize,
}

pub struct TcpStress {
    host: Host,
    buffers: ProvidedBuffers,
    random: Random,
    listener: Fd,
    address: Box<Address>,
    ends: Vec<ConnectionEnd>,
    /// Sockets whose connect has not completed.
    connecting: Vec<Fd>,
    size: StressSize,
    accepting: bool,
    limits: bool,
    turns: u32,
}

impl TcpStress {
    pub fn new(mut host: Host, seed: u64, size: StressSize) -> Self {
        let (listener, address) = host.listener(size.connections as u32);
        let features = Features::of(&mut host.ring).unwrap();
        let buffers = ProvidedBuffers::new(&host.ring, size.buffers, size.buffer);
        Self {
            host,
            buffers,
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
            self.start_operations();
            self.turn();
        }
        self.host.kernel.close(self.listener);
        self.push(CANCEL_KIND, cancel(ACCEPT_KIND));
        while self.accepting {
            self.turn();
        }
        self.buffers.unregister(&self.host.ring);
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
        self.push(CONNECT_KIND | number, entry);
    }

    fn add(&mut self, fd: Fd) {
        let stream = self.ends.len();
        let len = self.random.below(self.size.bytes as u64) as usize;
        self.ends.push(ConnectionEnd::new(fd, stream, len));
    }

    fn is_done(&self) -> bool {
        self.ends.len() == 2 * self.size.connections && self.ends.iter().all(|end| end.closed)
    }

    /// Pushes an entry, after emptying the queue if it is full.
    fn push(&mut self, user_data: u64, entry: impl Into<Entry>) {
        let entry = entry.into().user_data(user_data);
        // SAFETY: `self` keeps the memory of entries until their terminal completions.
        while unsafe { self.host.ring.push_unchecked(entry) }.is_err() {
            self.host.ring.enter(Wait::No).unwrap();
        }
    }

    /// Starts operations that are not in flight.
    fn start_operations(&mut self) {
        if !self.accepting {
            self.accepting = true;
            let fd = self.listener;
            let multi = self.random.chance(700);
            let single = op::Accept { fd }.entry();
            self.push(ACCEPT_KIND, if multi { op::AcceptMulti { fd }.entry() } else { single });
        }
        for index in 0..self.ends.len() {
            if self.random.chance(900) {
                self.start_receive(index);
            }
            if self.random.chance(900) {
                self.start_send(index);
            }
            if self.random.chance(30) && self.ends[index].receiving {
                self.push(CANCEL_KIND, cancel(RECEIVE_KIND | index as u64));
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
            0 => op::RecvSelect { fd, group: BUFFER_GROUP }.entry().into(),
            1 => {
                let buffer = end.memory.as_mut_ptr();
                op::Recv { fd, buffer, len: end.memory.len() as u32 }.entry()
            }
            _ => op::RecvMulti { fd, group: BUFFER_GROUP, limit }.entry().into(),
        };
        self.push(RECEIVE_KIND | index as u64, entry);
    }

    fn start_send(&mut self, index: usize) {
        let end = &mut self.ends[index];
        if end.in_flight > 0 || end.shut || end.sent == end.bytes.len() {
            return;
        }
        let left = end.bytes.len() - end.sent;
        end.in_flight = self.random.between(1, left as u64) as usize;
        end.quiet = self.random.chance(500);
        let flags = if end.quiet { DONTWAIT_FLAGS } else { WAITALL_FLAGS };
        let parts = self.random.between(1, 3) as usize;
        let entry = if parts == 1 {
            send(end.fd, &end.bytes[end.sent..end.sent + end.in_flight], flags)
        } else {
            end.message(parts, flags)
        };
        let skip = if end.quiet { EntryFlags::SKIP_SUCCESS } else { EntryFlags::empty() };
        self.push(SEND_KIND | index as u64, entry.with(skip));
    }

    /// Shuts down an end that has sent everything, and closes it once it has also received
    /// everything.
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
                self.push(CLOSE_KIND, op::Close { fd }.entry().skip_success());
            }
        }
    }

    fn turn(&mut self) {
        self.turns += 1;
        assert!(
            self.turns < 300_000,
            "the run has not ended after 300,000 turns: {}",
            self.state()
        );
        let wait = Wait::For { completions: 1, timeout: Some(Duration::from_millis(1)) };
        self.host.ring.enter(wait).unwrap();
        let taken: Vec<_> = self.host.ring.completions().collect();
        for completion in taken {
            let index = (completion.user_data & !KIND_MASK) as usize;
            match completion.user_data & KIND_MASK {
                ACCEPT_KIND => self.on_accept(completion),
                CONNECT_KIND => self.on_connect(index, completion.result),
                RECEIVE_KIND => self.on_receive(index, completion),
                SEND_KIND => self.on_send(index, completion.result),
                CANCEL_KIND => {
                    let answers = [0, errno(Errno::NOENT), errno(Errno::ALREADY)];
                    assert!(answers.contains(&completion.result), "{completion:?}");
                }
                _ => panic!("unexpected completion {completion:?}"),
            }
        }
        let ring = &self.host.ring;
        if ring.pending() == 0 && ring.ready() == 0 && !ring.overflowed() {
            self.assume_quiet_sends_complete();
        }
    }

    /// All entries have been consumed and all completions taken, so a send without a completion has
    /// sent everything.
    fn assume_quiet_sends_complete(&mut self) {
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
            assert_eq!(result, 0, "a connect failed");
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
            Some(_) => self.buffers.bytes(&completion),
            None => self.ends[index].memory[..count].to_vec(),
        };
        self.ends[index].over |= count == 0;
        self.ends[index].check(&bytes);
        if count == 0 {
            self.check_end(index);
        }
    }

    /// Checks that the whole stream has been received at its end.
    fn check_end(&self, index: usize) {
        let end = &self.ends[index];
        let sender = &self.ends[end.from.expect("the stream ended before its number arrived")];
        assert_eq!(
            end.received,
            sender.bytes.len(),
            "bytes of stream {} are missing",
            sender.stream
        );
    }

    fn on_send(&mut self, index: usize, result: i32) {
        let end = &mut self.ends[index];
        end.in_flight = 0;
        match usize::try_from(result) {
            Ok(count) => end.sent += count,
            Err(_) => {
                let known = [Errno::AGAIN, Errno::NOMEM].map(errno);
                assert!(known.contains(&result), "unexpected result of a send: {result}");
            }
        }
    }

    fn state(&self) -> String {
        let count =
            |what: fn(&ConnectionEnd) -> bool| self.ends.iter().filter(|end| what(end)).count();
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

pub struct ConnectionEnd {
    pub fd: Fd,
    /// The stream that this end sends: its number, its bytes, and how many have been sent.
    pub stream: usize,
    pub bytes: Vec<u8>,
    pub sent: usize,
    /// Number of bytes in flight, and whether their send skips its completion on success.
    pub in_flight: usize,
    pub quiet: bool,
    /// The memory of a message in flight.
    pub vectors: Vec<IoVec>,
    pub header: Box<MsgHeader>,
    pub shut: bool,
    /// The number of the stream that this end receives, known once its first bytes have arrived.
    pub from: Option<usize>,
    pub received: usize,
    pub receiving: bool,
    pub memory: Vec<u8>,
    pub over: bool,
    pub closed: bool,
}

/// Returns the byte of a stream at an offset.
fn stream_byte(stream: usize, at: usize) -> u8 {
    (stream * 31 + at * 7 + (at >> 8) * 13) as u8
}

/// Returns the byte that is sent at an offset: the stream starts with its number in eight bytes.
fn sent_byte(stream: usize, at: usize) -> u8 {
    if at < 8 { (stream as u64).to_le_bytes()[at] } else { stream_byte(stream, at) }
}

fn empty_header() -> MsgHeader {
    MsgHeader {
        name: std::ptr::null(),
        name_len: 0,
        vectors: std::ptr::null(),
        vector_count: 0,
        control: std::ptr::null(),
        control_len: 0,
        flags: 0,
    }
}

impl ConnectionEnd {
    pub fn new(fd: Fd, stream: usize, len: usize) -> Self {
        Self {
            fd,
            stream,
            // The stream starts with its number, so that the other end knows the bytes to expect.
            bytes: (0..len + 8).map(|at| sent_byte(stream, at)).collect(),
            sent: 0,
            in_flight: 0,
            quiet: false,
            vectors: Vec::new(),
            header: Box::new(empty_header()),
            shut: false,
            from: None,
            received: 0,
            receiving: false,
            memory: vec![0; 300],
            over: false,
            closed: false,
        }
    }

    /// Creates a message of several parts; the last part is the largest.
    pub fn message(&mut self, parts: usize, flags: u32) -> Entry {
        let mut rest = &self.bytes[self.sent..self.sent + self.in_flight];
        self.vectors.clear();
        for left in (1..=parts).rev() {
            let (part, behind) = rest.split_at(rest.len() / left);
            self.vectors.push(IoVec { base: part.as_ptr(), len: part.len() });
            rest = behind;
        }
        self.header.vectors = self.vectors.as_ptr();
        self.header.vector_count = parts;
        let header = std::ptr::from_ref(&*self.header).cast();
        op::SendMsg { fd: self.fd, header, flags }.entry()
    }

    /// Checks that the bytes are the next ones of their stream.
    pub fn check(&mut self, bytes: &[u8]) {
        for &got in bytes {
            let at = self.received;
            if at < 8 {
                let number = self.from.get_or_insert(0);
                *number |= usize::from(got) << (8 * at);
            } else {
                let stream = self.from.expect("the number of the stream is not known yet");
                assert_eq!(got, stream_byte(stream, at), "byte {at} of stream {stream} is wrong");
            }
            self.received += 1;
        }
    }
}
