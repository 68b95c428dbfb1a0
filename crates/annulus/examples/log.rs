//! A durable log. Run `cargo run --release -p annulus --example log -- 127.0.0.1:7000 log-data`,
//! then `printf 'APPEND 1 1 5\nhello' | nc 127.0.0.1 7000` and `(echo 'FOLLOW 0'; cat) | nc
//! 127.0.0.1 7000`. `cat` keeps the connection open until ctrl-c.
//!
//! - `APPEND PRODUCER SEQUENCE LENGTH`, a line feed and the payload append a record. The answer `OK
//!   PRODUCER SEQUENCE` means that the device has the record. A producer counts its records from 1.
//!   If its answer was lost or is `ERR PRODUCER SEQUENCE REASON`, it sends the record again, and
//!   the log still has it only once.
//! - `FOLLOW OFFSET` receives the record at this offset and all later ones, including those that
//!   are appended afterwards, as lines `RECORD OFFSET PRODUCER SEQUENCE LENGTH`, each with its
//!   payload. Offsets count records from 0. Only durable records are sent. If the log cannot read a
//!   record, it sends `ERR REASON` and disconnects.
//!
//! Appends that arrive during a sync are written and synced together. After a failed write or sync,
//! the kernel may consider pages clean that the device does not have. The log then truncates the
//! file to what it has seen synced, and writes the records again when their producers send them
//! again. A file of records is a segment, named after its first offset; a new one begins after 64
//! MiB. A start locks the directory, reads all segments, and removes a torn batch from the end of
//! the last one. If more is unreadable than one batch, a segment is damaged, and the start fails.
//!
//! Limits: 10,000 clients, and further ones are disconnected; 60,000 bytes per payload; 16 MiB of
//! queued appends; 64 KiB read ahead per consumer; 20 to 40 bytes of memory per producer, forever.
//! A client, even one that reads slowly, is disconnected if its next records (64 KiB) or answers do
//! not fit into its send queue within 30 seconds. On SIGINT and SIGTERM the log answers the appends
//! that it has received, and ends with status 0. A second signal ends it at once.

use annulus::fs::{self, File, Lock, OpenOptions};
use annulus::net::{KeepAlive, ListenOptions, SendHalf, TcpStream};
use annulus::signal::{Signal, signals};
use annulus::task::JoinSet;
use annulus::time::timeout;
use futures_util::future::{Either, select};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

const MAX_CLIENTS: usize = 10_000;
const MAX_PAYLOAD: usize = 60_000;
/// Number of appends that may wait for the log.
const QUEUE: usize = 16 * 1024 * 1024 / MAX_PAYLOAD;
/// A batch that is at least this long is complete.
const FULL_BATCH: usize = 1 << 20;
/// Maximum number of bytes that are written together, and so of a torn end.
const MAX_BATCH: usize = FULL_BATCH + HEADER + MAX_PAYLOAD;
/// Bytes that a consumer reads at a time: at least one record.
const CHUNK: usize = 64 << 10;
/// Maximum number of bytes of a request's line.
const MAX_LINE: usize = 100;
const PATIENCE: Duration = Duration::from_secs(30);
/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };

#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) dir: PathBuf,
    /// A segment that is at least this long is complete.
    pub(crate) segment_bytes: u64,
    /// A mistake that the test makes, to show that it would be found.
    pub(crate) mistake: Option<Mistake>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(dead_code, reason = "only the test makes mistakes")]
pub(crate) enum Mistake {
    AcknowledgeBeforeSync,
    IgnoreFailedSync,
    TrustTornRecord,
}

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or("127.0.0.1:7000".into());
    let dir = args.next().unwrap_or("log-data".into()).into();
    annulus::run(server(address, Config { dir, segment_bytes: 64 << 20, mistake: None }))
}

