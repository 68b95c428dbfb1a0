//! Files as the ring sees them: the simulated disk answers what Linux answers; and what only a simulation can do to one.
#![allow(unsafe_code)]

mod common;

use annulus_kernel::file::{FileCall, FileStat};
use annulus_kernel::*;
use annulus_ring::*;
use annulus_sim::{Device, Disk, Sim};
use common::disk::*;
use common::*;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::time::Duration;

const CREATE: OFlags = OFlags::RDWR.union(OFlags::CREATE);

#[test]
fn what_is_written_is_read() {
    on_both_disks(|mut home| {
        let file = home.open("a", CREATE).unwrap();
        assert_eq!(home.write(file, b"hello, world", 0), Ok(12));
        assert_eq!(home.write(file, b"W", 7), Ok(1));
        assert_eq!(home.read(file, 100, 0).unwrap(), b"hello, World");
        assert_eq!(home.read(file, 100, 12).unwrap(), b"");
        assert_eq!(home.write(file, b"far", 10_000), Ok(3));
        assert_eq!(home.read(file, 20_000, 9_000).unwrap(), [&[0; 1000][..], b"far"].concat());
        assert_eq!(home.call(FileCall::SetLen { fd: file, len: 5 }), Ok(0));
        assert_eq!(home.read(file, 100, 0).unwrap(), b"hello");
        assert_eq!(home.size("a"), Ok(5));
    });
}

#[test]
fn a_cursor_moves_and_an_appender_writes_at_the_end() {
    on_both_disks(|mut home| {
        let file = home.open("a", CREATE).unwrap();
        (0..3).for_each(|_| assert_eq!(home.write(file, b"ab", CURSOR), Ok(2)));
        assert_eq!(home.read(file, 10, CURSOR).unwrap(), b"");
        let again = home.open("a", OFlags::RDWR | OFlags::APPEND).unwrap();
        assert_eq!(home.read(again, 4, CURSOR).unwrap(), b"abab");
        assert_eq!(home.write(again, b"!", CURSOR), Ok(1));
        assert_eq!(home.read(file, 10, CURSOR).unwrap(), b"!");
    });
}

#[test]
fn files_are_opened_as_asked_or_not_at_all() {
    on_both_disks(|mut home| {
        assert_eq!(home.open("a", OFlags::RDONLY), Err(Errno::NOENT));
        let file = home.open("a", CREATE | OFlags::EXCL).unwrap();
        assert_eq!(home.open("a", CREATE | OFlags::EXCL), Err(Errno::EXIST));
        assert_eq!(home.open("a/b", CREATE), Err(Errno::NOTDIR));
        assert_eq!(home.open("a", OFlags::DIRECTORY), Err(Errno::NOTDIR));
        assert_eq!(home.open(".", OFlags::RDWR), Err(Errno::ISDIR));
        assert_eq!(home.open(&"x".repeat(256), CREATE), Err(Errno::NAMETOOLONG));
        assert_eq!(home.write(file, b"text", 0), Ok(4));
        let reader = home.open("a", OFlags::RDONLY).unwrap();
        assert_eq!(home.write(reader, b"x", 0), Err(Errno::BADF));
        let writer = home.open("a", OFlags::WRONLY | OFlags::TRUNC).unwrap();
        assert_eq!(home.read(writer, 1, 0), Err(Errno::BADF));
        assert_eq!(home.read(reader, 10, 0).unwrap(), b"");
        let folder = home.open(".", OFlags::RDONLY).unwrap();
        assert_eq!(home.read(folder, 10, 0), Err(Errno::ISDIR));
    });
}

