//! Servers, clients that trust them, and an echo between the two.

pub(crate) use crate::quinn::drivers::{Failure, everywhere, on_drivers, simulated};
use annulus_compat::quinn::{client, server};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig, TransportConfig};
use std::net::SocketAddr;
use std::sync::Arc;

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// Returns the configurations of a server and of a client that trusts its certificate for
/// `localhost`.
pub(crate) fn configs(transport: TransportConfig) -> Outcome<(ServerConfig, ClientConfig)> {
    let transport = Arc::new(transport);
    let identity = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let certificate = identity.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
    let mut server = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
    server.transport_config(transport.clone());
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots))?;
    client.transport_config(transport);
    Ok((server, client))
}

/// Creates a server, and a client that trusts it.
pub(crate) fn endpoints(
    at: &str,
    from: &str,
    transport: TransportConfig,
) -> Outcome<(Endpoint, Endpoint)> {
    let (server_config, client_config) = configs(transport)?;
    let server = server(server_config, at.parse()?)?;
    let mut client = client(from.parse()?)?;
    client.set_default_client_config(client_config);
    Ok((server, client))
}

pub(crate) fn on_loopback() -> Outcome<(Endpoint, Endpoint)> {
    endpoints("127.0.0.1:0", "127.0.0.1:0", TransportConfig::default())
}

pub(crate) async fn connect(client: &Endpoint, to: SocketAddr) -> Outcome<Connection> {
    Ok(client.connect(to, "localhost")?.await?)
}

pub(crate) async fn pair(
    server: &Endpoint,
    client: &Endpoint,
) -> Outcome<(Connection, Connection)> {
    let accepting = async { Outcome::Ok(server.accept().await.ok_or("closed")?.await?) };
    let (remote, ours) = tokio::join!(accepting, connect(client, server.local_addr()?));
    Outcome::Ok((remote?, ours?))
}

/// Spawns tasks that echo the streams and datagrams of all connections of an endpoint.
pub(crate) fn echo(server: &Endpoint) {
    let server = server.clone();
    annulus::spawn(async move {
        while let Some(incoming) = server.accept().await {
            annulus::spawn(async move { echo_connection(incoming.await?).await });
        }
    });
}

async fn echo_connection(connection: Connection) -> Outcome {
    let datagrams = connection.clone();
    annulus::spawn(async move {
        while let Ok(datagram) = datagrams.read_datagram().await {
            datagrams.send_datagram(datagram)?;
        }
        Outcome::Ok(())
    });
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        annulus::spawn(async move {
            while let Some(chunk) = recv.read_chunk(usize::MAX, true).await? {
                send.write_chunk(chunk.bytes).await?;
            }
            send.finish()?;
            Outcome::Ok(())
        });
    }
    Ok(())
}

/// Sends bytes over a stream to an echo server, and compares the echo.
pub(crate) async fn exchange(connection: &Connection, bytes: &[u8]) -> Outcome {
    let (mut send, mut recv) = connection.open_bi().await?;
    let sending = async {
        send.write_all(bytes).await?;
        send.finish()?;
        Outcome::Ok(())
    };
    let (sent, got) = tokio::join!(sending, recv.read_to_end(bytes.len() + 1));
    sent?;
    if got? == bytes { Ok(()) } else { Err("the echo differs".into()) }
}

/// Returns bytes that depend on their position and on `salt`.
pub(crate) fn pattern(salt: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + salt * 7) as u8).collect()
}
