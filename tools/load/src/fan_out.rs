//! The load of a broadcast: one publisher, and subscribers that verify every message and its order.
//!
//! The load detects the server's protocol by sending `PING\r\n`:
//!
//! - *plain*, the protocol of programs in `tools/peers/`: a connection begins with the byte `S` for
//!   a subscriber or `P` for the publisher, and the server answers with the same byte. The
//!   publisher then sends messages, each of which begins with its length (32 bits, little-endian,
//!   itself included), and every subscriber gets every message unchanged.
//! - Redis: `SUBSCRIBE` and `PUBLISH`.
//! - NATS: `SUB` and `PUB`.
//!
//! All subscribers must receive the same bytes. The load keeps the bytes of the messages in flight,
//! and compares them with the received bytes. Each message contains a number, so a lost, repeated
//! or swapped message is detected.

use crate::clock;
use crate::observer::Observer;
use crate::plan::MAX_DURATION;
use crate::recording::Latencies;
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::Timespec;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Number of connections that are opened before their answers are awaited. It is below the listen
/// backlog of most servers.
const CONNECTING: usize = 512;
/// How long a server may be silent while messages are in flight.
const PATIENCE: Duration = Duration::from_secs(10);
const RECEIVE_BYTES: usize = 256 * 1024;
const MAX_EVENTS: usize = 512;
/// The smallest message in bytes: 4 for its length, 8 for its number, and 4 random bytes.
pub const MIN_MESSAGE_BYTES: usize = 16;
/// The largest message that can be sent, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
const SUBJECT: &str = "f";
const NATS_PING: &[u8] = b"PING\r\n";
const NATS_PONG: &[u8] = b"PONG\r\n";

/// A broadcast to measure.
#[derive(Clone, Copy, Debug)]
pub struct FanOut {
    /// The address of the server.
    pub address: SocketAddr,
    /// Number of subscribers, each with its own connection.
    pub subscribers: usize,
    /// Bytes per message, without the framing that Redis or NATS adds. From [`MIN_MESSAGE_BYTES`]
    /// to [`MAX_MESSAGE_BYTES`].
    pub message_bytes: usize,
    /// Maximum number of messages that some subscribers have not received yet. At the limit, the
    /// next message is published once all subscribers have received the oldest one.
    pub in_flight: usize,
    /// Time for which messages are published before measuring.
    pub warm_up: Duration,
    /// Time for which messages are published while measuring.
    pub duration: Duration,
}

/// The figures of a broadcast.
#[derive(Clone, Debug)]
pub struct Deliveries {
    /// Number of deliveries: each message counts once per subscriber.
    pub count: u64,
    /// Measured time, until the last delivery.
    pub elapsed: Duration,
    /// Time from publishing a message until its last subscriber has received it.
    pub latencies: Latencies,
    /// CPU time of the load's thread, divided by the measured time.
    pub cpu_share: f64,
}

/// Runs a broadcast and blocks the calling thread until it ends. All connections are reset at the
/// end.
///
/// # Errors
/// Fails if the message length or a time is out of range, or if the server cannot be reached, sends
/// anything but the messages in order, closes a connection, or is silent for ten seconds while
/// messages are in flight.
pub fn run(fan_out: &FanOut, observer: &mut dyn Observer) -> io::Result<Deliveries> {
    let bytes = fan_out.message_bytes;
    if !(MIN_MESSAGE_BYTES..=MAX_MESSAGE_BYTES).contains(&bytes) {
        return Err(failure(format!(
            "{bytes} bytes per message are out of range: use {MIN_MESSAGE_BYTES} to \
             {MAX_MESSAGE_BYTES}"
        )));
    }
    for (name, time) in [("warm-up", fan_out.warm_up), ("duration", fan_out.duration)] {
        if time > MAX_DURATION {
            let most = MAX_DURATION.as_secs();
            return Err(failure(format!(
                "the {name} of {time:?} is too long: use at most {most} s"
            )));
        }
    }
    let protocol = Protocol::of(fan_out.address)?;
    let mut broadcast = Broadcast::connect(fan_out, protocol)?;
    observer.connected();
    broadcast.publish_for(fan_out.warm_up)?;
    broadcast.latencies.reset();
    let delivered = broadcast.delivered;
    observer.window_opened();
    let (began, used) = (clock::now(), clock::thread_cpu());
    broadcast.publish_for(fan_out.duration)?;
    let (elapsed, used) = (clock::now() - began, clock::thread_cpu() - used);
    observer.window_closed();
    Ok(Deliveries {
        count: broadcast.delivered - delivered,
        elapsed,
        latencies: Latencies::from_histogram(&broadcast.latencies),
        cpu_share: used.as_secs_f64() / elapsed.as_secs_f64(),
    })
}