#[test]
fn names_come_move_and_go() {
    on_both_disks(|mut home| {
        home.make_dir("d").unwrap();
        assert_eq!(home.make_dir("d"), Err(Errno::EXIST));
        let file = home.open("d/a", CREATE).unwrap();
        assert_eq!(home.write(file, b"kept", 0), Ok(4));
        assert_eq!(home.remove("d", true), Err(Errno::NOTEMPTY));
        assert_eq!(home.remove("d", false), Err(Errno::ISDIR));
        home.rename("d/a", "b").unwrap();
        home.open("c", CREATE).unwrap();
        home.rename("b", "c").unwrap();
        assert_eq!((home.size("b"), home.size("c")), (Err(Errno::NOENT), Ok(4)));
        assert_eq!(home.rename("d", "c"), Err(Errno::NOTDIR));
        assert_eq!(home.rename("d", "d/e"), Err(Errno::INVAL));
        home.link("c", "d/twin").unwrap();
        assert_eq!(home.stat("c").unwrap().links, 2);
        home.remove("c", false).unwrap();
        assert_eq!(home.remove("c", false), Err(Errno::NOENT));
        home.remove("d/twin", false).unwrap();
        assert_eq!(home.read(file, 9, 0).unwrap(), b"kept", "an open file outlives its name");
        assert_eq!(home.remove("d", true), Ok(()));
    });
}

#[test]
fn a_directory_tells_its_names() {
    on_both_disks(|mut home| {
        for name in ["b", "a", "c"] {
            home.open(name, CREATE).unwrap();
        }
        let folder = home.open(".", OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
        assert_eq!(home.names(folder), [".", "..", "a", "b", "c"]);
        assert_eq!(home.names(folder), [""; 0], "the cursor is at the end");
    });
}

#[test]
fn what_was_synced_survives_a_power_cut_and_the_rest_may_not() {
    let (mut home, sim) = Home::simulated(Sim::builder(1));
    let file = home.open("a", CREATE).unwrap();
    assert_eq!(home.write(file, b"first", 0), Ok(5));
    home.sync(file).unwrap();
    assert_eq!(home.write(file, b"other", 0), Ok(5));
    home.rename("a", "b").unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let disk = sim.disk().after_power_cut(seed);
        let (mut home, _sim) = Home::simulated(Sim::builder(1).disk(disk));
        let name = if home.size("a").is_ok() { "a" } else { "b" };
        let file = home.open(name, OFlags::RDONLY).unwrap();
        let text = home.read(file, 10, 0).unwrap();
        assert!(text == b"first" || text == b"other", "{text:?}");
        seen.insert((name, text));
    }
    assert_eq!(seen.len(), 4, "each of the two may have come through: {seen:?}");
    home.sync(file).unwrap();
    let (mut home, _sim) = Home::simulated(Sim::builder(1).disk(sim.disk().after_power_cut(9)));
    let file = home.open("b", OFlags::RDONLY).unwrap();
    assert_eq!(home.read(file, 10, 0).unwrap(), b"other");
}

#[test]
fn a_full_disk_takes_what_fits() {
    let disk = Disk::new(Device { capacity: 4 * 4096, ..Device::default() });
    let (mut home, _sim) = Home::simulated(Sim::builder(1).disk(disk));
    let file = home.open("a", CREATE).unwrap();
    assert_eq!(home.write(file, &[1; 5 * 4096], 100), Ok(4 * 4096 - 100));
    assert_eq!(home.write(file, &[1; 10], 4 * 4096), Err(Errno::NOSPC));
    assert_eq!(home.write(file, &[2; 10], 0), Ok(10), "pages it has can be written");
    let other = home.open("b", CREATE).unwrap();
    let more = FileCall::Allocate { fd: other, mode: 0, offset: 0, len: 4096 };
    assert_eq!(home.call(more), Err(Errno::NOSPC));
    home.close(file);
    home.remove("a", false).unwrap();
    assert_eq!((home.call(more), home.size("b")), (Ok(0), Ok(4096)));
}

#[test]
fn direct_access_wants_whole_blocks() {
    let (mut home, _sim) = Home::simulated(Sim::builder(1));
    let file = home.open("a", CREATE | OFlags::DIRECT).unwrap();
    let memory = Mapping::anonymous(4096).unwrap();
    let write = |len, offset| FileCall::Write { fd: file, buffer: memory.as_ptr(), len, offset };
    assert_eq!(home.call(write(1024, 512)), Ok(1024));
    assert_eq!(home.call(write(100, 0)), Err(Errno::INVAL));
    assert_eq!(home.call(write(512, 100)), Err(Errno::INVAL));
    assert_eq!(home.stat("a").unwrap().direct_offset_align, 512);
}

