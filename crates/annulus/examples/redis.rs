//! A store that speaks the Redis protocol. Run `cargo run --release -p annulus --example redis --
//! 127.0.0.1:6379 10000`, then `redis-cli` or `redis-benchmark -t get,set -P 16`.
//!
//! It supports PING, ECHO, GET, SET (with EX and PX), MGET, MSET, DEL, EXISTS, INCR, INCRBY,
//! EXPIRE, TTL, SUBSCRIBE, PSUBSCRIBE, UNSUBSCRIBE, PUNSUBSCRIBE, PUBLISH, HELLO (RESP2 and RESP3),
//! RESET and QUIT. COMMAND, CONFIG and CLIENT, which clients send first, are answered but have no
//! effect. A subscriber that is 32 MiB behind is disconnected, as by redis-server. Commands are
//! parsed in the memory into which the kernel received them. Answers to commands that arrive
//! together are sent together. Limits: 10,000 clients (the last argument), and further ones get an
//! error at once, as from redis-server; 64 MiB per command and per answer. Stored data is
//! unlimited, and a silent client may stay for any time. SIGINT and SIGTERM end the server once
//! queued answers have been sent; the data is lost.

use annulus::SharedBytes;
use annulus::net::{
    KeepAlive, ListenOptions, MemberId, SendGroup, SendHalf, SlowMembers, TcpStream,
};
use annulus::signal::until_terminated;
use annulus::task::yield_now;
use annulus::time::{Instant, MissedTickBehavior, interval, timeout};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Maximum number of bytes of a command and of an inline command. Answers are sent together until
/// they reach `BATCH` bytes.
const LIMIT: usize = 64 << 20;
const LINE_LIMIT: usize = 64 << 10;
const BATCH: usize = 64 << 10;
/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };
/// Maximum number of expired keys removed per poll. It is small, because the loop only checks for
/// input from clients after 61 polls.
const EXPIRED_AT_ONCE: usize = 4;
/// Maximum number of bytes queued for a subscriber.
const BEHIND: usize = 32 << 20;
/// Time in which a refused client must close its connection.
const PATIENCE: Duration = Duration::from_secs(1);

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or("127.0.0.1:6379".into());
    let most: usize = args.next().unwrap_or("10000".into()).parse().map_err(io::Error::other)?;
    annulus::run(until_terminated(async {
        let listener = ListenOptions::new().keepalive(KEEP_ALIVE).bind(address)?;
        eprintln!("listening on {}", listener.local_addr()?);
        let store = Rc::new(RefCell::new(Store::default()));
        annulus::spawn(expire(store.clone()));
        loop {
            let (stream, _peer) = listener.accept().await?;
            // Each served client holds a reference to the store, and so do this task and the task
            // that removes expired keys.
            if Rc::strong_count(&store) < most + 2 {
                annulus::spawn(serve(stream, store.clone()));
            } else {
                annulus::spawn(refuse(stream));
            }
        }
    }))
}

async fn refuse(mut stream: TcpStream) -> io::Result<()> {
    stream.send("-ERR max number of clients reached\r\n").await?;
    stream.shutdown().await?;
    // Reads the rest of the client's bytes. Otherwise, the client would see a reset, perhaps before
    // the error.
    let rest = async { while let Ok(Some(_)) = stream.recv().await {} };
    Ok(timeout(PATIENCE, rest).await?)
}

async fn serve(stream: TcpStream, store: Rc<RefCell<Store>>) -> io::Result<()> {
    let (mut from, to) = stream.into_split();
    let client = Client { to, version: 2, memberships: Vec::new() };
    let Served { client, store } = &mut Served { client, store };
    let (mut wanted, mut out, mut command) = (1, Vec::new(), Command::default());
    loop {
        // Borrows the bytes where they were received. A command that spans several buffers is
        // gathered.
        let mut input = from.fill_at_least(wanted).await?;
        let shown = input.len();
        if shown < wanted {
            return Ok(());
        }
        wanted = 1;
        while out.len() < BATCH {
            match command.parse(input) {
                Ok(true) => {
                    let is_open = {
                        let store = &mut *store.borrow_mut();
                        store.execute(&command, input, &mut out, client)
                    };
                    if !is_open {
                        return client.to.write_all(&out).await;
                    }
                }
                Ok(false) => {
                    wanted = input.len() + 1;
                    break;
                }
                Err(why) => {
                    error(&mut out, &format!("Protocol error: {why}"));
                    return client.to.write_all(&out).await;
                }
            }
            input = &input[command.finish()..];
            if client.is_subscriber() {
                // Answers are in order with messages, and a message never splits an answer.
                client.to.send(std::mem::take(&mut out)).await?;
            }
        }
        let used = shown - input.len();
        from.consume(used);
        client.to.write_all(&out).await?;
        out.clear();
        out.shrink_to(BATCH);
    }
}

