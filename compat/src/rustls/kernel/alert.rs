//! What a peer is told when a session ends early.

use tokio_rustls::rustls::{AlertDescription, Error};

/// Level of alerts that end a session.
pub(super) const FATAL: u8 = 2;
/// Level and description of `close_notify`.
pub(super) const CLOSE_NOTIFY: (u8, u8) = (1, 0);

/// What is told of this error; `None` if the peer has told of it.
pub(super) fn of(error: &Error) -> Option<u8> {
    let description = match error {
        Error::AlertReceived(_) => return None,
        Error::DecryptError => AlertDescription::BadRecordMac,
        Error::PeerSentOversizedRecord => AlertDescription::RecordOverflow,
        Error::InvalidMessage(_) => AlertDescription::DecodeError,
        Error::PeerMisbehaved(_) | Error::InappropriateMessage { .. } => {
            AlertDescription::UnexpectedMessage
        }
        _ => AlertDescription::InternalError,
    };
    Some(description.into())
}
