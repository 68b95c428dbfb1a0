//! hyper, tower, axum, tonic, quinn and rustls, unchanged, on annulus.
//!
//! annulus keeps everything on one thread: its streams, tasks and timers are not `Send`. Libraries
//! have different requirements:
//!
//! | library | requires | use |
//! |---|---|---|
//! | hyper 1 | its own `Read`, `Write`, `Executor`, `Timer` | feature `hyper`: [`hyper::Io`], [`hyper::Executor`], [`hyper::Timer`] |
//! | hyper-util | a `Service<Uri>` for its pooled client, `Send` streams for upgrades | feature `hyper-util`: [`hyper_util::Connector`] |
//! | tower services, axum's `Router` | `Send` futures in axum's handlers | feature `tower`: [`tower::serve`], on annulus alone |
//! | tower-http 0.7 | a file `Backend` for its `ServeDir` | feature `tower-http`: [`Files`] |
//! | tonic 0.14 | `Send` futures in handlers; tokio for `tonic::transport` | feature `tonic`: [`tonic::serve`], [`tonic::Channel`], on annulus alone; `tonic-transport`: [`Incoming`], inside tokio |
//! | axum 0.8 | tokio's traits, `Send` and a tokio runtime, for `axum::serve` | feature `axum`: [`Incoming`], inside an `annulus-tokio` runtime |
//! | tokio-rustls, futures-rustls | traits that annulus streams implement | feature `rustls`: [`rustls::TlsAcceptor`], [`rustls::TlsConnector`], for less code |
//! | redis | tokio's traits and `Send` | feature `send-stream`: [`SendStream`] |
//! | tokio-postgres, tokio-tungstenite | tokio's traits | nothing: annulus streams implement them |
//! | reqwest | a tokio runtime | feature `with-tokio`: [`with_tokio`]; or inside an `annulus-tokio` runtime |
//! | quinn 0.11 | its own `Runtime`, `AsyncUdpSocket`, `AsyncTimer`, and `Send` | feature `quinn`: [`quinn::server`], [`quinn::client`] |
//!
//! # Which one do I need?
//!
//! | you have | use |
//! |---|---|
//! | a hyper server with its own accept loop | `hyper`; for many idle HTTP/1 connections, `tower` and its [`serve_hyper`](tower::serve_hyper) |
//! | hyper or tower services, or an axum `Router`, whose handlers need no tokio runtime | `tower`: limits, graceful shutdown, HTTP/1 and HTTP/2, little memory for idle connections |
//! | axum handlers that occasionally use tokio's timers, tasks or sockets | `tower` and `with-tokio`: [`with_tokio`] |
//! | WebSockets in axum's handlers | `ws`: [`tower::WebSocketUpgrade`] |
//! | axum handlers that depend heavily on tokio | `axum` and `annulus-tokio` |
//! | an HTTP client with pooled connections, or a proxy | `hyper-util` |
//! | a tonic gRPC service or client | `tonic`; with `tonic::transport` or handlers that use tokio: `tonic-transport` and `annulus-tokio` |
//! | any of these servers on all cores | [`tower::serve`] and [`tonic::serve`] over a `ShardListener` of `annulus::shards` (the example `all_cores`); [`Incoming`] in `annulus_tokio::run_each` |
//! | any of these over TLS | also `rustls`: `tower::Serve::tls`, `hyper_util::HttpsConnector`, [`Incoming`] around a `rustls::TlsListener` |
//! | a PostgreSQL or Redis client | tokio-postgres as it is, with `connect_raw`; redis with `send-stream`. Or both with their own `connect` and `annulus-tokio`; or a tokio runtime on a separate thread (`annulus::guide::tokio_beside`) |
//! | QUIC with quinn, which has its own TLS | `quinn` |
//! | HTTP/3 | `quinn`, with `h3` and `h3-quinn` as they are: the example `http3` serves an axum `Router` with them |
//!
//! # Cargo.toml
//!
//! The library that a feature adapts must also be a dependency of your program, with the features
//! that your program uses:
//!
//! | feature | in addition to `annulus-compat` and `annulus` |
//! |---|---|
//! | `hyper` | `hyper = { version = "1", features = ["http1", "server"] }`, and `"client"`, `"http2"` |
//! | `hyper-util` | `hyper-util = { version = "0.1", features = ["client-legacy", "http1"] }` |
//! | `tower` | `axum = { version = "0.8", default-features = false }` for its `Router`, or `hyper` |
//! | `axum` | `axum = "0.8"`, `annulus-tokio`, `tokio = { version = "1", features = ["rt"] }` |
//! | `tonic` | `tonic = { version = "0.14", default-features = false, features = ["codegen"] }`, `tonic-prost`, `prost` |
//! | `tonic-transport` | `tonic = "0.14"`, `tonic-prost`, `prost`, `annulus-tokio` |
//! | `rustls` | `rustls = { version = "0.23", default-features = false, features = ["aws_lc_rs", "std", "tls12"] }`, or another provider |
//! | `rustls-ring` | `rustls = { version = "0.23", default-features = false, features = ["ring", "std", "tls12"] }` for custom settings |
//! | `quinn` | `quinn = { version = "0.11", default-features = false, features = ["rustls-ring"] }` |
//! | `tower-http` | `tower-http = { version = "0.7", features = ["fs"] }` |
//! | `with-tokio` | none |
//! | `ws` | `axum = { version = "0.8", default-features = false }`, `futures-util = { version = "0.3", features = ["sink"] }` |
//! | `send-stream` | `redis = { version = "1", features = ["tokio-comp"] }` |
//!
//! The `examples` directory contains programs: a service to start from (`all_cores`: state,
//! PostgreSQL, metrics, graceful shutdown), servers with and without TLS, a reverse proxy, a gRPC
//! service, HTTP/3, PostgreSQL and Redis clients, and an axum program converted to guest mode.
//!
//! Services built on these libraries also run on a simulated network:
//! [`guide::simulated_services`].
//!
//! To make a value `Send`, wrap it in an [`OnThread`], which checks on each use that it is on its
//! own thread.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "hyper", feature = "quinn"))]
mod clock;
#[cfg(feature = "tower-http")]
mod files;
pub mod guide;
#[cfg(feature = "hyper")]
pub mod hyper;
#[cfg(feature = "hyper-util")]
pub mod hyper_util;
#[cfg(any(feature = "axum", feature = "tonic-transport"))]
mod incoming;
#[cfg(any(feature = "hyper", feature = "send-stream"))]
mod late_end;
#[cfg(any(feature = "hyper-util", feature = "rustls", feature = "tower"))]
mod limit;
#[cfg(any(feature = "axum", feature = "tonic-transport", feature = "tower"))]
mod listen;
mod on_thread;
mod on_thread_io;
#[cfg(feature = "quinn")]
pub mod quinn;
#[cfg(feature = "rustls")]
pub mod rustls;
#[cfg(feature = "send-stream")]
mod send_stream;
#[cfg(any(feature = "tonic", feature = "tonic-transport"))]
pub mod tonic;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "with-tokio")]
mod with_tokio;

#[cfg(feature = "tower-http")]
pub use files::{FileMetadata, Files, ServedFile};
#[cfg(any(feature = "axum", feature = "tonic-transport"))]
pub use incoming::Incoming;
#[cfg(any(feature = "axum", feature = "tonic-transport", feature = "tower"))]
pub use listen::Listen;
pub use on_thread::{OnThread, WrongThread};
#[cfg(feature = "send-stream")]
pub use send_stream::SendStream;
#[cfg(feature = "with-tokio")]
pub use with_tokio::with_tokio;
