//! The features of a kernel's io_uring, and the version that introduced each.

use crate::completion::Completion;
use crate::entry::Entry;
use crate::error::SetupError;
use crate::op;
use crate::opcode::{self, Need, OPERATIONS, Operation};
use crate::params::{KernelFeatures, SetupFlags};
use crate::probe::Probe;
use crate::query::Answers;
use crate::ring::{Ring, Wait};
use FeatureTest::{Bit, Flag, Known, Opcode, Registration, Tried, ZeroCopyReceive};
use annulus_kernel::{Fd, Kernel, Linux};
use std::rc::Rc;

/// How to test whether a feature is present.
#[derive(Clone, Copy)]
enum FeatureTest {
    /// A bit that the kernel reports at set-up.
    Bit(KernelFeatures),
    /// A set-up flag that the kernel accepted.
    Flag(SetupFlags),
    /// A set-up flag that the kernel reports to know. Only kernels from 6.18 on report them.
    Known(SetupFlags),
    /// A registration (`IORING_REGISTER_*`) that the kernel reports to know.
    Registration(u32),
    /// A flag for registering a zero-copy receive (`ZCRX_REG_*`).
    ZeroCopyReceive(u64),
    /// An operation in the probe.
    Opcode(u8),
    /// An entry without a file: it fails with EBADF if the kernel understands it, and with EINVAL
    /// otherwise.
    Tried(fn() -> Entry),
}

struct FeatureRow {
    name: &'static str,
    since: (u16, u16),
    buys: &'static str,
    test: FeatureTest,
}

const fn feature(
    name: &'static str,
    since: (u16, u16),
    buys: &'static str,
    test: FeatureTest,
) -> FeatureRow {
    FeatureRow { name, since, buys, test }
}

/// A feature that is an operation.
const fn operation_feature(name: &'static str, code: u8, buys: &'static str) -> FeatureRow {
    let known = opcode::operation(code).expect("the operation has no row");
    feature(name, known.since, buys, Opcode(code))
}

/// The features, in the order of the kernels that introduced them.
const FEATURES: [FeatureRow; 26] = [
    feature("fast poll", (5, 7), "sockets need no kernel worker", Bit(KernelFeatures::FAST_POLL)),
    feature("wait timeout", (5, 11), "a timer inside the wait", Bit(KernelFeatures::EXT_ARG)),
    feature("skipped completions", (5, 17), "fewer completions", Bit(KernelFeatures::CQE_SKIP)),
    operation_feature("message ring", opcode::MSG_RING, "wakes and descriptors across cores"),
    feature("multishot accept", (5, 19), "one entry for all connections", Tried(accept_multi)),
    feature("single issuer", (6, 0), "less locking in the kernel", Flag(SetupFlags::SINGLE_ISSUER)),
    feature("multishot receive", (6, 0), "one entry for many receives", Tried(recv_multi)),
    operation_feature("zero-copy send", opcode::SEND_ZC, "large sends without a copy"),
    operation_feature("zero-copy sendmsg", opcode::SENDMSG_ZC, "the same for vectors"),
    feature(
        "deferred task work",
        (6, 1),
        "completions in batches, when the loop asks",
        Flag(SetupFlags::DEFER_TASKRUN),
    ),
    feature("zero-copy report", (6, 2), "reports which sends were copied", Tried(send_zero_copy)),
    feature("no index array", (6, 6), "a smaller ring", Flag(SetupFlags::NO_SQARRAY)),
    operation_feature(
        "multishot read",
        opcode::READ_MULTISHOT,
        "pipes and terminals without arming again",
    ),
    operation_feature("futex", opcode::FUTEX_WAIT, "locks awaited on the ring"),
    feature(
        "bundles",
        (6, 10),
        "several buffers per receive",
        Bit(KernelFeatures::RECVSEND_BUNDLE),
    ),
    operation_feature("bind and listen", opcode::LISTEN, "sockets set up on the ring"),
    feature("minimum wait", (6, 12), "batching under load", Bit(KernelFeatures::MIN_TIMEOUT)),
    feature(
        "honest iowait",
        (6, 15),
        "an idle ring does not look busy",
        Bit(KernelFeatures::NO_IOWAIT),
    ),
    operation_feature(
        "zero-copy receive",
        opcode::RECV_ZC,
        "receives without a copy (needs NIC support)",
    ),
    operation_feature("pipe", opcode::PIPE, "pipes created on the ring"),
    feature(
        "receive limit",
        (6, 17),
        "multishot receives on streams, bounded",
        Tried(recv_limited),
    ),
    feature(
        "mixed completions",
        (6, 18),
        "large completions only where they are needed",
        Known(SetupFlags::CQE_MIXED),
    ),
    feature(
        "mixed entries",
        (6, 19),
        "large entries only where they are needed",
        Known(SetupFlags::SQE_MIXED),
    ),
    feature(
        "rewound submissions",
        (7, 0),
        "each turn writes the same few entries",
        Known(SetupFlags::SQ_REWIND),
    ),
    feature(
        "operation filters",
        (7, 0),
        "a policy that child processes inherit",
        Registration(REGISTER_BPF_FILTER),
    ),
    feature(
        "deviceless receive",
        (7, 1),
        "zero-copy receive without a NIC, by copies",
        ZeroCopyReceive(ZCRX_REG_NODEV),
    ),
];

