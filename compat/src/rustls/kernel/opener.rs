//! What is received, decrypted record by record with the keys that rustls has given out.

use super::keys;
use super::records::HEADER;
use super::secrets::Secrets;
use crate::rustls::gathered::Gathered;
use annulus::net::TlsVersion;
use std::io;
use std::mem;
use tokio_rustls::rustls::crypto::cipher::{InboundOpaqueMessage, MessageDecrypter};
use tokio_rustls::rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, InvalidMessage, PeerMisbehaved,
    ProtocolVersion, SupportedCipherSuite,
};

/// Of messages of the handshake: a type and three bytes of length.
const MESSAGE_HEADER: usize = 4;
/// The longest message that is waited for, as in rustls.
const MOST: usize = 0xffff;
const HELLO_REQUEST: u8 = 0;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
const WARNING: u8 = 1;

pub(super) struct Opener {
    decrypter: Box<dyn MessageDecrypter>,
    suite: SupportedCipherSuite,
    version: TlsVersion,
    /// Records that were received with these keys.
    records: u64,
    /// The beginning of a message of the handshake.
    message: Vec<u8>,
    /// The record that is decrypted, in its place.
    memory: Vec<u8>,
    /// The peer has said that it sends no more.
    pub(super) has_ended: bool,
    /// The peer has asked for new keys of what is sent to it, and has not got them.
    pub(super) owes_keys: bool,
}

impl Opener {
    pub(super) fn new(
        suite: SupportedCipherSuite,
        keys: ConnectionTrafficSecrets,
        records: u64,
    ) -> io::Result<Self> {
        Ok(Self {
            decrypter: keys::decrypter(suite, keys)?,
            suite,
            version: keys::version(suite),
            records,
            message: Vec::new(),
            memory: Vec::new(),
            has_ended: false,
            owes_keys: false,
        })
    }

    /// Decrypts a whole record, and adds what it has for the program to `data`.
    ///
    /// # Errors
    /// What is wrong with it, after which nothing that comes can be trusted; or an alert of the peer.
    pub(super) fn open(
        &mut self,
        record: &[u8],
        data: &mut Gathered,
        secrets: &mut Secrets,
    ) -> Result<(), Error> {
        let mut memory = mem::take(&mut self.memory);
        memory.clear();
        memory.extend_from_slice(record);
        let opened = self.open_in_place(&mut memory, data, secrets);
        self.memory = memory;
        opened
    }

    /// An idle session holds no memory.
    pub(super) fn rest(&mut self) {
        self.memory = Vec::new();
    }

    fn open_in_place(
        &mut self,
        record: &mut [u8],
        data: &mut Gathered,
        secrets: &mut Secrets,
    ) -> Result<(), Error> {
        let Some((header, payload)) = record.split_first_chunk_mut::<HEADER>() else {
            return Err(Error::DecryptError);
        };
        let version = ProtocolVersion::from(u16::from_be_bytes([header[1], header[2]]));
        let kind = ContentType::from(header[0]);
        let message = InboundOpaqueMessage::new(kind, version, payload);
        let plain = self.decrypter.decrypt(message, self.records)?;
        // No session lasts for so many.
        self.records = self.records.checked_add(1).ok_or(Error::DecryptError)?;
        let (kind, payload) = (plain.typ, plain.payload);
        if !self.message.is_empty() && kind != ContentType::Handshake {
            return Err(PeerMisbehaved::MessageInterleavedWithHandshakeMessage.into());
        }
        match kind {
            ContentType::ApplicationData => data.add(payload),
            ContentType::Alert => self.alert(payload)?,
            ContentType::Handshake => self.handshake(payload, secrets)?,
            other => {
                return Err(Error::InappropriateMessage {
                    expect_types: vec![ContentType::ApplicationData],
                    got_type: other,
                });
            }
        }
        Ok(())
    }

