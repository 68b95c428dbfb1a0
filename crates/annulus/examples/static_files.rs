//! A server of static files over HTTP/1.1. Run `cargo run --release -p annulus --example
//! static_files -- 127.0.0.1:8080 public 10000`
//!
//! It supports GET and HEAD, keep-alive, pipelining, `index.html` for directories, a range of a
//! file, and 304 for a client whose copy is current. Files stay open between requests, and are
//! checked again after a second. No path leads out of the directory, not even by symbolic links.
//! Limits: 10,000 connections (the last argument), and further ones are answered with 503 and
//! closed; ten seconds per request and between requests, and a minute per part of a reply; 16 KiB
//! of a request and 256 KiB of a reply in memory. SIGINT and SIGTERM end the server and cut off
//! replies in progress.

use annulus::Lease;
use annulus::fs::{CachedFile, Dir, FileCache, Metadata};
use annulus::io::{AsyncRecv, copy_range, raw_os_error};
use annulus::net::{KeepAlive, ListenOptions, TcpStream};
use annulus::signal::until_terminated;
use annulus::time::timeout;
use httparse::Status;
use httpdate::{fmt_http_date, parse_http_date};
use std::ffi::OsString;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{
    self,
    ErrorKind::{InvalidData, InvalidInput},
};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for each part of a reply. A client that takes longer is not reading.
const SLOWEST: Duration = Duration::from_secs(60);
/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };
/// Nix, container images and archives date all files to 1970 or to 1 January 1980. Dates before
/// this one, 2 January 1980, carry no information.
const FIRST_DATE: Duration = Duration::from_secs(315_619_200);
/// Maximum number of bytes of a request.
const LIMIT: usize = 16 << 10;
const BAD: &str = "400 Bad Request";
const NOT_FOUND: &str = "404 Not Found";
const PARTIAL: &str = "206 Partial Content";
const OUTSIDE: &str = "416 Range Not Satisfiable";
const CHANGED: &str = "412 Precondition Failed";
const TOO_LARGE: &str = "431 Request Header Fields Too Large";
const DENIED: &str = "403 Forbidden";
const FAILED: &str = "500 Internal Server Error";
const FULL: &str = "503 Service Unavailable";

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or("127.0.0.1:8080".into());
    let root = args.next().unwrap_or(".".into());
    let most = args.next().unwrap_or("10000".into()).parse().map_err(io::Error::other)?;
    annulus::run(until_terminated(server(address, root, most)))
}

pub(crate) async fn server(address: String, root: String, most: usize) -> io::Result<()> {
    let files = FileCache::new(Dir::open(root).await?);
    let listener = ListenOptions::new().keepalive(KEEP_ALIVE).bind(address)?;
    eprintln!("listening on {}", listener.local_addr()?);
    let served = Rc::new(());
    loop {
        let (stream, _peer) = listener.accept().await?;
        let place = (Rc::strong_count(&served) <= most).then(|| served.clone());
        annulus::spawn(serve(stream, files.clone(), place));
    }
}

/// Serves a connection. `place` is `None` if too many connections are open; the request then gets a
/// 503.
#[expect(clippy::manual_async_fn, reason = "an `async fn` keeps its arguments twice")]
fn serve(
    mut stream: TcpStream,
    files: FileCache,
    place: Option<Rc<()>>,
) -> impl Future<Output = io::Result<()>> {
    async move {
        loop {
            let head =
                match timeout(PATIENCE, stream.read_frame(LIMIT, |shown| Ok(head_length(shown))))
                    .await?
                {
                    Ok(None) => return Ok(()),
                    Ok(Some(head)) => Ok(head),
                    Err(error) if error.kind() == InvalidData => Err(TOO_LARGE),
                    Err(error) => return Err(error),
                };
            // Boxed, so that a connection that waits for a request holds no memory for answering
            // one.
            if !Box::pin(respond(&mut stream, &files, place.is_some(), head)).await? {
                stream.shutdown().await?;
                // Reads the rest of the client's bytes. Otherwise, the client would see a reset,
                // perhaps before the reply.
                let rest = async { while let Ok(Some(_)) = stream.recv().await {} };
                return Ok(timeout(PATIENCE, rest).await?);
            }
        }
    }
}

