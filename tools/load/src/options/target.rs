//! The target of a load as written on the command line: a URL, `HOST:PORT`, or a path.

use super::address::Address;
use super::endpoint::Endpoint;
use std::borrow::Cow;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// No scheme, or `tcp`: other options determine the protocol.
    Bare,
    Tls,
    Http,
    Https,
}

impl Scheme {
    const ALL: [(&'static str, Scheme); 4] = [
        ("tcp", Scheme::Bare),
        ("tls", Scheme::Tls),
        ("http", Scheme::Http),
        ("https", Scheme::Https),
    ];

    pub(super) fn is_encrypted(self) -> bool {
        matches!(self, Scheme::Tls | Scheme::Https)
    }

    pub(super) fn is_http(self) -> bool {
        matches!(self, Scheme::Http | Scheme::Https)
    }

    fn port(self) -> Option<u16> {
        match self {
            Scheme::Bare | Scheme::Tls => None,
            Scheme::Http => Some(80),
            Scheme::Https => Some(443),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    text: String,
    pub(super) scheme: Scheme,
    pub(super) endpoint: Endpoint,
    /// The host, with brackets around an IPv6 address. Empty for a path.
    host: String,
    /// The host without its zone, and with its port unless that is the scheme's default.
    pub(super) authority: String,
    /// The path with its query: at least `/` in an HTTP URL, otherwise empty.
    pub(super) path: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Target {
    /// # Errors
    /// Fails if a part of the target is invalid.
    pub(super) fn parse(text: &str) -> Result<Target, String> {
        match text.split_once("://") {
            Some((scheme, rest)) if scheme != "udp" => Target::parse_url(scheme, rest),
            _ => text.parse().map(Target::bare),
        }
    }

    /// Returns the host as it is written in certificates: without brackets and zone.
    pub(super) fn certificate_name(&self) -> &str {
        let inner = self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = inner.unwrap_or(&self.host);
        host.split('%').next().unwrap_or(host)
    }

    fn bare(endpoint: Endpoint) -> Target {
        let text = endpoint.to_string();
        let authority = if endpoint.is_path() { String::new() } else { text.clone() };
        let host = authority.rsplit_once(':').map_or("", |(host, _)| host).to_owned();
        Target { text, scheme: Scheme::Bare, endpoint, host, authority, path: String::new() }
    }

    fn parse_url(name: &str, rest: &str) -> Result<Target, String> {
        let known = Scheme::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let &(name, scheme) = known.ok_or_else(|| unknown_scheme(name))?;
        let (address, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if address.contains('@') {
            return Err(
                "the user and password before @ would not be sent: remove them, and add -H \
                'Authorization: …'"
                    .into(),
            );
        }
        let (host, port) = split_port(address, scheme)?;
        let host = decode_zone(host);
        let endpoint = format!("{host}:{port}").parse::<Address>().map(Endpoint::Tcp)?;
        let is_own = scheme.port() == Some(port);
        let with_port =
            |host: &str| if is_own { host.to_owned() } else { format!("{host}:{port}") };
        let authority = with_port(&without_zone(&host));
        let path = parse_path(scheme, path)?;
        let text = format!("{name}://{}{path}", with_port(&host));
        Ok(Target { text, scheme, endpoint, host, authority, path })
    }
}

/// Replaces `%25` before the zone of an IPv6 address with `%`. RFC 6874 requires `%25` in a URL,
/// but `%` is also common.
fn decode_zone(host: &str) -> String {
    match host.split_once("%25") {
        Some((address, zone)) if host.starts_with('[') && zone != "]" => {
            format!("{address}%{zone}")
        }
        _ => host.to_owned(),
    }
}

/// Returns a host without its zone, which means nothing to other machines.
fn without_zone(host: &str) -> Cow<'_, str> {
    match host.split_once('%') {
        Some((address, _)) if host.starts_with('[') => format!("{address}]").into(),
        _ => host.into(),
    }
}

fn unknown_scheme(name: &str) -> String {
    let known = Scheme::ALL.map(|(name, _)| format!("{name}://")).join(", ");
    format!(
        "the scheme '{name}' is not supported: use {known}, udp://, unix:/path, \
         unix-datagram:/path, or HOST:PORT for TCP"
    )
}

/// Splits off the port, or returns the scheme's default port.
fn split_port(address: &str, scheme: Scheme) -> Result<(&str, u16), String> {
    let (host, port) = match address.rsplit_once(':') {
        // A colon within brackets is part of the host.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (address, None),
    };
    if host.is_empty() {
        return Err("the host is missing: write one after ://, such as 127.0.0.1".to_owned());
    }
    // A colon without a port is allowed (RFC 3986, 3.2.3).
    let port = match (port.filter(|port| !port.is_empty()), scheme.port()) {
        (Some(port), _) => {
            port.parse().map_err(|_| format!("'{port}' is not a valid port: use 1 to 65535"))?
        }
        (None, Some(own)) => own,
        (None, None) => {
            let host = address.trim_end_matches(':');
            return Err(format!("'{address}' has no port: write {host}:PORT"));
        }
    };
    Ok((host, port))
}

/// Returns the path with its query. The fragment is dropped, because it is not sent.
fn parse_path(scheme: Scheme, path: &str) -> Result<String, String> {
    let path = path.split('#').next().unwrap_or_default();
    match scheme {
        Scheme::Http | Scheme::Https if path.starts_with('/') => Ok(path.to_owned()),
        // There is no path, or only a query.
        Scheme::Http | Scheme::Https => Ok(format!("/{path}")),
        Scheme::Bare | Scheme::Tls if matches!(path, "" | "/") => Ok(String::new()),
        Scheme::Bare | Scheme::Tls => Err(format!(
            "the path '{path}' has no effect without HTTP: leave it out, or write http:// or \
             https://"
        )),
    }
}

/// Parses a target and then its displayed text, and panics if the results differ.
///
/// # Errors
/// Fails if the text is not a target.
pub fn check_round_trip(text: &str) -> Result<(), String> {
    let one = Target::parse(text)?;
    let other = Target::parse(&one.text)
        .unwrap_or_else(|error| panic!("{text} is shown as {}: {error}", one.text));
    assert_eq!(one, other, "{text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The inputs are the seeds of the fuzz target.
    #[test]
    fn displayed_target_parses_to_the_same_target() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/target");
        let inputs = std::fs::read_dir(directory).unwrap();
        let accepted = inputs.filter(|input| {
            let text = std::fs::read_to_string(input.as_ref().unwrap().path()).unwrap();
            check_round_trip(&text).is_ok()
        });
        assert!(accepted.count() >= 8);
    }

    fn target(text: &str) -> Target {
        Target::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[track_caller]
    fn refused(text: &str, part: &str) {
        let error = Target::parse(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }

    #[test]
    fn urls_are_split_into_endpoint_authority_and_path() {
        for (text, scheme, endpoint, authority, path) in [
            (
                "http://127.0.0.1:8080/a?b=c",
                Scheme::Http,
                "127.0.0.1:8080",
                "127.0.0.1:8080",
                "/a?b=c",
            ),
            ("http://localhost", Scheme::Http, "localhost:80", "localhost", "/"),
            ("http://127.0.0.1:/", Scheme::Http, "127.0.0.1:80", "127.0.0.1", "/"),
            ("https://[::1]:?q", Scheme::Https, "[::1]:443", "[::1]", "/?q"),
            ("http://[fe80::1%lo]:8080", Scheme::Http, "[fe80::1%lo]:8080", "[fe80::1]:8080", "/"),
            ("http://[fe80::1%25lo]/", Scheme::Http, "[fe80::1%lo]:80", "[fe80::1]", "/"),
            ("http://[fe80::1%25]/", Scheme::Http, "[fe80::1%25]:80", "[fe80::1]", "/"),
            ("HTTP://localhost:80?q#f", Scheme::Http, "localhost:80", "localhost", "/?q"),
            ("https://a.example/", Scheme::Https, "a.example:443", "a.example", "/"),
            ("https://[::1]", Scheme::Https, "[::1]:443", "[::1]", "/"),
            ("https://[::1]:8443/x#y", Scheme::Https, "[::1]:8443", "[::1]:8443", "/x"),
            ("tcp://localhost:7/", Scheme::Bare, "localhost:7", "localhost:7", ""),
            ("tls://localhost:7", Scheme::Tls, "localhost:7", "localhost:7", ""),
            ("127.0.0.1:7000", Scheme::Bare, "127.0.0.1:7000", "127.0.0.1:7000", ""),
            ("unix:/run/x", Scheme::Bare, "unix:/run/x", "", ""),
        ] {
            let target = target(text);
            check_round_trip(text).unwrap();
            assert_eq!(
                (target.scheme, target.endpoint.to_string().as_str()),
                (scheme, endpoint),
                "{text}"
            );
            assert_eq!(
                (target.authority.as_str(), target.path.as_str()),
                (authority, path),
                "{text}"
            );
        }
    }

    #[test]
    fn target_error_names_the_invalid_part() {
        refused(
            "ftp://a",
            "the scheme 'ftp' is not supported: use tcp://, tls://, http://, https://, udp://, \
             unix:/path, unix-datagram:/path, or HOST:PORT for TCP",
        );
        refused("http://", "the host is missing");
        refused("http://:80/", "the host is missing");
        refused("http://a:b/", "'b' is not a valid port");
        refused("http://a:70000/", "'70000' is not a valid port");
        refused("http://a b/", "'a b' is not a host");
        refused("http://256.1.1.1/", "not an IPv4 address");
        refused("http://[::g]/", "not an IPv6 address");
        refused("https://[::1/", "not an IPv6 address");
        refused("tcp://a", "'a' has no port");
        refused("tls://a:", "'a:' has no port: write a:PORT");
        refused("tls://a:1/x", "the path '/x' has no effect");
        refused("http://me:pw@a", "add -H 'Authorization: …'");
        refused("127.0.0.1", "no port");
    }
}
