//! The activity of a connection: its requests in flight, and the bytes read and written.

use super::sessions::Session;
use annulus::time::Instant;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Shared by a connection, its stream and its requests, which in HTTP/2 are tasks of their own.
pub(super) struct Activity {
    /// Number of requests begun so far.
    pub(super) begun: Cell<u64>,
    in_flight: Cell<usize>,
    idle_since: Cell<Instant>,
    pub(super) read: Cell<u64>,
    pub(super) written: Cell<u64>,
    /// Responses whose bodies have yielded a frame and have not been polled since: the request's
    /// number, and when the frame was yielded.
    unpolled: RefCell<Vec<(u64, Instant)>>,
    /// True if HTTP/1 bytes have been read that do not belong to a request that has begun.
    has_unparsed: Cell<bool>,
    /// True if a response has ended or bytes have been written since the last flush. hyper flushes
    /// the stream only once its own buffer is empty.
    has_unflushed: Cell<bool>,
    /// True if the last request has a body. hyper does not expose whether a body was read to its
    /// end.
    has_body: Cell<bool>,
    /// The session that begins if the last request with an upgrade is granted.
    pub(super) session: RefCell<Option<Arc<Session>>>,
}

impl Activity {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            begun: Cell::new(0),
            in_flight: Cell::new(0),
            idle_since: Cell::new(Instant::now()),
            read: Cell::new(0),
            written: Cell::new(0),
            unpolled: RefCell::default(),
            has_unparsed: Cell::default(),
            has_unflushed: Cell::default(),
            has_body: Cell::default(),
            session: RefCell::default(),
        })
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun.get() > 0
    }

    /// Returns the time since which no request has been in flight; `None` while one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (!self.is_handling()).then(|| self.idle_since.get())
    }

    pub(super) fn is_handling(&self) -> bool {
        self.in_flight.get() > 0
    }

    /// Returns true if hyper holds no HTTP/1 state that matters, because it is waiting for the
    /// first byte of the next request.
    pub(super) fn is_idle(&self) -> bool {
        let is_busy = self.has_unparsed.get() || self.has_unflushed.get() || self.has_body.get();
        !is_busy && !self.is_handling()
    }

    /// Returns the earliest time since which a response body has been waiting to be polled again.
    pub(super) fn unpolled_since(&self) -> Option<Instant> {
        self.unpolled.borrow().iter().map(|(_, since)| *since).min()
    }

    pub(super) fn begin(self: &Rc<Self>, has_body: bool) -> Request {
        self.has_unparsed.set(false);
        self.has_body.set(has_body);
        self.in_flight.update(|count| count + 1);
        self.begun.update(|count| count + 1);
        Request { activity: self.clone(), number: self.begun.get(), is_unpolled: false }
    }

    pub(super) fn note_unparsed(&self) {
        self.has_unparsed.set(true);
    }

    pub(super) fn note_unflushed(&self, has: bool) {
        self.has_unflushed.set(has);
    }

    pub(super) fn add_read(&self, bytes: usize) {
        self.read.update(|read| read + bytes as u64);
    }

    pub(super) fn add_written(&self, bytes: usize) {
        self.written.update(|written| written + bytes as u64);
    }
}

/// A request, from its head to the end of the response.
pub(super) struct Request {
    activity: Rc<Activity>,
    number: u64,
    is_unpolled: bool,
}

impl Request {
    /// Records that the response body is being polled.
    pub(super) fn note_poll(&mut self) {
        if std::mem::take(&mut self.is_unpolled) {
            self.activity.unpolled.borrow_mut().retain(|(number, _)| *number != self.number);
        }
    }

    /// Records that the response body has yielded a frame.
    pub(super) fn note_frame(&mut self) {
        self.is_unpolled = true;
        self.activity.unpolled.borrow_mut().push((self.number, Instant::now()));
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.note_poll();
        self.activity.note_unflushed(true);
        self.activity.in_flight.update(|count| count - 1);
        if !self.activity.is_handling() {
            self.activity.idle_since.set(Instant::now());
        }
    }
}