struct Client {
    to: SendHalf,
    /// The version of the protocol.
    version: usize,
    /// The channels and patterns that it subscribes to, in order.
    memberships: Vec<(Subject, MemberId)>,
}

impl Client {
    fn is_subscriber(&self) -> bool {
        !self.memberships.is_empty()
    }
}

/// Ends the subscriptions of a client when it has gone.
struct Served {
    client: Client,
    store: Rc<RefCell<Store>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.store.borrow_mut().unsubscribe_from_everything(&mut self.client);
    }
}

/// What clients subscribe to.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Subject {
    Channel(Vec<u8>),
    Pattern(Vec<u8>),
}

/// Removes expired keys that no client asks for.
async fn expire(store: Rc<RefCell<Store>>) {
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        seconds.tick().await;
        // Clients are served between batches.
        while !store.borrow_mut().remove_ended(EXPIRED_AT_ONCE) {
            yield_now().await;
        }
    }
}

/// A command being parsed. If the input ends too early, the next call continues with the first
/// incomplete word, or with the whole line of an inline command.
#[derive(Default)]
struct Command {
    words: Vec<Range<usize>>,
    /// The words of an inline command, without quotes. The words of other commands stay where they
    /// were received.
    line: Vec<u8>,
    /// Number of words still to be parsed.
    missing: usize,
    /// Number of bytes parsed.
    at: usize,
}

impl Command {
    /// Returns true if the input begins with a complete command.
    fn parse(&mut self, input: &[u8]) -> Result<bool, String> {
        if self.at == 0 {
            match input.first() {
                None => return Ok(false),
                Some(b'*') => {}
                Some(_) => return self.parse_line(input),
            }
            let Some(count) = self.number(input, b'*')? else { return Ok(false) };
            // As in redis-server, a negative count is a command without words.
            self.missing = count.try_into().unwrap_or(0);
        }
        while self.missing > 0 {
            let start = self.at;
            let Some(len) = self.number(input, b'$')? else { return Ok(false) };
            let len = usize::try_from(len).map_err(|_| "invalid bulk length")?;
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

    /// Parses an inline command, as typed: a line of words, quoted if they contain spaces.
    fn parse_line(&mut self, input: &[u8]) -> Result<bool, String> {
        let Some(end) = input.iter().position(|&byte| byte == b'\n') else {
            return match input.len() {
                ..LINE_LIMIT => Ok(false),
                _ => Err(format!("a line of more than {LINE_LIMIT} bytes")),
            };
        };
        self.at = end + 1;
        let mut rest = input[..end].trim_ascii_start();
        while !rest.is_empty() {
            let start = self.line.len();
            rest = self.unquote(rest).ok_or("unbalanced quotes in request")?.trim_ascii_start();
            self.words.push(start..self.line.len());
        }
        Ok(true)
    }

    /// Appends the first word to the line without its quotes, and returns the rest. Returns `None`
    /// if a quote is not closed, or no space follows the closing one.
    fn unquote<'a>(&mut self, mut rest: &'a [u8]) -> Option<&'a [u8]> {
        let mut quote = None;
        while let Some((&byte, mut next)) = rest.split_first() {
            match (quote, byte, next) {
                (None, _, _) if byte.is_ascii_whitespace() => break,
                (None, b'"' | b'\'', _) => quote = Some(byte),
                (Some(b'"'), b'\\', [byte, ..]) | (Some(b'\''), b'\\', [byte @ b'\'', ..]) => {
                    let control = b"nrt".iter().position(|name| name == byte);
                    self.line.push(control.map_or(*byte, |n| b"\n\r\t"[n]));
                    next = &next[1..];
                }
                (Some(open), _, _) if open == byte => {
                    return next.first().is_none_or(u8::is_ascii_whitespace).then_some(next);
                }
                _ => self.line.push(byte),
            }
            rest = next;
        }
        quote.is_none().then_some(rest)
    }

