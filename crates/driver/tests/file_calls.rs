//! File calls on each driver.

mod common;

use annulus_driver::Driver;
use annulus_driver::FileStart::{Early, Isolated, WithTurn};
use annulus_kernel::file::FileCall;
use common::on_each_driver;
use std::os::fd::AsRawFd;

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
