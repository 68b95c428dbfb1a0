//! Invariant 21 of `docs/ARCHITECTURE.md` for streams: latency counts from the intended start, and
//! replies are verified. The servers are correct or faulty, and each failure must be counted under
//! its own kind.

use crate::common::{self, serve};
use annulus_skip::skip;
mod connections;
mod counts;
mod freezing;

use annulus::DriverChoice;
use annulus_load::recording::{Recording, Summary};
use annulus_load::{Observer, Plan, Progress, Rate, Schedule, Streams, Turns, clock, run};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Answers every read with `reply`, until either side closes or `reply` fails.
fn answer(mut stream: TcpStream, reply: impl Fn(&mut TcpStream, &mut [u8]) -> std::io::Result<()>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if reply(&mut stream, &mut buffer[..count]).is_err() {
            return;
        }
    }
}

fn echo(stream: TcpStream) {
    answer(stream, |stream, bytes| stream.write_all(bytes));
}

fn plan(address: SocketAddr, clients: usize, length: usize, streams: Streams) -> Plan {
    Plan {
        clients,
        length,
        warm_up: Duration::from_millis(20),
        duration: Duration::from_millis(150),
        reply_timeout: Duration::from_secs(20),
        ..Plan::new(address.into(), streams)
    }
}

fn figures(report: &Recording) -> Summary {
    report.summary()
}

/// Runs a plan, for longer each time, until there is a response or an error: a busy machine may
/// need more than one window.
fn run_until_answered(mut plan: Plan) -> Recording {
    loop {
        let report = run(&plan, &mut ()).unwrap();
        if figures(&report).responses > 0 || !report.errors.is_empty() {
            return report;
        }
        plan.duration *= 2;
    }
}

/// Runs a plan, and asserts that it records no errors.
#[track_caller]
fn run_without_errors(plan: Plan) -> Recording {
    let report = run_until_answered(plan);
    assert!(report.errors.is_empty(), "{report:?}");
    report
}

/// Returns settings for each driver, with this many messages in flight.
fn on_each_driver(pipeline: usize) -> [Streams; 2] {
    let drivers = [DriverChoice::Auto, DriverChoice::Epoll];
    drivers.map(|driver| Streams { pipeline, driver, ..Streams::default() })
}

/// Runs one client per driver with messages of 4096 bytes against a faulty server, and expects one
/// error of this kind.
fn expect(kind: &str, talk: fn(TcpStream)) -> Recording {
    let address = serve(talk);
    let [report, _] =
        on_each_driver(1).map(|streams| expect_one(kind, &plan(address, 1, 4096, streams)));
    report
}

fn expect_one(kind: &str, plan: &Plan) -> Recording {
    let report = run(plan, &mut ()).unwrap();
    let errors: Vec<_> =
        report.errors.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
    assert_eq!(errors, [(kind, 1)], "{:?}", report.first_error);
    assert!(report.first_error.as_deref().unwrap().starts_with("connection 0: "), "{report:?}");
    report
}

#[test]
fn correct_echo_has_no_errors_at_any_length() {
    let address = serve(echo);
    for (clients, length) in [(1, 1), (1, 128), (7, 1000), (3, 65_536), (3, 65_537), (2, 3_000_001)]
    {
        for streams in on_each_driver(1) {
            let report = run_without_errors(plan(address, clients, length, streams));
            assert_eq!(figures(&report).requests, figures(&report).responses, "{report:?}");
        }
    }
}

#[test]
fn think_time_limits_the_message_rate() {
    let address = serve(echo);
    for streams in on_each_driver(2) {
        let began = clock::now();
        let schedule = Schedule::Closed { think: "5ms..6ms".parse().unwrap() };
        let report = run_without_errors(Plan { schedule, ..plan(address, 3, 100, streams) });
        // Each of the three clients has two slots, and each message takes at least 5 ms.
        let most = 6.0 * ((clock::now() - began).as_secs_f64() / 0.005 + 1.0);
        assert!(figures(&report).responses as f64 <= most, "at most {most} were due: {report:?}");
    }
}

#[test]
fn correct_echo_has_no_errors_at_any_pipeline_depth() {
    let address = serve(echo);
    for (pipeline, length) in [(16, 128), (3, 1), (64, 4096), (8, 3_000_001)] {
        for streams in on_each_driver(pipeline) {
            run_without_errors(plan(address, 3, length, streams));
        }
    }
}

