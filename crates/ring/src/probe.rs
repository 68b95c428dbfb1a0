//! The operations that a kernel reports.

const OPCODE_SUPPORTED: u16 = 1 << 0;

/// `struct io_uring_probe_op`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct ProbedOpcode {
    opcode: u8,
    reserved: u8,
    flags: u16,
    reserved2: u32,
}

/// `struct io_uring_probe` with space for every possible opcode. Opcodes are integers, because a
/// kernel may report some that this crate does not know.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Probe {
    last: u8,
    count: u8,
    reserved: u16,
    reserved2: [u32; 3],
    lines: [ProbedOpcode; Self::MAX_OPCODES as usize],
}

impl Probe {
    pub(crate) const MAX_OPCODES: u32 = 256;

    pub(crate) fn empty() -> Box<Self> {
        Box::new(Self {
            last: 0,
            count: 0,
            reserved: 0,
            reserved2: [0; 3],
            lines: [ProbedOpcode::default(); Self::MAX_OPCODES as usize],
        })
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        std::ptr::from_mut(self).cast()
    }

    /// Returns true if the kernel supports this operation.
    pub fn has(&self, opcode: u8) -> bool {
        self.supported().any(|found| found == opcode)
    }

    /// Returns the operations that the kernel supports, in ascending order.
    pub fn supported(&self) -> impl Iterator<Item = u8> + '_ {
        self.lines[..usize::from(self.count)]
            .iter()
            .filter(|l| l.flags & OPCODE_SUPPORTED != 0)
            .map(|l| l.opcode)
    }

    /// Returns the highest opcode that the kernel knows.
    pub fn last(&self) -> u8 {
        self.last
    }
}