    /// Parses a number on a line of its own, after a mark. Returns `None` if the line is
    /// incomplete.
    fn number(&mut self, input: &[u8], mark: u8) -> Result<Option<i64>, String> {
        let line = &input[self.at..];
        let length = line.iter().take(13).position(|&byte| byte == b'\n');
        if length.is_none() && line.len() < 13 {
            return Ok(None);
        }
        let digits = length.and_then(|end| line[..end].strip_prefix(&[mark])?.strip_suffix(b"\r"));
        let number = digits.and_then(integer).filter(|&number| number <= LIMIT as i64);
        let Some(number) = number else {
            return Err(format!("expected a number up to {LIMIT} after '{}'", char::from(mark)));
        };
        self.at += length.unwrap_or(0) + 1;
        Ok(Some(number))
    }

    /// Prepares for the next command and returns the length of this one.
    fn finish(&mut self) -> usize {
        self.words.clear();
        self.line.clear();
        self.words.shrink_to(BATCH);
        std::mem::take(&mut self.at)
    }
}

struct Words<'a> {
    command: &'a Command,
    input: &'a [u8],
}

impl<'a> Words<'a> {
    fn get(&self, n: usize) -> &'a [u8] {
        &self.input[self.command.words[n].clone()]
    }

    fn count(&self) -> usize {
        self.command.words.len()
    }

    fn keys(&self) -> impl Iterator<Item = &'a [u8]> {
        (1..self.count()).map(|n| self.get(n))
    }
}

#[derive(Default)]
struct Store {
    /// The subscribers, by the version of their protocol: 2 and 3.
    subscribers: HashMap<Subject, [SendGroup; 2]>,
    /// The group that received the last message. It is flushed before another group receives a
    /// message, so that a client in several groups gets messages in order.
    last: Option<(Subject, usize, SendGroup)>,
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// When keys with a time to live expire.
    deadlines: HashMap<Vec<u8>, Instant>,
    /// The keys in `deadlines`, ordered by the time at which they expire.
    ends: BTreeSet<(Instant, Vec<u8>)>,
}

impl Store {
    /// Executes a command. Returns true if the connection stays open.
    fn execute(
        &mut self,
        command: &Command,
        input: &[u8],
        out: &mut Vec<u8>,
        client: &mut Client,
    ) -> bool {
        if command.words.is_empty() {
            return true;
        }
        let input = if command.line.is_empty() { input } else { &command.line };
        let words = Words { command, input };
        let mut name = [0; 16];
        let length = words.get(0).len().min(name.len());
        name[..length].copy_from_slice(&words.get(0)[..length]);
        name.make_ascii_uppercase();
        let name = &name[..length];
        if client.is_subscriber() && client.version == 2 && !is_for_subscribers(name) {
            let name = words.get(0).to_ascii_lowercase();
            let allowed = "(P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET";
            let why = format!(
                "Can't execute '{}': only {allowed} are allowed in this context",
                name.escape_ascii()
            );
            error(out, &why);
            return true;
        }
        self.execute_on_values(name, &words, out, client.version)
            || self.execute_on_subscriptions(name, &words, out, client)
            || answer(name, &words, out, client)
    }

