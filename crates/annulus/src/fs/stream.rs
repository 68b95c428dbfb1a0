//! A file as a stream of bytes, for code that reads and writes borrowed memory.

use super::file::File;
use super::transfer::Read;
use crate::bytes::chunk::Chunk;
use crate::runtime::shutdown::QueuedWrite;
use crate::runtime::spawn::spawn;
use crate::tasks::JoinHandle;
use crate::unwind::wake_each;
use annulus_kernel::file::CURSOR_OFFSET;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, SeekFrom};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

/// Maximum number of bytes that are read ahead, or copied and queued, at a time.
pub(crate) const MAX_PIECE_BYTES: usize = 64 * 1024;

type InFlight<T> = Pin<Box<dyn Future<Output = T>>>;

/// Bytes queued to be written. The first `done` have been written.
pub(crate) struct Unwritten {
    chunk: Chunk,
    done: usize,
    /// After a failure, the offset at which the remaining bytes will be written. Reads may move the
    /// cursor before that.
    offset: Option<u64>,
}

impl Unwritten {
    pub(crate) fn new(chunk: Chunk, done: usize) -> Self {
        Self { chunk, done, offset: None }
    }

    /// Returns the bytes. No write of them may have begun.
    pub(crate) fn into_chunk(self) -> Chunk {
        self.chunk
    }

    /// Writes the remaining bytes: at the cursor, or, if an earlier attempt failed, at the offset
    /// where that attempt stopped. In that case, if the cursor is still at that offset, moves it
    /// past the bytes written.
    async fn write(self, file: File) -> Result<(), (io::Error, Self)> {
        let Self { chunk, mut done, offset } = self;
        let before = done as u64;
        let to = |done: u64| offset.map_or(CURSOR_OFFSET, |offset| offset + (done - before));
        let (written, chunk) = file.write_whole(chunk, to, None, &mut done).await;
        let position = if file.writes_at_offsets() { file.move_cursor(0).ok() } else { None };
        let count = done as u64 - before;
        if offset.is_some() && position == offset {
            _ = file.move_cursor(count as i64);
        }
        let rest = offset.map_or(position, |offset| Some(offset + count));
        written.map_err(|error| (error, Self { chunk, done, offset: rest }))
    }
}

/// A file as a stream of bytes from its cursor on, created by [`File::into_stream`]. It is for
/// lines, frames and anything that needs [`AsyncRecv`](crate::io::AsyncRecv) or
/// [`AsyncSend`](crate::io::AsyncSend), and with the feature `tokio-io` for the traits of tokio,
/// including [`seek`](Self::seek).
///
/// The stream reads ahead up to 64 KiB, and does not delay writes. A write begins after the last
/// consumed byte, however much has been read ahead. [`Policy`](super::Policy) describes which reads
/// and writes are made at once. Pipes and terminals have no cursor, so their reads and writes do
/// not wait for each other. The stream does not support direct I/O, which needs aligned memory.
///
/// ```
/// use annulus::fs::File;
/// use annulus::io::{AsyncRecv, AsyncSend};
/// use std::io::SeekFrom;
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-stream-{}", std::process::id()));
/// let mut log = annulus::fs::OpenOptions::new().read(true).write(true).create(true).open(&path).await?.into_stream();
/// log.write_all(b"first\nsecond\n").await?;
/// log.seek(SeekFrom::Start(0)).await?;
/// let mut lines = log.lines(1024);
/// while let Some(line) = lines.next_line().await? {
///     println!("{line}");
/// }
/// # annulus::fs::remove_file(&path).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # What dropping does
///
/// Dropping a future of the stream loses nothing: a read that has begun continues, and the next
/// read returns its bytes. Queued bytes are written even if the stream is dropped, and at the end
/// of the runtime within its [timeout](crate::Builder::shutdown_timeout).
/// [`flush`](crate::io::AsyncSend::flush) waits for the writes and reports their errors; otherwise,
/// a later call reports them. After an error, the bytes stay queued. Each later write, flush or
/// seek first tries to write them, and fails as long as that fails. If the stream is dropped in
/// that state, the bytes are lost. Bytes read ahead are also lost when the stream is dropped;
/// [`into_file`](Self::into_file) moves the cursor back instead.
pub struct FileStream {
    pub(crate) file: File,
    /// Bytes read ahead. The first `consumed` have been consumed.
    ahead: Vec<u8>,
    pub(crate) consumed: usize,
    /// Whether the last read reached the end. Cleared by `consume`, a seek or a write.
    pub(crate) ended: bool,
    /// The buffer for the next read.
    next: Vec<u8>,
    reading: Option<InFlight<(io::Result<usize>, Vec<u8>)>>,
    /// The buffer for the next write.
    pub(crate) copy: Vec<u8>,
    writing: Option<JoinHandle<Result<(), (io::Error, Unwritten)>>>,
    /// Bytes of a failed write. Any later write, flush or seek retries them first.
    unwritten: Option<Unwritten>,
    /// Whether other processes use the same cursor, so that every byte must be read and written
    /// there.
    pub(crate) shares_cursor: bool,
    /// Whether the write in flight ended without giving its bytes back.
    lost: bool,
    seeking: Option<(SeekFrom, InFlight<io::Result<u64>>)>,
    /// Wakes all tasks that wait for the stream.
    waker: Arc<SharedWaker>,
    /// The seek that `poll_complete` will make.
    #[cfg(feature = "tokio-io")]
    target: Option<SeekFrom>,
}

