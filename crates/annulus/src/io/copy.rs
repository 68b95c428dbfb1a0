//! Copies between files and streams, each in the cheapest way.

use super::send_file::send_file;
use crate::fs::File;
use crate::net::AsStream;
use std::future::poll_fn;
use std::io;

/// Copies everything from the first one's position to its end; the number of bytes. It returns when the last byte was accepted: by
/// the kernel for a stream, by the page cache for a file.
///
/// From a file in memory to a TCP stream no bytes are copied in user space (`sendfile`); from a stream the ring's memory is written
/// or sent.
///
/// If the future is dropped, a part was copied, and a second copy continues behind it: bytes that were received from a stream are sent
/// or written all the same, and a file's cursor stands behind the copied bytes. From file to file both cursors move at the end, so a
/// second copy starts from the beginning.
///
/// # Errors
/// Those of reading and of writing. If writing to a file fails, its cursor stands behind the written bytes; the rest of the piece
/// that was received last is lost.
pub async fn copy<F: CopyTo<T>, T>(from: &mut F, to: &mut T) -> io::Result<u64> {
    from.copy_to(to).await
}

/// What can be copied to a `T`; see [`copy`]. It is sealed.
#[expect(private_bounds, reason = "sealed")]
pub trait CopyTo<T>: Sealed {
    /// See [`copy`].
    fn copy_to(&mut self, to: &mut T) -> impl Future<Output = io::Result<u64>>;
}

trait Sealed {}

impl Sealed for File {}
impl<S: AsStream> Sealed for S {}

impl CopyTo<File> for File {
    async fn copy_to(&mut self, to: &mut File) -> io::Result<u64> {
        let (from, there) = (self.move_cursor(0)?, to.move_cursor(0)?);
        let copied = self.copy_range_to(from, to, there).await?;
        self.move_cursor(copied as i64)?;
        to.move_cursor(copied as i64)?;
        Ok(copied)
    }
}

impl<S: AsStream> CopyTo<S> for File {
    async fn copy_to(&mut self, to: &mut S) -> io::Result<u64> {
        send_file(self, to.handle()).await
    }
}

impl<S: AsStream> CopyTo<File> for S {
    async fn copy_to(&mut self, to: &mut File) -> io::Result<u64> {
        let mut copied = 0;
        while let Some(lease) = poll_fn(|cx| self.poll_recv(cx)).await? {
            let len = lease.len() as u64;
            to.write_detached(lease).await?;
            copied += len;
        }
        Ok(copied)
    }
}

impl<S: AsStream, T: AsStream> CopyTo<T> for S {
    async fn copy_to(&mut self, to: &mut T) -> io::Result<u64> {
        let mut copied = 0;
        loop {
            // Bytes that are received then are accepted without waiting, and so are not lost if this is dropped.
            poll_fn(|cx| to.handle().poll_room(cx)).await?;
            let Some(lease) = poll_fn(|cx| self.poll_recv(cx)).await? else { break };
            copied += lease.len() as u64;
            to.handle().send(lease.into()).await?;
        }
        poll_fn(|cx| to.handle().poll_drain(cx)).await?;
        Ok(copied)
    }
}
