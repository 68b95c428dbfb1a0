//! File calls on each driver.

mod common;

use annulus_driver::FileStart::{Early, Isolated, WithTurn};
use annulus_driver::{Driver, Wait};
use annulus_kernel::file::FileCall;
use annulus_skip::skip;
use common::{Rig, on_each_driver};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn every_second_call_for_a_device_is_submitted_before_the_turn() {
    on_each_driver(|rig| {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mut bytes = [[0; 4]; 5];
        let call = |bytes: &mut [u8; 4]| FileCall::Read {
            fd: file.as_raw_fd(),
            buffer: bytes.as_mut_ptr(),
            len: 4,
            offset: 0,
            nowait: false,
        };
        let calls: Vec<FileCall> = bytes.iter_mut().map(call).collect();
        let on_a_ring = matches!(rig.driver, Driver::Uring(_));
        let before = rig.driver.counters().enters;
        let mut tokens = Vec::new();
        for (call, start, begun) in [
            (&calls[0], WithTurn, 0),
            (&calls[1], Isolated { group: 7 }, 0),
            (&calls[2], Early, 0),
            (&calls[3], Early, 1),
            (&calls[4], Early, 1),
        ] {
            tokens.push(rig.start_file(*call, start));
            let enters = rig.driver.counters().enters - before;
            assert_eq!(enters, if on_a_ring { begun } else { 0 });
        }
        for token in tokens {
            assert_eq!(rig.event(token).result, Ok(4));
        }
        assert!(bytes.iter().all(|bytes| bytes == b"\x7fELF"));
    });
}

#[test]
fn early_batches_are_as_large_as_what_the_device_already_has() {
    on_each_driver(|rig| {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mut bytes = [0; 32];
        let call = |byte: &mut u8| FileCall::Read {
            fd: file.as_raw_fd(),
            buffer: byte,
            len: 1,
            offset: 0,
            nowait: false,
        };
        let calls: Vec<FileCall> = bytes.iter_mut().map(call).collect();
        let on_a_ring = matches!(rig.driver, Driver::Uring(_));
        // Number of calls that the device has before, and after how many further calls it gets all
        // of them.
        let cases: [(u32, &[usize]); 5] =
            [(0, &[2, 4, 8, 16, 32]), (3, &[3, 9, 21]), (12, &[12]), (32, &[32]), (33, &[])];
        for (in_device, batches) in cases {
            let mut submitted = Vec::new();
            let mut tokens = Vec::new();
            for (started, call) in (1..).zip(&calls) {
                let enters = rig.driver.counters().enters;
                tokens.push(rig.start_file_beside(*call, Early, in_device + started));
                if rig.driver.counters().enters > enters {
                    submitted.push(started as usize);
                }
            }
            let expected = if on_a_ring { batches } else { &[] };
            assert_eq!(submitted, expected, "{in_device} calls in the device");
            for token in tokens {
                assert_eq!(rig.event(token).result, Ok(1));
            }
        }
    });
}

/// A block that direct I/O may use.
#[repr(C, align(4096))]
struct Block([u8; 4096]);

/// Creates a file without a name that is open for direct I/O, with a block of each of these bytes.
/// Returns `None` if the file system does not support that, or if calls on it need a thread.
fn direct_file(blocks: &[u8]) -> Option<std::fs::File> {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let name = format!("annulus-direct-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let bytes: Vec<u8> = blocks.iter().flat_map(|byte| [*byte; 4096]).collect();
    std::fs::write(&path, bytes).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    let direct = std::fs::File::options()
        .read(true)
        .write(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(&path);
    std::fs::remove_file(path).unwrap();
    let direct = direct.ok()?;
    let mut block = Block([0; 4096]);
    let parts = &mut [IoSliceMut::new(&mut block.0)];
    let read = rustix::io::preadv2(&direct, parts, 0, ReadWriteFlags::NOWAIT);
    (read.is_ok() || read == Err(Errno::AGAIN)).then_some(direct)
}

fn read_block(file: &std::fs::File, block: &mut Block, number: usize) -> FileCall {
    let (fd, buffer) = (file.as_raw_fd(), block.0.as_mut_ptr());
    FileCall::Read { fd, buffer, len: 4096, offset: number as u64 * 4096, nowait: false }
}

#[test]
fn direct_calls_need_no_thread_on_epoll() {
    const CALLS: usize = 1000;
    let Some(file) = direct_file(&[1, 2, 3, 4]) else {
        return skip!("the temporary directory has no direct I/O without threads");
    };
    let mut rig = Rig::epoll();
    let mut blocks: Vec<Block> = (0..CALLS).map(|_| Block([0; 4096])).collect();
    let calls = blocks.iter_mut().enumerate().map(|(at, block)| read_block(&file, block, at % 4));
    let tokens: Vec<_> = calls.map(|call| rig.start_file(call, WithTurn)).collect();
    assert_eq!(rig.driver.counters().file_direct, 0, "a call started before the turn");
    for token in tokens {
        assert_eq!(rig.event(token).result, Ok(4096));
    }
    for (at, block) in blocks.iter().enumerate() {
        assert_eq!(block.0, [1 + (at % 4) as u8; 4096]);
    }
    let counters = rig.driver.counters();
    assert!(counters.file_direct > CALLS as u64 / 2, "most calls were refused: {counters:?}");
}

#[test]
fn direct_calls_that_would_block_are_made_by_workers() {
    let Some(file) = direct_file(&[]) else {
        return skip!("the temporary directory has no direct I/O without threads");
    };
    let mut rig = Rig::epoll();
    let (written, mut read) = (Block([7; 4096]), Block([0; 4096]));
    // A write that makes the file longer allocates space.
    let (fd, buffer) = (file.as_raw_fd(), written.0.as_ptr());
    let token = rig.start_file(FileCall::Write { fd, buffer, len: 4096, offset: 0 }, Early);
    assert_eq!(rig.event(token).result, Ok(4096));
    let token = rig.start_file(read_block(&file, &mut read, 0), Early);
    assert_eq!(rig.event(token).result, Ok(4096));
    assert_eq!(read.0, written.0);
    let invalid = FileCall::Write { fd, buffer, len: 100, offset: 1 };
    let token = rig.start_file(invalid, Early);
    assert_eq!(rig.event(token).result, Err(Errno::INVAL));
}

#[test]
fn a_queued_direct_call_can_be_cancelled() {
    let Some(file) = direct_file(&[5]) else {
        return skip!("the temporary directory has no direct I/O without threads");
    };
    let mut rig = Rig::epoll();
    let (mut first, mut second) = (Block([0; 4096]), Block([0; 4096]));
    let cancelled = rig.start_file(read_block(&file, &mut first, 0), WithTurn);
    let kept = rig.start_file(read_block(&file, &mut second, 0), WithTurn);
    rig.cancel(cancelled);
    assert_eq!(rig.event(cancelled).result, Err(Errno::CANCELED));
    assert_eq!(rig.event(kept).result, Ok(4096));
    assert_eq!((first.0, second.0), ([0; 4096], [5; 4096]));
    // A call that has started ends as if it had not been cancelled.
    let started = rig.start_file(read_block(&file, &mut first, 0), WithTurn);
    let events = rig.turn(Wait::No);
    rig.cancel(started);
    let event = events.into_iter().next().unwrap_or_else(|| rig.event(started));
    assert_eq!((event.token, event.result), (started, Ok(4096)));
}