    /// Executes a command about values, or returns false.
    fn execute_on_values(
        &mut self,
        name: &[u8],
        words: &Words<'_>,
        out: &mut Vec<u8>,
        version: usize,
    ) -> bool {
        let value = |out: &mut Vec<u8>, value: Option<&[u8]>| match value {
            None if version == 3 => out.extend_from_slice(b"_\r\n"),
            value => bulk(out, value),
        };
        match (name, words.count()) {
            (b"GET", 2) => value(out, self.get(words.get(1))),
            (b"SET", 3) => {
                self.set(words.get(1), words.get(2));
                out.extend_from_slice(b"+OK\r\n");
            }
            (b"SET", 5) => self.set_until(
                words.get(1),
                words.get(2),
                deadline(words.get(3), words.get(4)),
                out,
            ),
            (b"MSET", 3..) if words.count() % 2 == 1 => {
                for n in (1..words.count()).step_by(2) {
                    self.set(words.get(n), words.get(n + 1));
                }
                out.extend_from_slice(b"+OK\r\n");
            }
            (b"MGET", 2..) => {
                let start = out.len();
                number(out, b'*', words.count() as i64 - 1);
                if !words.keys().all(|key| {
                    value(out, self.get(key));
                    out.len() - start <= LIMIT
                }) {
                    out.truncate(start);
                    error(out, "the answer is too long: ask for fewer keys");
                }
            }
            (b"EXISTS", 2..) => {
                number(out, b':', words.keys().filter(|key| self.get(key).is_some()).count() as i64)
            }
            (b"DEL", 2..) => {
                number(out, b':', words.keys().filter(|key| self.remove(key)).count() as i64)
            }
            (b"INCR", 2) => self.increment(words.get(1), b"1", out),
            (b"INCRBY", 3) => self.increment(words.get(1), words.get(2), out),
            (b"EXPIRE", 3) => self.expire(words.get(1), deadline(b"EX", words.get(2)), out),
            (b"TTL", 2) => number(out, b':', self.time_to_live(words.get(1))),
            _ => return false,
        }
        true
    }

    /// Executes a command about subscriptions or the version of the protocol, or returns false.
    fn execute_on_subscriptions(
        &mut self,
        name: &[u8],
        words: &Words<'_>,
        out: &mut Vec<u8>,
        client: &mut Client,
    ) -> bool {
        match (name, words.count()) {
            (b"SUBSCRIBE", 2..) => words.keys().for_each(|name| {
                self.subscribe(client, Subject::Channel(name.into()), out);
            }),
            (b"PSUBSCRIBE", 2..) => words.keys().for_each(|name| {
                self.subscribe(client, Subject::Pattern(name.into()), out);
            }),
            (b"UNSUBSCRIBE", _) => {
                let is_channel = |subject: &Subject| matches!(subject, Subject::Channel(_));
                let named = words.keys().map(|name| Subject::Channel(name.into())).collect();
                self.unsubscribe_all(client, "unsubscribe", named, is_channel, out);
            }
            (b"PUNSUBSCRIBE", _) => {
                let is_pattern = |subject: &Subject| matches!(subject, Subject::Pattern(_));
                let named = words.keys().map(|name| Subject::Pattern(name.into())).collect();
                self.unsubscribe_all(client, "punsubscribe", named, is_pattern, out);
            }
            (b"PUBLISH", 3) => {
                let count = self.publish(words.get(1), words.get(2), client.is_subscriber());
                number(out, b':', count as i64);
            }
            (b"HELLO", 1) => hello(out, client.version),
            (b"HELLO", 2) => match words.get(1) {
                b"2" | b"3" => {
                    self.change_version(client, usize::from(words.get(1)[0] - b'0'));
                    hello(out, client.version);
                }
                _ => out.extend_from_slice(b"-NOPROTO unsupported protocol version\r\n"),
            },
            (b"RESET", 1) => {
                self.unsubscribe_from_everything(client);
                client.version = 2;
                out.extend_from_slice(b"+RESET\r\n");
            }
            _ => return false,
        }
        true
    }

    fn subscribe(&mut self, client: &mut Client, subject: Subject, out: &mut Vec<u8>) {
        if !client.memberships.iter().any(|(known, _)| *known == subject) {
            let groups = self.subscribers.entry(subject.clone()).or_insert_with(|| {
                [(); 2].map(|()| SendGroup::new(SlowMembers::Disconnect).limit(BEHIND))
            });
            let id = groups[client.version - 2].add(&client.to);
            client.memberships.push((subject.clone(), id));
        }
        let (kind, name) = match &subject {
            Subject::Channel(name) => ("subscribe", name),
            Subject::Pattern(name) => ("psubscribe", name),
        };
        confirm(out, client, kind, Some(name));
    }

