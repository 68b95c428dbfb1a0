//! hyper-util's pooled client on annulus: connectors for
//! [`Client`](hyper_util::client::legacy::Client).
//!
//! The client runs on [`Executor`](crate::hyper::Executor) and [`Timer`](crate::hyper::Timer). Pass
//! a `Timer` to `pool_timer` as well: without it, the pool does not close idle connections when
//! their timeout ends.
//!
//! ```
//! use annulus_compat::hyper::{Executor, Timer};
//! use annulus_compat::hyper_util::Connector;
//! use bytes::Bytes;
//! use http_body_util::{BodyExt, Empty};
//! use hyper_util::client::legacy::Client;
//! use std::time::Duration;
//!
//! # fn hello(listener: annulus::net::TcpListener) {
//! #     use annulus_compat::hyper::Io;
//! #     annulus::spawn(async move {
//! #         let (stream, _) = listener.accept().await.unwrap();
//! #         let hello = hyper::service::service_fn(async |_| {
//! #             Ok::<_, std::convert::Infallible>(hyper::Response::new("hello".to_owned()))
//! #         });
//! #         _ = hyper::server::conn::http1::Builder::new().serve_connection(Io::new(stream), hello).await;
//! #     });
//! # }
//! annulus::run(async {
//! #   let listener = annulus::net::TcpListener::bind("127.0.0.1:0")?;
//! #   let uri = format!("http://{}/", listener.local_addr()?).parse()?;
//! #   hello(listener);
//!     let client: Client<_, Empty<Bytes>> = Client::builder(Executor)
//!         .timer(Timer::new())
//!         .pool_timer(Timer::new())
//!         .pool_idle_timeout(Duration::from_secs(30))
//!         .build(Connector::new().timeout(Duration::from_secs(5)));
//!     let response = client.get(uri).await?;
//!     assert_eq!(response.into_body().collect().await?.to_bytes(), "hello");
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! })
//! # .unwrap();
//! ```
//!
//! With feature `rustls`, an `HttpsConnector` accepts `https` URIs, and uses HTTP/2 if the server
//! selects it by ALPN. Plain TCP does not negotiate the version: for HTTP/2 over TCP, set
//! `http2_only(true)`.
//!
//! The servers of hyper-util (`hyper_util::server::conn::auto`, `hyper_util::server::graceful`)
//! take [`Io`](crate::hyper::Io), [`Executor`](crate::hyper::Executor) and
//! [`Timer`](crate::hyper::Timer) as they are. For code that needs a `Send` stream, such as
//! `serve_connection_with_upgrades`, use `Io<OnThread<_>>`: [`OnThread`](crate::OnThread)
//! implements the traits of its stream. Feature `tower` has a complete server.

mod connector;
#[cfg(feature = "rustls")]
mod https;
mod unix;

pub use connector::{Connecting, ConnectionInfo, Connector};
#[cfg(feature = "rustls")]
pub use https::{HttpsConnector, MaybeTls};
pub use unix::UnixConnector;
