//! What became of each request: the counts of a run add up, and a planned number of requests is
//! sent exactly.

use super::{echo, figures, on_each_driver, plan, serve};
use annulus_load::recording::{Recording, Summary};
use annulus_load::{Arrivals, Rate, Schedule, Streams, run};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const LENGTH: usize = 100;
const SLOW_REPLY: Duration = Duration::from_millis(40);

fn open(rate: f64) -> Schedule {
    Schedule::open(Rate::constant(rate))
}

/// Asserts that each request is counted once.
#[track_caller]
fn assert_counts_add_up(report: &Recording) -> Summary {
    let summary = figures(report);
    let Summary { in_flight_at_start, sent, responses, failed, retried, cut_off, .. } = summary;
    assert_eq!(in_flight_at_start + sent, responses + failed + retried + cut_off, "{report:?}");
    summary
}

fn slow(mut stream: std::net::TcpStream) {
    let mut message = [0; LENGTH];
    while stream.read_exact(&mut message).is_ok() {
        std::thread::sleep(SLOW_REPLY);
        if stream.write_all(&message).is_err() {
            return;
        }
    }
}

#[test]
fn due_sent_answered_and_cut_off_requests_add_up() {
    let address = serve(slow);
    for streams in on_each_driver(1) {
        // Each client has a request in flight when the window opens and closes, unless the machine
        // is too busy.
        loop {
            let report = run(&plan(address, 3, LENGTH, streams), &mut ()).unwrap();
            let closed = assert_counts_add_up(&report);
            assert_eq!((closed.unsent, closed.failed), (0, 0), "{report:?}");
            if (closed.in_flight_at_start, closed.cut_off) == (3, 3) {
                break;
            }
        }

        let mut plan = plan(address, 2, LENGTH, streams);
        (plan.schedule, plan.warm_up) = (open(1000.0), Duration::ZERO);
        let report = run(&plan, &mut ()).unwrap();
        let open = assert_counts_add_up(&report);
        // The schedule starts shortly before the measured time.
        let due = (open.in_flight_at_start + open.sent + open.unsent) as f64;
        assert!(due >= report.seconds * 1000.0, "{due}: {report:?}");
        assert!(open.unsent > open.sent && open.cut_off > 0, "{report:?}");
        assert!(report.warnings.iter().any(|text| text.contains("never sent")), "{report:?}");
    }
}

/// The server never replies. The requests of a client that has ended were still due.
#[test]
fn timed_out_request_counts_as_a_latency_and_its_client_sends_no_more() {
    let address = serve(|mut stream| _ = std::io::copy(&mut stream, &mut std::io::sink()));
    for streams in on_each_driver(1) {
        let timeout = Duration::from_millis(120);
        let mut plan = plan(address, 3, LENGTH, streams);
        (plan.reply_timeout, plan.duration) = (timeout, Duration::from_secs(20));
        (plan.schedule, plan.warm_up) = (open(100.0), Duration::ZERO);
        let report = run(&plan, &mut ()).unwrap();
        let summary = assert_counts_add_up(&report);
        assert_eq!((summary.sent + summary.in_flight_at_start, summary.failed), (3, 3));
        assert!(summary.unsent > 0, "{report:?}");
        let total = report.total();
        assert_eq!((total.response.len(), total.service.len()), (3, 3), "{report:?}");
        assert!(u128::from(total.service.min()) * 1001 / 1000 >= timeout.as_nanos(), "{report:?}");
        assert_eq!(report.errors["reply timeout"], 3);
    }
}

/// A timeout after the measured time is also a failure.
#[test]
fn request_that_times_out_after_the_run_was_never_answered() {
    let address = serve(|mut stream| _ = std::io::copy(&mut stream, &mut std::io::sink()));
    let mut plan = plan(address, 3, LENGTH, Streams::default());
    plan.reply_timeout = Duration::from_secs(1);
    let report = run(&plan, &mut ()).unwrap();
    let summary = assert_counts_add_up(&report);
    assert_eq!((summary.failed, summary.cut_off, report.errors["reply timeout"]), (3, 0, 3));
    assert_eq!(report.total().response.len(), 3);
}