    /// Ends a subscription. Removes the groups of the subject if they have no subscribers left.
    fn unsubscribe(&mut self, client: &mut Client, subject: &Subject) {
        let place = client.memberships.iter().position(|(known, _)| known == subject);
        let Some(place) = place else { return };
        let (_, id) = client.memberships.remove(place);
        if let Some(groups) = self.subscribers.get(subject) {
            groups[client.version - 2].remove(id);
            if groups.iter().all(SendGroup::is_empty) {
                self.subscribers.remove(subject);
            }
        }
    }

    fn unsubscribe_from_everything(&mut self, client: &mut Client) {
        while let Some((subject, _)) = client.memberships.last().cloned() {
            self.unsubscribe(client, &subject);
        }
    }

    /// Ends the named subscriptions, or all of a kind if none is named.
    fn unsubscribe_all(
        &mut self,
        client: &mut Client,
        kind: &str,
        mut named: Vec<Subject>,
        is_kind: fn(&Subject) -> bool,
        out: &mut Vec<u8>,
    ) {
        if named.is_empty() {
            let all = client.memberships.iter().map(|(subject, _)| subject.clone());
            named = all.filter(is_kind).collect();
        }
        if named.is_empty() {
            return confirm(out, client, kind, None);
        }
        for subject in named {
            self.unsubscribe(client, &subject);
            let (Subject::Channel(name) | Subject::Pattern(name)) = &subject;
            confirm(out, client, kind, Some(name));
        }
    }

    /// Changes a client's protocol version. Later messages use the new version.
    fn change_version(&mut self, client: &mut Client, version: usize) {
        for (subject, id) in &mut client.memberships {
            if let Some(groups) = self.subscribers.get(subject) {
                groups[client.version - 2].remove(*id);
                *id = groups[version - 2].add(&client.to);
            }
        }
        client.version = version;
    }

    /// Sends a message to the subscribers of a channel, and returns their number. The messages are
    /// in the subscribers' queues at once if `at_once`, and otherwise at the end of the turn.
    fn publish(&mut self, channel: &[u8], message: &[u8], at_once: bool) -> usize {
        let (mut count, Store { subscribers, last, .. }) = (0, self);
        let mut send = |subject: &Subject, groups: &[SendGroup; 2], words: &[&[u8]]| {
            for (index, group) in groups.iter().enumerate().filter(|(_, group)| !group.is_empty()) {
                if !last.as_ref().is_some_and(|(known, at, _)| known == subject && *at == index) {
                    let before = last.replace((subject.clone(), index, group.clone()));
                    before.iter().for_each(|(.., group)| group.flush());
                }
                let mut bytes = Vec::new();
                number(&mut bytes, [b'*', b'>'][index], words.len() as i64);
                words.iter().for_each(|word| bulk(&mut bytes, Some(word)));
                count += group.len();
                group.send(SharedBytes::from(bytes));
                if at_once {
                    group.flush();
                }
            }
        };
        if let Some((subject, groups)) =
            subscribers.get_key_value(&Subject::Channel(channel.into()))
        {
            send(subject, groups, &[b"message", channel, message]);
        }
        for (subject, groups) in &*subscribers {
            if let Subject::Pattern(pattern) = subject
                && matches(pattern, channel)
            {
                send(subject, groups, &[b"pmessage", pattern, channel, message]);
            }
        }
        count
    }

    /// Removes at most this many expired keys. Returns false if more may be left.
    fn remove_ended(&mut self, most: usize) -> bool {
        let now = Instant::now();
        for _ in 0..most {
            match self.ends.first() {
                Some((end, _)) if *end <= now => {}
                _ => return true,
            }
            let (_, key) = self.ends.pop_first().expect("the first deadline is gone");
            self.deadlines.remove(&key);
            self.values.remove(&key);
        }
        false
    }

    /// Sets or clears the time at which a key expires. Returns the previous time.
    fn set_end(&mut self, key: &[u8], end: Option<Instant>) -> Option<Instant> {
        let before = match end {
            Some(end) => self.deadlines.insert(key.into(), end),
            None => self.deadlines.remove(key),
        };
        if let Some(before) = before {
            self.ends.remove(&(before, key.into()));
        }
        self.ends.extend(end.map(|end| (end, key.into())));
        before
    }

