//! Common parts of the contenders of `bench log`: requests, batches of records, and the segments
//! that hold them. They are those of `crates/annulus/examples/log.rs`, without consumers and without
//! recovery: a failed write ends the program.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Error, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use tokio::sync::{mpsc, oneshot};

const MAX_PAYLOAD: usize = 60_000;
/// Number of appends that may wait for the log.
pub const QUEUE: usize = 16 * 1024 * 1024 / MAX_PAYLOAD;
/// Bytes that are written together, except for the last record.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// A segment that is at least this long is complete.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Maximum number of bytes of a request's line.
const MAX_LINE: usize = 100;
/// Bytes that a connection reads at first. Longer requests make the buffer grow.
pub const INPUT: usize = 4096;

/// Where a contender listens, and the empty directory for its segments.
pub struct Place {
    pub address: SocketAddr,
    pub dir: PathBuf,
}

/// A record to append.
pub struct Append<A> {
    pub producer: u64,
    pub sequence: u64,
    pub payload: Vec<u8>,
    /// Receives the outcome.
    pub answer: A,
}

/// `Ok` once the record is durable, otherwise why it was refused.
pub type Outcome = Result<(), String>;

/// A request to append.
pub struct Request<'a> {
    pub producer: u64,
    pub sequence: u64,
    pub payload: &'a [u8],
    /// Bytes of the request.
    pub bytes: usize,
}

impl Request<'_> {
    /// Returns the record, and whom to tell.
    pub fn append<A>(&self, answer: A) -> Append<A> {
        let Request { producer, sequence, payload, .. } = *self;
        Append { producer, sequence, payload: payload.to_vec(), answer }
    }
}

/// Returns the first request, or `None` if it has not arrived completely.
pub fn parse(input: &[u8]) -> io::Result<Option<Request<'_>>> {
    let wrong = || Error::new(ErrorKind::InvalidData, "not APPEND PRODUCER SEQUENCE LENGTH");
    let Some(end) = input.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
        return if input.len() < MAX_LINE { Ok(None) } else { Err(wrong()) };
    };
    let line = str::from_utf8(&input[..end]).map_err(|_| wrong())?;
    let numbers = line.strip_prefix("APPEND ").ok_or_else(wrong)?.split(' ').map(str::parse);
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().map_err(|_| wrong())?;
    match numbers[..] {
        [producer, sequence, len] if sequence > 0 && len <= MAX_PAYLOAD as u64 => {
            let bytes = end + 1 + len as usize;
            let payload = input.get(end + 1..bytes);
            Ok(payload.map(|payload| Request { producer, sequence, payload, bytes }))
        }
        _ => Err(wrong()),
    }
}

/// Appends the answer to a request.
pub fn answer(answers: &mut Vec<u8>, producer: u64, sequence: u64, outcome: Outcome) {
    let written = match outcome {
        Ok(()) => writeln!(answers, "OK {producer} {sequence}"),
        Err(reason) => writeln!(answers, "ERR {producer} {sequence} {reason}"),
    };
    written.expect("a vector takes all bytes");
}

/// The sender of an outcome to the task of a connection.
pub type Answer = oneshot::Sender<Outcome>;

/// The task of a connection, except for its receives and sends.
pub struct Producer {
    queue: mpsc::Sender<Append<Answer>>,
    waiting: Vec<(u64, u64, oneshot::Receiver<Outcome>)>,
}

impl Producer {
    pub fn new(queue: mpsc::Sender<Append<Answer>>) -> Producer {
        Producer { queue, waiting: Vec::new() }
    }

    /// Queues the complete requests at the start of `input` and removes them, and appends their
    /// answers once all of them are durable.
    pub async fn process(&mut self, input: &mut Vec<u8>, answers: &mut Vec<u8>) -> io::Result<()> {
        let mut used = 0;
        while let Some(request) = parse(&input[used..])? {
            let (answer, answered) = oneshot::channel();
            self.queue.send(request.append(answer)).await.map_err(Error::other)?;
            self.waiting.push((request.producer, request.sequence, answered));
            used += request.bytes;
        }
        input.drain(..used);
        for (producer, sequence, answered) in self.waiting.drain(..) {
            answer(answers, producer, sequence, answered.await.map_err(Error::other)?);
        }
        Ok(())
    }
}