pub(crate) async fn server(address: String, config: Config) -> io::Result<()> {
    let listener = ListenOptions::new().keepalive(KEEP_ALIVE).bind(address)?;
    let (log, tail) = Log::open(config).await?;
    let (log, (queue, appends)) = (Rc::new(log), mpsc::channel(QUEUE));
    let writer = annulus::spawn(write(log.clone(), tail, appends));
    let (stop, mut clients) = (CancellationToken::new(), JoinSet::new());
    annulus::spawn(cancel_on_signal(stop.clone()));
    eprintln!("listening on {}", listener.local_addr()?);
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        while clients.try_join_next().is_some() {}
        if clients.len() < MAX_CLIENTS {
            clients.spawn(serve(accepted?.0, log.clone(), queue.clone(), stop.clone()));
        }
    }
    drop((listener, queue));
    let all = async { while clients.join_next().await.is_some() {} };
    _ = timeout(PATIENCE, all).await;
    drop(clients);
    writer.await.map_err(io::Error::other)
}

async fn cancel_on_signal(stop: CancellationToken) -> io::Result<()> {
    let mut signals = signals(&[Signal::SIGINT, Signal::SIGTERM])?;
    let signal = signals.recv().await?;
    eprintln!("{signal}: no longer accepting");
    stop.cancel();
    let again = signals.recv().await?;
    std::process::exit(128 + again.number())
}

// # Clients

struct Append {
    producer: u64,
    sequence: u64,
    payload: Vec<u8>,
    answer: oneshot::Sender<Result<(), String>>,
}

async fn serve(
    mut stream: TcpStream,
    log: Rc<Log>,
    queue: mpsc::Sender<Append>,
    stop: CancellationToken,
) -> io::Result<()> {
    let (mut wanted, mut waiting, mut answers) = (1, Vec::new(), Vec::new());
    while let Some(input) = stop.run_until_cancelled(stream.fill_at_least(wanted)).await {
        let mut input = input?;
        let (shown, mut follows, mut wrong) = (input.len(), None, None);
        if shown < wanted {
            break;
        }
        wanted = 1;
        while !input.is_empty() && follows.is_none() && wrong.is_none() {
            match parse(input) {
                Ok(None) => {
                    wanted = input.len() + 1;
                    break;
                }
                Ok(Some((Request::Append { producer, sequence, payload }, rest))) => {
                    let (answer, answered) = oneshot::channel();
                    let append = Append { producer, sequence, payload: payload.to_vec(), answer };
                    queue.send(append).await.map_err(io::Error::other)?;
                    waiting.push((producer, sequence, answered));
                    input = rest;
                }
                Ok(Some((Request::Follow { offset }, rest))) => {
                    follows = Some(offset);
                    input = rest;
                }
                Err(reason) => wrong = Some(reason),
            }
        }
        let used = shown - input.len();
        stream.consume(used);
        for (producer, sequence, answered) in waiting.drain(..) {
            match answered.await.unwrap_or(Err("the log has ended".into())) {
                Ok(()) => writeln!(answers, "OK {producer} {sequence}")?,
                Err(reason) => writeln!(answers, "ERR {producer} {sequence} {reason}")?,
            }
        }
        if let Some(reason) = wrong {
            writeln!(answers, "ERR {reason}")?;
        }
        timeout(PATIENCE, stream.write_all(&answers)).await??;
        if wrong.is_some() {
            break;
        }
        answers.clear();
        if let Some(offset) = follows {
            let (mut from, mut to) = stream.into_split();
            let sends = stop.run_until_cancelled(follow(&mut to, &log, offset));
            // Whatever a consumer sends, even the end of its side, ends its connection.
            let Either::Left((Some(Err(error)), _)) = select(pin!(sends), pin!(from.recv())).await
            else {
                return Ok(());
            };
            eprintln!("a consumer is disconnected: {error}");
            return timeout(PATIENCE, to.write_all(format!("ERR {error}\n").as_bytes())).await?;
        }
    }
    stream.shutdown().await
}

enum Request<'a> {
    Append { producer: u64, sequence: u64, payload: &'a [u8] },
    Follow { offset: u64 },
}

