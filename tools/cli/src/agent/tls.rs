//! Encryption between an agent and a load generator.

use annulus_load::{CertificateCheck, Presented, hex, parse_hash, pem};
use anyhow::{Context, Result};
use ring::digest::{SHA256, digest};
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, Error, ServerConfig};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

const PREFIX: &str = "sha256:";
const FINGERPRINT_BYTES: usize = 32;
const PROVIDER_HAS_VERSIONS: &str = "ring does not support TLS 1.2 and 1.3";

/// The SHA-256 hash of a certificate in DER form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint([u8; FINGERPRINT_BYTES]);

impl Fingerprint {
    fn of(certificate: &CertificateDer<'_>) -> Fingerprint {
        let mut fingerprint = [0; FINGERPRINT_BYTES];
        fingerprint.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Fingerprint(fingerprint)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", hex(&self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = String;

    /// Parses 64 hexadecimal digits. The prefix is optional, and so are colons between the digits.
    fn from_str(text: &str) -> Result<Fingerprint, String> {
        let digits = text.strip_prefix(PREFIX).unwrap_or(text).replace(':', "");
        parse_hash(&digits).map(Fingerprint).ok_or_else(|| {
            format!(
                "'{text}' is not a fingerprint: write the {PREFIX} and 64 hexadecimal digits that \
                 `annulus agent` prints"
            )
        })
    }
}

fn crypto() -> Arc<CryptoProvider> {
    Arc::new(provider::default_provider())
}

/// Returns the TLS settings of an agent and the fingerprint of its certificate. `files` are a
/// certificate chain and its private key (PEM). Without them, a self-signed certificate for `names`
/// is created.
pub(super) fn server(
    files: Option<[&Path; 2]>,
    names: Vec<String>,
) -> Result<(Arc<ServerConfig>, Fingerprint)> {
    let (chain, key) = match files {
        Some([certificate, key]) => (pem::certificates(certificate)?, pem::private_key(key)?),
        None => {
            let made = rcgen::generate_simple_self_signed(names);
            let made = made.context("cannot create a self-signed certificate")?;
            let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
            (vec![made.cert.der().clone()], key)
        }
    };
    let fingerprint = Fingerprint::of(chain.first().context("there is no certificate")?);
    let builder = ServerConfig::builder_with_provider(crypto())
        .with_safe_default_protocol_versions()
        .expect(PROVIDER_HAS_VERSIONS);
    let config = builder.with_no_client_auth().with_single_cert(chain, key);
    let config = config.context("the key of --tls-key does not belong to the certificate")?;
    Ok((Arc::new(config), fingerprint))
}

/// Returns the TLS settings of a client. The client trusts only the certificate with this
/// fingerprint. If no fingerprint is given, it trusts certificates issued by this system's root
/// certificates.
pub(crate) fn client(fingerprint: Option<Fingerprint>) -> Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(crypto())
        .with_safe_default_protocol_versions()
        .expect(PROVIDER_HAS_VERSIONS);
    let config = match fingerprint {
        Some(fingerprint) => builder
            .dangerous()
            .with_custom_certificate_verifier(pinned(fingerprint))
            .with_no_client_auth(),
        None => {
            let roots = pem::system_roots().context("give --agent-fingerprint")?;
            builder.with_root_certificates(roots).with_no_client_auth()
        }
    };
    Ok(Arc::new(config))
}

/// Returns a verifier that accepts only the certificate with this fingerprint, whatever its name,
/// issuer and dates.
fn pinned(expected: Fingerprint) -> Arc<dyn ServerCertVerifier> {
    CertificateCheck::new(move |server: Presented<'_>| {
        let found = Fingerprint::of(server.certificate);
        if found == expected {
            return Ok(());
        }
        Err(Error::General(format!(
            "its certificate has the fingerprint {found} instead of {expected}: it is another \
             agent, or it was restarted with a new certificate"
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_fingerprints_parse_back() {
        let (_, fingerprint) = server(None, vec!["localhost".into()]).unwrap();
        let text = fingerprint.to_string();
        assert_eq!(text.parse(), Ok(fingerprint));
        let digits = text.strip_prefix("sha256:").unwrap().to_uppercase();
        let pairs: Vec<_> = digits.as_bytes().chunks(2).map(String::from_utf8_lossy).collect();
        assert_eq!(pairs.join(":").parse(), Ok(fingerprint), "as openssl prints it");
        for text in ["", "sha256:", "sha256:12", &"x".repeat(64), &"é".repeat(32), &"+1".repeat(32)]
        {
            let error = text.parse::<Fingerprint>().unwrap_err();
            assert!(error.contains("64 hexadecimal digits"), "{text}: {error}");
        }
    }

    #[test]
    fn error_names_the_missing_file() {
        let none = Path::new("/no/such/file");
        let error = server(Some([none, none]), vec![]).unwrap_err();
        assert!(format!("{error:#}").contains("certificates from /no/such/file"), "{error:#}");
    }
}
