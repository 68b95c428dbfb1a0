//! TLS with rustls, for servers and clients.
//!
//! tokio-rustls runs directly over annulus streams, and futures-rustls runs over
//! `tokio_util::compat`. This module adds handshake timeouts, and a [`TlsStream`] that also
//! implements the [`annulus::io`] traits, so that generic stream code runs over it.
//!
//! ```
//! use annulus::io::{AsyncRecv, AsyncSend};
//! use annulus::net::{TcpListener, TcpStream};
//! use annulus_compat::rustls::{TlsAcceptor, TlsConnector};
//! use rustls::{ClientConfig, RootCertStore};
//!
//! annulus::run(async {
//!     // A self-signed certificate, for this example.
//!     let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
//!     let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
//!     let acceptor = TlsAcceptor::from_pem(certificate.as_bytes(), key.as_bytes(), &[])?;
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     annulus::spawn(async move {
//!         let (stream, _) = listener.accept().await?;
//!         let mut stream = acceptor.accept(stream).await?;
//!         stream.send("hello").await?;
//!         stream.shutdown().await
//!     });
//!
//!     let mut roots = RootCertStore::empty();
//!     roots.add(made.cert.der().clone())?;
//!     let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
//!     let stream = TcpStream::connect(address).await?;
//!     let mut stream = TlsConnector::new(config).connect("localhost", stream).await?;
//!     let mut greeting = Vec::new();
//!     stream.read_to_end(&mut greeting, 1024).await?;
//!     assert_eq!(greeting, b"hello");
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! })
//! # .unwrap();
//! ```
//!
//! # Other uses
//!
//! - `From` converts a tokio-rustls session to a [`TlsStream`], for example one from
//!   `LazyConfigAcceptor`, which chooses certificates by the requested server name, or one with
//!   other limits.
//! - To use both directions in two tasks, call [`annulus::io::split`], or `tokio::io::split` for
//!   code that needs tokio's traits.
//! - A server with a single accept loop uses a [`TlsListener`], which runs handshakes concurrently.
//!   For `axum::serve`, wrap it in an `Incoming` (feature `axum`). For HTTP/2, the acceptor must
//!   offer `h2` by ALPN, and axum needs its feature `http2`.
//! - hyper-util's pooled client uses the `HttpsConnector` of feature `hyper-util`. The server of
//!   feature `tower` uses `Serve::tls`.
//! - For libraries that require `Send`, wrap the session in an [`OnThread`](crate::OnThread), or in
//!   a `SendStream` (feature `send-stream`).
//! - Handshakes use the crypto provider of their settings. [`TlsAcceptor::from_pem`] uses the
//!   process default (`CryptoProvider::install_default`), or else `ring` with feature
//!   `rustls-ring`.
//!
//! # What is not supported
//!
//! Kernel TLS: rustls encrypts and decrypts in user space, so a file that is copied to a session is
//! read into memory first. Early data (0-RTT) is off; a tokio-rustls session that uses it can be
//! converted to a [`TlsStream`].
//!
//! # What dropping a future does
//!
//! | future | dropped before it is ready |
//! |---|---|
//! | `TlsAcceptor::accept`, `TlsConnector::connect` | the stream is closed |
//! | `TlsListener::accept` | nothing is lost: handshakes continue, and the next call returns the session |
//! | `TlsStream`: `recv`, `fill_buf`, `fill_at_least`, `recv_exact`, `recv_until`, `read_frame`, `read_line` | nothing is lost |
//! | `TlsStream`: `write`, `write_vectored` | nothing was accepted |
//! | `TlsStream`: `send`, `write_all` | a part was accepted |
//! | `TlsStream`: `flush`, `shutdown` | accepted data stays queued, and is sent by the next call |

mod acceptor;
mod connector;
mod listener;
mod stream;
mod write_waiters;

use std::time::Duration;

pub use acceptor::TlsAcceptor;
pub use connector::TlsConnector;
pub use listener::TlsListener;
pub use stream::{TlsInfo, TlsStream};

const HANDSHAKE_TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

fn no_end_within(limit: Duration) -> String {
    format!("the TLS handshake did not finish within {limit:?}")
}
