//! hyper, axum and rustls, unchanged, on annulus.
//!
//! annulus keeps everything on one thread: its streams, tasks and timers are not `Send`. Libraries differ in what they ask for:
//!
//! | library | asks for | here |
//! |---|---|---|
//! | hyper 1 | its own `Read`, `Write`, `Executor`, `Timer` | feature `hyper`: [`hyper::Io`], [`hyper::Spawner`], [`hyper::Clock`] |
//! | axum 0.8 | tokio's traits, `Send`, and `tokio::spawn` | feature `axum`: [`axum::Incoming`], inside a runtime of `annulus-tokio` |
//! | tokio-rustls, futures-rustls | traits that streams of annulus have | feature `rustls`: [`rustls::TlsAcceptor`], [`rustls::TlsConnector`], for fewer lines |
//!
//! What has to be `Send` is put into an [`OnThread`], which checks at each use that it is on its thread.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "hyper")]
pub mod hyper;
mod on_thread;
#[cfg(feature = "rustls")]
pub mod rustls;

pub use on_thread::{OnThread, WrongThread};
