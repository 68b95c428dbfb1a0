//! The certificate of an example: that of the command line, or one that is made and signed by itself.

use annulus_compat::rustls::TlsAcceptor;
use std::io;

/// An acceptor with the files that `--cert` and `--key` name, or, without them, with a certificate for localhost that clients have no
/// reason to trust (`curl --insecure`).
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
