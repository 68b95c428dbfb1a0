//! Questions to the kernel that need no ring (6.18): which flags and registrations it knows.
#![allow(unsafe_code)]

use crate::params::SetupFlags;
use crate::ring::Ring;
use annulus_kernel::Register;

/// `IO_URING_QUERY_OPCODES`
const OPCODES: u32 = 0;
/// `IO_URING_QUERY_ZCRX`
const ZERO_COPY_RECEIVE: u32 = 1;

/// `struct io_uring_query_hdr`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Question {
    next: u64,
    answer: u64,
    what: u32,
    size: u32,
    result: i32,
    reserved: [u32; 3],
}

/// `struct io_uring_query_opcode`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    operations: u32,
    registrations: u32,
    features: u64,
    setup_flags: u64,
    enter_flags: u64,
    entry_flags: u64,
    queries: u32,
    padding: u32,
}

/// `struct io_uring_query_zcrx`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct ZeroCopyReceive {
    registration_flags: u64,
    area_flags: u64,
    controls: u32,
    features: u32,
    header_size: u32,
    header_alignment: u32,
    reserved: u64,
}

const _: () = assert!(size_of::<Question>() == 40);
const _: () = assert!(size_of::<Known>() == 48);
const _: () = assert!(size_of::<ZeroCopyReceive>() == 40);

/// The answers of a kernel. They are zero on a kernel that is too old for the question.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    known: Known,
    receive: ZeroCopyReceive,
}

impl Answers {
    /// Asks the kernel of a ring. A kernel without queries is asked once.
    pub(crate) fn of(ring: &Ring) -> Self {
        let known: Known = ask(ring, OPCODES);
        let has_receive = known.queries > ZERO_COPY_RECEIVE;
        let receive =
            if has_receive { ask(ring, ZERO_COPY_RECEIVE) } else { ZeroCopyReceive::default() };
        Self { known, receive }
    }

    /// Returns the set-up flags that the kernel knows.
    pub(crate) fn setup_flags(&self) -> SetupFlags {
        SetupFlags::from_bits_retain(self.known.setup_flags as u32)
    }

    /// Returns true if the kernel knows a registration (`IORING_REGISTER_*`).
    pub(crate) fn has_registration(&self, number: u32) -> bool {
        number < self.known.registrations
    }

    /// Returns the flags for registering a zero-copy receive (`ZCRX_REG_*`).
    pub(crate) fn receive_flags(&self) -> u64 {
        self.receive.registration_flags
    }
}

/// Asks one question. A newer kernel may have a longer answer, and writes what fits.
fn ask<T: Default>(ring: &Ring, what: u32) -> T {
    let mut answer = T::default();
    let mut question = Question {
        answer: (&raw mut answer) as u64,
        what,
        size: size_of::<T>() as u32,
        ..Question::default()
    };
    // A kernel without queries refuses the call; one without this query writes its refusal.
    // SAFETY: there is one question, and the kernel writes its answer, of at most the given size,
    // during the call.
    let asked = unsafe { ring.register_without_ring(Register::Query, (&raw mut question).cast()) };
    if asked.is_ok() && question.result == 0 { answer } else { T::default() }
}
