//! Where a server listens.

use crate::plan::PlanError;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// What comes before a path.
const UNIX: &str = "unix:";

/// The longest path of a Unix socket, in bytes.
pub const MAX_PATH: usize = 107;

/// An address of the internet, or a path: `127.0.0.1:7000`, `[::1]:7000`, `unix:/run/echo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// TCP or UDP.
    Inet(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Place {
    /// Whether anybody can listen there.
    ///
    /// # Errors
    /// For port 0, and for paths that are empty or longer than [`MAX_PATH`].
    pub fn validate(&self) -> Result<(), PlanError> {
        match self {
            Place::Inet(address) if address.port() == 0 => Err(PlanError::NoPort(*address)),
            Place::Unix(path) if !(1..=MAX_PATH).contains(&path.as_os_str().len()) => {
                Err(PlanError::Path(path.clone()))
            }
            _ => Ok(()),
        }
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Place {
        Place::Inet(address)
    }
}

impl From<PathBuf> for Place {
    fn from(path: PathBuf) -> Place {
        Place::Unix(path)
    }
}

impl FromStr for Place {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Place, Self::Err> {
        match text.strip_prefix(UNIX) {
            Some(path) => Ok(Place::Unix(path.into())),
            None => text.parse().map(Place::Inet),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Inet(address) => address.fmt(f),
            Place::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_by_their_text() {
        for text in ["127.0.0.1:7000", "[::1]:7", "unix:/run/echo"] {
            let place: Place = text.parse().unwrap();
            assert_eq!((place.to_string().as_str(), place.validate()), (text, Ok(())));
        }
        assert!("somewhere".parse::<Place>().is_err());
    }

    #[test]
    fn what_nobody_can_listen_at_is_refused_with_its_limit() {
        let error = |text: &str| text.parse::<Place>().unwrap().validate().unwrap_err().to_string();
        assert!(error("127.0.0.1:0").contains("port 0"));
        let long = error(&format!("unix:/{}", "x".repeat(MAX_PATH)));
        assert!(long.contains("has 108 bytes") && long.contains("1 to 107"), "{long}");
        assert!(error("unix:").contains("has 0 bytes"));
    }
}
