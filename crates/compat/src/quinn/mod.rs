//! quinn 0.11, QUIC, on annulus: its tasks, timers and datagrams.
//!
//! [`server`] and [`client`] create quinn's own `Endpoint`; everything after that is quinn's API.
//! quinn requires `Send`, so its tasks are `Send`, but they run on the thread of the runtime in
//! which the endpoint was created. As with tokio, other threads may use endpoints, connections and
//! streams. The I/O still happens on the runtime's thread.
//!
//! ```
//! use annulus_compat::quinn::{client, server};
//! use quinn::rustls::RootCertStore;
//! use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
//! use quinn::{ClientConfig, ServerConfig};
//! use std::sync::Arc;
//!
//! annulus::run(async {
//!     let identity = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
//!     let certificate = identity.cert.der().clone();
//!     let key = PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
//!     let config = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
//!     let server = server(config, "127.0.0.1:0".parse()?)?;
//!     let address = server.local_addr()?;
//!     annulus::spawn(async move {
//!         let connection = server.accept().await?.await.ok()?;
//!         let (mut send, mut recv) = connection.accept_bi().await.ok()?;
//!         let message = recv.read_to_end(100).await.ok()?;
//!         send.write_all(&message).await.ok()?;
//!         send.finish().ok()?;
//!         connection.closed().await; // Do not drop the connection before the data has arrived.
//!         Some(())
//!     });
//!
//!     let mut roots = RootCertStore::empty();
//!     roots.add(certificate)?;
//!     let mut client = client("127.0.0.1:0".parse()?)?;
//!     client.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
//!     let connection = client.connect(address, "localhost")?.await?;
//!     let (mut send, mut recv) = connection.open_bi().await?;
//!     send.write_all(b"hello").await?;
//!     send.finish()?;
//!     assert_eq!(recv.read_to_end(100).await?, b"hello");
//!     connection.close(0u32.into(), b"done");
//!     client.wait_idle().await; // Wait until the close has been sent.
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! })
//! # .unwrap();
//! ```
//!
//! quinn's `ServerConfig::with_single_cert` and `ClientConfig::with_root_certificates` need its
//! feature `rustls-ring`, which the program must turn on: `quinn = { version = "0.11",
//! default-features = false, features = ["rustls-ring"] }`.
//!
//! Datagrams leave with the kernel's segmentation (`UDP_SEGMENT`) and arrive coalesced (`UDP_GRO`),
//! with their congestion notification (ECN) and the local address that they were sent to.
//! Fragmentation is off where the system supports that. A datagram that the system rejects counts
//! as lost on the network, and quinn resends its content, so an error for one destination does not
//! end an endpoint.
//!
//! Under `annulus::sim` quinn's timers follow virtual time. quinn takes keys and connection IDs
//! from the system's random number generator, so runs are not identical bit for bit.

mod runtime;
mod socket;

pub use runtime::Runtime;
pub use socket::Socket;

use annulus::net::{UdpOptions, UdpSocket};
use quinn::{Endpoint, EndpointConfig, ServerConfig};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Creates an endpoint that accepts connections at an address and can also open them. For port 0,
/// the system chooses a port.
///
/// # Errors
/// Fails as [`UdpSocket::bind`] does, and if called outside a runtime.
pub fn server(config: ServerConfig, address: SocketAddr) -> io::Result<Endpoint> {
    endpoint(EndpointConfig::default(), Some(config), UdpSocket::bind(address)?)
}

/// Creates an endpoint that only opens connections, from this address. `[::]:0` reaches IPv6 and
/// IPv4 peers, `0.0.0.0:0` only IPv4 peers.
///
/// # Errors
/// Fails as [`UdpSocket::bind`] does, and if called outside a runtime.
pub fn client(address: SocketAddr) -> io::Result<Endpoint> {
    let options = UdpOptions::new();
    let options = if address.is_ipv6() { options.only_v6(false) } else { options };
    endpoint(EndpointConfig::default(), None, options.bind(address)?)
}

/// Creates an endpoint on an existing socket, for example one with large kernel buffers. The socket
/// must not be connected.
///
/// # Errors
/// Fails as [`Socket::new`] does, and if called outside a runtime.
pub fn endpoint(
    config: EndpointConfig,
    server: Option<ServerConfig>,
    socket: UdpSocket,
) -> io::Result<Endpoint> {
    let (runtime, socket) = (Arc::new(Runtime::new()?), Arc::new(Socket::new(socket)?));
    Endpoint::new_with_abstract_socket(config, server, socket, runtime)
}