/// The server replies only once it has five messages, so fewer in flight would stall the client. It
/// also checks that there is no sixth.
#[test]
fn pipeline_keeps_the_planned_number_of_messages_in_flight() {
    let address = serve(|mut stream| {
        stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let (mut buffer, mut filled) = ([0; 501], 0);
        loop {
            match stream.read(&mut buffer[filled..]) {
                Ok(0) => return,
                Ok(count) => filled += count,
                Err(_) => {}
            }
            assert!(filled <= 500, "a sixth message arrived before a reply");
            if filled == 500 {
                // No further byte arrives within the timeout.
                assert!(stream.read(&mut buffer[500..]).is_err());
                stream.write_all(&buffer[..500]).unwrap();
                filled = 0;
            }
        }
    });
    for streams in on_each_driver(5) {
        // Each run ends with five messages in flight, which are answered as well.
        run_without_errors(plan(address, 2, 100, streams));
    }
}

#[test]
fn swapped_replies_are_wrong_bytes() {
    let address = serve(|mut stream| {
        let mut buffer = [0; 200];
        while stream.read_exact(&mut buffer).is_ok() {
            buffer.rotate_left(100);
            if stream.write_all(&buffer).is_err() {
                return;
            }
        }
    });
    for streams in on_each_driver(2) {
        expect_one("wrong bytes", &plan(address, 1, 100, streams));
    }
}

#[test]
fn open_loop_is_never_ahead_of_its_schedule() {
    const REQUESTS_PER_SECOND: f64 = 500.0;
    let address = serve(echo);
    for streams in on_each_driver(4) {
        let began = clock::now();
        let schedule = Schedule::open(Rate::constant(REQUESTS_PER_SECOND));
        let report = run_without_errors(Plan { schedule, ..plan(address, 3, 100, streams) });
        // A closed loop would send far more messages.
        let due = REQUESTS_PER_SECOND * (clock::now() - began).as_secs_f64() + 1.0;
        assert!(
            figures(&report).responses as f64 <= due,
            "only {due} messages were due: {report:?}"
        );
    }
}

/// The server delays its first reply by 50 ms. In an open loop, all messages that are due during
/// this time are late.
#[test]
fn open_loop_latency_counts_from_the_due_time() {
    let address = serve(|mut stream| {
        let mut first = [0; 100];
        stream.read_exact(&mut first).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        stream.write_all(&first).unwrap();
        echo(stream);
    });
    for streams in on_each_driver(1) {
        let schedule = Schedule::open(Rate::constant(1000.0));
        let (warm_up, duration) = (Duration::ZERO, Duration::from_millis(500));
        let plan = Plan { warm_up, duration, schedule, ..plan(address, 1, 100, streams) };
        let report = run_without_errors(plan);
        let response = report.total().response;
        let late = response.histogram().count_between(5_000_000, u64::MAX);
        assert!(late >= 40, "only {late} replies took at least 5 ms: {report:?}");
    }
}

#[test]
fn figures_of_a_run_are_consistent() {
    let plan = plan(serve(echo), 4, 256, Streams::default());
    let report = run_without_errors(plan.clone());
    let figures = figures(&report);
    assert_eq!(report.total().response.len(), figures.responses);
    assert!(report.seconds >= plan.duration.as_secs_f64(), "{report:?}");
    let rate = figures.requests_per_second;
    assert!((rate * report.seconds - figures.responses as f64).abs() < 1.0, "{report:?}");
    let latency = figures.latency_us;
    let percentiles = latency.values().into_iter().flatten();
    let rising: Vec<_> =
        [latency.min].into_iter().chain(percentiles).chain([latency.max]).collect();
    assert!(latency.min > 0.0 && rising.is_sorted(), "{rising:?}");
    // In a closed loop, the latencies of a client do not overlap, and only the first may begin
    // before the measured time. The histogram rounds by up to 0.1 %.
    let waited = latency.mean * figures.responses as f64;
    assert!(waited <= 4.01 * (1e6 * report.seconds + latency.max), "{waited} µs: {report:?}");
    assert!(report.cpu_share() > 0.0, "{report:?}");
}

