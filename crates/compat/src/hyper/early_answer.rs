//! Holds the error of a write back while hyper may still read a response that the server sent
//! before it closed the connection.

use crate::OnThread;
use annulus::time::{Sleep, sleep};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Time without a read after which an error is no longer held back. After a read, hyper passes the
/// bytes on to the response's reader, which may be slow, before it reads again. Other programs may
/// never read again.
const MAX_TIME_WITHOUT_READ: Duration = Duration::from_secs(5);

/// The start of every informational response.
const INFORMATIONAL: &[u8] = b"HTTP/1.1 1";
/// What follows it in the response to an upgrade.
const SWITCHING: &[u8] = b"01";
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

#[derive(Debug, Default)]
pub(super) struct EarlyAnswer {
    reads: Reads,
    place: Place,
    failed: Option<Failed>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Reads {
    /// There was no read yet, so no response is expected.
    #[default]
    None,
    /// Reads wait, or have returned bytes.
    Begun,
    /// A read has returned the end of the stream or an error.
    Ended,
}

/// How far the received bytes match informational responses, the last of which may be an upgrade.
/// Both variants count matched bytes.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the status line of a response.
    Status(usize),
    /// In the head of an informational response, matching its end.
    Head(usize),
}

impl Default for Place {
    fn default() -> Self {
        Self::Status(0)
    }
}

/// A failed write whose error is held back.
#[derive(Debug)]
pub(super) struct Failed {
    error: io::Error,
    writer: Waker,
    /// Runs until the next read returns.
    pause: Option<OnThread<Sleep>>,
}

impl EarlyAnswer {
    /// Returns true if the server may respond to the written bytes before it has read a whole
    /// request. HTTP/2 and `CONNECT` tunnels carry more than requests and responses, and do not
    /// read while they cannot write.
    pub(super) fn may_follow(written: &[u8]) -> bool {
        !written.starts_with(b"PRI * HTTP/2.0") && !written.starts_with(b"CONNECT ")
    }

    /// Returns true if the received bytes end HTTP on this connection. A response is only looked for
    /// at the start of a read, and after informational responses such as `100 Continue`.
    pub(super) fn is_upgrade(&mut self, received: &[u8]) -> bool {
        for &byte in received {
            self.place = match self.place {
                Place::Status(n) if n < INFORMATIONAL.len() => match INFORMATIONAL[n] == byte {
                    true => Place::Status(n + 1),
                    false => {
                        self.place = Place::Status(0);
                        return false;
                    }
                },
                Place::Status(n) if SWITCHING[n - INFORMATIONAL.len()] != byte => Place::Head(0),
                Place::Status(n) if n + 1 == INFORMATIONAL.len() + SWITCHING.len() => return true,
                Place::Status(n) => Place::Status(n + 1),
                Place::Head(n) if END_OF_HEAD[n] != byte => Place::Head((byte == b'\r').into()),
                Place::Head(n) if n + 1 == END_OF_HEAD.len() => Place::Status(0),
                Place::Head(n) => Place::Head(n + 1),
            };
        }
        false
    }

    /// Returns true if the error means that the server has closed the connection.
    pub(super) fn may_explain(error: &io::Error) -> bool {
        matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
    }

    /// Takes the failed write that is held back, if any. Pass it to
    /// [`poll_error`](Self::poll_error) again.
    pub(super) fn take_failed(&mut self) -> Option<Failed> {
        self.failed.take()
    }

    /// Returns the error of a failed write once no further read is expected, and holds it back
    /// until then.
    pub(super) fn poll_error(
        &mut self,
        cx: &mut Context<'_>,
        mut failed: Failed,
    ) -> Poll<io::Error> {
        let is_held = matches!(self.reads, Reads::Begun) && failed.poll_pause(cx).is_pending();
        if !is_held {
            return Poll::Ready(failed.error);
        }
        failed.writer.clone_from(cx.waker());
        self.failed = Some(failed);
        Poll::Pending
    }

    /// Records the result of a read, which is a byte count. If the read is done, wakes the task
    /// whose write is held back: the write either fails now, or its time starts again.
    pub(super) fn note_read(&mut self, read: &Poll<io::Result<usize>>) {
        self.reads = match read {
            Poll::Pending | Poll::Ready(Ok(1..)) => Reads::Begun,
            Poll::Ready(_) => Reads::Ended,
        };
        if let Some(failed) = &mut self.failed
            && read.is_ready()
        {
            failed.pause = None;
            failed.writer.wake_by_ref();
        }
    }

    /// Ends this mode. A write that is held back runs again, and then fails.
    pub(super) fn end(self) {
        if let Some(failed) = self.failed {
            failed.writer.wake();
        }
    }
}

impl Failed {
    pub(super) fn new(cx: &Context<'_>, error: io::Error) -> Self {
        Self { error, writer: cx.waker().clone(), pause: None }
    }

    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // After the end of the runtime, polling a timer panics.
        if annulus::handle().is_err() {
            return Poll::Ready(());
        }
        let pause = self.pause.get_or_insert_with(|| OnThread::new(sleep(MAX_TIME_WITHOUT_READ)));
        pause.try_pin().map_or(Poll::Ready(()), |pause| pause.poll(cx))
    }
}
