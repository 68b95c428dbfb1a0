//! The features of this kernel's io_uring, with the version that introduced each.

use crate::completion::Completion;
use crate::entry::Entry;
use crate::error::SetupError;
use crate::op;
use crate::opcode;
use crate::params::{KernelFeatures, SetupFlags};
use crate::probe::Probe;
use crate::ring::{Ring, Wait};
use annulus_kernel::{Fd, Kernel, Linux};
use std::rc::Rc;

/// How to test whether a feature is present.
#[derive(Clone, Copy)]
enum Test {
    /// A bit the kernel reports at set-up.
    Bit(KernelFeatures),
    /// A set-up flag that the kernel accepted.
    Flag(SetupFlags),
    /// An operation in the probe.
    Operation(u8),
    /// An entry without a file: it fails with EBADF if the kernel understands it, else with EINVAL.
    Entry(fn() -> Entry),
}

struct Row {
    name: &'static str,
    since: (u16, u16),
    buys: &'static str,
    test: Test,
}

const fn row(name: &'static str, since: (u16, u16), buys: &'static str, test: Test) -> Row {
    Row { name, since, buys, test }
}

/// The features, in the order of the kernels that introduced them.
const ROWS: [Row; 21] = [
    row("fast poll", (5, 7), "sockets need no kernel worker", Test::Bit(KernelFeatures::FAST_POLL)),
    row("wait timeout", (5, 11), "a timer inside the wait", Test::Bit(KernelFeatures::EXT_ARG)),
    row("skipped completions", (5, 17), "fewer completions", Test::Bit(KernelFeatures::CQE_SKIP)),
    row(
        "message ring",
        (5, 18),
        "wakes and descriptors across cores",
        Test::Operation(opcode::MSG_RING),
    ),
    row("multishot accept", (5, 19), "one entry for all connections", Test::Entry(accept_multi)),
    row(
        "single issuer",
        (6, 0),
        "less locking in the kernel",
        Test::Flag(SetupFlags::SINGLE_ISSUER),
    ),
    row("multishot receive", (6, 0), "one entry for many receives", Test::Entry(recv_multi)),
    row("zero-copy send", (6, 0), "large sends without a copy", Test::Operation(opcode::SEND_ZC)),
    row("zero-copy sendmsg", (6, 1), "the same for vectors", Test::Operation(opcode::SENDMSG_ZC)),
    row(
        "deferred task work",
        (6, 1),
        "completions in batches, when the loop asks",
        Test::Flag(SetupFlags::DEFER_TASKRUN),
    ),
    row("zero-copy report", (6, 2), "reports which sends were copied", Test::Entry(send_zero_copy)),
    row("no index array", (6, 6), "a smaller ring", Test::Flag(SetupFlags::NO_SQARRAY)),
    row(
        "multishot read",
        (6, 7),
        "pipes and terminals without arming again",
        Test::Operation(opcode::READ_MULTISHOT),
    ),
    row("futex", (6, 7), "locks awaited on the ring", Test::Operation(opcode::FUTEX_WAIT)),
    row(
        "bundles",
        (6, 10),
        "several buffers a receive",
        Test::Bit(KernelFeatures::RECVSEND_BUNDLE),
    ),
    row("bind and listen", (6, 11), "sockets set up on the ring", Test::Operation(opcode::LISTEN)),
    row("minimum wait", (6, 12), "batching under load", Test::Bit(KernelFeatures::MIN_TIMEOUT)),
    row(
        "honest iowait",
        (6, 15),
        "an idle ring does not look busy",
        Test::Bit(KernelFeatures::NO_IOWAIT),
    ),
    row(
        "zero-copy receive",
        (6, 15),
        "receives without a copy (special NICs)",
        Test::Operation(opcode::RECV_ZC),
    ),
    row("pipe", (6, 16), "pipes made on the ring", Test::Operation(opcode::PIPE)),
    row(
        "receive limit",
        (6, 17),
        "multishot receives on streams, bounded",
        Test::Entry(recv_limited),
    ),
];

