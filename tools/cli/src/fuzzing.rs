//! Entry points for the fuzz targets into private code. Not part of the public interface.

use crate::endpoint::Endpoint;
use annulus_load::unix_address;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Parses an endpoint. If it is accepted, its text is parsed to the same endpoint, and a path is one of a Unix socket.
pub fn endpoint(bytes: &[u8]) {
    let endpoint = match Endpoint::parse(OsStr::from_bytes(bytes)) {
        Ok(endpoint) => endpoint,
        Err(error) => return assert!(!error.is_empty(), "an error without a text"),
    };
    if let Endpoint::Unix(path) | Endpoint::UnixDatagram(path) = &endpoint
        && !bytes.contains(&0)
    {
        unix_address(path).expect("an accepted path is one of a socket");
    }
    // The text of a path that is not UTF-8 is only an approximation.
    if std::str::from_utf8(bytes).is_ok() {
        assert_eq!(endpoint.to_string().parse().as_ref(), Ok(&endpoint));
    }
}

/// Parses a target of a load, such as a URL. If it is accepted, its text, which has neither a login nor a fragment, is parsed to the same.
pub fn target(text: &str) {
    if let Err(error) = crate::load::parse_target_twice(text) {
        assert!(!error.is_empty(), "an error without a text");
    }
}