    fn alert(&mut self, payload: &[u8]) -> Result<(), Error> {
        let [level, description] = *payload else {
            return Err(InvalidMessage::TrailingData("AlertMessagePayload").into());
        };
        match AlertDescription::from(description) {
            AlertDescription::CloseNotify => self.has_ended = true,
            // Others end the session in TLS 1.3, whatever their level.
            AlertDescription::UserCanceled => {}
            _ if level == WARNING && self.version == TlsVersion::V1_2 => {}
            description => return Err(Error::AlertReceived(description)),
        }
        Ok(())
    }

    /// Messages after the handshake; they may be parted anywhere.
    fn handshake(&mut self, payload: &[u8], secrets: &mut Secrets) -> Result<(), Error> {
        let mut messages = mem::take(&mut self.message);
        messages.extend_from_slice(payload);
        let mut rest = &messages[..];
        while let Some(message) = Message::first(rest)? {
            rest = message.behind;
            self.take(&message, secrets)?;
        }
        self.message = rest.to_vec();
        Ok(())
    }

    fn take(&mut self, message: &Message<'_>, secrets: &mut Secrets) -> Result<(), Error> {
        let Message { kind, body, behind } = *message;
        match (self.version, kind) {
            (TlsVersion::V1_3, NEW_SESSION_TICKET) => secrets.keep_ticket(body),
            // What follows in the record would be of other keys.
            (TlsVersion::V1_3, KEY_UPDATE) if !behind.is_empty() => {
                Err(PeerMisbehaved::KeyEpochWithPendingFragment.into())
            }
            (TlsVersion::V1_3, KEY_UPDATE) => self.change_keys(body, secrets),
            // A server would like another handshake, which a client need not make.
            (TlsVersion::V1_2, HELLO_REQUEST) if body.is_empty() => Ok(()),
            (_, other) => Err(Error::General(format!(
                "the peer has sent a handshake message of type {other} in a session"
            ))),
        }
    }

    fn change_keys(&mut self, body: &[u8], secrets: &mut Secrets) -> Result<(), Error> {
        self.owes_keys |= match body {
            [0] => false,
            [1] => true,
            _ => return Err(InvalidMessage::InvalidKeyUpdate.into()),
        };
        let keys = secrets.next_received()?;
        let decrypter = keys::decrypter(self.suite, keys);
        self.decrypter = decrypter.map_err(|error| Error::General(error.to_string()))?;
        self.records = 0;
        Ok(())
    }
}

/// A message of the handshake, and what is behind it.
struct Message<'a> {
    kind: u8,
    body: &'a [u8],
    behind: &'a [u8],
}

impl<'a> Message<'a> {
    /// The first; `None` if it is not whole.
    fn first(bytes: &'a [u8]) -> Result<Option<Self>, Error> {
        let Some((header, rest)) = bytes.split_first_chunk::<MESSAGE_HEADER>() else {
            return Ok(None);
        };
        let [kind, high, middle, low] = *header;
        let len = u32::from_be_bytes([0, high, middle, low]) as usize;
        if len > MOST {
            return Err(InvalidMessage::HandshakePayloadTooLarge.into());
        }
        Ok(rest.split_at_checked(len).map(|(body, behind)| Self { kind, body, behind }))
    }
}

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opener").field("records", &self.records).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_may_be_parted_anywhere() {
        let bytes = [4, 0, 0, 2, 7, 8, 24, 0];
        for len in 0..6 {
            assert!(Message::first(&bytes[..len]).unwrap().is_none(), "{len}");
        }
        let Message { kind, body, behind } = Message::first(&bytes).unwrap().unwrap();
        assert_eq!((kind, body, behind), (4, &[7, 8][..], &[24, 0][..]));
    }

    #[test]
    fn a_message_that_is_too_long_is_not_waited_for() {
        assert!(Message::first(&[4, 1, 0, 0]).is_err());
        assert!(Message::first(&[4, 0, 0xff, 0xff]).unwrap().is_none());
    }
}
