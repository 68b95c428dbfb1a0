//! The workload of the clients of a run.

use annulus::DriverChoice;

use super::MAX_DATAGRAM;

/// Most segments in one send: what every kernel with segmentation accepts.
const MAX_SEGMENTS: usize = 64;

/// The workload of the clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// Each client has a connection, and sends messages over the connection.
    Streams(Streams),
    /// Each client sends datagrams from a socket of its own.
    Datagrams(Datagrams),
}

/// Messages over connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streams {
    /// Messages in flight per connection: 1 to [`MAX_PIPELINE`](super::MAX_PIPELINE), and at most
    /// [`MAX_IN_FLIGHT`](super::MAX_IN_FLIGHT) bytes.
    pub pipeline: usize,
    /// Threads with an event loop each that share the clients: 1 to [`MAX_EVENT_LOOPS`](super::MAX_EVENT_LOOPS). More than clients are not
    /// started.
    pub threads: usize,
    /// The driver of the event loops.
    pub driver: DriverChoice,
    /// Whether a client whose connection has failed goes on with another one, after a pause: 10 ms, and twice as long with each failure
    /// until a reply comes, up to a second. Otherwise it ends, as it does if its first connect fails. Failures count either way.
    pub reconnect: bool,
    /// Requests on one connection; then the client closes it and makes another one. The time for that is part of no service time, and of
    /// the latency of the next request: with 1, each request connects. With a server at an IPv4 loopback address, connections leave from
    /// [`SOURCE_ADDRESSES`](crate::SOURCE_ADDRESSES).
    pub requests_per_connection: Option<u64>,
}

/// Datagrams and their echoes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Datagrams {
    /// Datagrams in flight per client: 1 to [`MAX_WINDOW`](super::MAX_WINDOW).
    pub window: usize,
    /// Send with segmentation (GSO) as much as the window allows, receive with coalescing (GRO). UDP only.
    pub segments: bool,
    /// The driver of the clients.
    pub driver: DriverChoice,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams {
            pipeline: 1,
            driver: DriverChoice::default(),
            threads: 1,
            reconnect: false,
            requests_per_connection: None,
        }
    }
}

impl Default for Datagrams {
    fn default() -> Datagrams {
        Datagrams { window: 1, segments: false, driver: DriverChoice::Auto }
    }
}

impl From<Streams> for Workload {
    fn from(streams: Streams) -> Workload {
        Workload::Streams(streams)
    }
}

impl From<Datagrams> for Workload {
    fn from(datagrams: Datagrams) -> Workload {
        Workload::Datagrams(datagrams)
    }
}

impl Datagrams {
    /// Most datagrams in one send.
    pub(crate) fn max_segments(&self, length: usize) -> usize {
        if self.segments { segments_that_fit(length) } else { 1 }
    }
}

/// How many datagrams of a length one send can carry as segments.
fn segments_that_fit(length: usize) -> usize {
    (MAX_DATAGRAM / length).min(MAX_SEGMENTS)
}
