//! The twin of `examples/static_files.rs` on tokio, which opens and closes each file for each request.

use bytes::BytesMut;
use std::fmt::Write;
use std::fs::Metadata;
use std::io::{
    self,
    ErrorKind::{InvalidData, PermissionDenied},
    SeekFrom,
};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of a request.
const LIMIT: usize = 16 << 10;
const BAD: &str = "400 Bad Request";
const NOT_FOUND: &str = "404 Not Found";
const PARTIAL: &str = "206 Partial Content";
const OUTSIDE: &str = "416 Range Not Satisfiable";
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
            Err(error) if error.kind() == InvalidData => Err("431 Header Fields Too Large"),
            Err(error) => return Err(error),
        };
        let head = head.as_ref().map_err(|status| *status);
        let request = place.as_ref().ok_or(FULL).and(head).and_then(|head| Request::parse(head));
        let keep_alive = request.as_ref().is_ok_and(|request| request.keep_alive);
        let with_body = request.as_ref().map_or(true, |request| request.method != "HEAD");
        let answer = async { request?.answer(&root).await }.await;
        let Answer { status, headers, file } = answer.unwrap_or_else(Answer::error);
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let head = format!("HTTP/1.1 {status}\r\nconnection: {connection}\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await?;
        match file {
            Some((mut file, range)) if with_body => {
                let length = range.end - range.start;
                file.seek(SeekFrom::Start(range.start)).await?;
                if tokio::io::copy(&mut file.take(length), &mut stream).await? != length {
                    return Err(io::Error::other("the file has become shorter"));
                }
            }
            None if with_body => stream.write_all(status.as_bytes()).await?,
            _ => {}
        }
        if !keep_alive {
            stream.shutdown().await?;
            // What the client still sends is read: else it would see a reset, perhaps before it sees the reply.
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
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            return Ok(Some(buffer.split_to(end + 4)));
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
    path: PathBuf,
    keep_alive: bool,
    range: Option<&'a str>,
    if_range: Option<&'a str>,
    if_none_match: Option<&'a str>,
    if_modified_since: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// The status if there is no making sense of it, nor of what comes behind it.
    fn parse(head: &'a [u8]) -> Result<Self, &'static str> {
        let mut lines = str::from_utf8(head).map_err(|_| BAD)?.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let [Some(method), Some(target), Some(version @ ("HTTP/1.0" | "HTTP/1.1")), None] =
            [words.next(), words.next(), words.next(), words.next()]
        else {
            return Err(BAD);
        };
        let (path, keep_alive) = (decode(target).ok_or(BAD)?, version == "HTTP/1.1");
        let mut request = Self { method, path, keep_alive, ..Self::default() };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let (is, value) = (|known| name.eq_ignore_ascii_case(known), value.trim());
            if is("connection") {
                request.keep_alive &= !value.eq_ignore_ascii_case("close");
            } else if is("transfer-encoding") || is("content-length") && value != "0" {
                // A body would be taken for the next request.
                return Err(BAD);
            } else if is("range") {
                request.range = Some(value);
            } else if is("if-range") {
                request.if_range = Some(value);
            } else if is("if-none-match") {
                request.if_none_match = Some(value);
            } else if is("if-modified-since") {
                request.if_modified_since = Some(value);
            }
        }
        Ok(request)
    }

    async fn answer(mut self, root: &Path) -> Result<Answer, &'static str> {
        if !matches!(self.method, "GET" | "HEAD") {
            return Err("405 Method Not Allowed");
        }
        let (file, metadata) = open(root, &mut self.path).await.map_err(|_| NOT_FOUND)?;
        if !metadata.is_file() {
            return Err(NOT_FOUND);
        }
        let (length, modified) = (metadata.len(), metadata.modified().unwrap_or(UNIX_EPOCH));
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (tag, date) = (format!("\"{:x}-{length:x}\"", since.as_nanos()), http_date(since));
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
            _ => write!(headers, "content-length: {length}\r\n"),
        };
        Ok(Answer { status, headers, file: Some((file, range)) })
    }

    /// The status, and what of a file of this length the client wants and does not have.
    fn part(&self, tag: &str, date: &str, length: u64) -> (&'static str, Range<u64>) {
        let is_known = match self.if_none_match {
            Some(tags) => {
                tags.split(',').any(|it| [tag, "*"].contains(&it.trim().trim_start_matches("W/")))
            }
            None => self.if_modified_since == Some(date),
        };
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

/// A file below the root, or the index of a directory, and what is known about it.
async fn open(root: &Path, path: &mut PathBuf) -> io::Result<(File, Metadata)> {
    let mut found = tokio::fs::canonicalize(root.join(&path)).await?;
    if tokio::fs::metadata(&found).await?.is_dir() {
        path.push("index.html");
        found = tokio::fs::canonicalize(root.join(&path)).await?;
    }
    if !found.starts_with(root) {
        return Err(PermissionDenied.into());
    }
    let file = File::open(found).await?;
    let metadata = file.metadata().await?;
    Ok((file, metadata))
}

struct Answer {
    status: &'static str,
    headers: String,
    /// What of which file; if there is none, the status is the text.
    file: Option<(File, Range<u64>)>,
}

impl Answer {
    fn error(status: &'static str) -> Self {
        let length = status.len();
        let headers =
            format!("allow: GET, HEAD\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n");
        Self { status, headers, file: None }
    }
}

/// The bytes that a `Range` names; none if it makes no sense or names several parts: then all is sent. It is empty if they are all
/// behind the end.
fn range_of(value: &str, length: u64) -> Option<Range<u64>> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    if first.is_empty() {
        return Some(length.saturating_sub(last.parse().ok()?)..length);
    }
    let first: u64 = first.parse().ok()?;
    let last =
        if last.is_empty() { u64::MAX } else { last.parse().ok().filter(|last| *last >= first)? };
    Some(first..length.min(last.saturating_add(1)))
}

fn kind_of(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()).unwrap_or_default() {
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

/// A time since 1970, as headers have it.
fn http_date(since: Duration) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"];
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Years that begin with March have their leap day at the end; 719,468 days lie between that of the year 0 and 1970.
    let (era, day) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (date, year) = (day - (153 * month + 2) / 5 + 1, 400 * era + year + month / 10);
    let (weekday, month) = (DAYS[(days % 7) as usize], MONTHS[month as usize]);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {date:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

/// The path from the root: without the query, and with `%20` as a space.
fn decode(target: &str) -> Option<PathBuf> {
    let mut parts = target.split('?').next()?.strip_prefix('/')?.split('%');
    let mut path = b"./".to_vec();
    path.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        path.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        path.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(path).ok().map(PathBuf::from)
}
