//! TLS by rustls: what is trusted, and a transport over it.
//!
//! rustls does no I/O; this drives it: received bytes go from the leases of the runtime into the session, and what it encrypts goes into
//! the queue of the stream. Each connection makes a full handshake: tickets of one client would make a connection of another cheaper than
//! it is for the users that the clients stand for.

mod settings;

pub(crate) use settings::{Session, connector};
pub use settings::{Tls, Trust};

#[cfg(test)]
mod tests;
