//! The checks of a plan's parts.

use super::PlanError;
use crate::protocol::Protocol;
use crate::schedule::{Arrivals, MAX_THINK, Schedule, is_burst};
use crate::server_address::{MAX_PATH, ServerAddress, length};

impl Schedule {
    /// Checks that rates and times are within their limits.
    pub(crate) fn validate(&self) -> Result<(), PlanError> {
        match self {
            Schedule::Closed { think } if think.longest() > MAX_THINK => {
                Err(PlanError::Think(*think))
            }
            Schedule::Closed { .. } => Ok(()),
            Schedule::Open { arrivals: Arrivals::Burst(every), .. } if !is_burst(*every) => {
                Err(PlanError::Burst(*every))
            }
            Schedule::Open { rate, .. } => match rate.invalid() {
                Some(rate) => Err(PlanError::Rate(rate)),
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
    pub fn validate(&self) -> Result<(), PlanError> {
        match self {
            ServerAddress::Inet(address) if address.port() == 0 => Err(PlanError::NoPort(*address)),
            ServerAddress::Unix(path) if !(1..=MAX_PATH).contains(&length(path)) => {
                Err(PlanError::Path(path.clone()))
            }
            _ => Ok(()),
        }
    }
}

impl Protocol {
    /// Checks that each request can be sent.
    pub(crate) fn validate(&self) -> Result<(), PlanError> {
        let checked = match self {
            Protocol::Echo => Ok(()),
            Protocol::Http(http) => http.validate().map_err(|error| error.to_string()),
            Protocol::Http2(http) => http.validate_http2().map_err(|error| error.to_string()),
            Protocol::Script(script) => script.validate().map_err(|error| error.to_string()),
        };
        checked.map_err(PlanError::Protocol)
    }
}
