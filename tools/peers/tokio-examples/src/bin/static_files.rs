//! `examples/static_files.rs`, ported to tokio. It opens and closes a file for each request.

use bytes::BytesMut;
use httparse::Status;
use httpdate::{fmt_http_date, parse_http_date};
use socket2::{SockRef, TcpKeepalive};
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{
    self,
    ErrorKind::{InvalidData, InvalidInput, NotFound},
    SeekFrom,
};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client may take to receive a head or a part of a file.
const SLOWEST: Duration = Duration::from_secs(60);
const PART: u64 = 1 << 20;
/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(10))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);
/// Nix, container images and archives date all files to 1970 or to 1 January 1980. Dates before
/// 2 January 1980 carry no information.
const FIRST_DATE: Duration = Duration::from_secs(315_619_200);
/// A head that is incomplete after this many bytes is rejected.
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

#[tokio::main(flavor = "local")]
async fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or("127.0.0.1:8080".into());
    let root: Rc<Path> = Path::new(&args.next().unwrap_or(".".into())).canonicalize()?.into();
    let most = args.next().unwrap_or("10000".into()).parse().map_err(io::Error::other)?;
    let listener = TcpListener::bind(address).await?;
    eprintln!("listening on {}", listener.local_addr()?);
    let served = Rc::new(());
    loop {
        let Ok((stream, _peer)) = listener.accept().await else {
            // Probably no descriptor is free.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let place = (Rc::strong_count(&served) <= most).then(|| served.clone());
        tokio::task::spawn_local(serve(stream, root.clone(), place));
    }
}

async fn serve(mut stream: TcpStream, root: Rc<Path>, place: Option<Rc<()>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&KEEP_ALIVE)?;
    let mut buffer = BytesMut::new();
    loop {
        let head = match timeout(PATIENCE, read_head(&mut stream, &mut buffer)).await? {
            Ok(None) => return Ok(()),
            Ok(Some(head)) => Ok(head),
            Err(error) if error.kind() == InvalidData => Err(TOO_LARGE),
            Err(error) => return Err(error),
        };
        let head = head.as_ref().map_err(|status| *status);
        let request = place.as_ref().ok_or(FULL).and(head).and_then(|head| Request::parse(head));
        let keep_alive = request.as_ref().is_ok_and(|request| request.keep_alive);
        let with_body = request.as_ref().map_or(true, |request| request.method != "HEAD");
        let now = SystemTime::now();
        let answer = async { request?.answer(&root, now).await }.await;
        let Answer { status, headers, file } = answer.unwrap_or_else(Answer::error);
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let date = fmt_http_date(now);
        let head = format!(
            "HTTP/1.1 {status}\r\ndate: {date}\r\nconnection: {connection}\r\n{headers}\r\n"
        );
        timeout(SLOWEST, stream.write_all(head.as_bytes())).await??;
        match file {
            Some((mut file, Range { mut start, end })) if with_body => {
                file.seek(SeekFrom::Start(start)).await?;
                while start < end {
                    let length = PART.min(end - start);
                    let mut part = (&mut file).take(length);
                    let copied = tokio::io::copy(&mut part, &mut stream);
                    if timeout(SLOWEST, copied).await?? != length {
                        return Err(io::Error::other("the file has become shorter"));
                    }
                    start += length;
                }
            }
            None if with_body => stream.write_all(status.as_bytes()).await?,
            _ => {}
        }
        if !keep_alive {
            stream.shutdown().await?;
            // Reads the rest of the client's bytes. Otherwise, the client would see a reset,
            // perhaps before the reply.
            let rest = async {
                while let Ok(1..) = stream.read_buf(&mut buffer).await {
                    buffer.clear()
                }
            };
            return Ok(timeout(PATIENCE, rest).await?);
        }
    }
}

