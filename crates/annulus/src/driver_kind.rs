//! The two kinds of drivers.

use std::fmt;

/// The kernel interface that a runtime's driver uses.
///
/// ```
/// use annulus::{DriverKind, Runtime};
///
/// let runtime = Runtime::new()?;
/// if runtime.driver().kind == DriverKind::Epoll {
///     eprintln!("slower than it could be: {}", runtime.driver().reason);
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriverKind {
    /// io_uring.
    Uring,
    /// epoll.
    Epoll,
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        })
    }
}