/// Answers a request. Returns true if the connection stays open.
#[expect(clippy::disallowed_methods, reason = "the header needs the real date")]
async fn respond(
    stream: &mut TcpStream,
    files: &FileCache,
    has_place: bool,
    head: Result<Lease, &'static str>,
) -> io::Result<bool> {
    let head = head.as_ref().map_err(|status| *status);
    let request = if has_place { head.and_then(|head| Request::parse(head)) } else { Err(FULL) };
    let keep_alive = request.as_ref().is_ok_and(|request| request.keep_alive);
    let with_body = request.as_ref().map_or(true, |request| request.method != "HEAD");
    let now = SystemTime::now();
    let answer = match request {
        Ok(request) => request.answer(files, now).await,
        Err(status) => Err(status),
    };
    let Answer { status, headers, file } = answer.unwrap_or_else(Answer::error);
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let date = fmt_http_date(now);
    let head =
        format!("HTTP/1.1 {status}\r\ndate: {date}\r\nconnection: {connection}\r\n{headers}\r\n");
    timeout(SLOWEST, stream.send(head)).await??;
    match file {
        Some((file, Range { mut start, end })) if with_body => {
            while start < end {
                let part = start..end.min(start + (1 << 20));
                let sent =
                    timeout(SLOWEST, copy_range(file.file(), part.clone(), stream)).await??;
                if sent != part.end - start {
                    return Err(io::Error::other("the file has become shorter"));
                }
                start = part.end;
            }
        }
        None if with_body => stream.send(status).await?,
        _ => {}
    }
    Ok(keep_alive)
}

#[derive(Default)]
struct Request<'a> {
    method: &'a str,
    /// The requested path, not decoded, and without the query.
    target: &'a str,
    path: PathBuf,
    keep_alive: bool,
    range: Option<&'a str>,
    if_range: Option<&'a str>,
    /// Lists of tags, which may span several header lines.
    if_match: Vec<&'a str>,
    if_none_match: Vec<&'a str>,
    /// Dates; invalid ones are ignored.
    if_modified_since: Option<SystemTime>,
    if_unmodified_since: Option<SystemTime>,
}

