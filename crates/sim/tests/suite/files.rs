//! Files: the simulated disk gives the same results as Linux. Some tests cover what only a
//! simulated disk can do.
#![allow(unsafe_code)]

use crate::common::disk::*;
use crate::common::*;
use annulus_kernel::file::{FileCall, FileStat, OpenHow, PathAt};
use annulus_kernel::*;
use annulus_ring::*;
use annulus_sim::{Device, Disk, Sim};
use annulus_skip::skip;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::time::Duration;

const CREATE_RDWR: OFlags = OFlags::RDWR.union(OFlags::CREATE);

#[test]
fn read_returns_written_bytes() {
    on_sim_and_linux_disks(|mut fixture| {
        let file = fixture.open("a", CREATE_RDWR).unwrap();
        assert_eq!(fixture.write(file, b"hello, world", 0), Ok(12));
        assert_eq!(fixture.write(file, b"W", 7), Ok(1));
        assert_eq!(fixture.read(file, 100, 0).unwrap(), b"hello, World");
        assert_eq!(fixture.read(file, 100, 12).unwrap(), b"");
        assert_eq!(fixture.write(file, b"far", 10_000), Ok(3));
        assert_eq!(fixture.read(file, 20_000, 9_000).unwrap(), [&[0; 1000][..], b"far"].concat());
        assert_eq!(fixture.call(FileCall::SetLen { fd: file, len: 5 }), Ok(0));
        assert_eq!(fixture.read(file, 100, 0).unwrap(), b"hello");
        assert_eq!(fixture.size("a"), Ok(5));
    });
}

#[test]
fn cursor_moves_and_append_writes_at_the_end() {
    on_sim_and_linux_disks(|mut fixture| {
        let file = fixture.open("a", CREATE_RDWR).unwrap();
        (0..3).for_each(|_| assert_eq!(fixture.write(file, b"ab", CURSOR_OFFSET), Ok(2)));
        assert_eq!(fixture.read(file, 10, CURSOR_OFFSET).unwrap(), b"");
        let again = fixture.open("a", OFlags::RDWR | OFlags::APPEND).unwrap();
        assert_eq!(fixture.read(again, 4, CURSOR_OFFSET).unwrap(), b"abab");
        assert_eq!(fixture.write(again, b"!", CURSOR_OFFSET), Ok(1));
        assert_eq!(fixture.read(file, 10, CURSOR_OFFSET).unwrap(), b"!");
    });
}

#[test]
fn open_with_wrong_flags_fails() {
    on_sim_and_linux_disks(|mut fixture| {
        assert_eq!(fixture.open("a", OFlags::RDONLY), Err(Errno::NOENT));
        let file = fixture.open("a", CREATE_RDWR | OFlags::EXCL).unwrap();
        assert_eq!(fixture.open("a", CREATE_RDWR | OFlags::EXCL), Err(Errno::EXIST));
        assert_eq!(fixture.open("a/b", CREATE_RDWR), Err(Errno::NOTDIR));
        assert_eq!(fixture.open("a", OFlags::DIRECTORY), Err(Errno::NOTDIR));
        assert_eq!(fixture.open(".", OFlags::RDWR), Err(Errno::ISDIR));
        assert_eq!(fixture.open(&"x".repeat(256), CREATE_RDWR), Err(Errno::NAMETOOLONG));
        assert_eq!(fixture.write(file, b"text", 0), Ok(4));
        let reader = fixture.open("a", OFlags::RDONLY).unwrap();
        assert_eq!(fixture.write(reader, b"x", 0), Err(Errno::BADF));
        let writer = fixture.open("a", OFlags::WRONLY | OFlags::TRUNC).unwrap();
        assert_eq!(fixture.read(writer, 1, 0), Err(Errno::BADF));
        assert_eq!(fixture.read(reader, 10, 0).unwrap(), b"");
        let directory = fixture.open(".", OFlags::RDONLY).unwrap();
        assert_eq!(fixture.read(directory, 10, 0), Err(Errno::ISDIR));
    });
}