impl File {
    /// Converts the file into a stream of bytes from its cursor on.
    pub fn into_stream(self) -> FileStream {
        FileStream {
            file: self,
            ahead: Vec::new(),
            consumed: 0,
            ended: false,
            next: Vec::new(),
            reading: None,
            copy: Vec::new(),
            writing: None,
            unwritten: None,
            shares_cursor: false,
            lost: false,
            seeking: None,
            waker: Arc::default(),
            #[cfg(feature = "tokio-io")]
            target: None,
        }
    }
}

impl FileStream {
    /// Returns the file. Its cursor is after the bytes that were read ahead.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the file with its cursor after the last consumed byte. Waits until everything has
    /// been written. A pipe has no cursor, so bytes read ahead from it are lost.
    ///
    /// # Errors
    /// The error of a write.
    pub async fn into_file(mut self) -> io::Result<File> {
        poll_fn(|cx| self.poll_write_next(cx)).await?;
        Ok(self.file)
    }

    /// Moves the cursor and returns its new offset. Bytes read ahead are dropped. If the future is
    /// dropped after its first poll, the next call first completes the seek.
    ///
    /// # Errors
    /// The errors of [`File::seek`], also for an earlier seek whose future was dropped; the error
    /// of a write.
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        // An earlier seek to the same target is not this one.
        poll_fn(|cx| self.poll_sought(cx)).await?;
        poll_fn(|cx| self.poll_seek(cx, to)).await
    }

    /// Polls like [`seek`](Self::seek). If a seek to an equal target has begun, this continues it,
    /// even if it was begun by a future that has been dropped.
    ///
    /// # Errors
    /// The errors of [`seek`](Self::seek).
    pub fn poll_seek(&mut self, cx: &mut Context<'_>, to: SeekFrom) -> Poll<io::Result<u64>> {
        if self.seeking.as_ref().is_some_and(|(begun, _)| *begun != to) {
            ready!(self.poll_sought(cx))?;
        }
        if self.seeking.is_none() {
            ready!(self.poll_written(cx))?;
            ready!(self.poll_read_done(cx))?;
            let unread = self.unread().len() as i64;
            let target = match to {
                SeekFrom::Current(by) => SeekFrom::Current(by.saturating_sub(unread)),
                to => to,
            };
            let mut file = self.file.try_clone()?;
            self.seeking = Some((to, Box::pin(async move { file.seek(target).await })));
        }
        self.poll_sought(cx)
    }

    /// Sets the seek that [`poll_complete`](Self::poll_complete) makes.
    #[cfg(feature = "tokio-io")]
    pub(crate) fn start_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        if self.target.is_some() {
            return Err(io::Error::other(
                "a seek has begun; call poll_complete before the next one",
            ));
        }
        self.target = Some(to);
        Ok(())
    }

    /// Completes the started seek. Returns the offset at which the next byte is read or written.
    #[cfg(feature = "tokio-io")]
    pub(crate) fn poll_complete(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let Some(to) = self.target else {
            ready!(self.poll_sought(cx))?;
            ready!(self.poll_written(cx))?;
            ready!(self.poll_read_done(cx))?;
            // Another handle of the same file may have moved the cursor.
            let unread = self.unread().len() as u64;
            return Poll::Ready(Ok(self.file.move_cursor(0)?.saturating_sub(unread)));
        };
        let sought = ready!(self.poll_seek(cx, to));
        self.target = None;
        Poll::Ready(sought)
    }

    /// Completes a seek that has begun but was not awaited.
    pub(crate) fn poll_sought(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let Some((_, seeking)) = &mut self.seeking else { return Poll::Ready(Ok(0)) };
        let sought = ready!(self.waker.poll(seeking, cx));
        self.seeking = None;
        if sought.is_ok() {
            self.drop_ahead();
        }
        Poll::Ready(sought)
    }

    /// Returns true if bytes are queued or have been lost.
    fn is_writing(&self) -> bool {
        self.lost || self.writing.is_some() || self.unwritten.is_some()
    }

    pub(crate) fn unread(&self) -> &[u8] {
        &self.ahead[self.consumed..]
    }

    fn drop_ahead(&mut self) {
        self.ahead.clear();
        (self.consumed, self.ended) = (0, false);
    }

    /// Reads more bytes, appends them to the unread ones, and returns their number.
    pub(crate) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        ready!(self.poll_sought(cx))?;
        if self.reading.is_none() {
            if self.writing.is_some() && self.file.open.is_ordinary() {
                ready!(self.poll_written(cx))?;
            }
            let mut buf = mem::take(&mut self.next);
            buf.clear();
            buf.reserve(MAX_PIECE_BYTES);
            let mut args = Read { buf, done: 0, offset: CURSOR_OFFSET, guard: None };
            match self.file.try_read(&mut args) {
                Some(Ok(count)) => {
                    self.add(args.buf);
                    return Poll::Ready(Ok(count));
                }
                tried => {
                    let file = self.file.try_clone()?;
                    self.reading = Some(Box::pin(async move {
                        let (read, args) = file.finish_read(tried, args).await;
                        (read, args.buf)
                    }));
                }
            }
        }
        self.poll_reading(cx)
    }

    fn poll_reading(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(reading) = &mut self.reading else { return Poll::Ready(Ok(0)) };
        let (read, buf) = ready!(self.waker.poll(reading, cx));
        self.reading = None;
        self.add(buf);
        Poll::Ready(read)
    }

    /// Waits for a read in flight if the file has a cursor, which the read moves.
    fn poll_read_done(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reading.is_some() && self.file.open.is_ordinary() {
            ready!(self.poll_reading(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Appends the bytes read to the unread ones.
    fn add(&mut self, mut read: Vec<u8>) {
        if self.unread().is_empty() {
            mem::swap(&mut self.ahead, &mut read);
        } else {
            self.ahead.drain(..self.consumed);
            self.ahead.extend_from_slice(&read);
        }
        self.consumed = 0;
        self.next = read;
    }

    /// Returns `Ready` once earlier writes are done and the cursor is after the last consumed byte.
    pub(crate) fn poll_write_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_sought(cx))?;
        ready!(self.poll_written(cx))?;
        ready!(self.poll_read_done(cx))?;
        if !self.unread().is_empty() && self.file.open.is_ordinary() {
            self.file.move_cursor(-(self.unread().len() as i64))?;
            self.drop_ahead();
        }
        self.ended = false;
        Poll::Ready(Ok(()))
    }

    /// Writes bytes in a task, so that they are written even if the stream is dropped.
    ///
    /// # Errors
    /// If the loop is not running, no task can be spawned. The bytes are returned.
    pub(crate) fn write_in_task(&mut self, bytes: Unwritten) -> Result<(), (io::Error, Unwritten)> {
        let core = &self.file.open.core;
        let file = match core.borrow_running().map(drop).and_then(|()| self.file.try_clone()) {
            Ok(file) => file,
            Err(error) => return Err((error, bytes)),
        };
        let write = bytes.write(file);
        self.writing = Some(spawn(QueuedWrite::new(core.clone(), write)));
        Ok(())
    }

    /// Waits until all queued bytes have been written. If an earlier write has failed, tries again
    /// to write its bytes.
    pub(crate) fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lost {
            let text = "bytes queued for the file were lost with the task that was writing them";
            return Poll::Ready(Err(io::Error::other(text)));
        }
        if let Some(unwritten) = self.unwritten.take() {
            let retried = self.write_in_task(unwritten);
            self.keep_unwritten(retried)?;
        }
        let Some(writing) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let ended = ready!(self.waker.poll(writing, cx));
        self.writing = None;
        let written = ended.map_err(|error| {
            self.lost = true;
            io::Error::other(error)
        })?;
        Poll::Ready(self.keep_unwritten(written))
    }

    fn keep_unwritten(&mut self, written: Result<(), (io::Error, Unwritten)>) -> io::Result<()> {
        written.map_err(|(error, unwritten)| {
            self.unwritten = Some(unwritten);
            error
        })
    }
}