impl<'a> Request<'a> {
    /// Returns an error status if the request is invalid. The connection is then closed, since the
    /// bytes after the request cannot be parsed either.
    fn parse(head: &'a [u8]) -> Result<Self, &'static str> {
        let mut lines = [httparse::EMPTY_HEADER; 100];
        let mut parsed = httparse::Request::new(&mut lines);
        match parsed.parse(head) {
            Ok(Status::Complete(_)) if head.ends_with(b"\r\n\r\n") => {}
            Err(httparse::Error::TooManyHeaders) => return Err(TOO_LARGE),
            _ => return Err(BAD),
        }
        let mut request = Self {
            method: parsed.method.ok_or(BAD)?,
            target: path_of(parsed.path.ok_or(BAD)?).ok_or(BAD)?,
            keep_alive: parsed.version == Some(1),
            ..Self::default()
        };
        request.path = decode(request.target).ok_or(BAD)?;
        let mut hosts = 0;
        for header in parsed.headers.iter() {
            let is = |known| header.name.eq_ignore_ascii_case(known);
            let value = str::from_utf8(header.value).unwrap_or("not text").trim();
            if is("host") {
                hosts += 1;
            } else if is("connection") {
                let is_close = |option: &str| option.trim().eq_ignore_ascii_case("close");
                request.keep_alive &= !value.split(',').any(is_close);
            } else if is("transfer-encoding") || is("content-length") && value != "0" {
                // A body would be mistaken for the next request.
                return Err(BAD);
            } else if is("range") && request.method == "GET" {
                request.range = Some(value);
            } else if is("if-range") {
                request.if_range = Some(value);
            } else if is("if-match") {
                request.if_match.push(value);
            } else if is("if-none-match") {
                request.if_none_match.push(value);
            } else if is("if-modified-since") {
                request.if_modified_since = parse_http_date(value).ok();
            } else if is("if-unmodified-since") {
                request.if_unmodified_since = parse_http_date(value).ok();
            }
        }
        let is_one_host = hosts == 1 || hosts == 0 && parsed.version == Some(0);
        is_one_host.then_some(request).ok_or(BAD)
    }

    async fn answer(mut self, files: &FileCache, now: SystemTime) -> Result<Answer, &'static str> {
        if !matches!(self.method, "GET" | "HEAD") {
            return Err("405 Method Not Allowed");
        }
        let mut file = files.open(&self.path).await.map_err(status_of)?;
        if file.metadata().is_dir() {
            if !self.target.ends_with('/') {
                return Ok(Answer::moved(self.target));
            }
            self.path.push("index.html");
            file = files.open(&self.path).await.map_err(status_of)?;
        }
        if !file.metadata().is_file() {
            return Err(NOT_FOUND);
        }
        let length = file.metadata().len();
        let (tag, modified) = (tag_of(file.metadata()), date_of(file.metadata().modified(), now));
        let date = modified.map(|date| format!("last-modified: {}\r\n", fmt_http_date(date)));
        let date = date.unwrap_or_default();
        let kind = mime_guess::from_path(&self.path).first_raw();
        let kind = kind.unwrap_or("application/octet-stream");
        let charset = if kind.starts_with("text/") { "; charset=utf-8" } else { "" };
        let mut headers = format!(
            "content-type: {kind}{charset}\r\netag: {tag}\r\n{date}accept-ranges: bytes\r\n"
        );
        let (status, range) = self.part(&tag, modified, length, now);
        let _ = match status {
            PARTIAL => {
                let (start, last, sent) = (range.start, range.end - 1, range.end - range.start);
                write!(
                    headers,
                    "content-range: bytes {start}-{last}/{length}\r\ncontent-length: {sent}\r\n"
                )
            }
            OUTSIDE => write!(headers, "content-range: bytes */{length}\r\ncontent-length: 0\r\n"),
            CHANGED => write!(headers, "content-length: 0\r\n"),
            _ => write!(headers, "content-length: {length}\r\n"),
        };
        Ok(Answer { status, headers, file: Some((file, range)) })
    }

    /// Returns the status, and the part of a file of this length to send: RFC 9110, section 13.2.2.
    fn part(
        &self,
        tag: &str,
        modified: Option<SystemTime>,
        length: u64,
        now: SystemTime,
    ) -> (&'static str, Range<u64>) {
        let lists = |lines: &[&str], weak: &str| {
            let mut tags = lines.iter().flat_map(|line| line.split(',')).map(str::trim);
            tags.any(|it| it == "*" || it.strip_prefix(weak).unwrap_or(it) == tag)
        };
        // Without a date, conditions on it are ignored.
        let is_after = |limit| modified.map(|modified| modified > limit);
        let is_changed = match self.if_match.as_slice() {
            [] => self.if_unmodified_since.and_then(is_after) == Some(true),
            tags => !lists(tags, ""),
        };
        if is_changed {
            return (CHANGED, 0..0);
        }
        let is_known = match self.if_none_match.as_slice() {
            [] => self.if_modified_since.and_then(is_after) == Some(false),
            tags => lists(tags, "W/"),
        };
        if is_known {
            return ("304 Not Modified", 0..0);
        }
        // A file may change again within the second of its modification date.
        let settled = modified.filter(|date| *date + Duration::from_secs(1) <= now);
        let is_date = |known| settled.is_some() && parse_http_date(known).ok() == settled;
        let is_same = self.if_range.is_none_or(|known| known == tag || is_date(known));
        match self.range.filter(|_| is_same).and_then(|range| range_of(range, length)) {
            None => ("200 OK", 0..length),
            Some(range) if range.is_empty() => (OUTSIDE, 0..0),
            Some(range) => (PARTIAL, range),
        }
    }
}