/// `IORING_REGISTER_BPF_FILTER`
const REGISTER_BPF_FILTER: u32 = 37;
/// `ZCRX_REG_NODEV`
const ZCRX_REG_NODEV: u64 = 1 << 1;

/// Returns true if an operation is listed as a feature or need not be: it is older than Linux 6.0,
/// the oldest kernel whose io_uring annulus uses, or a system call can replace it.
const fn is_reported(operation: &Operation) -> bool {
    let (mut at, mut found) = (0, matches!(operation.need, Need::File) || operation.since.0 < 6);
    while at < FEATURES.len() {
        found |= matches!(FEATURES[at].test, Opcode(code) if code == operation.opcode);
        at += 1;
    }
    found
}

const _: () = {
    let mut at = 0;
    while at < OPERATIONS.len() {
        assert!(is_reported(&OPERATIONS[at]), "a new operation is missing from the features");
        at += 1;
    }
};

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
    /// The feature's name.
    pub name: &'static str,
    /// The version that introduced it, major and minor.
    pub since: (u16, u16),
    /// The benefit of the feature.
    pub buys: &'static str,
    /// Whether this kernel has the feature.
    pub present: bool,
}

/// The features of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    lines: Vec<Feature>,
}

impl Features {
    /// Detects the features of Linux by setting up a small ring.
    ///
    /// # Errors
    /// [`SetupError`] if a ring cannot be set up.
    pub fn detect() -> Result<Self, SetupError> {
        Self::detect_on(Rc::new(Linux))
    }

    /// Detects the features of the given kernel.
    ///
    /// # Errors
    /// Same as [`detect`](Self::detect).
    pub fn detect_on(kernel: Rc<dyn Kernel>) -> Result<Self, SetupError> {
        let mut ring =
            Ring::builder().kernel(kernel).entries(4).completions(8).workers(None).build()?;
        Self::of(&mut ring)
    }

    /// Detects the features of a ring's kernel. The ring must have nothing in flight.
    ///
    /// # Errors
    /// [`SetupError::Step`] if the kernel refuses a test.
    pub fn of(ring: &mut Ring) -> Result<Self, SetupError> {
        let probe = ring.probe().map_err(|e| SetupError::Step("probing the operations", e))?;
        let answers = Answers::of(ring);
        let mut lines = Vec::with_capacity(FEATURES.len());
        for row in &FEATURES {
            let present = has(ring, &probe, &answers, row.test)?;
            lines.push(Feature { name: row.name, since: row.since, buys: row.buys, present });
        }
        Ok(Self { lines })
    }

    /// Returns all features, in the order of the kernels that introduced them.
    pub fn iter(&self) -> impl Iterator<Item = &Feature> {
        self.lines.iter()
    }

    /// Returns true if the feature with this name is present, and false for an unknown name.
    pub fn has(&self, name: &str) -> bool {
        self.lines.iter().any(|line| line.name == name && line.present)
    }
}

fn has(
    ring: &mut Ring,
    probe: &Probe,
    answers: &Answers,
    test: FeatureTest,
) -> Result<bool, SetupError> {
    match test {
        Bit(bit) => Ok(ring.kernel_features().contains(bit)),
        Flag(flag) => Ok(ring.setup_flags().contains(flag)),
        Known(flag) => Ok(answers.setup_flags().contains(flag)),
        Registration(number) => Ok(answers.has_registration(number)),
        ZeroCopyReceive(flag) => Ok(answers.receive_flags() & flag != 0),
        Opcode(code) => Ok(probe.has(code)),
        Tried(entry) => try_entry(ring, entry()),
    }
}

/// Submits an entry without a file, and returns true if the kernel understands it. The kernel
/// checks an entry's fields before it looks up the file.
#[allow(unsafe_code)]
fn try_entry(ring: &mut Ring, entry: Entry) -> Result<bool, SetupError> {
    let step = |e| SetupError::Step("trying an operation", e);
    // SAFETY: the entry refers to no memory.
    unsafe { ring.push_unchecked(entry) }.expect("an empty queue has no space");
    let mut take = || -> Result<Completion, SetupError> {
        loop {
            ring.enter(Wait::For { completions: 1, timeout: None }).map_err(step)?;
            if let Some(completion) = ring.completions().next() {
                return Ok(completion);
            }
        }
    };
    let answer = take()?;
    // Even an empty zero-copy send has a notification.
    let mut last = answer;
    while last.more() {
        last = take()?;
    }
    Ok(answer.result == -rustix::io::Errno::BADF.raw_os_error())
}
