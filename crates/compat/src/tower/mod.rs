//! An HTTP/1 and HTTP/2 server on annulus alone, for `tower` services: axum's `Router`, tonic's
//! gRPC services, hyper services.
//!
//! ```
//! use annulus::net::{TcpListener, TcpStream};
//! use tokio_util::sync::CancellationToken;
//! use annulus_compat::tower::serve;
//! use axum::{Router, routing::get};
//!
//! annulus::run(async {
//!     let router = Router::new().route("/", get(async || "hello"));
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     let stop = CancellationToken::new();
//!     let server = serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
//!     let server = annulus::spawn(server.into_future());
//!
//!     let mut client = TcpStream::connect(address).await?;
//!     client.send("GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
//!     let mut answer = Vec::new();
//!     while let Some(lease) = client.recv().await? {
//!         answer.extend_from_slice(&lease);
//!     }
//!     assert!(answer.ends_with(b"hello"));
//!     stop.cancel();
//!     server.await?
//! })
//! # .unwrap();
//! ```
//!
//! [`serve`] takes `tower` services, and [`serve_hyper`] takes hyper services (`service_fn`).
//! [`serve_with`] creates a service for each connection, from its peer's address. [`Serve`] has the
//! settings; with feature `rustls` it also serves over TLS (`Serve::tls`).
//!
//! # axum on annulus alone, or inside tokio
//!
//! axum requires its handlers' futures to be `Send`, but never sends them to another thread. Code
//! that needs tokio's runtime panics on annulus alone, and the error passed to `on_error` says how
//! to fix it. Either call `with_tokio` (feature `with-tokio`), which runs tokio on a separate
//! thread; or run annulus as a guest of tokio (`annulus-tokio`), with `axum::serve` and `Incoming`
//! (feature `axum`) or with this server. `tests/with_tokio.rs` tests each row:
//!
//! | a handler or layer uses | alone | with `with_tokio` | as a guest |
//! |---|---|---|---|
//! | extractors, state, channels of `tokio::sync`, bodies, `Sse` without keep-alive | yes | yes | yes |
//! | annulus streams, files and timers, in an [`OnThread`](crate::OnThread) | yes | yes | yes |
//! | [`TimeoutLayer`], [`Serve::request_timeout`] | yes | yes | yes |
//! | `tower_http::services::ServeDir` over [`Files`](crate::Files) | yes | yes | yes |
//! | `WebSocketUpgrade` of this module (feature `ws`) | yes | yes | yes |
//! | `tower_http::timeout::TimeoutLayer`, `tokio::time`, the keep-alive of `Sse` | no | yes | yes |
//! | `tower::buffer`, `tokio::spawn`, `tokio::fs`, `ServeDir::new`, `tokio::net`, reqwest, sqlx | no | yes | yes |
//! | `axum::extract::WebSocketUpgrade` | no | no | yes |
//!
//! # Handlers that panic
//!
//! In HTTP/1, a handler that panics before the head of its response is answered with `500 Internal
//! Server Error`, and a response body that panics ends its connection. In HTTP/2 both end their
//! stream. The server keeps running, and calls [`Serve::on_error`].

mod accepting;
mod activity;
mod connection;
mod error;
mod open;
mod panics;
mod protocol;
mod releasable;
mod serve;
mod service;
mod sessions;
mod stream;
mod timeout;
mod timer;
mod watched;
#[cfg(feature = "ws")]
mod websocket;

pub use error::ServeError;
pub use serve::{Plain, Serve, serve, serve_hyper, serve_with};
pub use sessions::Sessions;
pub use timeout::{Timeout, TimeoutFuture, TimeoutLayer};
#[cfg(feature = "ws")]
pub use websocket::{WebSocket, WebSocketUpgrade};
