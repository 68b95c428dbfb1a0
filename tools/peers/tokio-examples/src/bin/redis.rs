//! The twin of `examples/redis.rs` on tokio.

use bytes::{Buf, BytesMut};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, interval, timeout};

/// The most bytes of a command, of one that is a line of text, and of answers that wait for each other.
const LIMIT: usize = 64 << 20;
const LINE_LIMIT: usize = 64 << 10;
const BATCH: usize = 64 << 10;
/// How long a client that is refused may take to end.
const PATIENCE: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "local")]
async fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or("127.0.0.1:6379".into());
    let most: usize = args.next().unwrap_or("10000".into()).parse().map_err(io::Error::other)?;
    let listener = TcpListener::bind(address).await?;
    eprintln!("listening on {}", listener.local_addr()?);
    let store = Rc::new(RefCell::new(Store::default()));
    tokio::task::spawn_local(expire(store.clone()));
    loop {
        let (stream, _peer) = listener.accept().await?;
        // Each client that is served has the store, and so have this task and that of the deadlines.
        if Rc::strong_count(&store) < most + 2 {
            tokio::task::spawn_local(serve(stream, store.clone()));
        } else {
            tokio::task::spawn_local(refuse(stream));
        }
    }
}

async fn refuse(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(b"-ERR max number of clients reached\r\n").await?;
    stream.shutdown().await?;
    // What the client has sent is read: else it would see a reset, perhaps before it sees the error.
    let mut buffer = BytesMut::new();
    let rest = async {
        while let Ok(1..) = stream.read_buf(&mut buffer).await {
            buffer.clear()
        }
    };
    Ok(timeout(PATIENCE, rest).await?)
}

async fn serve(mut stream: TcpStream, store: Rc<RefCell<Store>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut buffer, mut out, mut command) = (BytesMut::new(), Vec::new(), Command::default());
    loop {
        buffer.reserve(16 << 10);
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        loop {
            match command.parse(&buffer) {
                Ok(true) => store.borrow_mut().execute(&command, &buffer, &mut out),
                Ok(false) => break,
                Err(why) => {
                    error(&mut out, &format!("Protocol error: {why}"));
                    return stream.write_all(&out).await;
                }
            }
            buffer.advance(command.finish());
            if out.len() >= BATCH {
                stream.write_all(&out).await?;
                out.clear();
            }
        }
        stream.write_all(&out).await?;
        out.clear();
        out.shrink_to(BATCH);
    }
}

/// Removes keys whose time is over and that nothing asks for.
async fn expire(store: Rc<RefCell<Store>>) {
    let mut seconds = interval(Duration::from_secs(1));
    loop {
        let now = seconds.tick().await;
        let Store { values, deadlines } = &mut *store.borrow_mut();
        for (key, _) in deadlines.extract_if(|_, deadline| *deadline <= now) {
            values.remove(&key);
        }
    }
}

/// A command that is being parsed. If it is not whole, parsing goes on where it was once there is more.
#[derive(Default)]
struct Command {
    words: Vec<Range<usize>>,
    /// Words that are still to come.
    missing: usize,
    /// How many bytes are parsed.
    at: usize,
}

impl Command {
    /// Whether the input begins with a whole command.
    fn parse(&mut self, input: &[u8]) -> Result<bool, String> {
        if self.at == 0 {
            match input.first() {
                None => return Ok(false),
                Some(b'*') => {}
                Some(_) => return self.parse_line(input),
            }
            let Some(count) = self.number(input, b'*')? else { return Ok(false) };
            self.missing = count;
        }
        while self.missing > 0 {
            let start = self.at;
            let Some(len) = self.number(input, b'$')? else { return Ok(false) };
            if self.at + len > LIMIT {
                return Err(format!("a command of more than {LIMIT} bytes"));
            }
            if input.len() < self.at + len + 2 {
                self.at = start;
                return Ok(false);
            }
            self.words.push(self.at..self.at + len);
            self.at += len + 2;
            self.missing -= 1;
        }
        Ok(true)
    }

    /// A command as it is typed: words in a line.
    fn parse_line(&mut self, input: &[u8]) -> Result<bool, String> {
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
            return match input.len() {
                ..LINE_LIMIT => Ok(false),
                _ => Err(format!("a line of more than {LINE_LIMIT} bytes")),
            };
        };
        for word in input[..end].split(u8::is_ascii_whitespace) {
            if !word.is_empty() {
                self.words.push(self.at..self.at + word.len());
            }
            self.at += word.len() + 1;
        }
        Ok(true)
    }

    /// A number in a line of its own, behind a mark; none if the line is not whole.
    fn number(&mut self, input: &[u8], mark: u8) -> Result<Option<usize>, String> {
        let (line, digit) = (&input[self.at..], |byte: &u8| byte.is_ascii_digit());
        let length = line.iter().take(12).position(|&byte| byte == b'\n');
        if length.is_none() && line.len() < 12 {
            return Ok(None);
        }
        let digits = length.and_then(|end| line[..end].strip_prefix(&[mark])?.strip_suffix(b"\r"));
        let number = digits
            .filter(|digits| !digits.is_empty() && digits.iter().all(digit))
            .map(|digits| digits.iter().fold(0, |sum, byte| sum * 10 + usize::from(byte - b'0')))
            .filter(|&number| number <= LIMIT);
        let Some(number) = number else {
            return Err(format!("no number from 0 to {LIMIT} behind a '{}'", char::from(mark)));
        };
        self.at += length.unwrap_or(0) + 1;
        Ok(Some(number))
    }

    /// Makes room for the next command; the length of this one.
    fn finish(&mut self) -> usize {
        self.words.clear();
        self.words.shrink_to(BATCH);
        std::mem::take(&mut self.at)
    }
}

