//! Certificates and keys: those in files (PEM), and the root certificates of this system.

use crate::files::{self, MAX_PEM_BYTES};
use crate::invalid::{InvalidValue, invalid};
use rustls::RootCertStore;
use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::path::Path;

/// Loads the root certificates of this system. Invalid files are ignored if at least one
/// certificate is valid.
pub fn system_roots() -> Result<RootCertStore, InvalidValue> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        let why = loaded.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(invalid(format!(
            "this system has no root certificates{why}: install the package ca-certificates, or \
             name a file with the roots to trust"
        )));
    }
    Ok(roots)
}

/// Reads the certificates of a file: at least one.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, InvalidValue> {
    let shown = path.display();
    let failed =
        |why: &dyn fmt::Display| invalid(format!("cannot read certificates from {shown}: {why}"));
    let bytes = files::read(path, MAX_PEM_BYTES).map_err(|error| failed(&error))?;
    let certificates = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| failed(&error))?;
    match certificates.is_empty() {
        true => Err(invalid(format!("{shown} contains no certificate: name a file in PEM format"))),
        false => Ok(certificates),
    }
}

/// Reads a private key, which must not be encrypted.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, InvalidValue> {
    /// Part of the label of keys that need a passphrase.
    const ENCRYPTED: &[u8] = b"ENCRYPTED";
    let shown = path.display();
    let failed =
        |why: &dyn fmt::Display| invalid(format!("cannot read a private key from {shown}: {why}"));
    let bytes = files::read(path, MAX_PEM_BYTES).map_err(|error| failed(&error))?;
    match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(key) => Ok(key),
        Err(_) if memchr::memmem::find(&bytes, ENCRYPTED).is_some() => Err(invalid(format!(
            "the private key in {shown} is encrypted: decrypt it with `openssl pkey -in {shown}`"
        ))),
        Err(Error::NoItemsFound) => {
            Err(invalid(format!("{shown} contains no private key: name a file in PEM format")))
        }
        Err(error) => Err(failed(&error)),
    }
}
