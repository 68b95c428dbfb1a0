//! gRPC with tonic 0.14, on annulus alone (feature `tonic`) or inside tokio (feature
//! `tonic-transport`).
//!
//! # On annulus alone
//!
//! `tonic::transport` needs a tokio runtime, but tonic's services and clients, including generated
//! ones, do not. [`serve`] runs services on the server of [`tower`](crate::tower), and clients are
//! created with a [`Channel`]:
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
//! Generate services and clients from a `.proto` file with `tonic-prost-build` as usual, but
//! without the parts that refer to tonic's transport. `tonic_build::manual`, for hand-written
//! messages, needs the same setting but no `protoc`:
//!
//! ```ignore
//! // build.rs
//! fn main() -> std::io::Result<()> {
//!     tonic_prost_build::configure().build_transport(false).compile_protos(&["greeter.proto"], &["."])
//! }
//! ```
//!
//! For TLS (feature `rustls`), pass the server an acceptor that offers `h2` with
//! [`Serve::tls`](crate::tower::Serve::tls). Create the channel with a connector and an `https`
//! origin: `Channel::with(origin, HttpsConnector::new(TlsConnector::new(config)), |_| ())`.
//!
//! To serve several services, use `tonic::service::Routes`. To serve them together with axum pages,
//! wrap the router from `Routes::into_axum_router` in [`Deadlines`] and pass it to
//! [`tower::serve`](crate::tower::serve). Both sides enforce a deadline set with
//! `tonic::Request::set_timeout`, until the end of the response: a stream that takes longer ends
//! with `DEADLINE_EXCEEDED`, and its source is dropped. The source is also dropped if the client
//! drops the call. While a client grants a response no HTTP/2 window, hyper does not poll it, so
//! the deadline takes effect on the server once the client grants one. If it never does,
//! [`Serve::write_timeout`](crate::tower::Serve::write_timeout) ends the connection.
//!
//! The generated traits require `Send` futures and streams. A handler that uses annulus streams,
//! files or timers wraps them in an [`OnThread`](crate::OnThread), which implements `Future` and
//! `Stream` if its content does. Compression and interceptors are tonic's own.
//!
//! # Inside tokio
//!
//! `tonic::transport::Server::serve_with_incoming` takes an `Incoming`, and
//! `tonic::transport::Endpoint::connect_with_connector` takes the
//! [`Connector`](crate::hyper_util::Connector) of feature `hyper-util`, in an `annulus-tokio`
//! runtime. All of tonic works there, including handlers that use tokio.

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