/// The records so far: how many, and the last sequence of each producer.
#[derive(Default)]
pub struct Records {
    next: u64,
    last: HashMap<u64, u64>,
}

/// Records that are written and synced together.
pub struct Batch<A> {
    pub bytes: Vec<u8>,
    answers: Vec<(A, Outcome)>,
}

impl Records {
    /// Collects appends until none is left or the batch is full.
    pub fn batch<A>(
        &mut self,
        first: Append<A>,
        mut more: impl FnMut() -> Option<Append<A>>,
    ) -> Batch<A> {
        let mut batch = Batch { bytes: Vec::new(), answers: Vec::new() };
        let mut next = Some(first);
        while let Some(append) = next {
            self.add(append, &mut batch);
            let is_full = batch.bytes.len() >= MAX_BATCH_BYTES;
            next = if is_full { None } else { more() };
        }
        batch
    }

    fn add<A>(&mut self, append: Append<A>, batch: &mut Batch<A>) {
        let Append { producer, sequence, payload, answer } = append;
        let last = self.last.entry(producer).or_default();
        let mut outcome = Ok(());
        if sequence == *last + 1 {
            *last = sequence;
            let (start, out) = (batch.bytes.len(), &mut batch.bytes);
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
            out.extend_from_slice(&producer.to_le_bytes());
            out.extend_from_slice(&sequence.to_le_bytes());
            out.extend_from_slice(&payload);
            let sum = checksum(self.next, &out[start + 4..]);
            out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
            self.next += 1;
        } else if sequence > *last {
            outcome = Err(format!("comes too early; send {}", *last + 1));
        }
        batch.answers.push((answer, outcome));
    }
}

impl<A> Batch<A> {
    /// Returns whom to tell what, now that the records are durable.
    pub fn answers(self) -> impl Iterator<Item = (A, Outcome)> {
        self.answers.into_iter()
    }
}

fn checksum(offset: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&offset.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// A write to a file with this flag ends once the bytes are on the device: one call per batch, as
/// the example's `write_durable_at`, instead of a write and a sync.
pub const DURABLE: i32 = libc::O_DSYNC;

/// The names of the segments, and the end of the last one.
pub struct Segments {
    dir: PathBuf,
    count: u32,
    pub end: u64,
}

impl Segments {
    pub fn new(dir: PathBuf) -> Segments {
        Segments { dir, count: 0, end: SEGMENT_BYTES }
    }

    /// Returns the path of a new segment, if the next records need one.
    pub fn next(&mut self) -> Option<PathBuf> {
        if self.end < SEGMENT_BYTES {
            return None;
        }
        (self.end, self.count) = (0, self.count + 1);
        Some(self.dir.join(format!("{:020}.log", self.count)))
    }

    /// Makes the names in the directory durable.
    pub fn sync_names(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

/// Segments, written by plain calls.
pub struct Writer {
    segments: Segments,
    file: Option<File>,
}

impl Writer {
    pub fn new(dir: PathBuf) -> Writer {
        Writer { segments: Segments::new(dir), file: None }
    }

    /// Writes records to the end of the log. They are durable if this succeeds.
    pub fn store(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some(path) = self.segments.next() {
            let mut options = File::options();
            let options = options.write(true).create(true).truncate(true).custom_flags(DURABLE);
            self.file = Some(options.open(path)?);
            self.segments.sync_names()?;
        }
        let file = self.file.as_ref().expect("the first batch creates a segment");
        file.write_all_at(bytes, self.segments.end)?;
        self.segments.end += bytes.len() as u64;
        Ok(())
    }
}
