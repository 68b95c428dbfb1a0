//! The checks of a plan's parts.

use crate::invalid::{Invalid, invalid};
use crate::protocol::Protocol;
use crate::schedule::{Arrivals, MAX_RATE, MAX_THINK, Schedule, is_burst, no_burst};
use crate::server_address::{MAX_PATH, ServerAddress, length};

impl Schedule {
    /// Checks that rates and times are within their limits.
    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        match self {
            Schedule::Closed { think } if think.longest() > MAX_THINK => {
                Err(invalid(format!("a think time of {think}: ask for at most {MAX_THINK:?}")))
            }
            Schedule::Closed { .. } => Ok(()),
            Schedule::Open { arrivals: Arrivals::Burst(every), .. } if !is_burst(*every) => {
                Err(invalid(no_burst(*every)))
            }
            Schedule::Open { rate, .. } => match rate.invalid() {
                Some(rate) => Err(invalid(format!(
                    "{rate} messages a second: ask for more than 0 and at most {MAX_RATE}"
                ))),
                None => Ok(()),
            },
        }
    }
}

impl ServerAddress {
    /// Checks that a server can listen there.
    ///
    /// # Errors
    /// For port 0, and for paths that are empty or longer than [`MAX_PATH`].
    pub fn validate(&self) -> Result<(), Invalid> {
        match self {
            ServerAddress::Inet(address) if address.port() == 0 => Err(invalid(format!(
                "cannot connect to {address}: no server listens on port 0, name the server's port"
            ))),
            ServerAddress::Unix(path) if !(1..=MAX_PATH).contains(&length(path)) => {
                Err(invalid(format!(
                    "the path '{}' has {} bytes: that of a Unix socket has 1 to {MAX_PATH}",
                    path.display(),
                    length(path)
                )))
            }
            _ => Ok(()),
        }
    }
}

impl Protocol {
    /// Checks that each request can be sent.
    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        match self {
            Protocol::Echo => Ok(()),
            Protocol::Http(http) => http.validate(),
            Protocol::Http2(http) => http.validate_http2(),
            Protocol::Script(script) => script.validate(),
        }
    }
}