fn accept_multi() -> Entry {
    op::AcceptMulti { fd: Fd::NONE }.entry().into()
}

fn recv_multi() -> Entry {
    op::RecvMulti { fd: Fd::NONE, group: 0, limit: 0 }.entry().into()
}

fn recv_limited() -> Entry {
    op::RecvMulti { fd: Fd::NONE, group: 0, limit: 1 }.entry().into()
}

fn send_zero_copy() -> Entry {
    let (fd, buffer, len, flags) = (Fd::NONE, std::ptr::null(), 0, 0);
    op::zero_copy(op::Send { fd, buffer, len, flags }.entry(), true)
}

/// A feature that a kernel may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The name of the feature.
    pub name: &'static str,
    /// The version that introduced it, major and minor.
    pub since: (u16, u16),
    /// The benefit of the feature.
    pub buys: &'static str,
    /// Whether this kernel has it.
    pub present: bool,
}

/// The features of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    lines: Vec<Feature>,
}

impl Features {
    /// Tests Linux, with a small ring of its own.
    ///
    /// # Errors
    /// [`SetupError`] if no ring can be set up.
    pub fn detect() -> Result<Self, SetupError> {
        Self::detect_on(Rc::new(Linux))
    }

    /// Tests another kernel.
    ///
    /// # Errors
    /// As [`detect`](Self::detect).
    pub fn detect_on(kernel: Rc<dyn Kernel>) -> Result<Self, SetupError> {
        let mut ring =
            Ring::builder().kernel(kernel).entries(4).completions(8).workers(None).build()?;
        Self::of(&mut ring)
    }

    /// Tests the kernel of a ring, which must have nothing in flight.
    ///
    /// # Errors
    /// [`SetupError::Step`] if the kernel refuses a test.
    pub fn of(ring: &mut Ring) -> Result<Self, SetupError> {
        let probe = ring.probe().map_err(|e| SetupError::Step("probing the operations", e))?;
        let mut lines = Vec::with_capacity(ROWS.len());
        for row in &ROWS {
            let present = has(ring, &probe, row.test)?;
            lines.push(Feature { name: row.name, since: row.since, buys: row.buys, present });
        }
        Ok(Self { lines })
    }

    /// All features, in the order of the kernels that introduced them.
    pub fn iter(&self) -> impl Iterator<Item = &Feature> {
        self.lines.iter()
    }

    /// Whether the feature of this name is present; false for an unknown name.
    pub fn has(&self, name: &str) -> bool {
        self.lines.iter().any(|line| line.name == name && line.present)
    }
}

fn has(ring: &mut Ring, probe: &Probe, test: Test) -> Result<bool, SetupError> {
    match test {
        Test::Bit(bit) => Ok(ring.kernel_features().contains(bit)),
        Test::Flag(flag) => Ok(ring.setup_flags().contains(flag)),
        Test::Operation(code) => Ok(probe.has(code)),
        Test::Entry(entry) => understood(ring, entry()),
    }
}

/// Submits an entry on no file. The kernel checks an entry's fields before it looks for the file.
#[allow(unsafe_code)]
fn understood(ring: &mut Ring, entry: Entry) -> Result<bool, SetupError> {
    let step = |e| SetupError::Step("trying an operation", e);
    // SAFETY: the entry names no memory.
    unsafe { ring.push_unchecked(entry) }.expect("an empty queue has space");
    let mut take = || -> Result<Completion, SetupError> {
        loop {
            ring.enter(Wait::For { completions: 1, timeout: None }).map_err(step)?;
            if let Some(completion) = ring.completions().next() {
                return Ok(completion);
            }
        }
    };
    let answer = take()?;
    // Even a zero-copy send of nothing has a notification.
    let mut last = answer;
    while last.more() {
        last = take()?;
    }
    Ok(answer.result == -rustix::io::Errno::BADF.raw_os_error())
}
