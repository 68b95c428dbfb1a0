//! A server that freezes for 100 ms in each second, which an open loop detects. The tests of the
//! schedules check the exact values in virtual time. Here, over real sockets on any machine, the
//! times must be at least as long as the freeze makes them.

use super::{figures, plan};
use crate::common;
use annulus_load::{Plan, Rate, Schedule, Streams, run};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, RwLock};
use std::time::Duration;

const FREEZE_TIME: Duration = Duration::from_millis(100);

/// Answers each read, but waits while the server is frozen.
fn serve_between(mut stream: TcpStream, freeze: &RwLock<()>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let _between = freeze.read().unwrap();
        if stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

/// Starts an echo server that freezes for at least a tenth of the time: for 100 ms after every 900
/// ms.
fn serve() -> SocketAddr {
    let freeze = Arc::new(RwLock::new(()));
    std::thread::spawn({
        let freeze = Arc::clone(&freeze);
        move || loop {
            std::thread::sleep(9 * FREEZE_TIME);
            let _frozen = freeze.write().unwrap();
            std::thread::sleep(FREEZE_TIME);
        }
    });
    common::serve(move |stream| serve_between(stream, &freeze))
}

#[test]
fn open_loop_response_times_show_a_freeze_that_service_times_hide() {
    let plan = Plan {
        duration: Duration::from_secs(2),
        schedule: Schedule::open(Rate::constant(500.0)),
        ..plan(serve(), 4, 100, Streams::default())
    };
    let report = run(&plan, &mut ()).unwrap();
    let found = figures(&report);
    // One hundredth of the requests are due in the first 10 ms of a freeze, or later on a machine
    // that is too busy to freeze in time. Each of the four clients has at most one request in
    // flight during a freeze, so few service times include it.
    assert!(found.responses > 0 && report.errors.is_empty(), "{report:?}");
    let total = report.total();
    let [response, service] = [&total.response, &total.service].map(|times| times.quantile(0.99));
    assert!(response >= 81_000_000 && service <= response / 2, "{response} {service}: {report:?}");
    assert!(found.late * 20 >= found.sent, "a tenth should be due within a freeze: {report:?}");
    assert!(report.warnings.iter().any(|warning| warning.contains("late")), "{report:?}");
}
