//! The twin of `examples/static_files.rs` on tokio, which opens and closes each file for each request.

use bytes::BytesMut;
use httparse::Status;
use httpdate::{fmt_http_date, parse_http_date};
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::Metadata;
use std::io::{
    self,
    ErrorKind::{InvalidData, PermissionDenied},
    SeekFrom,
};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);
/// A client that takes longer over a part of a file does not read.
const SLOWEST: Duration = Duration::from_secs(60);
const PART: u64 = 1 << 20;
/// The most bytes of a request.
const LIMIT: usize = 16 << 10;
const BAD: &str = "400 Bad Request";
const NOT_FOUND: &str = "404 Not Found";
const PARTIAL: &str = "206 Partial Content";
const OUTSIDE: &str = "416 Range Not Satisfiable";
const CHANGED: &str = "412 Precondition Failed";
const TOO_LARGE: &str = "431 Request Header Fields Too Large";
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
        let (stream, _peer) = listener.accept().await?;
        let place = (Rc::strong_count(&served) <= most).then(|| served.clone());
        tokio::task::spawn_local(serve(stream, root.clone(), place));
    }
}

async fn serve(mut stream: TcpStream, root: Rc<Path>, place: Option<Rc<()>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
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
        let answer = async { request?.answer(&root).await }.await;
        let Answer { status, headers, file } = answer.unwrap_or_else(Answer::error);
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let date = fmt_http_date(SystemTime::now());
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
            // Reads the rest of the client's bytes: else it would see a reset, perhaps before it sees the reply.
            let rest = async {
                while let Ok(1..) = stream.read_buf(&mut buffer).await {
                    buffer.clear()
                }
            };
            return Ok(timeout(PATIENCE, rest).await?);
        }
    }
}

/// The lines of a request, with the empty one behind them; none at the end of the stream.
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

    async fn answer(mut self, root: &Path) -> Result<Answer, &'static str> {
        if !matches!(self.method, "GET" | "HEAD") {
            return Err("405 Method Not Allowed");
        }
        let is_slash = self.target.ends_with('/');
        let opened = open(root, &mut self.path, is_slash).await.map_err(|_| NOT_FOUND)?;
        let Some((file, metadata)) = opened else { return Ok(Answer::moved(self.target)) };
        if !metadata.is_file() {
            return Err(NOT_FOUND);
        }
        let (length, modified) = (metadata.len(), metadata.modified().unwrap_or(UNIX_EPOCH));
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (tag, date) =
            (format!("\"{:x}-{length:x}\"", since.as_nanos()), fmt_http_date(modified));
        let kind = kind_of(&self.path);
        let mut headers = format!(
            "content-type: {kind}\r\netag: {tag}\r\nlast-modified: {date}\r\naccept-ranges: bytes\r\n"
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

/// A file below the root, or the index of a directory, and what is known about it; `None` for a directory without a slash.
async fn open(
    root: &Path,
    path: &mut PathBuf,
    is_slash: bool,
) -> io::Result<Option<(File, Metadata)>> {
    let mut found = tokio::fs::canonicalize(root.join(&path)).await?;
    if !found.starts_with(root) {
        return Err(PermissionDenied.into());
    }
    if tokio::fs::metadata(&found).await?.is_dir() {
        if !is_slash {
            return Ok(None);
        }
        path.push("index.html");
        found = tokio::fs::canonicalize(root.join(&path)).await?;
    }
    if !found.starts_with(root) {
        return Err(PermissionDenied.into());
    }
    let file = File::open(found).await?;
    let metadata = file.metadata().await?;
    Ok(Some((file, metadata)))
}

struct Answer {
    status: &'static str,
    headers: String,
    /// The file, and the range of its bytes to send; without a file the body is the text of the status.
    file: Option<(File, Range<u64>)>,
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
