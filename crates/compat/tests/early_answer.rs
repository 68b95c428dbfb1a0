//! Clients of servers that close the connection before they have read everything.

use crate::common;

use annulus::io::{AsyncRecv, AsyncSend};
use annulus::net::{TcpListener, TcpStream};
use annulus::time::{Instant, sleep, timeout};
use annulus_compat::OnThread;
use annulus_compat::hyper::{Executor, Io, Timer};
use annulus_compat::hyper_util::Connector;
use bytes::Bytes;
use common::{Failure, everywhere, on_drivers, simulated};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::{http1, http2};
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioIo;
use std::cell::RefCell;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower_service::Service;

const LARGE_BODY_BYTES: usize = 3_000_000;

/// More than the buffers of two sockets hold.
const UPLOAD_BYTES: usize = 64 << 20;

/// Time in which each call of a failed connection has to return.
const MAX_CALL_TIME: Duration = Duration::from_secs(3);

async fn soon<T>(call: impl Future<Output = T>) -> T {
    timeout(MAX_CALL_TIME, call).await.expect("the call hangs")
}

/// A stream to a server that has responded and closed without reading the request: writes after the
/// head fail, and only then the response arrives.
#[derive(Default)]
struct Refusing {
    written: usize,
    has_failed: bool,
    reader: Option<Waker>,
    read: usize,
}

impl Refusing {
    const ANSWER: &[u8] =
        b"HTTP/1.1 413 Payload Too Large\r\ncontent-length: 4\r\nconnection: close\r\n\r\nmuch";
}

impl AsyncRecv for Refusing {
    fn poll_fill_at_least(&mut self, cx: &mut Context<'_>, _: usize) -> Poll<io::Result<&[u8]>> {
        if !self.has_failed {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(&Self::ANSWER[self.read..]))
    }

    fn consume(&mut self, n: usize) {
        self.read += n;
    }
}

impl AsyncSend for Refusing {
    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.written > 0 {
            self.has_failed = true;
            self.reader.take().into_iter().for_each(Waker::wake);
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.written = bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = slices.iter().find(|slice| !slice.is_empty());
        self.poll_write(cx, first.map_or(&[], |slice| &**slice))
    }
}

#[test]
fn response_is_returned_despite_a_failed_write() {
    everywhere(async || {
        for awaits in [false, true] {
            let stream = Io::new(Refusing::default());
            let stream = if awaits { stream.await_early_answer() } else { stream };
            let (mut client, connection) = http1::handshake(stream).await?;
            annulus::spawn(connection);
            let body = Full::new(Bytes::from(vec![b'x'; LARGE_BODY_BYTES]));
            let request = Request::post("/").header("host", "x").body(body)?;
            let answer = client.send_request(request).await;
            assert_eq!(
                answer.is_ok(),
                awaits,
                "the response was not returned exactly if it is awaited"
            );
            if let Ok(answer) = answer {
                assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
                assert_eq!(answer.into_body().collect().await?.to_bytes(), "much");
            }
        }
        Ok(())
    });
}

/// hyper holds the whole response while its reader pauses, and does not read from the stream.
#[test]
fn slow_reader_of_an_early_response_gets_all_of_it() {
    simulated(async |_| {
        let stream = Io::new(Refusing::default()).await_early_answer();
        let (mut client, connection) = http1::handshake(stream).await?;
        annulus::spawn(connection);
        let body = Full::new(Bytes::from(vec![b'x'; LARGE_BODY_BYTES]));
        let answer =
            client.send_request(Request::post("/").header("host", "x").body(body)?).await?;
        sleep(Duration::from_secs(4)).await;
        assert_eq!(answer.into_body().collect().await?.to_bytes(), "much");
        Ok(())
    });
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags, 0, 0, 0, 0]);
    frame.extend(payload);
    frame
}

