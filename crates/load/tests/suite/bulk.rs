//! Bulk transfers over the loopback.

use annulus::DriverChoice;
use annulus_load::bulk::{self, BulkPlan};
use std::io;
use std::time::Duration;

fn plan(driver: DriverChoice, segments: bool) -> BulkPlan {
    let duration = Duration::from_millis(50);
    // No window is given up, however slow the machine: more than a window in flight may overflow a socket's buffer.
    let (ack_timeout, stall_timeout) = (Duration::from_secs(60), Duration::from_secs(60));
    BulkPlan { duration, segments, driver, ack_timeout, stall_timeout, ..BulkPlan::new() }
}

#[test]
fn nothing_is_lost_within_a_window_with_and_without_segments() {
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
            assert!(report.received > 0, "{plan:?}: {report:?}");
            assert_eq!(report.lost, 0, "{plan:?}: {report:?}");
            // The sender ends the measured time only that long after the receiver began it.
            assert!(report.time >= plan.duration, "{plan:?}: {report:?}");
            assert!(!report.sender_cpu.is_zero() && !report.receiver_cpu.is_zero(), "{report:?}");
        }
    }
}

#[test]
fn a_window_larger_than_any_buffer_does_not_stall_the_transfer() {
    let ack_timeout = BulkPlan::new().ack_timeout;
    let plan =
        BulkPlan { length: 65_507, window: 4096, ack_timeout, ..plan(DriverChoice::Auto, true) };
    let report = bulk::run(&plan).unwrap();
    assert!(report.received > 0, "{report:?}");
}

#[test]
fn an_invalid_plan_is_an_error_that_names_the_value() {
    let error = bulk::run(&BulkPlan { window: 0, ..BulkPlan::new() }).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("0 datagrams unacknowledged"), "{error}");
    let error =
        bulk::run(&BulkPlan { sender_pin: Some(100_000), ..plan(DriverChoice::Auto, true) });
    assert!(error.unwrap_err().to_string().contains("100000"));
}
