//! The activity of a connection: its requests in flight, and the bytes that it has moved.

use annulus::time::Instant;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Shared by a connection, its stream and its requests, which in HTTP/2 are tasks of their own.
pub(super) struct Activity {
    /// Requests that have begun, ever.
    begun: Cell<u64>,
    in_flight: Cell<usize>,
    idle_since: Cell<Instant>,
    read: Cell<u64>,
    written: Cell<u64>,
    /// Responses whose bodies have given a frame and were not polled since, by the numbers of their requests.
    unpolled: RefCell<Vec<(u64, Instant)>>,
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
        })
    }

    /// Requests that have begun, ever.
    pub(super) fn begun(&self) -> u64 {
        self.begun.get()
    }

    /// Whether a request has begun, ever.
    pub(super) fn has_begun(&self) -> bool {
        self.begun() > 0
    }

    /// Since when no request has been in flight; `None` while one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (self.in_flight.get() == 0).then(|| self.idle_since.get())
    }

    /// The time since when a response has waited for its connection to take more bytes.
    pub(super) fn unpolled_since(&self) -> Option<Instant> {
        self.unpolled.borrow().iter().map(|(_, since)| *since).min()
    }

    pub(super) fn begin(self: &Rc<Self>) -> Request {
        self.in_flight.update(|count| count + 1);
        self.begun.update(|count| count + 1);
        Request { activity: self.clone(), number: self.begun.get(), is_unpolled: false }
    }

    /// Bytes that were read from the stream.
    pub(super) fn read(&self) -> u64 {
        self.read.get()
    }

    pub(super) fn add_read(&self, bytes: usize) {
        self.read.update(|read| read + bytes as u64);
    }

    /// Bytes that the stream has accepted.
    pub(super) fn written(&self) -> u64 {
        self.written.get()
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
        self.activity.in_flight.update(|count| count - 1);
        if self.activity.in_flight.get() == 0 {
            self.activity.idle_since.set(Instant::now());
        }
    }
}
