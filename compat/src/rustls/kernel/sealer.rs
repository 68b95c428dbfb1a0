//! What is sent, encrypted here record by record: in sessions of which the kernel was to encrypt, and does not have the cipher.

use super::keys;
use super::secrets::Secrets;
use std::io;
use tokio_rustls::rustls::crypto::cipher::{
    MessageEncrypter, OutboundChunks, OutboundPlainMessage,
};
use tokio_rustls::rustls::{
    ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion, SupportedCipherSuite,
};

/// Most bytes of data in a record.
pub(super) const MOST: usize = 16 * 1024;
/// A `KeyUpdate` that asks for none in return.
const NEW_KEYS: [u8; 5] = [24, 0, 0, 1, 0];

pub(super) struct Sealer {
    encrypter: Box<dyn MessageEncrypter>,
    suite: SupportedCipherSuite,
    /// Records that were made with these keys.
    records: u64,
    /// As many as may be.
    pub(super) limit: u64,
}

impl Sealer {
    pub(super) fn new(
        suite: SupportedCipherSuite,
        keys: ConnectionTrafficSecrets,
        records: u64,
    ) -> io::Result<Self> {
        let encrypter = keys::encrypter(suite, keys)?;
        Ok(Self { encrypter, suite, records, limit: keys::record_limit(suite) })
    }

    /// A record.
    fn seal(&mut self, kind: ContentType, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let payload = OutboundChunks::Single(bytes);
        // Records of TLS 1.3 have this version, too.
        let plain = OutboundPlainMessage { typ: kind, version: ProtocolVersion::TLSv1_2, payload };
        let record = self.encrypter.encrypt(plain, self.records)?;
        self.records += 1;
        Ok(record.encode())
    }

    /// A record of data, of at most [`MOST`] bytes; with new keys if the peer has asked for some or as many were made as may be.
    ///
    /// # Errors
    /// If there are no new keys: in TLS 1.2.
    pub(super) fn data(
        &mut self,
        bytes: &[u8],
        owes_keys: &mut bool,
        secrets: &mut Secrets,
    ) -> io::Result<Vec<u8>> {
        let mut records = Vec::new();
        if *owes_keys || self.records >= self.limit {
            records = self.change_keys(secrets)?;
            *owes_keys = false;
        }
        records
            .append(&mut self.seal(ContentType::ApplicationData, bytes).map_err(io::Error::other)?);
        Ok(records)
    }

    pub(super) fn alert(&mut self, level: u8, description: u8) -> io::Result<Vec<u8>> {
        self.seal(ContentType::Alert, &[level, description]).map_err(io::Error::other)
    }

    fn change_keys(&mut self, secrets: &mut Secrets) -> io::Result<Vec<u8>> {
        let Ok(keys) = secrets.next_sent() else { return Err(spent(self.limit)) };
        let told = self.seal(ContentType::Handshake, &NEW_KEYS).map_err(io::Error::other)?;
        *self = Self::new(self.suite, keys, 0)?;
        Ok(told)
    }
}

fn spent(limit: u64) -> io::Error {
    let text = format!(
        "the keys of this session have encrypted {limit} records, as many as their cipher allows, and TLS 1.2 has no new ones: shut it down, \
         and go on with a new session"
    );
    io::Error::new(io::ErrorKind::QuotaExceeded, text)
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("records", &self.records).finish_non_exhaustive()
    }
}
