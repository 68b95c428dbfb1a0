//! Lines of text.

use super::recv::AsyncRecv;
use super::until::text;
use std::io;

/// Lines of text, without their `\n` or `\r\n`: see [`AsyncRecv::lines`].
///
/// ```
/// use annulus::io::AsyncRecv;
///
/// # annulus::run(async {
/// let mut lines = b"one\r\ntwo\n\nno end"[..].lines(80);
/// while let Some(line) = lines.next_line().await? {
///     println!("{line}");
/// }
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Lines<R> {
    from: R,
    limit: usize,
}

impl<R: AsyncRecv> Lines<R> {
    pub(super) fn new(from: R, limit: usize) -> Self {
        Self { from, limit }
    }

    /// The next line; `None` at the end of the stream. The last line need not end with `\n`.
    ///
    /// Cancel-safe: until the line is there, nothing is taken.
    ///
    /// # Errors
    /// The errors of receiving. `InvalidData` for a line of more bytes than the limit, naming both numbers: it stays, and
    /// [`skip_until`](AsyncRecv::skip_until) of the stream goes past it. `InvalidData` if a line is not UTF-8: the next call goes on
    /// behind it.
    pub async fn next_line(&mut self) -> io::Result<Option<String>> {
        let Some(bytes) = self.from.recv_until(b'\n', self.limit).await? else { return Ok(None) };
        let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let line =
            if line.len() < bytes.len() { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        text(line).map(|line| Some(line.to_owned()))
    }

    /// The stream that the lines come from.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.from
    }

    /// The stream that the lines come from. Nothing that was not returned is lost.
    pub fn into_inner(self) -> R {
        self.from
    }
}