/// Starts a server that counts the messages it echoes, and closes each connection after `replies`
/// of them.
fn counting(replies: usize) -> (SocketAddr, Arc<AtomicU64>) {
    let received = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&received);
    let address = serve(move |mut stream| {
        let mut message = [0; LENGTH];
        for _ in 0..replies {
            if stream.read_exact(&mut message).is_err() {
                return;
            }
            counter.fetch_add(1, Relaxed);
            _ = stream.write_all(&message);
        }
    });
    (address, received)
}

#[test]
fn planned_number_of_requests_reaches_the_server() {
    let think = Schedule::Closed { think: "exp:2ms".parse().unwrap() };
    let rate = Rate::constant(20_000.0);
    let poisson = Schedule::Open { rate, arrivals: Arrivals::Poisson };
    for (requests, clients, threads, pipeline, schedule) in [
        (1, 1, 1, 1, Schedule::default()),
        (1000, 7, 1, 1, Schedule::default()),
        (1003, 7, 3, 4, Schedule::default()),
        (3, 7, 2, 1, Schedule::default()),
        (200, 5, 2, 2, think),
        (500, 5, 2, 2, poisson),
    ] {
        for streams in on_each_driver(pipeline) {
            let (address, received) = counting(usize::MAX);
            let mut plan = plan(address, clients, LENGTH, Streams { threads, ..streams });
            (plan.schedule, plan.warm_up) = (schedule.clone(), Duration::ZERO);
            (plan.requests, plan.duration) = (Some(requests), Duration::from_secs(600));
            let report = run(&plan, &mut ()).unwrap();
            let summary = assert_counts_add_up(&report);
            assert_eq!(
                (summary.sent, summary.responses, summary.unsent, received.load(Relaxed)),
                (requests, requests, 0, requests),
                "{plan:?}"
            );
            assert!(report.errors.is_empty() && report.seconds < 300.0, "{report:?}");
            assert_eq!(report.run.requests, Some(requests));
        }
    }
}

/// Each client fails after two replies, so no client remains to send the other requests.
#[test]
fn planned_number_of_requests_ends_early_without_clients() {
    let (address, received) = counting(2);
    let mut plan = plan(address, 3, LENGTH, Streams::default());
    (plan.requests, plan.duration) = (Some(1000), Duration::from_secs(600));
    plan.warm_up = Duration::ZERO;
    let report = run(&plan, &mut ()).unwrap();
    let summary = assert_counts_add_up(&report);
    assert!(summary.responses <= 6 && received.load(Relaxed) == 6, "{report:?}");
    let warnings = report.warnings.join("; ");
    assert!(warnings.contains("of 1000 requests were sent within"), "{warnings}");
    assert_eq!(warnings.contains("the load is a debug build"), cfg!(debug_assertions));
}

/// Each connection carries two requests.
#[test]
fn planned_number_of_requests_is_sent_over_new_connections() {
    let (address, _) = counting(5);
    let streams =
        Streams { reconnect: true, requests_per_connection: Some(2), ..Streams::default() };
    let mut plan = plan(address, 3, LENGTH, streams);
    (plan.requests, plan.duration) = (Some(100), Duration::from_secs(600));
    plan.warm_up = Duration::ZERO;
    let report = run(&plan, &mut ()).unwrap();
    let summary = assert_counts_add_up(&report);
    assert_eq!((summary.sent, summary.responses), (100, 100), "{report:?}");
    assert!(summary.reconnects >= 47, "{report:?}");
}

#[test]
fn time_limit_ends_a_planned_number_of_requests() {
    let address = serve(echo);
    let mut plan = plan(address, 1, LENGTH, Streams::default());
    (plan.requests, plan.schedule) = (Some(1_000_000), open(100.0));
    plan.warm_up = Duration::ZERO;
    let report = run(&plan, &mut ()).unwrap();
    let summary = assert_counts_add_up(&report);
    assert!(summary.sent < 1000 && report.warnings[0].starts_with("only "), "{report:?}");
}
