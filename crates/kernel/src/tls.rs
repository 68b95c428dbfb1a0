//! Kernel TLS: the keys with which the kernel encrypts what a TCP socket sends.
//!
//! The structures of `linux/tls.h` are a version, a cipher, and arrays of bytes, so they have no padding, and are written here byte by byte.

use std::fmt;
use std::io;

/// A content type of TLS: an alert.
pub const RECORD_ALERT: u8 = 21;

/// A content type of TLS: data of the program.
pub const RECORD_DATA: u8 = 23;

/// A version of TLS whose records the kernel can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3 (Linux 5.1).
    V1_3,
}

/// A cipher that the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsCipher {
    /// AES-GCM with a key of 16 bytes.
    Aes128Gcm,
    /// AES-GCM with a key of 32 bytes.
    Aes256Gcm,
    /// ChaCha20-Poly1305, with a key of 32 bytes (Linux 5.11).
    ChaCha20Poly1305,
}

impl TlsCipher {
    /// Bytes of a key.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// How many records may be made with the same keys: of AES-GCM 2^24, after which what is sent can be told from random bytes with a chance
    /// of one in 2^60. Of ChaCha20-Poly1305 so many are never made.
    pub const fn record_limit(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 1 << 24,
            Self::ChaCha20Poly1305 => u64::MAX,
        }
    }

    /// `TLS_CIPHER_…`
    const fn number(self) -> u16 {
        match self {
            Self::Aes128Gcm => 51,
            Self::Aes256Gcm => 52,
            Self::ChaCha20Poly1305 => 54,
        }
    }

    /// Bytes of the nonce that are not sent.
    const fn salt_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 4,
            Self::ChaCha20Poly1305 => 0,
        }
    }
}

/// The keys of one direction, and the number of its next record: `struct tls12_crypto_info_…`. They are wiped when it is dropped.
pub struct TlsKeys {
    bytes: [u8; TlsKeys::MOST],
    len: usize,
    cipher: TlsCipher,
    records: u64,
}

impl TlsKeys {
    /// Bytes of a nonce.
    pub const NONCE: usize = 12;
    /// Version and cipher, a nonce, a key of 32 bytes, the number of a record.
    const MOST: usize = 4 + Self::NONCE + 32 + 8;

    /// The keys of a direction in which `records` records have been sent with them. `nonce` is what is combined with the number of a record: in
    /// TLS 1.2 with AES-GCM the four bytes of the fixed part, then eight of the explicit part.
    ///
    /// In TLS 1.2 with AES-GCM the kernel counts the explicit part up from what it is given, while what has sent the first records may have
    /// combined it with their numbers. No nonce may be used twice with a key, so the kernel gets a start that is far from those.
    ///
    /// # Errors
    /// `InvalidInput` for a key of another length than the cipher's.
    pub fn new(
        version: TlsVersion,
        cipher: TlsCipher,
        key: &[u8],
        nonce: [u8; Self::NONCE],
        records: u64,
    ) -> io::Result<Self> {
        if key.len() != cipher.key_len() {
            let (is, wanted) = (key.len(), cipher.key_len());
            let text = format!("a key of {is} bytes; {cipher:?} has keys of {wanted}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let (salt, rest) = nonce.split_at(cipher.salt_len());
        let mut keys = Self { bytes: [0; Self::MOST], len: 0, cipher, records };
        keys.push(&version.number().to_ne_bytes());
        keys.push(&cipher.number().to_ne_bytes());
        let start = keys.len;
        keys.push(rest);
        if version == TlsVersion::V1_2 && !salt.is_empty() {
            keys.bytes[start] ^= 0x80;
        }
        keys.push(key);
        keys.push(salt);
        keys.push(&records.to_be_bytes());
        Ok(keys)
    }

    /// What they are for.
    pub const fn cipher(&self) -> TlsCipher {
        self.cipher
    }

    /// Records that were made with them before the kernel got them.
    pub const fn records(&self) -> u64 {
        self.records
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// As the kernel reads them.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl TlsVersion {
    /// As in `struct tls_crypto_info`.
    const fn number(self) -> u16 {
        match self {
            Self::V1_2 => 0x0303,
            Self::V1_3 => 0x0304,
        }
    }
}

impl Drop for TlsKeys {
    fn drop(&mut self) {
        self.bytes.fill(0);
        // The memory is not read any more, so the compiler could leave the writes out.
        std::hint::black_box(&self.bytes);
    }
}

/// Without the keys.
impl fmt::Debug for TlsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKeys").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: [u8; TlsKeys::NONCE] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

    fn bytes(version: TlsVersion, cipher: TlsCipher) -> Vec<u8> {
        let key = vec![0xaa; cipher.key_len()];
        TlsKeys::new(version, cipher, &key, NONCE, 258).unwrap().as_bytes().to_vec()
    }

    #[test]
    fn the_layout_is_that_of_the_kernel() {
        let expected = |cipher: u16, parts: &[&[u8]]| {
            let head = [0x0304u16.to_ne_bytes(), cipher.to_ne_bytes()].concat();
            [&head[..], &parts.concat(), &[0, 0, 0, 0, 0, 0, 1, 2]].concat()
        };
        let (salt, rest) = NONCE.split_at(4);
        let small = bytes(TlsVersion::V1_3, TlsCipher::Aes128Gcm);
        assert_eq!(small, expected(51, &[rest, &[0xaa; 16], salt]));
        assert_eq!(small.len(), size_of::<libc::tls12_crypto_info_aes_gcm_128>());
        let large = bytes(TlsVersion::V1_3, TlsCipher::Aes256Gcm);
        assert_eq!(large, expected(52, &[rest, &[0xaa; 32], salt]));
        assert_eq!(large.len(), size_of::<libc::tls12_crypto_info_aes_gcm_256>());
        let chacha = bytes(TlsVersion::V1_3, TlsCipher::ChaCha20Poly1305);
        assert_eq!(chacha, expected(54, &[&NONCE, &[0xaa; 32]]));
        assert_eq!(chacha.len(), size_of::<libc::tls12_crypto_info_chacha20_poly1305>());
    }

    #[test]
    fn explicit_nonces_of_tls_1_2_start_far_from_those_of_the_handshake() {
        let gcm = bytes(TlsVersion::V1_2, TlsCipher::Aes128Gcm);
        assert_eq!(gcm[4..12], [0x85, 6, 7, 8, 9, 10, 11, 12]);
        // Here both sides combine the nonce with the number of the record.
        let chacha = bytes(TlsVersion::V1_2, TlsCipher::ChaCha20Poly1305);
        assert_eq!(chacha[4..16], NONCE);
    }

    #[test]
    fn a_key_of_another_length_is_refused() {
        let error = TlsKeys::new(TlsVersion::V1_3, TlsCipher::Aes256Gcm, &[0; 16], NONCE, 0);
        let error = error.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), "a key of 16 bytes; Aes256Gcm has keys of 32");
    }

    #[test]
    fn keys_are_not_shown() {
        let keys = TlsKeys::new(TlsVersion::V1_3, TlsCipher::Aes128Gcm, &[7; 16], NONCE, 0);
        assert_eq!(format!("{:?}", keys.unwrap()), "TlsKeys { .. }");
    }
}
