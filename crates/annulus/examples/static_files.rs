//! A server of static files over HTTP/1.1: `cargo run --release -p annulus --example static_files -- 127.0.0.1:8080 public 10000`
//!
//! GET and HEAD, keep-alive, pipelining, `index.html` for directories, a range of a file, and 304 for a client whose copy is still good.
//! Files stay open between requests, and are looked for again after a second. No path leads out of the directory, not by symbolic
//! links either. Limits: 10,000 connections (the last argument), further ones are answered with 503 and closed, so that requests over
//! the first wait for each other at most; ten seconds for a request and between two, a minute for a part of a reply; 16 KiB of a request
//! and 256 KiB of a reply in memory. SIGINT and SIGTERM end it: replies under way are cut.

use annulus::Lease;
use annulus::fs::{CachedFile, Dir, FileCache};
use annulus::io::{AsyncRecv, copy_range};
use annulus::net::{TcpListener, TcpStream};
use annulus::signal::until_terminated;
use annulus::time::timeout;
use httparse::Status;
use httpdate::{fmt_http_date, parse_http_date};
use std::ffi::OsString;
use std::fmt::Write;
use std::io::{self, ErrorKind::InvalidData};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

const PATIENCE: Duration = Duration::from_secs(10);
/// A client that takes longer over a part of a file does not read.
const SLOWEST: Duration = Duration::from_secs(60);
/// The most bytes of a request.
const LIMIT: usize = 16 << 10;
const BAD: &str = "400 Bad Request";
const NOT_FOUND: &str = "404 Not Found";
const PARTIAL: &str = "206 Partial Content";
const OUTSIDE: &str = "416 Range Not Satisfiable";
const CHANGED: &str = "412 Precondition Failed";
const TOO_LARGE: &str = "431 Request Header Fields Too Large";
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
    let listener = TcpListener::bind(address)?;
    eprintln!("listening on {}", listener.local_addr()?);
    let served = Rc::new(());
    loop {
        let (stream, _peer) = listener.accept().await?;
        let place = (Rc::strong_count(&served) <= most).then(|| served.clone());
        annulus::spawn(serve(stream, files.clone(), place));
    }
}

/// Serves a connection that has a place among those that are served.
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
            // Boxed, so that a connection that waits for its next request holds nothing of this one.
            if !Box::pin(respond(&mut stream, &files, place.is_some(), head)).await? {
                stream.shutdown().await?;
                // The rest of the client's bytes is read: else it would see a reset, perhaps before it sees the reply.
                let rest = async { while let Ok(Some(_)) = stream.recv().await {} };
                return Ok(timeout(PATIENCE, rest).await?);
            }
        }
    }
}

