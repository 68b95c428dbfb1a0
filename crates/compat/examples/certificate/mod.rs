//! The certificate of an example: the one given on the command line, or a generated self-signed
//! one.

use annulus_compat::rustls::TlsAcceptor;
use std::io;

/// Creates an acceptor with the `--cert` and `--key` files. Without them it generates a self-signed
/// certificate for localhost, which clients do not trust (`curl --insecure`).
pub(crate) fn acceptor(files: Option<(String, String)>, alpn: &[&str]) -> io::Result<TlsAcceptor> {
    let (certificate, key) = match files {
        Some((certificate, key)) => (read(&certificate)?, read(&key)?),
        None => make().map_err(io::Error::other)?,
    };
    TlsAcceptor::from_pem(&certificate, &key, alpn)
}

fn read(path: &str) -> io::Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}

fn make() -> Result<(Vec<u8>, Vec<u8>), rcgen::Error> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)?;
    Ok((made.cert.pem().into_bytes(), made.signing_key.serialize_pem().into_bytes()))
}