#[test]
fn observer_is_called_for_window_and_progress() {
    #[derive(Default)]
    struct RecordedCalls(Vec<&'static str>, u64);
    impl Observer for RecordedCalls {
        fn window_opened(&mut self) {
            self.0.push("opened");
        }
        fn window_closed(&mut self) {
            self.0.push("closed");
        }
        fn progress(&mut self, progress: Progress) {
            assert_eq!(self.0, ["opened"]);
            assert!(progress.elapsed <= progress.total && progress.responses >= self.1);
            self.1 = progress.responses;
        }
    }
    let mut calls = RecordedCalls::default();
    let report = run(&plan(serve(echo), 2, 100, Streams::default()), &mut calls).unwrap();
    assert_eq!(calls.0, ["opened", "closed"]);
    assert!(calls.1 <= figures(&report).responses);
}

#[test]
fn time_between_turns_does_not_count() {
    const PAUSE: Duration = Duration::from_secs(1);
    #[derive(Default)]
    struct Pauses(Vec<&'static str>);
    impl Observer for Pauses {
        fn paused(&mut self) {
            self.0.push("paused");
            std::thread::sleep(PAUSE);
        }
        fn resumed(&mut self) {
            self.0.push("resumed");
        }
    }
    for threads in [1, 2] {
        let streams = Streams { threads, ..Streams::default() };
        let mut plan = plan(serve(echo), 4, 100, streams);
        let [length, warm_up] = [20, 500].map(Duration::from_millis);
        plan.duration = 2 * length;
        plan.turns = Some(Turns { length, warm_up });
        let mut pauses = Pauses::default();
        let report = run(&plan, &mut pauses).unwrap();
        assert_eq!(pauses.0, ["paused", "resumed"]);
        let figures = figures(&report);
        assert!(figures.responses > 0 && report.seconds < 0.5, "{}", report.seconds);
        assert!(figures.latency_us.max < 5e5 && report.cpu_share() <= threads as f64);
    }
}

#[test]
fn close_after_half_a_reply_is_closed_early() {
    let report = expect("closed early", |stream| {
        answer(stream, |stream, bytes| {
            stream.write_all(&bytes[..bytes.len() / 2])?;
            stream.shutdown(std::net::Shutdown::Write)
        });
    });
    assert!(report.first_error.unwrap().contains("of 4096 bytes"));
}

#[test]
fn reset_by_the_server_is_a_reset_fault() {
    // Closing with unread bytes resets the connection.
    expect("reset", |mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
    });
}

#[test]
fn changed_byte_is_a_wrong_bytes_fault() {
    let report = expect("wrong bytes", |stream| {
        answer(stream, |stream, bytes| {
            *bytes.last_mut().unwrap() ^= 0x20;
            stream.write_all(bytes)
        });
    });
    assert!(report.first_error.unwrap().contains("of 4096 differs from the one sent"));
}

#[test]
fn byte_added_to_a_reply_is_too_many_bytes() {
    expect("too many bytes", |stream| {
        answer(stream, |stream, bytes| {
            stream.write_all(bytes)?;
            stream.write_all(b"!")
        });
    });
}

#[test]
fn duplicate_reply_is_too_many_bytes() {
    expect("too many bytes", |stream| {
        answer(stream, |stream, bytes| {
            stream.write_all(bytes)?;
            stream.write_all(bytes)
        });
    });
}

#[test]
fn byte_added_after_half_close_is_too_many_bytes() {
    expect("too many bytes", |mut stream| {
        let mut buffer = vec![0; 65_536];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..count]).unwrap();
        }
        let _ = stream.write_all(b"!");
    });
}

#[test]
fn missing_reply_is_a_reply_timeout() {
    let address = serve(|stream| answer(stream, |_, _| Ok(())));
    for streams in on_each_driver(2) {
        let mut plan = plan(address, 3, 10, streams);
        plan.reply_timeout = Duration::from_millis(100);
        plan.duration = Duration::from_secs(3600);
        let report = run(&plan, &mut ()).unwrap();
        let errors: Vec<_> = report.errors.iter().collect();
        assert_eq!(errors, [(&"reply timeout".to_owned(), &3)], "{streams:?}");
        let figures = figures(&report);
        assert_eq!((figures.responses, figures.requests), (0, 6), "{streams:?}");
    }
}

#[test]
fn server_that_never_closes_is_not_an_error() {
    let address = serve(|stream| {
        let peer = stream.try_clone().unwrap();
        echo(stream);
        std::mem::forget(peer);
    });
    for streams in on_each_driver(1) {
        run_without_errors(plan(address, 2, 64, streams));
    }
}

#[test]
fn closed_tcp_port_is_connect_refused() {
    let (_bound, address) = common::closed_tcp();
    for streams in on_each_driver(1) {
        let report = run(&plan(address, 50, 64, streams), &mut ()).unwrap();
        assert_eq!(report.errors.keys().collect::<Vec<_>>(), ["connect refused"], "{streams:?}");
        assert_eq!((report.seconds, figures(&report).responses), (0.0, 0), "{streams:?}");
    }
}

#[test]
fn clients_over_the_open_file_limit_are_rejected_before_connecting() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Other tests open and close descriptors at the same time.
    let hard = annulus_load::limits::available_connections() + 10_000;
    if hard > annulus_load::MAX_CLIENTS {
        skip!("the open-file limit allows more clients than a plan can have");
        return;
    }
    let error = run(&plan(address, hard, 64, Streams::default()), &mut ()).unwrap_err().to_string();
    assert!(
        error.contains(&format!("{hard} connections need")) && error.contains("hard limit"),
        "{error}"
    );
}
