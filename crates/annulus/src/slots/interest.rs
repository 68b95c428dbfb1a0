//! Kinds of readiness that a task can wait for.

use crate::slots::polls::PollSide;
use std::fmt;
use std::io;
use std::ops::BitOr;
use std::task::Poll;

/// The readiness to wait for: [`READABLE`](Self::READABLE), [`WRITABLE`](Self::WRITABLE), or either
/// of them (`READABLE | WRITABLE`).
///
/// ```
/// use annulus::io::{AsyncFd, Interest};
/// use std::io::{Read, Write};
///
/// # annulus::run(async {
/// let (reading, mut writing) = std::io::pipe()?;
/// let reading = AsyncFd::new(reading)?;
/// writing.write_all(b"hello")?;
/// let mut bytes = [0; 9];
/// let read = reading.async_io(Interest::READABLE, |mut pipe| pipe.read(&mut bytes));
/// assert_eq!(read.await?, 5);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    readable: bool,
    writable: bool,
}

impl Interest {
    /// Data, the end of the stream or an error can be read.
    pub const READABLE: Self = Self { readable: true, writable: false };
    /// Data can be written, or an error is pending.
    pub const WRITABLE: Self = Self { readable: false, writable: true };

    /// Returns the union, like `self | other`. Can be used in constants.
    #[must_use]
    pub const fn add(self, other: Self) -> Self {
        Self {
            readable: self.readable || other.readable,
            writable: self.writable || other.writable,
        }
    }

    /// Returns true if the value includes [`READABLE`](Self::READABLE).
    pub const fn is_readable(self) -> bool {
        self.readable
    }

    /// Returns true if the value includes [`WRITABLE`](Self::WRITABLE).
    pub const fn is_writable(self) -> bool {
        self.writable
    }

    /// Polls the directions that it includes. Returns `Ready` with those that are ready, once one is.
    ///
    /// # Errors
    /// The errors of `poll`.
    pub(crate) fn poll_sides(
        self,
        mut poll: impl FnMut(PollSide) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<Self>> {
        let mut ready: Option<Self> = None;
        for side in self.sides() {
            if poll(side)?.is_ready() {
                let side = Self::of(side);
                ready = Some(ready.map_or(side, |ready| ready | side));
            }
        }
        ready.map_or(Poll::Pending, |ready| Poll::Ready(Ok(ready)))
    }

    /// Returns the directions that it includes.
    pub(crate) fn sides(self) -> impl Iterator<Item = PollSide> {
        let readable = self.readable.then_some(PollSide::Readable);
        let writable = self.writable.then_some(PollSide::Writable);
        readable.into_iter().chain(writable)
    }

    fn of(side: PollSide) -> Self {
        match side {
            PollSide::Readable => Self::READABLE,
            PollSide::Writable => Self::WRITABLE,
        }
    }
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.add(other)
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.readable, self.writable) {
            (true, true) => "READABLE | WRITABLE",
            (true, false) => "READABLE",
            (false, _) => "WRITABLE",
        })
    }
}
