//! The target of a load, as it is written: a URL, `HOST:PORT`, or a path.

use crate::address::Address;
use crate::endpoint::Endpoint;
use crate::usage::UsageError;
use annulus_load::ServerAddress;
use anyhow::Result;
use clap::Args;
use clap::builder::{OsStringValueParser, TryMapValueParser, TypedValueParser, ValueParserFactory};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

/// The server
#[derive(Args, Debug)]
pub(super) struct TargetArgs {
    /// The server: http://HOST:PORT/PATH, https://, redis://, tcp://,
    /// tls://, unix:/path, or HOST:PORT [default: 127.0.0.1:7000]
    #[arg(value_name = "TARGET", conflicts_with = "address")]
    target: Option<Target>,
    /// The same as TARGET
    #[arg(short, long, value_name = "TARGET")]
    address: Option<Target>,
    /// Connect to this Unix socket, whatever host the target names
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<PathBuf>,
}

impl TargetArgs {
    /// The target that was asked for, and the socket to connect to instead.
    pub(super) fn into_parts(self) -> (Target, Option<PathBuf>) {
        let target = self.target.or(self.address);
        (target.unwrap_or_default(), self.unix_socket)
    }
}

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// None: other options say what is spoken.
    Bare,
    Tls,
    Http,
    Https,
    Redis,
    Rediss,
}

impl Scheme {
    /// The schemes with an authority.
    const ALL: [(&'static str, Scheme); 7] = [
        ("tcp", Scheme::Bare),
        ("tls", Scheme::Tls),
        ("http", Scheme::Http),
        ("https", Scheme::Https),
        ("redis", Scheme::Redis),
        ("rediss", Scheme::Rediss),
        ("valkey", Scheme::Redis),
    ];

    /// Whether its connections are encrypted.
    pub(super) fn is_encrypted(self) -> bool {
        matches!(self, Scheme::Tls | Scheme::Https | Scheme::Rediss)
    }

    pub(super) fn is_http(self) -> bool {
        matches!(self, Scheme::Http | Scheme::Https)
    }

    pub(super) fn is_redis(self) -> bool {
        matches!(self, Scheme::Redis | Scheme::Rediss)
    }

    /// The port that may be left out.
    fn port(self) -> Option<u16> {
        match self {
            Scheme::Bare | Scheme::Tls => None,
            Scheme::Http => Some(80),
            Scheme::Https => Some(443),
            Scheme::Redis | Scheme::Rediss => Some(6379),
        }
    }
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// As it was written, without a password.
    pub(super) text: String,
    pub(super) scheme: Scheme,
    pub(super) endpoint: Endpoint,
    /// The host as it was written: for the header `Host` and the name in a certificate. Empty for a path.
    pub(super) host: String,
    /// The host with its port, unless that is the scheme's own.
    pub(super) authority: String,
    /// The path with its query: at least `/` in a URL of HTTP, else empty if there is none.
    pub(super) path: String,
    /// The user and the password.
    pub(super) login: Option<(Option<String>, String)>,
}

impl Default for Target {
    fn default() -> Target {
        Target::parse("127.0.0.1:7000".as_ref()).expect("a target that is a constant")
    }
}

impl ValueParserFactory for Target {
    type Parser = TryMapValueParser<OsStringValueParser, fn(OsString) -> Result<Target, String>>;

