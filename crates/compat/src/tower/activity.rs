//! The activity of a connection: its requests in flight, and the bytes that it has moved.

use annulus::time::Instant;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Shared by a connection, its stream and its requests, which in HTTP/2 are tasks of their own.
pub(super) struct Activity {
    /// Requests that have begun, ever.
    pub(super) begun: Cell<u64>,
    in_flight: Cell<usize>,
    idle_since: Cell<Instant>,
    pub(super) read: Cell<u64>,
    pub(super) written: Cell<u64>,
    /// Responses whose bodies have given a frame and were not polled since, by the numbers of their requests.
    unpolled: RefCell<Vec<(u64, Instant)>>,
    /// Bytes of HTTP/1 were read that no request has begun with.
    has_unparsed: Cell<bool>,
    /// A response has ended, or bytes were written, after the last flush. hyper flushes the stream when it holds nothing itself.
    has_unflushed: Cell<bool>,
    /// The last request has a body, and hyper does not show whether it was read to its end.
    has_body: Cell<bool>,
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
        })
    }

    /// Whether a request has begun, ever.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.get() > 0
    }

    /// Since when no request has been in flight; `None` while one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (!self.is_handling()).then(|| self.idle_since.get())
    }

    /// Whether a response has not ended.
    pub(super) fn is_handling(&self) -> bool {
        self.in_flight.get() > 0
    }

    /// Whether hyper holds nothing of HTTP/1 that matters: it waits for the first byte of the next request.
    pub(super) fn is_idle(&self) -> bool {
        let is_busy = self.has_unparsed.get() || self.has_unflushed.get() || self.has_body.get();
        !is_busy && !self.is_handling()
    }

    /// The time since when a response has waited for its connection to take more bytes.
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
    /// The body of the response is polled.
    pub(super) fn note_poll(&mut self) {
        if std::mem::take(&mut self.is_unpolled) {
            self.activity.unpolled.borrow_mut().retain(|(number, _)| *number != self.number);
        }
    }

    /// The body of the response has given a frame.
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