fn failure(text: impl Into<String>) -> io::Error {
    io::Error::other(text.into())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Plain,
    Redis,
    Nats,
}

impl Protocol {
    fn of(address: SocketAddr) -> io::Result<Protocol> {
        let mut probe = open(address)?;
        probe.write_all(NATS_PING)?;
        let mut first = [0];
        probe.read_exact(&mut first)?;
        match first[0] {
            b'P' => Ok(Protocol::Plain),
            b'+' => Ok(Protocol::Redis),
            b'I' => Ok(Protocol::Nats),
            other => {
                Err(failure(format!("byte {other:#04x} begins the answer of no known protocol")))
            }
        }
    }

    /// Returns what a subscriber or the publisher sends first, and the bytes with which the
    /// server's answer ends.
    fn greeting(self, subscribes: bool) -> (String, &'static [u8]) {
        match (self, subscribes) {
            (Protocol::Plain, true) => ("S".into(), b"S"),
            (Protocol::Plain, false) => ("P".into(), b"P"),
            (Protocol::Redis, true) => (format!("SUBSCRIBE {SUBJECT}\r\n"), b":1\r\n"),
            (Protocol::Redis, false) => ("PING\r\n".into(), b"+PONG\r\n"),
            (Protocol::Nats, _) => {
                let options = "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n";
                let subscribes =
                    if subscribes { format!("SUB {SUBJECT} 1\r\n") } else { String::new() };
                (format!("{options}{subscribes}PING\r\n"), NATS_PONG)
            }
        }
    }

    /// Returns the bytes of a message as they are published and as they are delivered.
    fn frames(self, payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let len = payload.len();
        let around =
            |head: String, tail: &str| [head.as_bytes(), payload, tail.as_bytes()].concat();
        match self {
            Protocol::Plain => (payload.to_vec(), payload.to_vec()),
            Protocol::Redis => (
                around(format!("*3\r\n$7\r\nPUBLISH\r\n$1\r\n{SUBJECT}\r\n${len}\r\n"), "\r\n"),
                around(format!("*3\r\n$7\r\nmessage\r\n$1\r\n{SUBJECT}\r\n${len}\r\n"), "\r\n"),
            ),
            Protocol::Nats => (
                around(format!("PUB {SUBJECT} {len}\r\n"), "\r\n"),
                around(format!("MSG {SUBJECT} 1 {len}\r\n"), "\r\n"),
            ),
        }
    }
}

fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // Closing with a reset avoids TIME_WAIT, which would keep the local port for a minute.
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    Ok(stream)
}

/// Opens connections that all send the same greeting, and waits for the answer on each.
fn open_all(
    address: SocketAddr,
    number: usize,
    greeting: (String, &[u8]),
) -> io::Result<Vec<TcpStream>> {
    let mut all = Vec::with_capacity(number);
    while all.len() < number {
        let first = all.len();
        for _ in 0..CONNECTING.min(number - first) {
            let mut stream = open(address)?;
            stream.write_all(greeting.0.as_bytes())?;
            all.push(stream);
        }
        for stream in &mut all[first..] {
            let (mut answer, mut part) = (Vec::new(), [0; 1024]);
            while !answer.ends_with(greeting.1) {
                match stream.read(&mut part)? {
                    0 => return Err(failure("the server closed a connection before it answered")),
                    count => answer.extend_from_slice(&part[..count]),
                }
            }
            stream.set_nonblocking(true)?;
        }
    }
    Ok(all)
}

struct Subscriber {
    stream: TcpStream,
    /// Number of message bytes received so far, without pings of NATS.
    position: u64,
    /// Number of bytes received of an incomplete NATS ping.
    ping_bytes: usize,
}