#[derive(Default)]
struct Store {
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// When keys that have a time to live end.
    deadlines: HashMap<Vec<u8>, Instant>,
}

impl Store {
    fn execute(&mut self, command: &Command, input: &[u8], out: &mut Vec<u8>) {
        if command.words.is_empty() {
            return;
        }
        let word = |n: usize| &input[command.words[n].clone()];
        let mut name = [0; 8];
        let length = word(0).len().min(name.len());
        name[..length].copy_from_slice(&word(0)[..length]);
        name.make_ascii_uppercase();
        let keys = || (1..command.words.len()).map(word);
        match (&name[..length], command.words.len()) {
            (b"GET", 2) => bulk(out, self.get(word(1))),
            (b"SET", 3) => {
                self.set(word(1), word(2));
                out.extend_from_slice(b"+OK\r\n");
            }
            (b"SET", 5) => match deadline(word(3), word(4)) {
                Some(deadline) => {
                    self.set(word(1), word(2));
                    self.deadlines.insert(word(1).into(), deadline);
                    out.extend_from_slice(b"+OK\r\n");
                }
                None => error(out, "syntax error: SET key value EX seconds, or PX milliseconds"),
            },
            (b"MSET", 3..) if command.words.len() % 2 == 1 => {
                for n in (1..command.words.len()).step_by(2) {
                    self.set(word(n), word(n + 1));
                }
                out.extend_from_slice(b"+OK\r\n");
            }
            (b"MGET", 2..) => {
                number(out, b'*', command.words.len() as i64 - 1);
                keys().for_each(|key| bulk(out, self.get(key)));
            }
            (b"EXISTS", 2..) => {
                number(out, b':', keys().filter(|key| self.get(key).is_some()).count() as i64)
            }
            (b"DEL", 2..) => {
                number(out, b':', keys().filter(|key| self.remove(key)).count() as i64)
            }
            (b"INCR", 2) => match self.increment(word(1)) {
                Some(sum) => number(out, b':', sum),
                None => error(out, "value is not an integer or out of range"),
            },
            (b"EXPIRE", 3) => match deadline(b"EX", word(2)) {
                Some(deadline) => number(out, b':', self.end_at(word(1), deadline).into()),
                None => error(out, "value is not an integer or out of range"),
            },
            (b"TTL", 2) => number(out, b':', self.time_to_live(word(1))),
            (b"PING", 1) => out.extend_from_slice(b"+PONG\r\n"),
            (b"PING" | b"ECHO", 2) => bulk(out, Some(word(1))),
            // What clients ask first: which commands there are, and settings, of which there are none.
            (b"COMMAND", _) => number(out, b'*', 0),
            (b"CONFIG", 3) => {
                number(out, b'*', 2);
                bulk(out, Some(word(2)));
                bulk(out, Some(b""));
            }
            (b"CLIENT", _) => out.extend_from_slice(b"+OK\r\n"),
            (name, _) => error(
                out,
                &format!("unknown command '{}', or not with so many words", name.escape_ascii()),
            ),
        }
    }

    fn get(&mut self, key: &[u8]) -> Option<&[u8]> {
        if self.deadlines.get(key).is_some_and(|deadline| *deadline <= Instant::now()) {
            self.remove(key);
        }
        self.values.get(key).map(Vec::as_slice)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        self.deadlines.remove(key);
        match self.values.get_mut(key) {
            Some(known) => value.clone_into(known),
            None => drop(self.values.insert(key.into(), value.into())),
        }
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let over = self.deadlines.remove(key).is_some_and(|deadline| deadline <= Instant::now());
        self.values.remove(key).is_some() && !over
    }

    fn increment(&mut self, key: &[u8]) -> Option<i64> {
        let number = self.get(key).map_or(Some(0), |text| str::from_utf8(text).ok()?.parse().ok());
        let sum: i64 = number.and_then(|number: i64| number.checked_add(1))?;
        self.values.insert(key.into(), sum.to_string().into());
        Some(sum)
    }

    fn end_at(&mut self, key: &[u8], deadline: Instant) -> bool {
        let known = self.get(key).is_some();
        if known {
            self.deadlines.insert(key.into(), deadline);
        }
        known
    }

    /// In seconds: -1 for ever, -2 if there is no such key.
    fn time_to_live(&mut self, key: &[u8]) -> i64 {
        match (self.get(key).is_some(), self.deadlines.get(key)) {
            (true, Some(deadline)) => {
                deadline.duration_since(Instant::now()).as_secs_f64().ceil() as i64
            }
            (true, None) => -1,
            (false, _) => -2,
        }
    }
}

/// In so many seconds (EX) or milliseconds (PX).
fn deadline(unit: &[u8], amount: &[u8]) -> Option<Instant> {
    let amount = str::from_utf8(amount).ok()?.parse().ok()?;
    let time = match unit.to_ascii_uppercase().as_slice() {
        b"EX" => Duration::from_secs(amount),
        b"PX" => Duration::from_millis(amount),
        _ => return None,
    };
    Instant::now().checked_add(time)
}

fn bulk(out: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(value) = value else { return out.extend_from_slice(b"$-1\r\n") };
    number(out, b'$', value.len() as i64);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn number(out: &mut Vec<u8>, mark: u8, number: i64) {
    out.push(mark);
    _ = write!(out, "{number}\r\n");
}

fn error(out: &mut Vec<u8>, why: &str) {
    _ = write!(out, "-ERR {why}\r\n");
}
