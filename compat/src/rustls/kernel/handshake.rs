//! A handshake that takes from the stream what it needs and no byte more: what follows is for the session.

use super::about::About;
use super::records::poll_record;
use super::secrets::Secrets;
use super::server_name::NotesName;
use annulus::net::TcpStream;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use tokio_rustls::rustls::client::UnbufferedClientConnection;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::server::UnbufferedServerConnection;
use tokio_rustls::rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, UnbufferedConnectionCommon, UnbufferedStatus,
};
use tokio_rustls::rustls::{
    ClientConfig, CommonState, Error, ExtractedSecrets, ServerConfig, SupportedCipherSuite,
};

/// A side of a handshake.
pub(in crate::rustls) enum Handshake {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection, Arc<NotesName>),
}

/// What a handshake has come to.
pub(super) struct Agreed {
    pub(super) about: About,
    pub(super) suite: SupportedCipherSuite,
    /// The keys, of which records of the handshake may have used some.
    pub(super) keys: ExtractedSecrets,
    pub(super) secrets: Secrets,
}

impl Handshake {
    /// Early data stays off, whatever the settings say: it would come before the keys.
    pub(in crate::rustls) fn of_client(
        config: &Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, Error> {
        let mut config = config.clone();
        if config.enable_early_data {
            Arc::make_mut(&mut config).enable_early_data = false;
        }
        UnbufferedClientConnection::new(config, name).map(Self::Client)
    }

    /// As [`of_client`](Self::of_client).
    pub(in crate::rustls) fn of_server(config: &ServerConfig) -> Result<Self, Error> {
        let (mut config, name) = NotesName::within(config);
        config.max_early_data_size = 0;
        Ok(Self::Server(UnbufferedServerConnection::new(config.into())?, name))
    }

    /// Makes the handshake. At its end everything that rustls has to send was taken by the kernel, and nothing was taken from the stream
    /// but records of the handshake.
    ///
    /// # Errors
    /// `InvalidData` with a [`rustls::Error`](Error) inside, which the peer is told of. `UnexpectedEof` if the stream ends before. Those of
    /// the stream.
    pub(super) async fn shake(mut self, stream: &mut TcpStream) -> io::Result<Agreed> {
        let (mut incoming, mut flight) = (Vec::new(), Vec::new());
        loop {
            let advanced = self.advance(&mut incoming, &mut flight);
            let sent = match flight.is_empty() {
                true => Ok(()),
                false => stream.send(std::mem::take(&mut flight)).await,
            };
            // What is wrong here comes before an alert that could not be sent.
            let is_done = advanced.map_err(invalid)?;
            sent?;
            if is_done {
                break;
            }
            take_record(stream, &mut incoming).await?;
        }
        stream.drain().await?;
        if !incoming.is_empty() {
            return Err(invalid(Error::General(
                "a handshake message goes on behind its end".into(),
            )));
        }
        self.agreed().map_err(io::Error::other)
    }

    /// Goes on with the records that have come, and adds what is to be sent; whether the handshake is over.
    ///
    /// # Errors
    /// What is wrong with them. Then what is to be sent has an alert.
    fn advance(&mut self, incoming: &mut Vec<u8>, flight: &mut Vec<u8>) -> Result<bool, Error> {
        match self {
            Self::Client(connection) => advance(
                connection,
                |connection, bytes| connection.process_tls_records(bytes),
                incoming,
                flight,
            ),
            Self::Server(connection, _) => advance(
                connection,
                |connection, bytes| connection.process_tls_records(bytes),
                incoming,
                flight,
            ),
        }
    }

    fn agreed(self) -> Result<Agreed, Error> {
        let state: &CommonState = match &self {
            Self::Client(connection) => connection,
            Self::Server(connection, _) => connection,
        };
        let suite = state.negotiated_cipher_suite().ok_or(Error::HandshakeNotComplete)?;
        let name = match &self {
            Self::Client(_) => None,
            Self::Server(_, noted) => noted.name(),
        };
        let about = About::new(state, name);
        let (keys, secrets) = match self {
            Self::Client(connection) => {
                let (keys, secrets) = connection.dangerous_into_kernel_connection()?;
                (keys, Secrets::Client(secrets))
            }
            Self::Server(connection, _) => {
                let (keys, secrets) = connection.dangerous_into_kernel_connection()?;
                (keys, Secrets::Server(secrets))
            }
        };
        Ok(Agreed { about, suite, keys, secrets })
    }
}

/// What a look of rustls at the bytes has come to.
enum Step {
    /// There is more to do.
    Again,
    /// Another record is needed.
    Blocked,
    Done,
}

type Process<Data> = for<'c, 'i> fn(
    &'c mut UnbufferedConnectionCommon<Data>,
    &'i mut [u8],
) -> UnbufferedStatus<'c, 'i, Data>;

fn advance<Data>(
    connection: &mut UnbufferedConnectionCommon<Data>,
    process: Process<Data>,
    incoming: &mut Vec<u8>,
    flight: &mut Vec<u8>,
) -> Result<bool, Error> {
    loop {
        let UnbufferedStatus { discard, state, .. } = process(connection, incoming);
        let step = state.and_then(|state| step(state, flight));
        incoming.drain(..discard);
        match step {
            Ok(Step::Again) => {}
            Ok(Step::Blocked) => return Ok(false),
            Ok(Step::Done) => return Ok(!connection.is_handshaking()),
            Err(error) => {
                // The alert. Nothing but that may be asked for any more.
                while connection.wants_write() {
                    let UnbufferedStatus { state, .. } = process(connection, incoming);
                    state.and_then(|state| self::step(state, flight))?;
                }
                return Err(error);
            }
        }
    }
}

fn step<Data>(state: ConnectionState<'_, '_, Data>, flight: &mut Vec<u8>) -> Result<Step, Error> {
    match state {
        ConnectionState::EncodeTlsData(data) => {
            encode(data, flight);
            Ok(Step::Again)
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Step::Again)
        }
        ConnectionState::WriteTraffic(_) => Ok(Step::Done),
        ConnectionState::BlockedHandshake
        | ConnectionState::PeerClosed
        | ConnectionState::Closed => Ok(Step::Blocked),
        other => Err(Error::General(format!("{other:?} in the handshake"))),
    }
}

fn encode<Data>(mut data: EncodeTlsData<'_, Data>, flight: &mut Vec<u8>) {
    let start = flight.len();
    let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) else { return };
    flight.resize(start + size.required_size, 0);
    let written = data.encode(&mut flight[start..]).unwrap_or(0);
    flight.truncate(start + written);
}

/// Adds one record to what is for rustls.
async fn take_record(stream: &mut TcpStream, incoming: &mut Vec<u8>) -> io::Result<()> {
    let len = poll_fn(|cx| {
        poll_record(stream, cx).map_ok(|record| {
            let record = record.unwrap_or_default();
            incoming.extend_from_slice(record);
            record.len()
        })
    })
    .await?;
    if len == 0 {
        let text = "the stream has ended in the TLS handshake";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    stream.consume(len);
    Ok(())
}

fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
