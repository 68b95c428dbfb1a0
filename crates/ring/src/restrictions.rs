//! Restrictions limit an enabled ring to some operations and registrations. They cannot be removed.

use crate::entry::EntryFlags;
use crate::error::SetupError;
use crate::ring::Ring;
use annulus_kernel::Register;

/// `IORING_RESTRICTION_*`
const ALLOW_REGISTRATION: u16 = 0;
const ALLOW_OPERATION: u16 = 1;
const ALLOW_ENTRY_FLAGS: u16 = 2;

/// The registrations that this crate uses on an enabled ring.
const USED_REGISTRATIONS: [Register; 7] = [
    Register::Eventfd,
    Register::Probe,
    Register::IowqMaxWorkers,
    Register::RingFds,
    Register::UnregisterRingFds,
    Register::BufferRing,
    Register::UnregisterBufferRing,
];

/// The entry flags that are allowed: no links, no forced workers, no direct descriptors.
const ALLOWED_ENTRY_FLAGS: EntryFlags = EntryFlags::BUFFER_SELECT.union(EntryFlags::SKIP_SUCCESS);

/// `struct io_uring_restriction`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Restriction {
    kind: u16,
    value: u8,
    reserved: u8,
    reserved2: [u32; 3],
}

const _: () = assert!(size_of::<Restriction>() == 16);

impl Restriction {
    const fn new(kind: u16, value: u8) -> Self {
        Self { kind, value, reserved: 0, reserved2: [0; 3] }
    }
}

/// Restricts a ring, which must not be enabled yet, to `operations`, the registrations that this
/// crate uses, and `ALLOWED_ENTRY_FLAGS`.
#[allow(unsafe_code)]
pub(crate) fn restrict(ring: &Ring, operations: &[u8]) -> Result<(), SetupError> {
    let mut restrictions = restrictions(operations);
    let count = restrictions.len() as u32;
    // SAFETY: the kernel reads this many restrictions during the call.
    unsafe { ring.register(Register::Restrictions, restrictions.as_mut_ptr().cast(), count) }
        .map_err(|e| SetupError::Step("restricting the ring", e))?;
    Ok(())
}

fn restrictions(operations: &[u8]) -> Vec<Restriction> {
    let operations = operations.iter().map(|&code| Restriction::new(ALLOW_OPERATION, code));
    let registrations =
        USED_REGISTRATIONS.into_iter().map(|what| Restriction::new(ALLOW_REGISTRATION, what as u8));
    let flags = std::iter::once(Restriction::new(ALLOW_ENTRY_FLAGS, ALLOWED_ENTRY_FLAGS.bits()));
    operations.chain(registrations).chain(flags).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::file_entry;
    use crate::{Entry, Wait, opcode};
    use annulus_kernel::Fd;
    use annulus_kernel::file::{FileCall, OpenHow, PathAt};
    use annulus_skip::skip;
    use rustix::io::Errno;

    /// Submits one entry and returns its result.
    #[allow(unsafe_code)]
    fn answer(ring: &mut Ring, entry: Entry) -> i32 {
        // SAFETY: the entries of these tests refer to static memory, or to none.
        unsafe { ring.push_unchecked(entry) }.expect("an empty queue has no space");
        ring.enter(Wait::For { completions: 1, timeout: None }).unwrap();
        ring.completions().next().expect("the entry had no completion").result
    }

    /// Returns an entry that opens the root directory with `O_PATH`.
    fn open() -> Entry {
        static OPEN_HOW: OpenHow = OpenHow { flags: 0o10_000_000, mode: 0, resolve: 0 };
        let at = PathAt { dir: -100, path: c"/".as_ptr() };
        file_entry(&FileCall::Open { at, how: &OPEN_HOW }).expect("opening a file has no entry")
    }

    #[test]
    #[allow(unsafe_code)]
    fn an_operation_that_is_not_listed_is_refused() {
        let Ok(mut free) = Ring::builder().build() else {
            return skip!("io_uring is blocked here");
        };
        let fd = answer(&mut free, open());
        assert!(fd >= 0, "an unrestricted ring cannot open files: {fd}");
        // SAFETY: the ring has just opened the descriptor, and only this code closes it.
        free.kernel().close(unsafe { Fd::from_raw(fd) });
        let mut ring = Ring::builder().only_operations(&[opcode::NOP]).build().unwrap();
        assert_eq!(answer(&mut ring, open()), -Errno::ACCESS.raw_os_error());
        let nop = Entry::new(opcode::NOP, Fd::NONE);
        assert_eq!(answer(&mut ring, nop), 0);
        assert_eq!(answer(&mut ring, nop.with(EntryFlags::ASYNC)), -Errno::ACCESS.raw_os_error());
        // The registrations of this crate still succeed; other restrictions do not.
        ring.probe().unwrap();
        let again = restrict(&ring, &[opcode::OPENAT2]).unwrap_err();
        assert!(again.to_string().starts_with("restricting the ring: "), "{again}");
    }

    #[test]
    fn rules_contain_each_operation_and_registration_once() {
        let restrictions = restrictions(&[opcode::RECV, opcode::SEND]);
        let of = |kind| restrictions.iter().filter(|rule| rule.kind == kind).count();
        assert_eq!([of(ALLOW_OPERATION), of(ALLOW_REGISTRATION), of(ALLOW_ENTRY_FLAGS)], [2, 7, 1]);
        assert!(
            restrictions.contains(&Restriction::new(ALLOW_REGISTRATION, 22)),
            "registering buffer rings is not allowed"
        );
    }
}
