//! gRPC by tonic 0.14, on annulus alone (feature `tonic`) or inside tokio (feature `tonic-transport`).
//!
//! # On annulus alone
//!
//! `tonic::transport` needs a runtime of tokio; services and clients of tonic, also generated ones, do not. [`serve`] serves the first over
//! the server of [`tower`](crate::tower), and a [`Channel`] is what the second are made with:
//!
//! ```standalone_crate
//! use annulus::net::TcpListener;
//! use annulus_compat::tonic::{Channel, serve};
//! # mod greeter { include!("../../examples/grpc/greeter.rs"); }
//! use greeter::{Client, Greeter, HelloRequest}; // As tonic's generator makes them.
//!
//! annulus::run(async {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let origin = format!("http://{}", listener.local_addr()?);
//!     annulus::spawn(serve(listener, Greeter).into_future());
//!
//!     let mut client = Client::new(Channel::new(origin.parse()?)?);
//!     let reply = client.say(HelloRequest { name: "annulus".into() }).await?;
//!     assert_eq!(reply.into_inner().message, "hello, annulus");
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! })
//! # .unwrap();
//! ```
//!
//! Services and clients of a `.proto` file are generated as for tonic itself, by `tonic-prost-build`, but without the parts that name tonic's
//! transport; `tonic_build::manual`, for messages written by hand, needs no `protoc`, and the same setting:
//!
//! ```ignore
//! // build.rs
//! fn main() -> std::io::Result<()> {
//!     tonic_prost_build::configure().build_transport(false).compile_protos(&["greeter.proto"], &["."])
//! }
//! ```
//!
//! Over TLS, with feature `rustls`: the server takes an acceptor that offers `h2`, by [`Serve::tls`](crate::tower::Serve::tls), and the channel
//! a connector, `Channel::with(origin, HttpsConnector::new(TlsConnector::new(config)), |_| ())`, for an origin with `https`.
//!
//! Several services are served as `tonic::service::Routes`; together with pages of axum, as the router that `Routes::into_axum_router` makes,
//! in [`Deadlines`], by [`tower::serve`](crate::tower::serve). A deadline, which `tonic::Request::set_timeout` sets, is kept on both sides,
//! and holds until the end of the response: a stream that takes longer ends with `DEADLINE_EXCEEDED`, and what made it is dropped. So it is
//! if the client drops the call. While a client gives a response no window of HTTP/2, hyper asks for no more of it, so on the server the
//! deadline takes effect once it does; [`Serve::write_timeout`](crate::tower::Serve::write_timeout) ends the connection of one that does not.
//!
//! The generated traits ask for futures and streams that are `Send`. A handler that uses streams, files or timers of annulus wraps them in an
//! [`OnThread`](crate::OnThread), which is a future of a future, and a stream of a stream. Compression and interceptors are tonic's own.
//!
//! # Inside tokio
//!
//! `tonic::transport::Server::serve_with_incoming` takes an `Incoming`, and `tonic::transport::Endpoint::connect_with_connector` takes the
//! [`Connector`](crate::hyper_util::Connector) of feature `hyper-util`, in a runtime of `annulus-tokio`. All of tonic works there, also handlers
//! that use tokio.

#[cfg(feature = "tonic")]
mod channel;
#[cfg(feature = "tonic")]
mod deadline;
#[cfg(feature = "tonic")]
mod deadlines;
#[cfg(feature = "tonic")]
mod received;

#[cfg(feature = "tonic")]
pub use channel::{Calling, Channel};
#[cfg(feature = "tonic")]
pub use deadlines::{Deadlines, Timed, TimedBody, serve};
#[cfg(feature = "tonic")]
pub use received::ReceivedBody;
