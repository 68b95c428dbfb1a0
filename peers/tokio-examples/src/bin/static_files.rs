//! The twin of `examples/static_files.rs` on tokio.

use bytes::BytesMut;
use std::io::{self, ErrorKind::InvalidData};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::fs::{self, File};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of a request.
const LIMIT: usize = 16 << 10;

#[tokio::main(flavor = "local")]
async fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or("127.0.0.1:8080".into());
    let root: Rc<Path> = Path::new(&args.next().unwrap_or(".".into())).into();
    let listener = TcpListener::bind(address).await?;
    eprintln!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, _peer) = listener.accept().await?;
        tokio::task::spawn_local(serve(stream, root.clone()));
    }
}

async fn serve(mut stream: TcpStream, root: Rc<Path>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = BytesMut::new();
    loop {
        let request = match timeout(PATIENCE, read_head(&mut stream, &mut buffer)).await? {
            Ok(None) => return Ok(()),
            Ok(Some(head)) => Request::parse(&head),
            Err(error) if error.kind() == InvalidData => Err("431 Header Fields Too Large"),
            Err(error) => return Err(error),
        };
        let keep_alive = request.as_ref().is_ok_and(|request| request.keep_alive);
        let with_body = request.as_ref().map_or(true, |request| request.method != "HEAD");
        let found = async { request?.open(&root).await }.await;
        let (status, kind, length) = match &found {
            Ok((_, kind, length)) => ("200 OK", *kind, *length),
            Err(status) => (*status, "text/plain", status.len() as u64),
        };
        let connection = if keep_alive { "keep-alive" } else { "close" };
        let head = format!(
            "HTTP/1.1 {status}\r\nallow: GET, HEAD\r\nconnection: {connection}\r\n\
             content-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        match found {
            Ok((file, ..)) if with_body => {
                let sent = tokio::io::copy(&mut file.take(length), &mut stream).await?;
                if sent != length {
                    return Err(io::Error::other("the file has become shorter"));
                }
            }
            Err(status) if with_body => stream.write_all(status.as_bytes()).await?,
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

struct Request {
    method: String,
    path: PathBuf,
    keep_alive: bool,
}

impl Request {
    /// The status if there is no making sense of it, nor of what comes behind it.
    fn parse(head: &[u8]) -> Result<Self, &'static str> {
        const BAD: &str = "400 Bad Request";
        let mut lines = str::from_utf8(head).map_err(|_| BAD)?.split("\r\n");
        let words: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
        let [method, target, version @ ("HTTP/1.0" | "HTTP/1.1")] = words[..] else {
            return Err(BAD);
        };
        let mut keep_alive = version == "HTTP/1.1";
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            match (name.to_ascii_lowercase().as_str(), value.trim()) {
                ("connection", value) => keep_alive &= !value.eq_ignore_ascii_case("close"),
                ("content-length", "0") => {}
                // A body would be taken for the next request.
                ("content-length" | "transfer-encoding", _) => return Err(BAD),
                _ => {}
            }
        }
        Ok(Self { method: method.into(), path: decode(target).ok_or(BAD)?, keep_alive })
    }

    /// The file, its type and its length.
    async fn open(self, root: &Path) -> Result<(File, &'static str, u64), &'static str> {
        const NOT_FOUND: &str = "404 Not Found";
        if !matches!(&*self.method, "GET" | "HEAD") {
            return Err("405 Method Not Allowed");
        }
        if !self.path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(NOT_FOUND);
        }
        let mut path = root.join(self.path);
        if fs::metadata(&path).await.is_ok_and(|metadata| metadata.is_dir()) {
            path.push("index.html");
        }
        let kind = match path.extension().and_then(|extension| extension.to_str()) {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css",
            _ => "application/octet-stream",
        };
        match fs::metadata(&path).await {
            Ok(metadata) if metadata.is_file() => {
                let file = File::open(&path).await.map_err(|_| NOT_FOUND)?;
                Ok((file, kind, metadata.len()))
            }
            _ => Err(NOT_FOUND),
        }
    }
}

/// The path below the root: without the query, and with `%20` as a space.
fn decode(target: &str) -> Option<PathBuf> {
    let mut parts = target.split('?').next()?.strip_prefix('/')?.split('%');
    let mut path = parts.next()?.to_owned().into_bytes();
    for part in parts {
        path.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        path.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(path).ok().map(PathBuf::from)
}