/// Starts an HTTP/2 server that permits a long upload but reads only the preface. It sends a PING
/// once the upload has filled the buffers, and then resets the connection.
fn resetting_server() -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || -> io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.read_exact(&mut [0; 24])?;
        let initial_window = [&[0, 4], &i32::MAX.to_be_bytes()[..]].concat();
        stream.write_all(&frame(4, 0, &initial_window))?;
        stream.write_all(&frame(4, 1, &[]))?;
        stream.write_all(&frame(8, 0, &(i32::MAX - 65_535).to_be_bytes()))?;
        std::thread::sleep(Duration::from_millis(400));
        stream.write_all(&frame(6, 0, &[1; 8]))?;
        std::thread::sleep(Duration::from_millis(100));
        // Closing a socket with unread bytes resets the connection.
        Ok(())
    });
    Ok(address)
}

fn upload(address: SocketAddr) -> Result<Request<Full<Bytes>>, Failure> {
    let body = Full::new(Bytes::from(vec![0; UPLOAD_BYTES]));
    Ok(Request::post(format!("http://{address}/")).body(body)?)
}

/// h2 answers the PING before it reads on, so no read is waiting when the write fails.
#[test]
fn http_2_upload_fails_when_the_server_resets() {
    everywhere(async || {
        let address = resetting_server()?;
        let stream = Io::new(TcpStream::connect(address).await?).await_early_answer();
        let (mut client, connection) =
            http2::Builder::new(Executor).timer(Timer::new()).handshake(stream).await?;
        annulus::spawn(connection);
        assert!(soon(client.send_request(upload(address)?)).await.is_err());

        let address = resetting_server()?;
        let client = Client::builder(Executor).http2_only(true).build(Connector::new());
        assert!(soon(client.request(upload(address)?)).await.is_err());
        Ok(())
    });
}

/// Accepts a connection, sends these parts of an answer that upgrades it, and resets it.
async fn upgrade_and_reset(listener: TcpListener, answer: Vec<&'static str>) -> io::Result<()> {
    let (mut stream, _) = listener.accept().await?;
    stream.recv().await?;
    for part in answer {
        stream.send(part).await?;
        stream.drain().await?;
        sleep(Duration::from_millis(50)).await;
    }
    stream.set_linger(Some(Duration::ZERO))?;
    stream.abort();
    Ok(())
}

/// Writes until it fails.
async fn write_until_error(mut stream: impl tokio::io::AsyncWrite + Unpin) -> io::Error {
    loop {
        let write = async {
            stream.write_all(b"hello").await?;
            stream.flush().await
        };
        if let Err(error) = soon(write).await {
            return error;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn write_to_a_reset_upgraded_connection_fails() {
    const SWITCHING: &str =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n";
    const BOTH: &str = "HTTP/1.1 103 Early Hints\r\n\r\n\
        HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    let answers = [
        vec![SWITCHING],
        vec![HINTS, SWITCHING],
        vec![BOTH],
        vec![&SWITCHING[..10], &SWITCHING[10..]],
        vec![&BOTH[..12], &BOTH[12..36], &BOTH[36..]],
    ];
    everywhere(async || {
        for answer in answers.clone() {
            let kind = write_error_after_upgrade(answer.clone()).await?;
            assert!(
                matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
                "{kind:?} after {answer:?}"
            );
        }
        Ok(())
    });
}

/// Upgrades a connection, and returns the error of a write after it was reset.
async fn write_error_after_upgrade(answer: Vec<&'static str>) -> Result<ErrorKind, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let uri = format!("http://{}", listener.local_addr()?).parse()?;
    annulus::spawn(upgrade_and_reset(listener, answer));
    let stream = Connector::new().call(uri).await?;
    let (mut client, connection) = http1::handshake(stream).await?;
    annulus::spawn(connection.with_upgrades());
    let request = Request::get("/").header("host", "x").header("connection", "upgrade");
    let request = request.header("upgrade", "x").body(Empty::<Bytes>::new())?;
    let response = client.send_request(request).await?;
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let upgraded = TokioIo::new(hyper::upgrade::on(response).await?);
    Ok(write_until_error(upgraded).await.kind())
}

/// A tunnel's requests are not HTTP, and the answer to `CONNECT` may be any status of success.
#[test]
fn write_to_a_reset_tunnel_fails() {
    on_drivers(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let uri = format!("http://{}", listener.local_addr()?).parse()?;
        annulus::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            stream.recv().await?;
            stream.send("HTTP/1.1 200 OK\r\n\r\n").await?;
            stream.drain().await?;
            sleep(Duration::from_millis(50)).await;
            stream.set_linger(Some(Duration::ZERO))?;
            stream.abort();
            io::Result::Ok(())
        });
        let mut stream = TokioIo::new(Connector::new().call(uri).await?);
        stream.write_all(b"CONNECT a.example:80 HTTP/1.1\r\nhost: a.example:80\r\n\r\n").await?;
        assert_ne!(stream.read(&mut [0; 100]).await?, 0);
        write_until_error(stream).await;
        Ok(())
    });
}

