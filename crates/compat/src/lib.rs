//! hyper, tower, axum, tonic, quinn and rustls, unchanged, on annulus.
//!
//! annulus keeps everything on one thread: its streams, tasks and timers are not `Send`. Some
//! libraries require their own traits, tokio's traits, `Send`, or a tokio runtime. Each feature of
//! this crate adapts one of them. [`guide::libraries`] says which feature you need, and has programs
//! to start from.
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
//! To make a value `Send`, wrap it in an [`OnThread`], which checks on each use that it is on the
//! thread that created it.

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