/// A message that some subscribers have not received yet.
struct InFlight {
    published_at: Duration,
    missing: usize,
}

struct Broadcast {
    protocol: Protocol,
    epoll: OwnedFd,
    subscribers: Vec<Subscriber>,
    publisher: TcpStream,
    /// Bytes that the publisher could not yet send.
    unsent: Vec<u8>,
    payload: Vec<u8>,
    frame_bytes: u64,
    max_in_flight: usize,
    in_flight: VecDeque<InFlight>,
    /// The number of messages that every subscriber has received.
    complete: u64,
    /// The bytes that each subscriber receives for the messages in flight.
    expected: VecDeque<u8>,
    delivered: u64,
    latencies: Histogram<u64>,
    buffer: Vec<u8>,
}

impl Broadcast {
    fn connect(fan_out: &FanOut, protocol: Protocol) -> io::Result<Broadcast> {
        let FanOut { address, subscribers, message_bytes, in_flight, .. } = *fan_out;
        let streams = open_all(address, subscribers, protocol.greeting(true))?;
        let publisher = open_all(address, 1, protocol.greeting(false))?.remove(0);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN;
        for (index, stream) in streams.iter().chain([&publisher]).enumerate() {
            epoll::add(&epoll, stream, epoll::EventData::new_u64(index as u64), flags)?;
        }
        let subscriber = |stream| Subscriber { stream, position: 0, ping_bytes: 0 };
        let mut random = fastrand::Rng::with_seed(message_bytes as u64);
        let mut payload: Vec<u8> = (0..message_bytes).map(|_| random.u8(..)).collect();
        payload[..4].copy_from_slice(&(message_bytes as u32).to_le_bytes());
        Ok(Broadcast {
            protocol,
            epoll,
            subscribers: streams.into_iter().map(subscriber).collect(),
            publisher,
            unsent: Vec::new(),
            frame_bytes: protocol.frames(&payload).1.len() as u64,
            payload,
            max_in_flight: in_flight,
            in_flight: VecDeque::new(),
            complete: 0,
            expected: VecDeque::new(),
            delivered: 0,
            latencies: Histogram::new(3).expect("a valid precision"),
            buffer: Vec::with_capacity(RECEIVE_BYTES),
        })
    }

