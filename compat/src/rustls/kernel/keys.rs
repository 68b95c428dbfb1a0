//! The keys of rustls as those of the kernel, and as what encrypts and decrypts here.

use annulus::net::{TlsCipher, TlsKeys, TlsVersion};
use std::io;
use tokio_rustls::rustls::crypto::cipher::{AeadKey, Iv, MessageDecrypter, MessageEncrypter};
use tokio_rustls::rustls::{ConnectionTrafficSecrets, SupportedCipherSuite};

/// Bytes of the fixed part of a nonce of AES-GCM in TLS 1.2.
const FIXED: usize = 4;

/// The keys for sending, of which `records` records were made.
pub(super) fn for_kernel(
    suite: SupportedCipherSuite,
    keys: &ConnectionTrafficSecrets,
    records: u64,
) -> io::Result<TlsKeys> {
    let (cipher, key, iv) = parts(keys)?;
    let nonce = iv.as_ref().try_into().map_err(|_| refused("a nonce that is not of 12 bytes"))?;
    TlsKeys::new(version(suite), cipher, key.as_ref(), nonce, records)
}

/// What encrypts what is sent.
pub(super) fn encrypter(
    suite: SupportedCipherSuite,
    keys: ConnectionTrafficSecrets,
) -> io::Result<Box<dyn MessageEncrypter>> {
    let fixed = fixed_len(&keys)?;
    let (key, iv) = taken(keys)?;
    Ok(match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) => {
            let (fixed, explicit) = iv.as_ref().split_at(fixed);
            suite.aead_alg.encrypter(key, fixed, explicit)
        }
    })
}

/// What decrypts what is received.
pub(super) fn decrypter(
    suite: SupportedCipherSuite,
    keys: ConnectionTrafficSecrets,
) -> io::Result<Box<dyn MessageDecrypter>> {
    let fixed = fixed_len(&keys)?;
    let (key, iv) = taken(keys)?;
    Ok(match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.decrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) => suite.aead_alg.decrypter(key, &iv.as_ref()[..fixed]),
    })
}

pub(super) fn version(suite: SupportedCipherSuite) -> TlsVersion {
    match suite {
        SupportedCipherSuite::Tls12(_) => TlsVersion::V1_2,
        SupportedCipherSuite::Tls13(_) => TlsVersion::V1_3,
    }
}

/// How many records may be made with the same keys.
pub(super) fn record_limit(suite: SupportedCipherSuite) -> u64 {
    match suite {
        SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
        SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
    }
}

/// Bytes of the nonce of TLS 1.2 that are not in the records.
fn fixed_len(keys: &ConnectionTrafficSecrets) -> io::Result<usize> {
    let (cipher, _, iv) = parts(keys)?;
    Ok(match cipher {
        TlsCipher::Aes128Gcm | TlsCipher::Aes256Gcm => FIXED,
        TlsCipher::ChaCha20Poly1305 => iv.as_ref().len(),
    })
}

fn parts(keys: &ConnectionTrafficSecrets) -> io::Result<(TlsCipher, &AeadKey, &Iv)> {
    use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
    match keys {
        Aes128Gcm { key, iv } => Ok((TlsCipher::Aes128Gcm, key, iv)),
        Aes256Gcm { key, iv } => Ok((TlsCipher::Aes256Gcm, key, iv)),
        Chacha20Poly1305 { key, iv } => Ok((TlsCipher::ChaCha20Poly1305, key, iv)),
        _ => Err(refused("a cipher that is neither AES-GCM nor ChaCha20-Poly1305")),
    }
}

fn taken(keys: ConnectionTrafficSecrets) -> io::Result<(AeadKey, Iv)> {
    use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
    match keys {
        Aes128Gcm { key, iv } | Aes256Gcm { key, iv } | Chacha20Poly1305 { key, iv } => {
            Ok((key, iv))
        }
        _ => Err(refused("a cipher that is neither AES-GCM nor ChaCha20-Poly1305")),
    }
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("kernel TLS: {what}"))
}