    fn get(&mut self, key: &[u8]) -> Option<&[u8]> {
        if self.deadlines.get(key).is_some_and(|deadline| *deadline <= Instant::now()) {
            self.remove(key);
        }
        self.values.get(key).map(Vec::as_slice)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        self.set_end(key, None);
        match self.values.get_mut(key) {
            Some(known) => value.clone_into(known),
            None => drop(self.values.insert(key.into(), value.into())),
        }
    }

    fn set_until(&mut self, key: &[u8], value: &[u8], end: Option<End>, out: &mut Vec<u8>) {
        match end {
            Some((time, true)) => {
                self.set(key, value);
                self.set_end(key, Some(time));
                out.extend_from_slice(b"+OK\r\n");
            }
            Some((_, false)) => error(out, "invalid expire time in 'set' command"),
            None => error(out, "syntax error: SET key value EX seconds, or PX milliseconds"),
        }
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let over = self.set_end(key, None).is_some_and(|end| end <= Instant::now());
        self.values.remove(key).is_some() && !over
    }

    fn increment(&mut self, key: &[u8], by: &[u8], out: &mut Vec<u8>) {
        let number = self.get(key).map_or(Some(0), integer);
        match number.zip(integer(by)).map(|(number, by)| number.checked_add(by)) {
            Some(Some(sum)) => {
                self.values.insert(key.into(), sum.to_string().into());
                self::number(out, b':', sum);
            }
            Some(None) => error(out, "increment or decrement would overflow"),
            None => error(out, "value is not an integer or out of range"),
        }
    }

    fn expire(&mut self, key: &[u8], end: Option<End>, out: &mut Vec<u8>) {
        let known = self.get(key).is_some();
        match end {
            Some((time, true)) if known => _ = self.set_end(key, Some(time)),
            Some(_) => _ = self.remove(key),
            None => return error(out, "value is not an integer or out of range"),
        }
        number(out, b':', known.into());
    }

    /// Returns the time in seconds, -1 if the key never expires, or -2 if it does not exist.
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

/// Answers a command that does not concern the store. Returns true if the connection stays open.
fn answer(name: &[u8], words: &Words<'_>, out: &mut Vec<u8>, client: &Client) -> bool {
    match (name, words.count()) {
        (b"PING", 1 | 2) if client.is_subscriber() && client.version == 2 => {
            number(out, b'*', 2);
            bulk(out, Some(b"pong"));
            bulk(out, Some(words.keys().next().unwrap_or_default()));
        }
        (b"PING", 1) => out.extend_from_slice(b"+PONG\r\n"),
        (b"PING" | b"ECHO", 2) => bulk(out, Some(words.get(1))),
        // Clients first ask for the list of commands and for settings. The answers to both are
        // empty.
        (b"COMMAND", _) => number(out, b'*', 0),
        (b"CONFIG", 3) => {
            let (mark, count) = if client.version == 3 { (b'%', 1) } else { (b'*', 2) };
            number(out, mark, count);
            bulk(out, Some(words.get(2)));
            bulk(out, Some(b""));
        }
        (b"CLIENT", _) => out.extend_from_slice(b"+OK\r\n"),
        (b"QUIT", _) => {
            out.extend_from_slice(b"+OK\r\n");
            return false;
        }
        // A web page can make a browser send requests here, whose lines would be taken for
        // commands.
        (b"POST" | b"HOST:", _) => return false,
        (b"SUBSCRIBE" | b"PSUBSCRIBE" | b"PUBLISH", _) => {
            let name = words.get(0).to_ascii_lowercase();
            let name = name.escape_ascii();
            error(out, &format!("wrong number of arguments for '{name}' command"));
        }
        (name, _) => error(
            out,
            &format!("unknown command '{}', or wrong number of arguments", name.escape_ascii()),
        ),
    }
    true
}

/// Returns true if a subscriber may give this command with RESP2.
fn is_for_subscribers(name: &[u8]) -> bool {
    let names: [&[u8]; 7] =
        [b"SUBSCRIBE", b"PSUBSCRIBE", b"UNSUBSCRIBE", b"PUNSUBSCRIBE", b"PING", b"QUIT", b"RESET"];
    names.contains(&name)
}

/// Confirms a change of subscriptions, with the number of subscriptions that are left.
fn confirm(out: &mut Vec<u8>, client: &Client, kind: &str, name: Option<&[u8]>) {
    number(out, if client.version == 3 { b'>' } else { b'*' }, 3);
    bulk(out, Some(kind.as_bytes()));
    match name {
        None if client.version == 3 => out.extend_from_slice(b"_\r\n"),
        name => bulk(out, name),
    }
    number(out, b':', client.memberships.len() as i64);
}

fn hello(out: &mut Vec<u8>, version: usize) {
    let (mark, count) = if version == 3 { (b'%', 7) } else { (b'*', 14) };
    number(out, mark, count);
    for (key, value) in [("server", "redis"), ("version", "7.0.0")] {
        bulk(out, Some(key.as_bytes()));
        bulk(out, Some(value.as_bytes()));
    }
    bulk(out, Some(b"proto"));
    number(out, b':', version as i64);
    bulk(out, Some(b"id"));
    number(out, b':', 0);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        bulk(out, Some(key.as_bytes()));
        bulk(out, Some(value.as_bytes()));
    }
    bulk(out, Some(b"modules"));
    number(out, b'*', 0);
}

