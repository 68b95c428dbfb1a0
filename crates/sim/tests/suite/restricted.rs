//! A ring that the test sets up itself, and restricts before it enables it.
#![allow(unsafe_code)]

use crate::common;

use annulus_kernel::*;
use annulus_ring::*;
use annulus_sim::Sim;
use common::errno;
use rustix::io::Errno;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

const RINGS_OFFSET: u64 = 0;
const ENTRIES_OFFSET: u64 = 0x1000_0000;
const PAGE_SIZE: usize = 4096;

/// Encodes a `struct io_uring_restriction`. Kind 0 allows a registration, 1 an operation, 2 entry
/// flags.
fn allow(kind: u16, value: u8) -> [u8; 16] {
    let mut rule = [0; 16];
    rule[..2].copy_from_slice(&kind.to_ne_bytes());
    rule[2] = value;
    rule
}

fn register(
    kernel: &dyn Kernel,
    ring: Fd,
    what: Register,
    rules: &mut [[u8; 16]],
) -> Result<u32, Errno> {
    let (arg, count) = (rules.as_mut_ptr().cast(), rules.len() as u32);
    let arg = if rules.is_empty() { std::ptr::null_mut() } else { arg };
    // SAFETY: the argument is an array of restrictions, with its length.
    let answer = unsafe { kernel.register(ring, what, arg, count) };
    answer.map_err(|error| Errno::from_io_error(&error).unwrap())
}

/// Submits the first entry of a ring, and returns its result.
fn submit(kernel: &dyn Kernel, ring: Fd, params: &RingParams, entry: Entry) -> i32 {
    let rings = kernel.map(ring, RINGS_OFFSET, PAGE_SIZE).unwrap();
    let entries = kernel.map(ring, ENTRIES_OFFSET, size_of::<Entry>()).unwrap();
    // SAFETY: the offsets come from the kernel and belong to these mappings, which it accesses only
    // in `enter`.
    unsafe {
        let word = |offset: u32| &*rings.add(offset as usize).cast::<AtomicU32>();
        let tail = word(params.sq_off.tail).load(Ordering::Relaxed);
        entries.cast::<Entry>().add((tail & (params.sq_entries - 1)) as usize).write(entry);
        word(params.sq_off.tail).store(tail.wrapping_add(1), Ordering::Release);
        let head = word(params.cq_off.head).load(Ordering::Relaxed) & (params.cq_entries - 1);
        let id = RingId { fd: ring.raw(), registered: false };
        let arg = EnterArg::default();
        assert_eq!(kernel.enter(id, 1, 1, EnterFlags::GETEVENTS, arg).unwrap(), 1);
        let completions = rings.add(params.cq_off.cqes as usize).cast::<Completion>();
        let result = completions.add(head as usize).read().result;
        kernel.unmap(rings, PAGE_SIZE);
        kernel.unmap(entries, size_of::<Entry>());
        result
    }
}

#[test]
fn restricted_ring_refuses_unlisted_operations_and_flags() {
    let quiet = EntryFlags::SKIP_SUCCESS.bits();
    let nop = Entry::new(opcode::NOP, Fd::NONE);
    let cases = [
        (nop, 0),
        (Entry { flags: EntryFlags::ASYNC.bits(), ..nop }, errno(Errno::ACCESS)),
        (Entry { opcode: opcode::CLOSE, ..nop }, errno(Errno::ACCESS)),
        (Entry { opcode: opcode::ACCEPT, flags: quiet, ..nop }, errno(Errno::BADF)),
    ];
    let kernels: [Rc<dyn Kernel>; 2] = [Sim::builder(1).build(), Rc::new(Linux)];
    for kernel in kernels {
        for (entry, answer) in cases {
            let flags = SetupFlags::R_DISABLED | SetupFlags::NO_SQARRAY | SetupFlags::SUBMIT_ALL;
            let mut params = RingParams { flags: flags.bits(), ..RingParams::default() };
            // SAFETY: the parameters refer to no memory and no other ring.
            let ring = common::owned(unsafe { kernel.setup(1, &mut params) }.unwrap());
            let operations = [allow(1, opcode::NOP), allow(1, opcode::ACCEPT)];
            let mut rules = [operations[0], operations[1], allow(2, quiet), allow(0, 12)];
            register(&*kernel, ring, Register::Restrictions, &mut rules).unwrap();
            let twice = register(&*kernel, ring, Register::Restrictions, &mut rules);
            assert_eq!(twice, Err(Errno::BUSY));
            register(&*kernel, ring, Register::EnableRings, &mut []).unwrap();
            let forbidden = register(&*kernel, ring, Register::Restrictions, &mut rules);
            assert_eq!(forbidden, Err(Errno::ACCESS));
            let allowed = register(&*kernel, ring, Register::EnableRings, &mut []);
            assert_eq!(allowed, Err(Errno::BADFD), "an enabled ring was restricted");
            assert_eq!(submit(&*kernel, ring, &params, entry), answer, "{entry:?}");
            kernel.close(ring);
        }
    }
}
