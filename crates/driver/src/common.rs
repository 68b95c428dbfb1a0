//! State that both drivers have: the kernel, the pools, the counters.

use crate::counters::Counters;
use crate::pool::Pool;
use annulus_kernel::Kernel;
use std::fmt;
use std::rc::Rc;

/// State of either driver that the layers above ask for, with the memory that it receives into. It is the first field of each, of which `repr(C)`
/// makes the first bytes, so that it is found without asking which driver it is.
pub(crate) struct Common {
    pub(crate) kernel: Rc<dyn Kernel>,
    /// The pool that streams receive into.
    pub(crate) pool: Rc<Pool>,
    /// Made with the first datagram socket.
    pub(crate) datagrams: Option<Rc<Pool>>,
    pub(crate) counters: Counters,
    /// The pools were trimmed since the layer above last asked.
    pub(crate) trimmed: bool,
    /// There is a [`SendToNow`](crate::MemoryOp::SendToNow).
    pub(crate) addresses_sends: bool,
    /// A multishot receive can have a limit.
    pub(crate) limits_receives: bool,
}

impl Common {
    /// For a driver that has every feature here; one that lacks some sets them to false.
    pub(crate) fn new(kernel: Rc<dyn Kernel>, pool: Rc<Pool>) -> Self {
        Self {
            kernel,
            pool,
            datagrams: None,
            counters: Counters::default(),
            trimmed: false,
            addresses_sends: true,
            limits_receives: true,
        }
    }

    #[inline]
    pub(crate) fn pools(&self) -> impl Iterator<Item = &Rc<Pool>> {
        std::iter::once(&self.pool).chain(&self.datagrams)
    }
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pool, datagrams, counters, .. } = self;
        write!(f, "Common({pool:?}, {datagrams:?}, {counters:?})")
    }
}