/// Answers a request. True if the connection stays.
#[expect(clippy::disallowed_methods, reason = "the header needs the date of the world")]
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
    let answer = match request {
        Ok(request) => request.answer(files).await,
        Err(status) => Err(status),
    };
    let Answer { status, headers, file } = answer.unwrap_or_else(Answer::error);
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let date = fmt_http_date(SystemTime::now());
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
    /// As it was asked for, without the query.
    target: &'a str,
    path: PathBuf,
    keep_alive: bool,
    range: Option<&'a str>,
    if_range: Option<&'a str>,
    if_match: Option<&'a str>,
    if_none_match: Option<&'a str>,
    if_modified_since: Option<&'a str>,
    if_unmodified_since: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// The status if there is no making sense of it, nor of what comes behind it.
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
                // A body would be taken for the next request.
                return Err(BAD);
            } else if is("range") && request.method == "GET" {
                request.range = Some(value);
            } else if is("if-range") {
                request.if_range = Some(value);
            } else if is("if-match") {
                request.if_match = Some(value);
            } else if is("if-none-match") {
                request.if_none_match = Some(value);
            } else if is("if-modified-since") {
                request.if_modified_since = Some(value);
            } else if is("if-unmodified-since") {
                request.if_unmodified_since = Some(value);
            }
        }
        let is_one_host = hosts == 1 || hosts == 0 && parsed.version == Some(0);
        is_one_host.then_some(request).ok_or(BAD)
    }

    async fn answer(mut self, files: &FileCache) -> Result<Answer, &'static str> {
        if !matches!(self.method, "GET" | "HEAD") {
            return Err("405 Method Not Allowed");
        }
        let mut file = files.open(&self.path).await.map_err(|_| NOT_FOUND)?;
        if file.metadata().is_dir() {
            if !self.target.ends_with('/') {
                return Ok(Answer::moved(self.target));
            }
            self.path.push("index.html");
            file = files.open(&self.path).await.map_err(|_| NOT_FOUND)?;
        }
        if !file.metadata().is_file() {
            return Err(NOT_FOUND);
        }
        let (length, modified) = (file.metadata().len(), file.metadata().modified());
        let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (tag, date) =
            (format!("\"{:x}-{length:x}\"", since.as_nanos()), fmt_http_date(modified));
        let kind = mime_guess::from_path(&self.path).first_raw();
        let kind = kind.unwrap_or("application/octet-stream");
        let charset = if kind.starts_with("text/") { "; charset=utf-8" } else { "" };
        let mut headers = format!(
            "content-type: {kind}{charset}\r\netag: {tag}\r\nlast-modified: {date}\r\naccept-ranges: bytes\r\n"
        );
        let (status, range) = self.part(&tag, &date, length);
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

    /// The status, and what of a file of this length the client wants and does not have.
    fn part(&self, tag: &str, date: &str, length: u64) -> (&'static str, Range<u64>) {
        let has = |tags: &str| tags.split(',').any(|it| [tag, "*"].contains(&it.trim()));
        let is_until = |limit: &str| match (parse_http_date(limit), parse_http_date(date)) {
            (Ok(limit), Ok(date)) => date <= limit,
            _ => limit == date,
        };
        let is_unchanged = || self.if_unmodified_since.is_none_or(is_until);
        if !self.if_match.map_or_else(is_unchanged, has) {
            return (CHANGED, 0..0);
        }
        let is_old = || self.if_modified_since.is_some_and(is_until);
        let is_known = self.if_none_match.map_or_else(is_old, |tags| has(&tags.replace("W/", "")));
        if is_known {
            return ("304 Not Modified", 0..0);
        }
        let is_same = self.if_range.is_none_or(|known| known == tag || known == date);
        match self.range.filter(|_| is_same).and_then(|range| range_of(range, length)) {
            None => ("200 OK", 0..length),
            Some(range) if range.is_empty() => (OUTSIDE, 0..0),
            Some(range) => (PARTIAL, range),
        }
    }
}

struct Answer {
    status: &'static str,
    headers: String,
    /// The file to send and the range of its bytes; without a file, the status is the text.
    file: Option<(Rc<CachedFile>, Range<u64>)>,
}

impl Answer {
    /// To the same path with a slash; of several at its begin, which would name a host, one is left.
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

/// The end of a line that ends a head: an empty one, or one that does not end as it must.
fn head_length(shown: &[u8]) -> Option<usize> {
    let mut lines = shown.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let ends = |at: usize| !shown[..at].ends_with(b"\r") || shown[..at].ends_with(b"\r\n\r");
    lines.find_map(|(at, _)| ends(at).then_some(at + 1))
}

/// The bytes that a `Range` names; none if it makes no sense or names several parts: then all is sent. It is empty if they are all
/// behind the end.
fn range_of(value: &str, length: u64) -> Option<Range<u64>> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    if !first.bytes().chain(last.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if first.is_empty() {
        return Some(length.saturating_sub(last.parse().ok()?)..length);
    }
    let first: u64 = first.parse().ok()?;
    let last =
        if last.is_empty() { u64::MAX } else { last.parse().ok().filter(|last| *last >= first)? };
    Some(first..length.min(last.saturating_add(1)))
}

/// The path of a target, which may name a host before it; without the query.
fn path_of(target: &str) -> Option<&str> {
    let path = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            rest.find(['/', '?']).map_or("/", |begin| &rest[begin..])
        }
        _ => target,
    };
    path.split('?').next().filter(|path| path.starts_with('/'))
}

/// The path from the root, with `%20` as a space. Names need not be text.
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
