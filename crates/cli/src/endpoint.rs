//! Where to listen: an address, and what is spoken there.

use crate::address::Address;
use anyhow::Result;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// What comes before an address that is not TCP's.
const UDP: &str = "udp://";
/// What may come before one that is.
const TCP: &str = "tcp://";

/// What was written: `HOST:PORT` for TCP, or `udp://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Tcp(Address),
    Udp(Address),
}

impl Endpoint {
    /// Every socket address it stands for; at least one.
    pub(crate) fn resolve(&self) -> Result<Vec<SocketAddr>> {
        let (Endpoint::Tcp(address) | Endpoint::Udp(address)) = self;
        address.resolve()
    }

    /// How one of its addresses is written.
    pub(crate) fn written(&self, address: SocketAddr) -> String {
        match self {
            Endpoint::Tcp(_) => address.to_string(),
            Endpoint::Udp(_) => format!("{UDP}{address}"),
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        if let Some(address) = text.strip_prefix(UDP) {
            return address.parse().map(Endpoint::Udp);
        }
        let address = text.strip_prefix(TCP).unwrap_or(text);
        match address.split_once("://") {
            Some((scheme, _)) => {
                Err(format!("'{scheme}' is not spoken here: write HOST:PORT or udp://HOST:PORT"))
            }
            None => address.parse().map(Endpoint::Tcp),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => address.fmt(f),
            Endpoint::Udp(address) => write!(f, "{UDP}{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_tells_what_is_spoken() {
        let parsed = |text: &str| text.parse::<Endpoint>().unwrap();
        assert!(matches!(parsed("127.0.0.1:7000"), Endpoint::Tcp(_)));
        assert_eq!(parsed("tcp://[::1]:7"), parsed("[::1]:7"));
        assert!(matches!(parsed("udp://localhost:0"), Endpoint::Udp(_)));
        for text in ["127.0.0.1:7000", "udp://[::1]:80"] {
            let endpoint = parsed(text);
            assert_eq!(endpoint.to_string(), text);
            assert_eq!(endpoint.written(text.trim_start_matches(UDP).parse().unwrap()), text);
        }
    }

    #[test]
    fn what_is_not_spoken_is_refused_with_the_way_out() {
        for (text, part) in [("http://a:80", "'http' is not spoken"), ("udp://a", "no port")] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