impl fmt::Debug for FileStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStream")
            .field("file", &self.file)
            .field("read_ahead", &self.unread().len())
            .field("writing", &self.is_writing())
            .finish_non_exhaustive()
    }
}

/// Wakes every task that has polled with it since the last wake, because the halves of a stream may
/// be in different tasks.
#[derive(Default)]
pub(super) struct SharedWaker(Mutex<Vec<Waker>>);

impl SharedWaker {
    /// Polls a future. It wakes this task and all tasks that have polled before.
    pub(super) fn poll<F: Future + Unpin>(
        self: &Arc<Self>,
        future: &mut F,
        cx: &Context<'_>,
    ) -> Poll<F::Output> {
        // Add the waker before the poll, which may wake at once.
        self.add(cx.waker().clone());
        let waker = Waker::from(self.clone());
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }

    fn add(&self, waker: Waker) {
        let mut wakers = self.wakers();
        if !wakers.iter().any(|other| other.will_wake(&waker)) {
            wakers.push(waker);
        }
    }

    fn wakers(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for SharedWaker {
    fn wake(self: Arc<Self>) {
        let wakers = mem::take(&mut *self.wakers());
        wake_each(wakers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn all_wakers_are_woken_although_one_panics() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("on purpose");
            }
        }
        #[derive(Default)]
        struct Woken(AtomicBool);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let (shared, last) = (Arc::new(SharedWaker::default()), Arc::new(Woken::default()));
        shared.add(Waker::from(Arc::new(Panics)));
        shared.add(Waker::from(last.clone()));
        Waker::from(shared).wake();
        assert!(last.0.load(Ordering::Relaxed));
    }
}
