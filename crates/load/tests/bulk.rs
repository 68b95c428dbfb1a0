//! Bulk transfers over the loopback.

use annulus::DriverChoice;
use annulus_load::bulk::{self, BulkPlan};
use std::io;
use std::time::Duration;

fn plan(driver: DriverChoice, segments: bool) -> BulkPlan {
    BulkPlan { duration: Duration::from_millis(50), segments, driver, ..BulkPlan::new() }
}

#[test]
fn everything_arrives_in_one_piece_or_in_many() {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        for (length, window, segments) in [
            (1200, 136, true),
            (1200, 136, false),
            (8, 8, true),
            (65_507, 8, true),
            (9000, 1, true),
        ] {
            let plan = BulkPlan { length, window, ..plan(driver, segments) };
            let report = bulk::run(&plan).unwrap();
            assert!(report.received > 100, "{plan:?}: {report:?}");
            assert_eq!(report.lost, 0, "{plan:?}: {report:?}");
            assert!(report.time >= Duration::from_millis(40), "{report:?}");
            assert!(!report.sender_cpu.is_zero() && !report.receiver_cpu.is_zero(), "{report:?}");
        }
    }
}

#[test]
fn a_window_that_no_buffer_holds_stalls_nobody() {
    let plan = BulkPlan { length: 65_507, window: 4096, ..plan(DriverChoice::Auto, true) };
    let report = bulk::run(&plan).unwrap();
    assert!(report.received > 0, "{report:?}");
}

#[test]
fn what_cannot_be_is_told() {
    let error = bulk::run(&BulkPlan { window: 0, ..BulkPlan::new() }).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("0 datagrams unacknowledged"), "{error}");
    let error =
        bulk::run(&BulkPlan { sender_pin: Some(100_000), ..plan(DriverChoice::Auto, true) });
    assert!(error.unwrap_err().to_string().contains("100000"));
}
