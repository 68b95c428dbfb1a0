//! Registered buffers: reads and writes with them give the same results as on Linux.
#![allow(unsafe_code)]

use crate::common::disk::*;
use crate::common::*;
use annulus_kernel::IoVec;
use annulus_kernel::file::FileCall;
use annulus_ring::op::{file_entry, with_registered_buffer};
use annulus_ring::*;
use annulus_sim::{Fault, Faults, Sim};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::RawFd;

const CREATE_RDWR: OFlags = OFlags::RDWR.union(OFlags::CREATE);

fn vector(bytes: &[u8]) -> IoVec {
    IoVec { base: bytes.as_ptr(), len: bytes.len() }
}

fn read(fd: RawFd, bytes: &mut [u8], offset: u64) -> Entry {
    let (buffer, len) = (bytes.as_mut_ptr(), bytes.len() as u32);
    file_entry(&FileCall::Read { fd, buffer, len, offset, nowait: false }).unwrap()
}

fn write(fd: RawFd, bytes: &[u8], offset: u64) -> Entry {
    let (buffer, len) = (bytes.as_ptr(), bytes.len() as u32);
    file_entry(&FileCall::Write { fd, buffer, len, offset }).unwrap()
}

/// Makes a call with the buffer in a slot.
fn call(fixture: &mut Fixture, entry: Entry, slot: u16) -> i32 {
    fixture.host.submit_and_wait(with_registered_buffer(entry, slot).unwrap())
}

#[test]
fn calls_use_the_part_of_the_buffer_that_they_name() {
    on_sim_and_linux_disks(|mut fixture| {
        let file = fixture.open("a", CREATE_RDWR).unwrap();
        let mut bytes = vec![0; 8192];
        bytes[100..105].copy_from_slice(b"hello");
        let table = BufferTable::register(&fixture.host.ring, 4).unwrap();
        table.set(&fixture.host.ring, 2, vector(&bytes)).unwrap();
        assert_eq!(call(&mut fixture, write(file, &bytes[100..105], 3), 2), 5);
        assert_eq!(call(&mut fixture, read(file, &mut bytes[8000..], 0), 2), 8);
        assert_eq!(&bytes[8000..8009], b"\0\0\0hello\0");
        assert_eq!(call(&mut fixture, read(file, &mut bytes[..4], 4), 2), 4);
        assert_eq!(&bytes[..5], b"ello\0");
        // At the cursor, and beyond the end.
        assert_eq!(call(&mut fixture, read(file, &mut bytes[..2], CURSOR_OFFSET), 2), 2);
        assert_eq!(call(&mut fixture, read(file, &mut bytes, 1000), 2), 0);
    });
}

#[test]
fn calls_outside_of_a_registered_buffer_fail() {
    on_sim_and_linux_disks(|mut fixture| {
        let file = fixture.open("a", CREATE_RDWR).unwrap();
        assert_eq!(fixture.write(file, &[7; 100], 0), Ok(100));
        let mut bytes = vec![0; 3 * 4096];
        let before_table = call(&mut fixture, read(file, &mut bytes[4096..5000], 0), 0);
        assert_eq!(before_table, errno(Errno::FAULT));
        let table = BufferTable::register(&fixture.host.ring, 4).unwrap();
        table.set(&fixture.host.ring, 0, vector(&bytes[4096..8192])).unwrap();
        for (start, len, slot) in
            [(4095, 1, 0), (4000, 200, 0), (8192, 1, 0), (8000, 200, 0), (4096, 1, 1), (4096, 1, 9)]
        {
            let entry = read(file, &mut bytes[start..start + len], 0);
            let answer = call(&mut fixture, entry, slot);
            assert_eq!(answer, errno(Errno::FAULT), "{len} bytes at {start} in slot {slot}");
        }
        assert_eq!(call(&mut fixture, read(file, &mut bytes[4096..8192], 0), 0), 100);
        BufferTable::clear(&fixture.host.ring, 0).unwrap();
        let cleared = call(&mut fixture, read(file, &mut bytes[4096..8192], 0), 0);
        assert_eq!(cleared, errno(Errno::FAULT));
        // The slot takes another buffer.
        table.set(&fixture.host.ring, 0, vector(&bytes[..4096])).unwrap();
        assert_eq!(call(&mut fixture, read(file, &mut bytes[..100], 0), 0), 100);
    });
}

#[test]
fn a_table_is_registered_once_and_has_its_slots() {
    on_sim_and_linux(|host| {
        let bytes = [0; 4096];
        let number = |answer: std::io::Result<()>| answer.map_err(|error| errno_of(&error));
        let cleared = BufferTable::clear(&host.ring, 0);
        assert_eq!(number(cleared), Err(Some(Errno::NXIO)));
        let refused = BufferTable::register(&host.ring, 0).map(drop);
        assert_eq!(number(refused), Err(Some(Errno::INVAL)));
        let refused = BufferTable::register(&host.ring, 20_000).map(drop);
        assert_eq!(number(refused), Err(Some(Errno::INVAL)));
        let table = BufferTable::register(&host.ring, 4).unwrap();
        assert_eq!(table.slots(), 4);
        let again = BufferTable::register(&host.ring, 4).map(drop);
        assert_eq!(number(again), Err(Some(Errno::BUSY)));
        assert_eq!(number(table.set(&host.ring, 4, vector(&bytes))), Err(Some(Errno::INVAL)));
        assert_eq!(number(table.set(&host.ring, 3, vector(&bytes[..0]))), Err(Some(Errno::FAULT)));
        table.set(&host.ring, 3, vector(&bytes)).unwrap();
    });
}

#[test]
fn a_buffer_above_the_limit_on_pinned_memory_is_refused() {
    let faults = Faults::none().with(Fault::NoMemory, 1000);
    let (host, _sim) = Host::simulated(Sim::builder(1).faults(faults));
    let table = BufferTable::register(&host.ring, 1).unwrap();
    let refused = table.set(&host.ring, 0, vector(&[0; 10])).unwrap_err();
    assert_eq!(errno_of(&refused), Some(Errno::NOMEM));
    BufferTable::clear(&host.ring, 0).unwrap();
}
