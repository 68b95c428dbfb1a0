//! Registered memory: the simulated kernel gives the same results as Linux.
#![allow(unsafe_code)]

use crate::common::disk::*;
use crate::common::*;
use annulus_kernel::IoVec;
use annulus_kernel::file::FileCall;
use annulus_ring::*;
use annulus_sim::{Profile, Sim};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::RawFd;

const CREATE: OFlags = OFlags::RDWR.union(OFlags::CREATE);

fn set(host: &Host, table: &BufferTable, index: u32, memory: &mut [u8]) -> Result<(), Errno> {
    let vector = IoVec { base: memory.as_mut_ptr(), len: memory.len() };
    // SAFETY: each test keeps the memory longer than the operations of its ring.
    let set = unsafe { table.set(&host.ring, index, vector) };
    set.map_err(|error| errno_of(&error).unwrap())
}

fn read(fd: RawFd, into: &mut [u8]) -> Entry {
    let (buffer, len) = (into.as_mut_ptr(), into.len() as u32);
    op::file::entry(&FileCall::Read { fd, buffer, len, offset: 0, nowait: false }).unwrap()
}

fn write(fd: RawFd, from: &[u8]) -> Entry {
    let (buffer, len) = (from.as_ptr(), from.len() as u32);
    op::file::entry(&FileCall::Write { fd, buffer, len, offset: 0 }).unwrap()
}

#[test]
fn only_registered_memory_can_be_named_by_index() {
    on_both_disks(|mut fixture| {
        let fault = errno(Errno::FAULT);
        let file = fixture.open("a", CREATE).unwrap();
        let table = BufferTable::register(&fixture.host.ring, 2).unwrap();
        let mut memory = *b"what lies in a place";
        let (inside, outside) = (write(file, &memory[5..9]), write(file, b"elsewhere"));
        assert_eq!(fixture.host.once(inside.registered(1)), fault, "the index is empty");
        set(&fixture.host, &table, 1, &mut memory).unwrap();
        assert_eq!(fixture.host.once(inside.registered(1)), 4);
        assert_eq!(fixture.host.once(outside.registered(1)), fault);
        assert_eq!(fixture.host.once(inside.registered(7)), fault, "the table has two indices");
        let into = read(file, &mut memory[16..]);
        assert_eq!(fixture.host.once(into.registered(1)), 4);
        assert_eq!(&memory, b"what lies in a plies");
        let over = Entry { len: 30, ..into };
        assert_eq!(
            fixture.host.once(over.registered(1)),
            fault,
            "it ends after the registered memory"
        );
        table.clear(&fixture.host.ring, 1).unwrap();
        assert_eq!(fixture.host.once(inside.registered(1)), fault);
        fixture.close(file);
    });
}

#[test]
fn a_ring_has_one_table_and_other_indices_are_refused() {
    on_both(|host| {
        assert!(BufferTable::register(&host.ring, 0).is_err());
        let table = BufferTable::register(&host.ring, 2).unwrap();
        let twice = BufferTable::register(&host.ring, 2).unwrap_err();
        assert_eq!(twice.kind(), io::ErrorKind::ResourceBusy);
        let mut memory = [0; 8];
        assert_eq!(set(&host, &table, 2, &mut memory), Err(Errno::INVAL));
        assert_eq!(set(&host, &table, 1, &mut memory), Ok(()));
        assert_eq!(set(&host, &table, 1, &mut memory), Ok(()), "an index can be registered again");
        table.clear(&host.ring, 0).unwrap();
    });
}

#[test]
fn locked_memory_is_limited() {
    let profile = Profile { lockable: 12, ..Profile::current() };
    let (host, _) = Host::simulated(Sim::builder(1).profile(profile));
    let table = BufferTable::register(&host.ring, 4).unwrap();
    let mut memory = [0; 8];
    assert_eq!(set(&host, &table, 0, &mut memory), Ok(()));
    assert_eq!(set(&host, &table, 1, &mut memory), Err(Errno::NOMEM));
    assert_eq!(set(&host, &table, 1, &mut memory[..4]), Ok(()));
    table.clear(&host.ring, 0).unwrap();
    assert_eq!(set(&host, &table, 2, &mut memory), Ok(()));
}