/// A slash at the end of a name demands a directory.
#[test]
fn a_file_gets_no_name_that_ends_in_a_slash() {
    on_sim_and_linux_disks(|mut fixture| {
        assert_eq!(fixture.open("a/", CREATE_RDWR), Err(Errno::ISDIR));
        assert_eq!(fixture.size("a"), Err(Errno::NOENT));
        fixture.open("a", CREATE_RDWR).unwrap();
        assert_eq!(fixture.open("a/", CREATE_RDWR), Err(Errno::ISDIR));
        assert_eq!(fixture.open("a/", OFlags::RDWR), Err(Errno::NOTDIR));
        assert_eq!(fixture.rename("a", "b/"), Err(Errno::NOTDIR));
        assert_eq!(fixture.rename("a/", "b"), Err(Errno::NOTDIR));
        assert_eq!(fixture.remove("a/", false), Err(Errno::NOTDIR));
        assert_eq!(fixture.link("a", "b/"), Err(Errno::NOENT));
        fixture.make_dir("d/").unwrap();
        fixture.rename("d/", "e/").unwrap();
        assert_eq!(fixture.open(".", OFlags::RDONLY | OFlags::CREATE), Err(Errno::ISDIR));
        fixture.remove("e/", true).unwrap();
        fixture.remove("a", false).unwrap();
    });
}

#[test]
fn names_are_created_renamed_and_removed() {
    on_sim_and_linux_disks(|mut fixture| {
        fixture.make_dir("d").unwrap();
        assert_eq!(fixture.make_dir("d"), Err(Errno::EXIST));
        let file = fixture.open("d/a", CREATE_RDWR).unwrap();
        assert_eq!(fixture.write(file, b"kept", 0), Ok(4));
        assert_eq!(fixture.remove("d", true), Err(Errno::NOTEMPTY));
        assert_eq!(fixture.remove("d", false), Err(Errno::ISDIR));
        fixture.rename("d/a", "b").unwrap();
        fixture.open("c", CREATE_RDWR).unwrap();
        fixture.rename("b", "c").unwrap();
        assert_eq!((fixture.size("b"), fixture.size("c")), (Err(Errno::NOENT), Ok(4)));
        assert_eq!(fixture.rename("d", "c"), Err(Errno::NOTDIR));
        assert_eq!(fixture.rename("d", "d/e"), Err(Errno::INVAL));
        fixture.link("c", "d/twin").unwrap();
        assert_eq!(fixture.stat("c").unwrap().links, 2);
        fixture.remove("c", false).unwrap();
        assert_eq!(fixture.remove("c", false), Err(Errno::NOENT));
        fixture.remove("d/twin", false).unwrap();
        assert_eq!(fixture.read(file, 9, 0).unwrap(), b"kept", "an open file ended with its name");
        assert_eq!(fixture.remove("d", true), Ok(()));
    });
}