/// Returns the status for a path that cannot be opened.
fn status_of(error: io::Error) -> &'static str {
    match raw_os_error(&error) {
        Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP) => NOT_FOUND,
        // The path names a socket.
        Some(libc::ENXIO) => NOT_FOUND,
        // The path leads out of the directory.
        Some(libc::EXDEV) => NOT_FOUND,
        // The path contains a zero byte.
        None if error.kind() == InvalidInput => NOT_FOUND,
        Some(libc::EACCES | libc::EPERM) => DENIED,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN) => FULL,
        _ => {
            eprintln!("{error}");
            FAILED
        }
    }
}

/// Returns a tag that differs between different files, even if they have the same date and length.
fn tag_of(file: &Metadata) -> String {
    let mut hasher = DefaultHasher::new();
    (file.dev(), file.ino(), file.changed(), file.modified(), file.len()).hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

/// Returns the date of a file in whole seconds, the resolution of HTTP, or `None` if it does not
/// tell when the file was modified.
fn date_of(modified: SystemTime, now: SystemTime) -> Option<SystemTime> {
    let since = modified.duration_since(UNIX_EPOCH).ok()?;
    let seconds = Duration::from_secs(since.as_secs());
    (since >= FIRST_DATE && modified <= now).then(|| UNIX_EPOCH + seconds)
}

struct Answer {
    status: &'static str,
    headers: String,
    /// The file to send, and the range of its bytes. Without a file, the body is the status.
    file: Option<(Rc<CachedFile>, Range<u64>)>,
}

impl Answer {
    /// Redirects to the same path with a slash at the end. Leading slashes are reduced to one,
    /// since a location that starts with two would name a host.
    fn moved(target: &str) -> Self {
        let mut answer = Self::error("301 Moved Permanently");
        _ = write!(answer.headers, "location: /{}/\r\n", target.trim_start_matches('/'));
        answer
    }

    fn error(status: &'static str) -> Self {
        let length = status.len();
        let headers =
            format!("allow: GET, HEAD\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n");
        Self { status, headers, file: None }
    }
}

/// Finds the end of the head: after an empty line, or after a line that is not ended by CRLF.
fn head_length(shown: &[u8]) -> Option<usize> {
    let mut lines = shown.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let ends = |at: usize| !shown[..at].ends_with(b"\r") || shown[..at].ends_with(b"\r\n\r");
    lines.find_map(|(at, _)| ends(at).then_some(at + 1))
}

/// Returns the part of a file that a `Range` header asks for. Returns `None`, so that all bytes are
/// sent, if the header is invalid or asks for several parts, or if the file is empty. The range is
/// empty if it begins beyond the end.
fn range_of(value: &str, length: u64) -> Option<Range<u64>> {
    let (unit, range) = value.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    let is_number = first.bytes().chain(last.bytes()).all(|byte| byte.is_ascii_digit());
    if length == 0 || !is_number || !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    // A number that is too large is beyond the end of any file.
    let number = |digits: &str| digits.parse().unwrap_or(u64::MAX);
    match (first, last) {
        ("", "") => None,
        ("", last) => Some(length.saturating_sub(number(last))..length),
        (first, "") => Some(number(first)..length),
        (first, last) if number(first) > number(last) => None,
        (first, last) => Some(number(first)..length.min(number(last).saturating_add(1))),
    }
}

/// Returns the path of a target without the query. A target may have a host before the path.
fn path_of(target: &str) -> Option<&str> {
    let path = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find(['/', '?']).map_or("/", |begin| &rest[begin..])
        }
        _ => target,
    };
    path.split('?').next().filter(|path| path.starts_with('/'))
}

/// Decodes a path and makes it relative: `/a%20b` becomes `./a b`. Names need not be valid UTF-8.
fn decode(path: &str) -> Option<PathBuf> {
    let mut parts = path.strip_prefix('/')?.split('%');
    let mut path = b"./".to_vec();
    path.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        let digits = part.get(..2).filter(|two| two.bytes().all(|it| it.is_ascii_hexdigit()))?;
        path.push(u8::from_str_radix(digits, 16).ok()?);
        path.extend_from_slice(&part.as_bytes()[2..]);
    }
    Some(OsString::from_vec(path).into())
}
