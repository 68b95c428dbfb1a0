//! Entry points for the fuzz targets. Not part of the public interface.

use annulus_load::{Endpoint, unix_address};

/// Parses an endpoint. Asserts that an accepted one survives formatting and parsing, and that its
/// path is valid for a Unix socket.
pub fn endpoint(text: &str) {
    let endpoint: Endpoint = match text.parse() {
        Ok(endpoint) => endpoint,
        Err(error) => return assert!(!String::is_empty(&error), "an error without a text"),
    };
    if let Endpoint::Unix(path) | Endpoint::UnixDatagram(path) = &endpoint
        && !text.contains('\0')
    {
        unix_address(path).expect("an accepted path is not valid for a socket");
    }
    assert_eq!(endpoint.to_string().parse().as_ref(), Ok(&endpoint));
}

/// Parses a target of a load, such as a URL. Asserts that an accepted one survives formatting
/// (which drops login and fragment) and parsing.
pub fn target(text: &str) {
    if let Err(error) = annulus_load::check_target_round_trip(text) {
        assert!(!error.is_empty(), "an error without a text");
    }
}