#[test]
fn read_dir_lists_all_names() {
    on_sim_and_linux_disks(|mut fixture| {
        for name in ["b", "a", "c"] {
            fixture.open(name, CREATE_RDWR).unwrap();
        }
        let directory = fixture.open(".", OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
        assert_eq!(fixture.names(directory), [".", "..", "a", "b", "c"]);
        assert_eq!(fixture.names(directory), [""; 0], "entries were returned after the end");
    });
}

#[test]
fn seek_finds_holes_and_punch_makes_one() {
    const SEEK_DATA: u32 = 3;
    const SEEK_HOLE: u32 = 4;
    on_sim_and_linux_disks(|mut fixture| {
        let file = fixture.open("a", CREATE_RDWR).unwrap();
        let mib = 1 << 20;
        assert_eq!(fixture.call(FileCall::SetLen { fd: file, len: 4 * mib }), Ok(0));
        assert_eq!(fixture.write(file, &[7; 8192], mib), Ok(8192));
        let mut seek = |offset: u64, origin| {
            let mut position = u64::MAX;
            let seek =
                FileCall::Seek { fd: file, offset: offset as i64, origin, position: &mut position };
            fixture.call(seek).map(|_| position)
        };
        let data = seek(0, SEEK_DATA);
        if data == Ok(0) {
            return skip!("the file system does not report holes");
        }
        assert_eq!((data, seek(mib, SEEK_HOLE)), (Ok(mib), Ok(mib + 8192)));
        assert_eq!((seek(0, SEEK_HOLE), seek(4 * mib - 1, SEEK_HOLE)), (Ok(0), Ok(4 * mib - 1)));
        assert_eq!(
            (seek(2 * mib, SEEK_DATA), seek(4 * mib, SEEK_HOLE)),
            (Err(Errno::NXIO), Err(Errno::NXIO))
        );
        let punch = FileCall::Allocate { fd: file, mode: 3, offset: mib, len: 8192 };
        assert_eq!(fixture.call(punch), Ok(0));
        assert_eq!(fixture.read(file, 9000, mib).unwrap(), [0; 9000]);
        assert_eq!(fixture.size("a"), Ok(4 * mib));
    });
}

#[test]
fn removed_directory_refuses_listing_and_new_names() {
    on_sim_and_linux_disks(|mut fixture| {
        fixture.make_dir("d").unwrap();
        let directory = fixture.open("d", OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
        fixture.remove("d", true).unwrap();
        let mut entries = [0; 1000];
        let (buffer, len) = (entries.as_mut_ptr(), entries.len() as u32);
        let listed = fixture.call(FileCall::ReadDir { fd: directory, buffer, len });
        assert_eq!(listed, Err(Errno::NOENT));
        let at = PathAt { dir: directory, path: c"new".as_ptr() };
        assert_eq!(fixture.call(FileCall::MakeDir { at, mode: 0o700 }), Err(Errno::NOENT));
        let how = OpenHow { flags: u64::from(CREATE_RDWR.bits()), mode: 0o600, resolve: 0 };
        assert_eq!(fixture.call(FileCall::Open { at, how: &how }), Err(Errno::NOENT));
    });
}

#[test]
fn removed_directory_leads_to_its_removed_parent() {
    on_sim_and_linux_disks(|mut fixture| {
        fixture.make_dir("d").unwrap();
        fixture.make_dir("d/e").unwrap();
        assert_eq!(fixture.rename("d/e", "d"), Err(Errno::NOTEMPTY));
        let file = fixture.open("d/a", CREATE_RDWR).unwrap();
        assert_eq!(fixture.rename("d/a", "d"), Err(Errno::NOTEMPTY));
        fixture.close(file);
        fixture.remove("d/a", false).unwrap();
        let inner = fixture.open("d/e", OFlags::RDONLY).unwrap();
        fixture.remove("d/e", true).unwrap();
        fixture.remove("d", true).unwrap();
        let mut stat = FileStat::default();
        let at = PathAt { dir: inner, path: c"..".as_ptr() };
        assert_eq!(fixture.call(FileCall::Stat { at, flags: 0, stat: &raw mut stat }), Ok(0));
        assert_eq!(stat.links, 0);
        fixture.close(inner);
    });
}

#[test]
fn power_cut_keeps_synced_data_and_may_lose_the_rest() {
    let (mut fixture, sim) = Fixture::simulated(Sim::builder(1));
    let file = fixture.open("a", CREATE_RDWR).unwrap();
    assert_eq!(fixture.write(file, b"first", 0), Ok(5));
    fixture.sync(file).unwrap();
    fixture.sync_directory(".");
    assert_eq!(fixture.write(file, b"other", 0), Ok(5));
    fixture.rename("a", "b").unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let disk = sim.disk().after_power_cut(seed);
        let (mut fixture, _sim) = Fixture::simulated(Sim::builder(1).disk(disk));
        let name = if fixture.size("a").is_ok() { "a" } else { "b" };
        let file = fixture.open(name, OFlags::RDONLY).unwrap();
        let text = fixture.read(file, 10, 0).unwrap();
        assert!(text == b"first" || text == b"other", "{text:?}");
        seen.insert((name, text));
    }
    assert_eq!(seen.len(), 4, "some outcome never occurred: {seen:?}");
    fixture.sync(file).unwrap();
    fixture.sync_directory(".");
    let (mut fixture, _sim) =
        Fixture::simulated(Sim::builder(1).disk(sim.disk().after_power_cut(9)));
    let file = fixture.open("b", OFlags::RDONLY).unwrap();
    assert_eq!(fixture.read(file, 10, 0).unwrap(), b"other");
}

/// Syncing a directory makes only the names in that directory durable.
#[test]
fn a_name_may_be_lost_until_its_directory_is_synced() {
    let (mut fixture, sim) = Fixture::simulated(Sim::builder(1));
    fixture.make_dir("one").unwrap();
    fixture.make_dir("two").unwrap();
    fixture.sync_directory(".");
    for name in ["one/a", "two/b"] {
        let file = fixture.open(name, CREATE_RDWR).unwrap();
        assert_eq!(fixture.write(file, b"text", 0), Ok(4));
        fixture.sync(file).unwrap();
    }
    fixture.sync_directory("two");
    let outcome = |seed| {
        let disk = sim.disk().after_power_cut(seed);
        let (mut fixture, _sim) = Fixture::simulated(Sim::builder(1).disk(disk));
        assert_eq!(fixture.size("two/b"), Ok(4));
        fixture.size("one/a")
    };
    let lost = (0..40).filter(|seed| outcome(*seed) == Err(Errno::NOENT)).count();
    assert!((1..40).contains(&lost), "{lost} of 40 power cuts have lost the name");
    // The rename changes both directories. Syncing one of them makes it durable in both, together
    // with the earlier changes that it depends on.
    fixture.rename("one/a", "two/c").unwrap();
    fixture.sync_directory("two");
    for seed in 0..20 {
        let disk = sim.disk().after_power_cut(seed);
        let (mut fixture, _sim) = Fixture::simulated(Sim::builder(1).disk(disk));
        assert_eq!((fixture.size("one/a"), fixture.size("two/c")), (Err(Errno::NOENT), Ok(4)));
    }
}

/// `one` and `other` are open when a sync fails. `late` is opened after `one` has reported the
/// failure.
#[test]
fn a_failed_sync_is_reported_once_per_open_file() {
    let (mut fixture, sim) = Fixture::simulated(Sim::builder(1));
    let [one, other] = [(); 2].map(|()| fixture.open("a", CREATE_RDWR).unwrap());
    fixture.write(one, b"text", 0).unwrap();
    sim.set_device(Device { sync_errors: 1000, ..Device::default() });
    assert_eq!(fixture.sync(one), Err(Errno::IO));
    sim.set_device(Device::default());
    let late = fixture.open("a", CREATE_RDWR).unwrap();
    assert_eq!((fixture.sync(one), fixture.sync(one)), (Ok(()), Ok(())));
    assert_eq!((fixture.sync(other), fixture.sync(other)), (Err(Errno::IO), Ok(())));
    assert_eq!(fixture.sync(late), Ok(()), "an error from before the open was reported again");
    assert_eq!(fixture.read(one, 10, 0).unwrap(), b"text", "the cache has lost the bytes");
}

#[test]
fn a_device_fails_reads_writes_and_syncs_at_the_given_rates() {
    let (mut fixture, sim) = Fixture::simulated(Sim::builder(1));
    let file = fixture.open("a", CREATE_RDWR | OFlags::DSYNC).unwrap();
    assert_eq!(fixture.write(file, &[1; 4096], 0), Ok(4096));
    sim.set_device(Device { read_errors: 500, ..Device::default() });
    let failed = |fixture: &mut Fixture| {
        (0..200)
            .filter(|_| {
                sim.drop_page_cache();
                fixture.read(file, 10, 0) == Err(Errno::IO)
            })
            .count()
    };
    let reads = failed(&mut fixture);
    assert!((70..130).contains(&reads), "{reads} of 200 reads have failed");
    while fixture.read(file, 10, 0).is_err() {}
    assert_eq!(fixture.read(file, 10, 0).unwrap(), [1; 10], "a cached read needs no device");
    sim.set_device(Device { write_errors: 500, ..Device::default() });
    let writes = (0..200).filter(|_| fixture.write(file, &[2; 10], 0) == Err(Errno::IO)).count();
    assert!((70..130).contains(&writes), "{writes} of 200 writes have failed");
    assert_eq!(sim.disk().device().write_errors, 500);
}

#[test]
fn a_slow_device_has_a_tail_of_slow_operations() {
    let device = Device { jitter: Duration::from_millis(10), ..Device::default() };
    let (mut fixture, sim) = Fixture::simulated(Sim::builder(1).disk(Disk::new(device)));
    let file = fixture.open("a", CREATE_RDWR).unwrap();
    let mut times: Vec<Duration> = (0..1000)
        .map(|_| {
            let start = sim.now();
            fixture.sync(file).unwrap();
            sim.now() - start
        })
        .collect();
    times.sort_unstable();
    let mean = times.iter().sum::<Duration>() / 1000;
    let millis = Duration::from_millis;
    assert!((millis(9)..millis(12)).contains(&mean), "the mean is {mean:?}");
    assert!(
        (millis(35)..millis(60)).contains(&times[990]),
        "one in a hundred took {:?}",
        times[990]
    );
    assert!(times[0] < millis(1) && times[500] < millis(9), "{:?}, {:?}", times[0], times[500]);
}

#[test]
fn write_to_full_disk_is_short_then_fails() {
    let disk = Disk::new(Device { capacity: 4 * 4096, ..Device::default() });
    let (mut fixture, _sim) = Fixture::simulated(Sim::builder(1).disk(disk));
    let file = fixture.open("a", CREATE_RDWR).unwrap();
    assert_eq!(fixture.write(file, &[1; 5 * 4096], 100), Ok(4 * 4096 - 100));
    assert_eq!(fixture.write(file, &[1; 10], 4 * 4096), Err(Errno::NOSPC));
    assert_eq!(fixture.write(file, &[2; 10], 0), Ok(10), "allocated pages cannot be written");
    let other = fixture.open("b", CREATE_RDWR).unwrap();
    let more = FileCall::Allocate { fd: other, mode: 0, offset: 0, len: 4096 };
    assert_eq!(fixture.call(more), Err(Errno::NOSPC));
    fixture.close(file);
    fixture.remove("a", false).unwrap();
    assert_eq!((fixture.call(more), fixture.size("b")), (Ok(0), Ok(4096)));
    assert_eq!(fixture.write(other, &[1; 4 * 4096], 0), Ok(4 * 4096));
    // These pages exist already.
    let again = FileCall::Allocate { fd: other, mode: 0, offset: 100, len: 8000 };
    assert_eq!(fixture.call(again), Ok(0));
    let far = FileCall::Allocate { fd: other, mode: 0, offset: 1 << 40, len: 4096 };
    assert_eq!(fixture.call(far), Err(Errno::NOSPC));
    assert_eq!(fixture.call(FileCall::SetLen { fd: other, len: 0 }), Ok(0));
    assert_eq!((fixture.call(far), fixture.size("b")), (Ok(0), Ok((1 << 40) + 4096)));
    let most = i64::MAX as u64;
    let beyond = FileCall::Allocate { fd: other, mode: 0, offset: most, len: most };
    assert_eq!(fixture.call(beyond), Err(Errno::FBIG));
}

#[test]
fn unaligned_direct_io_fails() {
    let (mut fixture, _sim) = Fixture::simulated(Sim::builder(1));
    let file = fixture.open("a", CREATE_RDWR | OFlags::DIRECT).unwrap();
    let memory = Mapping::anonymous(4096).unwrap();
    let write = |len, offset| FileCall::Write { fd: file, buffer: memory.as_ptr(), len, offset };
    assert_eq!(fixture.call(write(1024, 512)), Ok(1024));
    assert_eq!(fixture.call(write(100, 0)), Err(Errno::INVAL));
    assert_eq!(fixture.call(write(512, 100)), Err(Errno::INVAL));
    assert_eq!(fixture.stat("a").unwrap().direct_offset_align, 512);
}

#[test]
fn only_uncached_reads_and_syncs_take_time() {
    let long = Duration::from_secs(5);
    let device = Device { read: long, write: long, sync: long, ..Device::default() };
    let (mut fixture, sim) = Fixture::simulated(Sim::builder(1).disk(Disk::new(device)));
    let file = fixture.open("a", CREATE_RDWR).unwrap();
    assert_eq!(fixture.write(file, &[1; 100], 0), Ok(100));
    assert_eq!(fixture.read(file, 100, 0).unwrap(), [1; 100]);
    assert!(sim.now() < Duration::from_secs(1));
    fixture.sync(file).unwrap();
    assert!(sim.now() >= 2 * long && sim.now() < 3 * long);
    sim.drop_page_cache();
    let mut memory = [0; 100];
    let mut cold = |fixture: &mut Fixture, nowait| {
        let (buffer, len) = (memory.as_mut_ptr(), 100);
        fixture.now(FileCall::Read { fd: file, buffer, len, offset: 0, nowait })
    };
    assert_eq!(
        cold(&mut fixture, true),
        Err(Errno::AGAIN),
        "an uncached read succeeded without waiting"
    );
    assert!(sim.now() < 3 * long);
    assert_eq!(cold(&mut fixture, false), Ok(100));
    assert!(sim.now() >= 3 * long);
    assert_eq!(cold(&mut fixture, true), Ok(100));
    assert!(sim.now() < 4 * long);
}

#[test]
fn ring_sync_does_not_delay_other_operations() {
    let device = Device { sync: Duration::from_secs(1), ..Device::default() };
    let (mut fixture, sim) = Fixture::simulated(Sim::builder(1).disk(Disk::new(device)));
    let file = fixture.open("a", CREATE_RDWR).unwrap();
    let (client, server) = fixture.host.pair();
    let mut memory = [0u8; 8];
    let sync = FileCall::Sync { fd: file, data_only: false };
    fixture.host.push(1, op::file_entry(&sync).unwrap());
    let (fd, buffer) = (server, memory.as_mut_ptr());
    fixture.host.push(2, op::Recv { fd, buffer, len: 8 }.entry());
    fixture.host.push(3, send(client, b"quick", WAITALL_FLAGS));
    fixture.host.push(4, cancel(1));
    assert_eq!(fixture.host.wait_for_user_data(2).result, 5);
    assert_eq!(
        fixture.host.wait_for_user_data(4).result,
        errno(Errno::ALREADY),
        "a call at the device was interrupted"
    );
    assert!(sim.now() < Duration::from_millis(500));
    fixture.close(file);
    assert_eq!(fixture.host.wait_for_user_data(1).result, 0);
    assert!(sim.now() >= Duration::from_secs(1));
    let file = fixture.open("a", OFlags::RDONLY).unwrap();
    let before = sim.now();
    assert_eq!(fixture.now(FileCall::Sync { fd: file, data_only: true }), Ok(0));
    assert!(sim.now() - before >= Duration::from_secs(1));
}

#[test]
fn write_to_memory_of_waiting_read_panics() {
    let (mut fixture, sim) = Fixture::simulated(Sim::builder(1));
    let file = fixture.open("a", CREATE_RDWR).unwrap();
    assert_eq!(fixture.write(file, &[1; 100], 0), Ok(100));
    fixture.sync(file).unwrap();
    sim.drop_page_cache();
    let mut memory = vec![0u8; 100];
    let (buffer, len) = (memory.as_mut_ptr(), 100);
    let read = FileCall::Read { fd: file, buffer, len, offset: 0, nowait: false };
    fixture.host.push(1, op::file_entry(&read).unwrap());
    fixture.host.ring.enter(Wait::No).unwrap();
    // SAFETY: the memory is mapped. The write breaks the contract on purpose; no other thread
    // accesses it.
    unsafe { buffer.write(0) };
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sim.check()));
    assert!(seen.is_err());
    std::mem::forget((fixture, memory));
}

#[test]
fn closed_file_leaves_nothing_open() {
    let (mut fixture, sim) = Fixture::simulated(Sim::builder(1));
    let file = fixture.open("a", CREATE_RDWR).unwrap();
    assert_eq!(fixture.stat("a").map(|stat: FileStat| stat.size), Ok(0));
    fixture.close(file);
    drop(fixture);
    assert_eq!(sim.leftovers(), [""; 0]);
}