    fn value_parser() -> Self::Parser {
        OsStringValueParser::new().try_map(|text| Target::parse(&text))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Target {
    /// Parses a target, whose path need not be UTF-8 if it is one of a Unix socket.
    ///
    /// # Errors
    /// Names the part that is wrong.
    pub(super) fn parse(text: &OsStr) -> Result<Target, String> {
        match text.to_str().and_then(|text| text.split_once("://")) {
            Some((scheme, rest)) if scheme != "udp" => Target::parse_url(scheme, rest),
            _ => Endpoint::parse(text).map(Target::bare),
        }
    }

    /// The address of the server, or of the Unix socket to connect to instead.
    pub(super) fn resolve(&self, unix_socket: Option<PathBuf>) -> Result<ServerAddress> {
        let Some(path) = unix_socket else { return self.endpoint.streams() };
        let address = ServerAddress::Unix(path);
        address.validate().map_err(|error| UsageError(error.to_string()))?;
        Ok(address)
    }

    fn bare(endpoint: Endpoint) -> Target {
        let text = endpoint.to_string();
        let authority = if endpoint.is_path() { String::new() } else { text.clone() };
        let host = authority.rsplit_once(':').map_or("", |(host, _)| host).to_owned();
        let (scheme, path, login) = (Scheme::Bare, String::new(), None);
        Target { text, scheme, endpoint, host, authority, path, login }
    }

    fn parse_url(name: &str, rest: &str) -> Result<Target, String> {
        let known = Scheme::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let &(name, scheme) = known.ok_or_else(|| unknown_scheme(name))?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (login, address) = match authority.rsplit_once('@') {
            Some((login, address)) => (Some(parse_login(login)?), address),
            None => (None, authority),
        };
        let (host, port) = split_port(address, scheme)?;
        let endpoint = format!("{host}:{port}").parse::<Address>().map(Endpoint::Tcp)?;
        let is_own = scheme.port() == Some(port);
        let authority = if is_own { host.to_owned() } else { format!("{host}:{port}") };
        let path = parse_path(scheme, path)?;
        let text = format!("{name}://{authority}{path}");
        Ok(Target { text, scheme, endpoint, host: host.to_owned(), authority, path, login })
    }
}

fn unknown_scheme(name: &str) -> String {
    let known = Scheme::ALL.map(|(name, _)| format!("{name}://")).join(", ");
    format!("the scheme '{name}' is not spoken here: use {known}, unix:/path, or HOST:PORT for TCP")
}

/// The host, and the port or the scheme's own.
fn split_port(address: &str, scheme: Scheme) -> Result<(&str, u16), String> {
    let (host, port) = match address.rsplit_once(':') {
        // A colon within brackets is part of the host.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (address, None),
    };
    if host.is_empty() {
        return Err("the host is missing: write one behind ://, such as 127.0.0.1".to_owned());
    }
    let port = match (port, scheme.port()) {
        (Some(port), _) => {
            port.parse().map_err(|_| format!("the port '{port}' is none: use 1 to 65535"))?
        }
        (None, Some(own)) => own,
        (None, None) => return Err(format!("'{address}' has no port: write {address}:PORT")),
    };
    Ok((host, port))
}

/// The user and the password: `USER:PASSWORD`, or `:PASSWORD`.
fn parse_login(login: &str) -> Result<(Option<String>, String), String> {
    let Some((user, password)) = login.split_once(':') else {
        return Err(
            "the part in front of @ has no password: write USER:PASSWORD@ or :PASSWORD@".to_owned()
        );
    };
    let user = (!user.is_empty()).then(|| decode(user)).transpose()?;
    Ok((user, decode(password)?))
}

/// Decodes the escapes of a URL.
fn decode(text: &str) -> Result<String, String> {
    let mut rest = text.bytes();
    let mut bytes = Vec::new();
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(match byte {
            b'%' => {
                let (high, low) = digit()
                    .zip(digit())
                    .ok_or("a % in front of @ has no two digits: write %25 for one")?;
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| "the part in front of @ is no UTF-8".to_owned())
}

/// The path with its query, without its fragment, which is not sent.
fn parse_path(scheme: Scheme, path: &str) -> Result<String, String> {
    let path = path.split('#').next().unwrap_or_default();
    match scheme {
        Scheme::Http | Scheme::Https if path.starts_with('/') => Ok(path.to_owned()),
        // None, or a query only.
        Scheme::Http | Scheme::Https => Ok(format!("/{path}")),
        Scheme::Redis | Scheme::Rediss => Ok(path.to_owned()),
        Scheme::Bare | Scheme::Tls if matches!(path, "" | "/") => Ok(String::new()),
        Scheme::Bare | Scheme::Tls => Err(format!(
            "the path '{path}' means nothing to a server of plain bytes: leave it out, or write http://"
        )),
    }
}

/// Parses a target and its displayed text: both must be the same server and path.
///
/// # Errors
/// If it is refused.
pub(crate) fn parse_twice(text: &str) -> Result<(), String> {
    let one = Target::parse(text.as_ref())?;
    let other = Target::parse(one.text.as_ref())
        .unwrap_or_else(|error| panic!("{text} is shown as {}: {error}", one.text));
    let [one, other] = [one, other].map(|target| {
        let Target { text, scheme, endpoint, host, authority, path, login: _ } = target;
        (text, scheme, endpoint, host, authority, path)
    });
    assert_eq!(one, other, "{text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The inputs are those that the fuzz target starts from.
    #[test]
    fn what_is_shown_of_a_target_is_the_same_target() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/target");
        let inputs = std::fs::read_dir(directory).unwrap();
        let accepted = inputs.filter(|input| {
            let text = std::fs::read_to_string(input.as_ref().unwrap().path()).unwrap();
            parse_twice(&text).is_ok()
        });
        assert!(accepted.count() >= 8);
    }

    fn target(text: &str) -> Target {
        Target::parse(text.as_ref()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[track_caller]
    fn refused(text: &str, part: &str) {
        let error = Target::parse(text.as_ref()).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }

    #[test]
    fn urls_are_taken_as_they_are_written() {
        for (text, scheme, endpoint, authority, path) in [
            (
                "http://127.0.0.1:8080/a?b=c",
                Scheme::Http,
                "127.0.0.1:8080",
                "127.0.0.1:8080",
                "/a?b=c",
            ),
            ("http://localhost", Scheme::Http, "localhost:80", "localhost", "/"),
            ("HTTP://localhost:80?q#f", Scheme::Http, "localhost:80", "localhost", "/?q"),
            ("https://a.example/", Scheme::Https, "a.example:443", "a.example", "/"),
            ("https://[::1]", Scheme::Https, "[::1]:443", "[::1]", "/"),
            ("https://[::1]:8443/x#y", Scheme::Https, "[::1]:8443", "[::1]:8443", "/x"),
            ("redis://localhost", Scheme::Redis, "localhost:6379", "localhost", ""),
            ("redis://localhost:7/2", Scheme::Redis, "localhost:7", "localhost:7", "/2"),
            ("tcp://localhost:7/", Scheme::Bare, "localhost:7", "localhost:7", ""),
            ("tls://localhost:7", Scheme::Tls, "localhost:7", "localhost:7", ""),
            ("127.0.0.1:7000", Scheme::Bare, "127.0.0.1:7000", "127.0.0.1:7000", ""),
            ("unix:/run/x", Scheme::Bare, "unix:/run/x", "", ""),
        ] {
            let target = target(text);
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
            assert_eq!(target.login, None, "{text}");
        }
    }

    #[test]
    fn a_password_is_kept_and_not_shown() {
        let target = target("redis://me:p%40ss@h:1/0");
        assert_eq!(target.login, Some((Some("me".into()), "p@ss".into())));
        assert_eq!(target.to_string(), "redis://h:1/0");
        assert_eq!(self::target("redis://:x@h").login, Some((None, "x".into())));
    }

    #[test]
    fn the_wrong_part_is_named() {
        refused("ftp://a", "the scheme 'ftp' is not spoken here: use tcp://");
        refused("http://", "the host is missing");
        refused("http://:80/", "the host is missing");
        refused("http://a:b/", "the port 'b' is none");
        refused("http://a:70000/", "the port '70000' is none");
        refused("http://a b/", "'a b' is not a host");
        refused("http://256.1.1.1/", "not an IPv4 address");
        refused("http://[::g]/", "not an IPv6 address");
        refused("https://[::1/", "not an IPv6 address");
        refused("tcp://a", "'a' has no port");
        refused("tls://a:1/x", "the path '/x' means nothing");
        refused("redis://me@h", "has no password");
        refused("redis://:%4@h", "no two digits");
        refused("127.0.0.1", "no port");
    }
}