/// A stream whose writes fail and whose reads wait, or return `received` again and again.
#[derive(Clone, Default)]
struct Closed(Rc<RefCell<ClosedState>>);

#[derive(Default)]
struct ClosedState {
    received: Option<&'static [u8]>,
    reader: Option<Waker>,
}

impl Closed {
    fn receive(&self, bytes: &'static [u8]) {
        let mut state = self.0.borrow_mut();
        state.received = Some(bytes);
        state.reader.take().into_iter().for_each(Waker::wake);
    }
}

impl AsyncRecv for Closed {
    fn poll_fill_at_least(&mut self, cx: &mut Context<'_>, _: usize) -> Poll<io::Result<&[u8]>> {
        let mut state = self.0.borrow_mut();
        state.reader = Some(cx.waker().clone());
        state.received.map_or(Poll::Pending, |bytes| Poll::Ready(Ok(bytes)))
    }

    fn consume(&mut self, _: usize) {}
}

impl AsyncSend for Closed {
    fn poll_write(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(ErrorKind::ConnectionReset.into()))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        _: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write(cx, &[])
    }
}

fn closed() -> (Closed, TokioIo<Io<OnThread<Closed>>>) {
    let stream = Closed::default();
    (stream.clone(), TokioIo::new(Io::new(OnThread::new(stream)).await_early_answer()))
}

/// Without a read, no response is expected.
#[test]
fn failed_write_is_reported_at_once_if_nothing_was_read() {
    simulated(async |_| {
        let (_, mut stream) = closed();
        let error = soon(stream.write_all(b"x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        Ok(())
    });
}

#[test]
fn failed_write_is_reported_some_time_after_the_last_read() {
    simulated(async |_| {
        let (peer, mut stream) = closed();
        peer.receive(b"HTTP/1.1 413 ");
        stream.read_exact(&mut [0; 10]).await?;
        let begun = Instant::now();
        let error = stream.write_all(b"x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(6), "{took:?}");
        Ok(())
    });
}

/// The read cannot return any more, because it was dropped.
#[test]
fn failed_write_is_reported_some_time_after_a_dropped_read() {
    simulated(async |_| {
        let (_, mut stream) = closed();
        assert!(timeout(Duration::from_secs(1), stream.read(&mut [0; 10])).await.is_err());
        let begun = Instant::now();
        let error = stream.write_all(b"x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(begun.elapsed().as_secs(), 5);
        Ok(())
    });
}

/// Reads and writes in two tasks, and returns how long the write took to fail. The read returns
/// `received` after three seconds.
async fn write_beside_a_read(received: &'static [u8]) -> Result<Duration, Failure> {
    let (peer, stream) = closed();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let reading = annulus::spawn(async move { reader.read(&mut [0; 100]).await });
    let writing = annulus::spawn(async move {
        let begun = Instant::now();
        let error = writer.write_all(b"x").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        begun.elapsed()
    });
    sleep(Duration::from_secs(3)).await;
    assert!(!writing.is_finished(), "the write did not wait for the read");
    peer.receive(received);
    assert_eq!(reading.await??, received.len());
    Ok(writing.await?)
}

#[test]
fn failed_write_waits_for_the_end_of_a_read_in_another_task() {
    simulated(async |_| {
        for (received, seconds) in [(&b""[..], 3), (&b"HTTP/1.1 101 "[..], 3), (&b"x"[..], 8)] {
            let took = timeout(Duration::from_secs(60), write_beside_a_read(received)).await??;
            assert_eq!(took.as_secs(), seconds, "{received:?}");
        }
        Ok(())
    });
}