/// Returns true if a channel matches a pattern, in which `?` is any byte, `*` any bytes, `[a-c]`
/// one of a set, `[^a-c]` one that is not, and a backslash takes the next byte as it is.
fn matches(mut pattern: &[u8], mut channel: &[u8]) -> bool {
    // The pattern after the last star, and the position in the channel up to which the star
    // matches.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            star = Some((rest, channel));
            pattern = rest;
            continue;
        }
        match channel.split_first() {
            Some((byte, after)) => {
                if let Some(rest) = match_one(pattern, *byte) {
                    (pattern, channel) = (rest, after);
                    continue;
                }
            }
            None if pattern.is_empty() => return true,
            None => {}
        }
        let Some((rest, [_, after @ ..])) = star else { return false };
        star = Some((rest, after));
        (pattern, channel) = (rest, after);
    }
}

/// Matches a byte with the first part of a pattern, which must not be a star. Returns the rest of
/// the pattern if it matches.
fn match_one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (is_match, rest) = match pattern {
        [] => return None,
        [b'?', rest @ ..] => (true, rest),
        [b'[', set @ ..] => in_set(set, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte, rest),
    };
    is_match.then_some(rest)
}

/// Returns true if the set at the start of a pattern contains a byte. Also returns the pattern
/// after the set.
fn in_set(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let negated = pattern.first() == Some(&b'^');
    let (mut rest, mut is_in) = (&pattern[usize::from(negated)..], false);
    loop {
        rest = match rest {
            [] => break,
            [b']', after @ ..] => {
                rest = after;
                break;
            }
            [b'\\', literal, after @ ..] => {
                is_in |= *literal == byte;
                after
            }
            [low, b'-', high, after @ ..] => {
                is_in |= (*low.min(high)..=*low.max(high)).contains(&byte);
                after
            }
            [literal, after @ ..] => {
                is_in |= *literal == byte;
                after
            }
        };
    }
    (is_in != negated, rest)
}

/// When a key expires, and whether that is in the future.
type End = (Instant, bool);

/// Returns the time this many seconds (EX) or milliseconds (PX) from now.
fn deadline(unit: &[u8], amount: &[u8]) -> Option<End> {
    let unit = match unit.to_ascii_uppercase().as_slice() {
        b"EX" => 1000,
        b"PX" => 1,
        _ => return None,
    };
    let (amount, now) = (integer(amount)?, Instant::now());
    let time = amount.checked_mul(unit)?.try_into().unwrap_or(0);
    Some((now.checked_add(Duration::from_millis(time))?, time > 0))
}

/// Parses a number in canonical form: no plus sign, no leading zeros.
fn integer(text: &[u8]) -> Option<i64> {
    // Fast path for a single digit, as in nearly all counts and lengths.
    if let [digit @ b'0'..=b'9'] = text {
        return Some(i64::from(digit - b'0'));
    }
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_one = matches!(digits, [b'1'..=b'9', ..]) || text == b"0";
    str::from_utf8(text).ok().filter(|_| is_one)?.parse().ok()
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
