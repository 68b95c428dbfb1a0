//! TLS by rustls, for servers and clients.
//!
//! tokio-rustls runs over streams of annulus as they are, and futures-rustls over `tokio_util::compat`. This module adds a time limit on
//! handshakes, and a [`TlsStream`] that has the traits of [`annulus::io`] as well, so that code that is generic over streams runs over it.
//!
//! ```
//! use annulus::io::{AsyncRecv, AsyncSend};
//! use annulus::net::{TcpListener, TcpStream};
//! use annulus_compat::rustls::{TlsAcceptor, TlsConnector};
//! use rustls::{ClientConfig, RootCertStore};
//!
//! annulus::run(async {
//!     // A certificate of its own, for this example.
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
//! # Other ways in
//!
//! - What tokio-rustls makes becomes a [`TlsStream`] by `From`: a session of its `LazyConfigAcceptor`, which chooses certificates by the name
//!   that the client asks for, or one with other limits.
//! - Both directions in two tasks: `tokio::io::split`, and [`FromTokio`](annulus::io::FromTokio) around each half.
//! - A server that accepts in one place: a [`TlsListener`], whose handshakes run beside each other; and with feature `axum` an `Incoming` around it,
//!   for `axum::serve`. For HTTP/2 its acceptor must offer `h2` by ALPN, and axum have its feature `http2`.
//! - hyper-util's pooled client, with feature `hyper-util`: its `HttpsConnector`. The server of feature `tower`: `Serve::tls`.
//! - Libraries that ask for `Send`: an [`OnThread`](crate::OnThread), or with feature `send-stream` a `SendStream`, around the session.
//! - Handshakes use the cryptography of the settings that they are made with. [`TlsAcceptor::from_pem`] takes that which the process has as
//!   its default (`CryptoProvider::install_default`), and else, with feature `rustls-ring`, that of `ring`.
//!
//! # What there is not
//!
//! The kernel neither encrypts nor decrypts (kernel TLS): rustls does, so a file that is copied to a session is read into memory first.
//! Early data (0-RTT) is off; a session that tokio-rustls has made with it can be turned into a [`TlsStream`].
//!
//! # What dropping a future does
//!
//! | future | dropped before it is ready |
//! |---|---|
//! | `TlsAcceptor::accept`, `TlsConnector::connect` | the stream is closed |
//! | `TlsListener::accept` | nothing is lost: handshakes go on, and the next call returns the session |
//! | `TlsStream`: `recv`, `fill_buf`, `peek`, `recv_exact`, `recv_until`, `read_frame`, `read_line` | nothing is lost |
//! | `TlsStream`: `write`, `write_vectored` | nothing was accepted |
//! | `TlsStream`: `send`, `write_all` | a part was accepted |
//! | `TlsStream`: `flush`, `shutdown` | what was accepted stays, and leaves with the next call |

mod acceptor;
mod connector;
mod listener;
mod stream;

use std::time::Duration;

pub use acceptor::TlsAcceptor;
pub use connector::TlsConnector;
pub use listener::TlsListener;
pub use stream::{TlsInfo, TlsStream};

/// The limit of a handshake, unless another is set.
const HANDSHAKE_TIMEOUT: Option<Duration> = Some(Duration::from_secs(10));

fn no_end_within(limit: Duration) -> String {
    format!("the TLS handshake has not ended within its limit of {limit:?}")
}
