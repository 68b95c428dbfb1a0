//! The client: requests that are repeated until they are answered, over connections that may fail.

use crate::simulated::service::Kind;
use annulus::net::TcpStream;
use annulus::task::JoinHandle;
use annulus::time::{sleep, timeout};
use annulus_compat::hyper::{Executor, Io};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, StatusCode};
use std::time::Duration;

/// Timeout of an attempt. The next one begins `RETRY_PAUSE` later.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(100);

type Failure = Box<dyn std::error::Error + Send + Sync>;

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

/// A connection. Dropping it ends its task.
struct Connection {
    sender: Sender,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) struct Client {
    kind: Kind,
    connection: Option<Connection>,
    /// Number of attempts so far.
    pub(crate) attempts: u64,
}

impl Client {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, connection: None, attempts: 0 }
    }

    /// Repeats a request until it is answered, and returns the response body.
    pub(crate) async fn ask(&mut self, method: Method, path: &str, body: &Bytes) -> Bytes {
        loop {
            self.attempts += 1;
            match timeout(ATTEMPT_TIMEOUT, self.attempt(method.clone(), path, body.clone())).await {
                Ok(Ok(answer)) => return answer,
                // The outcome is unknown: the server may have handled the request.
                Ok(Err(_)) | Err(_) => self.connection = None,
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn attempt(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes, Failure> {
        let request = Request::builder().method(method).uri(format!("http://server{path}"));
        let request = request.header("host", "server").body(Full::new(body))?;
        if self.connection.is_none() {
            self.connection = Some(Connection::open(self.kind).await?);
        }
        let connection = self.connection.as_mut().expect("the connection was not opened");
        let response = match &mut connection.sender {
            Sender::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::Two(sender) => sender.send_request(request).await?,
        };
        assert_eq!(response.status(), StatusCode::OK);
        Ok(response.into_body().collect().await?.to_bytes())
    }
}

impl Connection {
    async fn open(kind: Kind) -> Result<Self, Failure> {
        let stream = Io::new(TcpStream::connect("server:80").await?);
        Ok(match kind {
            Kind::Http1 | Kind::Axum => {
                let (sender, connection) = http1::handshake(stream).await?;
                Self { sender: Sender::One(sender), task: spawn(connection) }
            }
            Kind::Http2 => {
                let (sender, connection) = http2::handshake(Executor, stream).await?;
                Self { sender: Sender::Two(sender), task: spawn(connection) }
            }
        })
    }
}

/// Drives a connection. Its errors are ignored, because its requests return them too.
fn spawn(connection: impl Future<Output = hyper::Result<()>> + 'static) -> JoinHandle<()> {
    annulus::spawn(async {
        _ = connection.await;
    })
}
