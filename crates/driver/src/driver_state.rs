//! State that both drivers have: the kernel, the pools and the counters.

use crate::counters::Counters;
use crate::pool::Pool;
use annulus_kernel::Kernel;
use std::fmt;
use std::rc::Rc;

/// The part of a driver that the layers above read. It is the first field of each driver, and
/// `repr(C)` places it at offset zero, so reading it needs no branch on the driver.
pub(crate) struct DriverState {
    pub(crate) kernel: Rc<dyn Kernel>,
    /// The pool that streams receive into.
    pub(crate) pool: Rc<Pool>,
    /// The pool that datagrams are received into, created with the first datagram socket.
    pub(crate) datagrams: Option<Rc<Pool>>,
    pub(crate) counters: Counters,
    /// Whether the pools have been trimmed since the layer above last asked.
    pub(crate) trimmed: bool,
    /// Whether the driver supports [`SendToNow`](crate::MemoryOp::SendToNow).
    pub(crate) supports_send_to_now: bool,
    /// Whether a multishot receive can have a limit.
    pub(crate) supports_receive_limit: bool,
    /// Whether TCP sockets receive into memory that the network stack fills.
    pub(crate) receives_zero_copy: bool,
}

impl DriverState {
    /// Creates the state of a driver that has every feature, but no area for zero-copy receives. A
    /// driver that lacks one sets its field to false.
    pub(crate) fn new(kernel: Rc<dyn Kernel>, pool: Rc<Pool>) -> Self {
        Self {
            kernel,
            pool,
            datagrams: None,
            counters: Counters::default(),
            trimmed: false,
            supports_send_to_now: true,
            supports_receive_limit: true,
            receives_zero_copy: false,
        }
    }

    #[inline]
    pub(crate) fn pools(&self) -> impl Iterator<Item = &Rc<Pool>> {
        std::iter::once(&self.pool).chain(&self.datagrams)
    }
}

impl fmt::Debug for DriverState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, datagrams, counters, .. } = self;
        write!(f, "DriverState({pool:?}, {datagrams:?}, {counters:?})")
    }
}