#[test]
fn the_device_takes_its_time_and_the_cache_none() {
    let long = Duration::from_secs(5);
    let device = Device { read: long, write: long, sync: long, ..Device::default() };
    let (mut home, sim) = Home::simulated(Sim::builder(1).disk(Disk::new(device)));
    let file = home.open("a", CREATE).unwrap();
    assert_eq!(home.write(file, &[1; 100], 0), Ok(100));
    assert_eq!(home.read(file, 100, 0).unwrap(), [1; 100]);
    assert!(sim.now() < Duration::from_secs(1));
    home.sync(file).unwrap();
    assert!(sim.now() >= 2 * long && sim.now() < 3 * long);
    sim.drop_page_cache();
    let mut memory = [0; 100];
    let mut cold = |home: &mut Home, nowait| {
        let (buffer, len) = (memory.as_mut_ptr(), 100);
        home.now(FileCall::Read { fd: file, buffer, len, offset: 0, nowait })
    };
    assert_eq!(cold(&mut home, true), Err(Errno::AGAIN), "and no time was lost");
    assert!(sim.now() < 3 * long);
    assert_eq!(cold(&mut home, false), Ok(100));
    assert!(sim.now() >= 3 * long);
    assert_eq!(cold(&mut home, true), Ok(100));
    assert!(sim.now() < 4 * long);
}

#[test]
fn others_get_on_while_the_device_works_unless_the_call_was_made_on_the_loop() {
    let device = Device { sync: Duration::from_secs(1), ..Device::default() };
    let (mut home, sim) = Home::simulated(Sim::builder(1).disk(Disk::new(device)));
    let file = home.open("a", CREATE).unwrap();
    let (client, server) = home.host.pair();
    let mut memory = [0u8; 8];
    let sync = FileCall::Sync { fd: file, data_only: false };
    home.host.push(1, op::file::entry(&sync).unwrap());
    let (fd, buffer) = (server, memory.as_mut_ptr());
    home.host.push(2, op::Recv { fd, buffer, len: 8 }.entry());
    home.host.push(3, send(client, b"quick", ALL));
    home.host.push(4, cancel(1));
    assert_eq!(home.host.take_of(2).result, 5);
    assert_eq!(home.host.take_of(4).result, errno(Errno::ALREADY), "the device does not stop");
    assert!(sim.now() < Duration::from_millis(500));
    home.close(file);
    assert_eq!(home.host.take_of(1).result, 0);
    assert!(sim.now() >= Duration::from_secs(1));
    let file = home.open("a", OFlags::RDONLY).unwrap();
    let before = sim.now();
    assert_eq!(home.now(FileCall::Sync { fd: file, data_only: true }), Ok(0));
    assert!(sim.now() - before >= Duration::from_secs(1));
}

#[test]
fn memory_of_a_call_that_waits_is_watched() {
    let (mut home, sim) = Home::simulated(Sim::builder(1));
    let file = home.open("a", CREATE).unwrap();
    assert_eq!(home.write(file, &[1; 100], 0), Ok(100));
    home.sync(file).unwrap();
    sim.drop_page_cache();
    let mut memory = vec![0u8; 100];
    let (buffer, len) = (memory.as_mut_ptr(), 100);
    let read = FileCall::Read { fd: file, buffer, len, offset: 0, nowait: false };
    home.host.push(1, op::file::entry(&read).unwrap());
    home.host.ring.enter(Wait::No).unwrap();
    // SAFETY: the test writes where it must not, to its own memory.
    unsafe { buffer.write(0) };
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sim.check()));
    assert!(seen.is_err());
    std::mem::forget((home, memory));
}

#[test]
fn nothing_is_left_open() {
    let (mut home, sim) = Home::simulated(Sim::builder(1));
    let file = home.open("a", CREATE).unwrap();
    assert_eq!(home.stat("a").map(|stat: FileStat| stat.size), Ok(0));
    home.close(file);
    drop(home);
    assert_eq!(sim.leftovers(), [""; 0]);
}