    /// Publishes for some time, at least one message, and waits until all are delivered.
    fn publish_for(&mut self, time: Duration) -> io::Result<()> {
        let end = clock::now() + time;
        let mut events = Vec::with_capacity(MAX_EVENTS);
        self.publish()?;
        while !self.in_flight.is_empty() {
            events.clear();
            let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&patience)) {
                Ok(0) => {
                    let waiting = self.in_flight.front().map_or(0, |first| first.missing);
                    let number = self.complete;
                    return Err(failure(format!(
                        "{waiting} subscribers did not receive message {number} within {PATIENCE:?}"
                    )));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() as usize {
                    index if index < self.subscribers.len() => self.receive(index)?,
                    _ => self.on_publisher()?,
                }
            }
            if clock::now() < end {
                self.publish()?;
            }
        }
        Ok(())
    }

    /// Publishes as many messages as may be in flight.
    fn publish(&mut self) -> io::Result<()> {
        let published_at = clock::now();
        while self.in_flight.len() < self.max_in_flight {
            let number = self.complete + self.in_flight.len() as u64;
            self.payload[4..12].copy_from_slice(&number.to_le_bytes());
            let (published, delivered) = self.protocol.frames(&self.payload);
            self.unsent.extend_from_slice(&published);
            self.expected.extend(delivered);
            self.in_flight.push_back(InFlight { published_at, missing: self.subscribers.len() });
        }
        self.expected.make_contiguous();
        self.send()
    }

    fn send(&mut self) -> io::Result<()> {
        let waited = self.unsent.len();
        while !self.unsent.is_empty() {
            match self.publisher.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if waited > 0 {
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, !self.unsent.is_empty());
            let data = epoll::EventData::new_u64(self.subscribers.len() as u64);
            epoll::modify(&self.epoll, &self.publisher, data, flags)?;
        }
        Ok(())
    }

    /// Handles an event of the publisher: space to send, or the server's answers.
    fn on_publisher(&mut self) -> io::Result<()> {
        self.send()?;
        self.buffer.clear();
        match rustix::net::recv(
            &self.publisher,
            spare_capacity(&mut self.buffer),
            rustix::net::RecvFlags::empty(),
        ) {
            Ok(_) if self.buffer.is_empty() => {
                Err(failure("the server closed the publisher's connection"))
            }
            Ok(_) if self.protocol == Protocol::Nats => {
                let pings =
                    self.buffer.windows(NATS_PING.len()).filter(|part| *part == NATS_PING).count();
                (0..pings).try_for_each(|_| self.publisher.write_all(NATS_PONG))
            }
            Ok(_)
                if self.protocol == Protocol::Redis
                    && self.buffer.iter().all(|byte| b":0123456789\r\n".contains(byte)) =>
            {
                Ok(())
            }
            Ok(_) => {
                let text =
                    String::from_utf8_lossy(&self.buffer[..self.buffer.len().min(80)]).into_owned();
                Err(failure(format!("the server answered the publisher with {text:?}")))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives once on a subscriber's connection.
    fn receive(&mut self, index: usize) -> io::Result<()> {
        self.buffer.clear();
        let stream = &self.subscribers[index].stream;
        match rustix::net::recv(
            stream,
            spare_capacity(&mut self.buffer),
            rustix::net::RecvFlags::empty(),
        ) {
            Ok(_) if self.buffer.is_empty() => {
                Err(failure(format!("the server closed the connection of subscriber {index}")))
            }
            Ok(_) => {
                let received = std::mem::take(&mut self.buffer);
                let verified = self.verify(index, &received);
                self.buffer = received;
                verified
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Compares received bytes with the messages in flight, and counts the messages that are
    /// complete.
    fn verify(&mut self, index: usize, mut received: &[u8]) -> io::Result<()> {
        let before = self.subscribers[index].position;
        while !received.is_empty() {
            let subscriber = &mut self.subscribers[index];
            let to_boundary = self.frame_bytes - subscriber.position % self.frame_bytes;
            let mut count = received.len();
            if self.protocol == Protocol::Nats {
                // NATS servers send pings between messages.
                let rest = &NATS_PING[subscriber.ping_bytes..];
                let is_between = to_boundary == self.frame_bytes;
                let ping = rest.iter().zip(received).take_while(|(a, b)| a == b).count();
                if is_between && ping > 0 && (ping == rest.len() || ping == received.len()) {
                    received = &received[ping..];
                    subscriber.ping_bytes = (subscriber.ping_bytes + ping) % NATS_PING.len();
                    if subscriber.ping_bytes == 0 {
                        subscriber.stream.write_all(NATS_PONG)?;
                    }
                    continue;
                }
                count = count.min(to_boundary as usize);
            }
            let (part, rest) = received.split_at(count);
            let at = (subscriber.position - self.complete * self.frame_bytes) as usize;
            let expected = self.expected.as_slices().0.get(at..at + count);
            if expected != Some(part) {
                let number = subscriber.position / self.frame_bytes;
                return Err(failure(format!(
                    "subscriber {index} received a wrong byte at or after message {number}"
                )));
            }
            subscriber.position += count as u64;
            received = rest;
        }
        let after = self.subscribers[index].position;
        let [first, end] =
            [before, after].map(|position| position / self.frame_bytes - self.complete);
        for message in self.in_flight.range_mut(first as usize..end as usize) {
            message.missing -= 1;
            self.delivered += 1;
        }
        self.remove_complete();
        Ok(())
    }

    fn remove_complete(&mut self) {
        if self.in_flight.front().is_none_or(|first| first.missing > 0) {
            return;
        }
        let now = clock::now();
        while let Some(first) = self.in_flight.front()
            && first.missing == 0
        {
            let latency = (now - first.published_at).as_nanos() as u64;
            self.in_flight.pop_front();
            self.complete += 1;
            self.expected.drain(..self.frame_bytes as usize);
            self.latencies.record(latency).expect("the histogram grows");
        }
        self.expected.make_contiguous();
    }
}