/// Returns the first request and what follows it, or `None` if it has not arrived completely.
fn parse(input: &[u8]) -> Result<Option<(Request<'_>, &[u8])>, &'static str> {
    const USAGE: &str =
        "send APPEND PRODUCER SEQUENCE (from 1) LENGTH (up to 60000), or FOLLOW OFFSET";
    let Some(end) = input.iter().take(MAX_LINE).position(|byte| *byte == b'\n') else {
        return if input.len() < MAX_LINE { Ok(None) } else { Err(USAGE) };
    };
    let line = str::from_utf8(&input[..end]).map_err(|_| USAGE)?;
    let rest = &input[end + 1..];
    let (verb, numbers) = line.trim_end().split_once(' ').ok_or(USAGE)?;
    let numbers: Result<Vec<u64>, _> = numbers.split(' ').map(str::parse).collect();
    match (verb, &numbers.map_err(|_| USAGE)?[..]) {
        ("APPEND", &[producer, sequence, len]) if sequence > 0 && len <= MAX_PAYLOAD as u64 => {
            let append = |(payload, rest)| (Request::Append { producer, sequence, payload }, rest);
            Ok(rest.split_at_checked(len as usize).map(append))
        }
        ("FOLLOW", &[offset]) => Ok(Some((Request::Follow { offset }, rest))),
        _ => Err(USAGE),
    }
}

/// Sends all durable records from an offset on, until the consumer has left or reads too slowly.
/// Fails if the log cannot be read.
async fn follow(stream: &mut SendHalf, log: &Log, mut next: u64) -> io::Result<()> {
    let (mut durable, mut out) = (log.durable.subscribe(), Vec::new());
    loop {
        durable.wait_for(|end| *end > next).await.map_err(io::Error::other)?;
        let Segment { first, .. } = log.segment_of(next);
        let (path, mut at, mut offset) = (log.path(first), 0, first);
        let file = File::open(&path).await?;
        // Once another segment begins at `next`, this segment has no further records.
        while log.segment_of(next).first == first {
            let len = CHUNK.min((log.segment_of(first).len - at) as usize);
            let (read, chunk) = file.read_exact_at(vec![0; len], at).await;
            read?;
            let mut used = 0;
            while let Some((record, size)) = Record::decode(&chunk[used..], offset, log.checks()) {
                if offset >= next {
                    let Record { producer, sequence, payload } = record;
                    writeln!(out, "RECORD {offset} {producer} {sequence} {}", payload.len())?;
                    out.extend_from_slice(payload);
                    next = offset + 1;
                }
                (offset, used) = (offset + 1, used + size);
            }
            if used == 0 && len > 0 {
                return Err(damaged(&path, at));
            }
            at += used as u64;
            let Ok(Ok(())) = timeout(PATIENCE, stream.write_all(&out)).await else {
                return Ok(());
            };
            out.clear();
            if log.segment_of(first).len == at {
                durable.wait_for(|end| *end > next).await.map_err(io::Error::other)?;
            }
        }
    }
}

// # The log

/// A record, on the device: its checksum, the length of its payload, its producer, its sequence and
/// its payload. The checksum also covers the offset, so that no record is taken for another one.
struct Record<'a> {
    producer: u64,
    sequence: u64,
    payload: &'a [u8],
}

const HEADER: usize = 24;

impl<'a> Record<'a> {
    fn encode(&self, offset: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.payload.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.producer.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(self.payload);
        let sum = checksum(offset, &out[start + 4..]);
        out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// Returns the first record and its length, unless it is incomplete or damaged.
    fn decode(bytes: &'a [u8], offset: u64, checks: bool) -> Option<(Self, usize)> {
        let sum = u32::from_le_bytes(*bytes.first_chunk()?);
        let len = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?) as usize;
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let (producer, sequence) = (number(8)?, number(16)?);
        let payload = bytes.get(HEADER..HEADER.checked_add(len)?)?;
        let is_sound = !checks || sum == checksum(offset, &bytes[4..HEADER + len]);
        is_sound.then_some((Self { producer, sequence, payload }, HEADER + len))
    }
}