/// Reads the lines of a request and the empty line after them. Returns `None` at the end of the
/// stream.
async fn read_head(stream: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<Option<BytesMut>> {
    loop {
        if let Some(length) = head_length(buffer) {
            return Ok(Some(buffer.split_to(length)));
        }
        if buffer.len() >= LIMIT {
            return Err(InvalidData.into());
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

#[derive(Default)]
struct Request<'a> {
    method: &'a str,
    /// The path as requested, without the host and the query.
    target: &'a str,
    path: PathBuf,
    keep_alive: bool,
    range: Option<&'a str>,
    if_range: Option<&'a str>,
    /// Lists of tags, which may span several header lines.
    if_match: Vec<&'a str>,
    if_none_match: Vec<&'a str>,
    /// `None` also if the date is invalid.
    if_modified_since: Option<SystemTime>,
    if_unmodified_since: Option<SystemTime>,
}

impl<'a> Request<'a> {
    /// Returns the status of the reply as the error. The connection is closed after an error,
    /// because the next request may not be where it is expected.
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

    async fn answer(mut self, root: &Path, now: SystemTime) -> Result<Answer, &'static str> {
        if !matches!(self.method, "GET" | "HEAD") {
            return Err("405 Method Not Allowed");
        }
        let is_slash = self.target.ends_with('/');
        let opened = open(root, &mut self.path, is_slash).await.map_err(status_of)?;
        let Some((file, metadata)) = opened else { return Ok(Answer::moved(self.target)) };
        if !metadata.is_file() {
            return Err(NOT_FOUND);
        }
        let length = metadata.len();
        let (tag, modified) = (tag_of(&metadata), date_of(metadata.modified(), now));
        let date = modified.map(|date| format!("last-modified: {}\r\n", fmt_http_date(date)));
        let date = date.unwrap_or_default();
        let kind = kind_of(&self.path);
        let mut headers =
            format!("content-type: {kind}\r\netag: {tag}\r\n{date}accept-ranges: bytes\r\n");
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

    /// Returns the status, and the part of a file of this length to send. The conditions have the
    /// order of RFC 9110, section 13.2.2.
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
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP) => NOT_FOUND,
        // The path is a Unix socket.
        Some(libc::ENXIO) => NOT_FOUND,
        // The path contains a zero byte, or leads out of the directory.
        None if matches!(error.kind(), InvalidInput | NotFound) => NOT_FOUND,
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
    (file.dev(), file.ino(), file.ctime(), file.ctime_nsec()).hash(&mut hasher);
    (file.mtime(), file.mtime_nsec(), file.len()).hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

/// Returns the date of a file in whole seconds, the resolution of HTTP, or `None` if it does not
/// tell when the file was modified.
fn date_of(modified: io::Result<SystemTime>, now: SystemTime) -> Option<SystemTime> {
    let modified = modified.ok()?;
    let since = modified.duration_since(UNIX_EPOCH).ok()?;
    let seconds = Duration::from_secs(since.as_secs());
    (since >= FIRST_DATE && modified <= now).then(|| UNIX_EPOCH + seconds)
}

/// Opens a file below the root, or the index of a directory, and returns it with its metadata.
/// Returns `None` if the path names a directory and does not end with a slash.
async fn open(
    root: &Path,
    path: &mut PathBuf,
    is_slash: bool,
) -> io::Result<Option<(File, Metadata)>> {
    let mut found = tokio::fs::canonicalize(root.join(&path)).await?;
    if !found.starts_with(root) {
        return Err(NotFound.into());
    }
    if tokio::fs::metadata(&found).await?.is_dir() {
        if !is_slash {
            return Ok(None);
        }
        path.push("index.html");
        found = tokio::fs::canonicalize(root.join(&path)).await?;
    }
    if !found.starts_with(root) {
        return Err(NotFound.into());
    }
    let file = File::open(found).await?;
    let metadata = file.metadata().await?;
    Ok(Some((file, metadata)))
}

struct Answer {
    status: &'static str,
    headers: String,
    /// The file to send, and the range of its bytes. Without a file, the body is the text of the
    /// status.
    file: Option<(File, Range<u64>)>,
}

impl Answer {
    /// Redirects to the same path with a slash at the end. Leading slashes are reduced to one,
    /// because the path would name a host if it began with two.
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

/// Finds the end of the head: after an empty line, or after a line that is not ended by CRLF, which
/// makes the request invalid.
fn head_length(shown: &[u8]) -> Option<usize> {
    let mut lines = shown.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let ends = |at: usize| !shown[..at].ends_with(b"\r") || shown[..at].ends_with(b"\r\n\r");
    lines.find_map(|(at, _)| ends(at).then_some(at + 1))
}

/// Returns the bytes that a `Range` refers to. Returns `None`, so that all bytes are sent, if it is
/// invalid, refers to several parts, or the file is empty. The range is empty if the file has none
/// of the bytes.
fn range_of(value: &str, length: u64) -> Option<Range<u64>> {
    let (unit, range) = value.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    let is_number = first.bytes().chain(last.bytes()).all(|byte| byte.is_ascii_digit());
    if length == 0 || !is_number || !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    // A number that is too large is beyond every end.
    let number = |digits: &str| digits.parse().unwrap_or(u64::MAX);
    match (first, last) {
        ("", "") => None,
        ("", last) => Some(length.saturating_sub(number(last))..length),
        (first, "") => Some(number(first)..length),
        (first, last) if number(first) > number(last) => None,
        (first, last) => Some(number(first)..length.min(number(last).saturating_add(1))),
    }
}

fn kind_of(path: &Path) -> &'static str {
    let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
    match extension.as_ref().and_then(|extension| extension.to_str()).unwrap_or_default() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "txt" | "md" => "text/plain; charset=utf-8",
        "json" | "map" => "application/json",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "mp4" => "video/mp4",
        "pdf" => "application/pdf",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
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

/// Decodes a path from the root: `%20` becomes a space. Names need not be valid UTF-8.
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
