//! Errors that say which system call failed.

use rustix::io::Errno;
use std::error::Error;
use std::fmt;
use std::io;

/// An error with another message, which includes the original one.
struct WithText {
    text: String,
    error: io::Error,
}

/// Replaces the message of an error. Keeps the kind, and the original error for [`without_text`].
#[cold]
pub fn with_text(error: io::Error, text: String) -> io::Error {
    io::Error::new(error.kind(), WithText { text, error })
}

/// Returns the error whose message [`with_text`] or [`named`] has replaced.
pub fn without_text(error: &io::Error) -> Option<&io::Error> {
    error.get_ref()?.downcast_ref().map(|replaced: &WithText| &replaced.error)
}

impl fmt::Display for WithText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Shows the text, because `main` prints errors with `Debug`.
impl fmt::Debug for WithText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

// `Display` includes the text of the cause, so `source` does not return the cause.
impl Error for WithText {}

/// Returns a function that adds the name of a call to its error. The new error has the same kind,
/// but its errno is inside (see [`without_text`]), so use this for errors that are reported rather
/// than handled.
#[inline]
pub fn named<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> io::Error {
    move |error| {
        let error = error.into();
        let text = format!("{call}: {error}");
        with_text(error, text)
    }
}

/// Adds the limit and the remedy to ENOSPC, which `epoll_ctl` returns at a limit that has nothing
/// to do with space. Except for a `bind` on a full file system, sockets fail with it for no other
/// reason. Errors of `bind` have a text already, and stay as they are.
pub fn with_watch_limit(error: io::Error) -> io::Error {
    if Errno::from_io_error(&error) != Some(Errno::NOSPC) {
        return error;
    }
    let path = "/proc/sys/fs/epoll/max_user_watches";
    let limit = std::fs::read_to_string(path).unwrap_or_else(|_| "unknown".to_owned());
    let text = format!(
        "{error}: this user's processes watch as many descriptors with epoll as they may ({}); raise the sysctl fs.epoll.max_user_watches, or use io_uring",
        limit.trim()
    );
    with_text(error, text)
}

/// Returns the errno of a libc call that has just failed.
pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_error_shows_call_and_errno() {
        let error = named("bind")(Errno::ADDRINUSE);
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(error.to_string(), "bind: Address already in use (os error 98)");
        assert_eq!(without_text(&error).and_then(io::Error::raw_os_error), Some(98));
    }

    #[test]
    fn watch_limit_is_added_to_enospc_only() {
        let error = with_watch_limit(Errno::NOSPC.into());
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(without_text(&error).and_then(io::Error::raw_os_error), Some(28));
        let text = error.to_string();
        assert!(text.starts_with("No space left on device (os error 28): this user"), "{text}");
        assert!(!text.contains('\n') && text.contains("fs.epoll.max_user_watches"), "{text}");
        let other = with_watch_limit(Errno::CONNRESET.into());
        assert_eq!(other.to_string(), "Connection reset by peer (os error 104)");
    }
}