fn checksum(offset: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&offset.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

fn damaged(path: &Path, at: u64) -> io::Error {
    let text = format!("`{}` is damaged at byte {at}; restore it from a copy", path.display());
    io::Error::new(ErrorKind::InvalidData, text)
}

/// What consumers see of the log.
struct Log {
    config: Config,
    segments: RefCell<Vec<Segment>>,
    /// The offset after the last durable record.
    durable: watch::Sender<u64>,
    /// An open file whose lock keeps other processes out until this one ends.
    _lock: File,
}

/// A file of records.
#[derive(Clone, Copy)]
struct Segment {
    /// The offset of the first record.
    first: u64,
    /// Number of durable bytes.
    len: u64,
}

/// The end of the log, to which only [`write`] appends.
struct Tail {
    file: Rc<File>,
    /// Whether the file may contain bytes after the durable ones, which the device may or may not
    /// have.
    is_uncertain: bool,
    /// The offset of the next record.
    next: u64,
    /// The last sequence of each producer.
    last: HashMap<u64, u64>,
}

impl Log {
    /// Opens the log, and removes a torn batch from its end.
    async fn open(config: Config) -> io::Result<(Self, Tail)> {
        let dir = &config.dir;
        let (path, mut parents) = (std::path::absolute(dir)?, Vec::new());
        for parent in path.ancestors().skip(1) {
            parents.push(parent);
            if fs::try_exists(parent).await? {
                break;
            }
        }
        fs::create_dir_all(dir).await?;
        // A new name is durable once its directory has been synced.
        for parent in parents {
            File::open(parent).await?.sync_all().await?;
        }
        let options = OpenOptions::new().read(true).write(true).create(true);
        let lock = options.open(dir.join("lock")).await?;
        lock.try_lock(Lock::Exclusive).await.map_err(|error| {
            let text = format!("cannot lock the log in `{}`: {error}", dir.display());
            io::Error::new(error.kind(), text)
        })?;
        let (mut names, mut firsts) = (fs::read_dir(dir).await?, Vec::new());
        while let Some(entry) = names.next_entry().await? {
            let name = entry.file_name();
            firsts.extend(name.to_str().and_then(|name| {
                let first: u64 = name.strip_suffix(".log")?.parse().ok()?;
                Some(first)
            }));
        }
        firsts.sort_unstable();
        if firsts.is_empty() {
            firsts.push(0);
        }
        let (durable, segments) = (watch::Sender::new(0), RefCell::default());
        let log = Self { config, segments, durable, _lock: lock };
        let (mut next, mut last) = (0, HashMap::new());
        for (nth, &first) in firsts.iter().enumerate() {
            let path = log.path(first);
            let file = Rc::new(options.open(&path).await?);
            let mut bytes = fs::read(&path).await?;
            let mut len = 0;
            while let Some((record, size)) = Record::decode(&bytes[len..], next, log.checks())
                && record.sequence == last.get(&record.producer).unwrap_or(&0) + 1
            {
                last.insert(record.producer, record.sequence);
                (next, len) = (next + 1, len + size);
            }
            log.segments.borrow_mut().push(Segment { first, len: len as u64 });
            let torn = bytes.len() - len;
            let is_cut = firsts.get(nth + 1).is_some_and(|after| *after != next);
            if is_cut || first > next || torn > MAX_BATCH {
                return Err(damaged(&path, len as u64));
            }
            if nth + 1 == firsts.len() {
                if torn > 0 {
                    eprintln!("{torn} torn bytes are removed from {}", path.display());
                }
                // Some pages may be in memory only: a process that was killed has not synced them,
                // or its sync has failed. Pages that are written again are synced again.
                bytes.truncate(len);
                file.set_len(len as u64).await?;
                file.write_all_at(bytes, 0).await.0?;
                file.sync_all().await?;
                File::open(&log.config.dir).await?.sync_all().await?;
                log.durable.send_replace(next);
                return Ok((log, Tail { file, is_uncertain: false, next, last }));
            }
        }
        unreachable!("the last segment returns")
    }

    fn path(&self, first: u64) -> PathBuf {
        self.config.dir.join(format!("{first:020}.log"))
    }

    /// Returns the segment with the record at an offset, or the last one.
    fn segment_of(&self, offset: u64) -> Segment {
        let segments = self.segments.borrow();
        segments[segments.partition_point(|segment| segment.first <= offset) - 1]
    }

    fn checks(&self) -> bool {
        self.config.mistake != Some(Mistake::TrustTornRecord)
    }

    /// Writes records to the end of the log. They are durable if this succeeds; otherwise they may
    /// be.
    async fn store(&self, tail: &mut Tail, bytes: Vec<u8>) -> io::Result<()> {
        let Segment { first, len } = self.segment_of(u64::MAX);
        if tail.is_uncertain {
            tail.file.set_len(len).await?;
            tail.file.sync_all().await?;
            tail.is_uncertain = false;
        }
        let mut at = len;
        if len >= self.config.segment_bytes && tail.next > first {
            let options = OpenOptions::new().read(true).write(true).create(true).truncate(true);
            let file = options.open(self.path(tail.next)).await?;
            File::open(&self.config.dir).await?.sync_all().await?;
            self.segments.borrow_mut().push(Segment { first: tail.next, len: 0 });
            (tail.file, at) = (Rc::new(file), 0);
        }
        let end = at + bytes.len() as u64;
        tail.is_uncertain = true;
        match self.config.mistake {
            Some(Mistake::AcknowledgeBeforeSync) => {
                tail.file.write_all_at(bytes, at).await.0?;
                let file = tail.file.clone();
                annulus::spawn(async move { file.sync_data().await });
            }
            Some(Mistake::IgnoreFailedSync) => {
                tail.file.write_all_at(bytes, at).await.0?;
                _ = tail.file.sync_data().await;
            }
            _ => tail.file.write_durable_at(bytes, at).await.0?,
        }
        tail.is_uncertain = false;
        self.segments.borrow_mut().last_mut().expect("a segment").len = end;
        Ok(())
    }
}

/// Stores queued appends until the queue is closed. Those that wait together are synced together.
async fn write(log: Rc<Log>, mut tail: Tail, mut queue: mpsc::Receiver<Append>) {
    while let Some(append) = queue.recv().await {
        let (mut batch, mut bytes, mut offset) = (Vec::new(), Vec::new(), tail.next);
        let (mut last, mut append) = (HashMap::new(), Some(append));
        while let Some(Append { producer, sequence, payload, answer }) = append {
            let stored = *tail.last.get(&producer).unwrap_or(&0);
            let before = *last.get(&producer).unwrap_or(&stored);
            if sequence == before + 1 {
                let record = Record { producer, sequence, payload: &payload };
                record.encode(offset, &mut bytes);
                last.insert(producer, sequence);
                offset += 1;
            }
            batch.push((sequence, before, stored, answer));
            let is_full = bytes.len() >= FULL_BATCH;
            append = if is_full { None } else { queue.try_recv().ok() };
        }
        let is_empty = bytes.is_empty();
        let outcome = if is_empty { Ok(()) } else { log.store(&mut tail, bytes).await };
        let failure = outcome.err().map(|error| format!("was not stored ({error}); send it again"));
        if let Some(failure) = &failure {
            eprintln!("a batch of {} records {failure}", batch.len());
        } else {
            tail.next = offset;
            tail.last.extend(last);
            log.durable.send_replace(offset);
        }
        for (sequence, before, stored, answer) in batch {
            // A producer that has left needs no answer.
            _ = answer.send(match &failure {
                Some(failure) if sequence > stored => Err(failure.clone()),
                _ if sequence > before + 1 => Err(format!("comes too early; send {}", before + 1)),
                _ => Ok(()),
            });
        }
    }
}
