//! What rustls keeps of a session whose keys it has given out: it makes the next keys, and keeps the tickets of a server.

use tokio_rustls::rustls::client::ClientConnectionData;
use tokio_rustls::rustls::kernel::KernelConnection;
use tokio_rustls::rustls::server::ServerConnectionData;
use tokio_rustls::rustls::{ConnectionTrafficSecrets, Error};

pub(super) enum Secrets {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

impl Secrets {
    /// The next keys for receiving, of TLS 1.3.
    pub(super) fn next_received(&mut self) -> Result<ConnectionTrafficSecrets, Error> {
        let (_, keys) = match self {
            Self::Client(connection) => connection.update_rx_secret()?,
            Self::Server(connection) => connection.update_rx_secret()?,
        };
        Ok(keys)
    }

    /// The next keys for sending, of TLS 1.3.
    pub(super) fn next_sent(&mut self) -> Result<ConnectionTrafficSecrets, Error> {
        let (_, keys) = match self {
            Self::Client(connection) => connection.update_tx_secret()?,
            Self::Server(connection) => connection.update_tx_secret()?,
        };
        Ok(keys)
    }

    /// Keeps a ticket by which a later session starts faster: the payload of its message. Servers get none.
    pub(super) fn keep_ticket(&mut self, payload: &[u8]) -> Result<(), Error> {
        match self {
            Self::Client(connection) => connection.handle_new_session_ticket(payload),
            Self::Server(_) => Err(Error::General("a ticket from a client".into())),
        }
    }
}
