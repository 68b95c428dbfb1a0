//! Entry points for the fuzz targets into private code. Not part of the public interface.

use annulus_load::{Endpoint, unix_address};

/// Parses an endpoint. If it is accepted, its text is parsed to the same endpoint, and a path is one of a Unix socket.
pub fn endpoint(text: &str) {
    let endpoint: Endpoint = match text.parse() {
        Ok(endpoint) => endpoint,
        Err(error) => return assert!(!String::is_empty(&error), "an error without a text"),
    };
    if let Endpoint::Unix(path) | Endpoint::UnixDatagram(path) = &endpoint
        && !text.contains('\0')
    {
        unix_address(path).expect("an accepted path is one of a socket");
    }
    assert_eq!(endpoint.to_string().parse().as_ref(), Ok(&endpoint));
}

/// Parses a target of a load, such as a URL. If it is accepted, its text, which has neither a login nor a fragment, is parsed to the same.
pub fn target(text: &str) {
    if let Err(error) = annulus_load::check_target_round_trip(text) {
        assert!(!error.is_empty(), "an error without a text");
    }
}
