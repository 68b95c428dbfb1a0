//! The load against servers that answer, and servers that do not: each failure is counted under its name.

use annulus_load::{Mode, Observer, Plan, Progress, Report, run};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// A server of blocking threads, one a connection; it ends with the test's process.
fn serve(talk: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || talk(stream));
        }
    });
    address
}

/// Answers every read with `reply`, until either side has had enough.
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

fn plan(address: SocketAddr, clients: usize, length: usize) -> Plan {
    let mut plan = Plan::new(address.into());
    (plan.clients, plan.length) = (clients, length);
    (plan.warm_up, plan.duration) = (Duration::from_millis(20), Duration::from_millis(150));
    plan.reply_timeout = Duration::from_secs(20);
    plan
}

/// Every kind of client.
fn modes() -> [Mode; 2] {
    [Mode::default(), Mode::Threads]
}

fn load(address: SocketAddr, clients: usize, length: usize) -> Report {
    run(&plan(address, clients, length), &mut ()).unwrap()
}

/// Runs one client of 4096 bytes against a faulty server, and expects exactly one error, of this kind.
fn expect(kind: &str, talk: fn(TcpStream)) -> Report {
    let address = serve(talk);
    let [report, _] =
        modes().map(|mode| expect_one(kind, &Plan { mode, ..plan(address, 1, 4096) }));
    report
}

fn expect_one(kind: &str, plan: &Plan) -> Report {
    let report = run(plan, &mut ()).unwrap();
    assert_eq!(report.errors.keys().collect::<Vec<_>>(), [kind], "{:?}", report.first_error);
    assert_eq!(report.errors[kind], 1);
    assert!(
        report.first_error.as_deref().unwrap().starts_with("client 0: "),
        "{:?}",
        report.first_error
    );
    report
}

#[test]
fn an_echo_has_no_errors_at_any_size() {
    let address = serve(echo);
    let sizes = [(1, 1), (1, 128), (7, 1000), (3, 65_536), (3, 65_537), (2, 3_000_001)];
    for (mode, (clients, length)) in
        modes().into_iter().flat_map(|mode| sizes.map(|size| (mode, size)))
    {
        let report = run(&Plan { mode, ..plan(address, clients, length) }, &mut ()).unwrap();
        assert!(report.errors.is_empty(), "{mode} {clients} × {length}: {:?}", report.first_error);
        assert!(report.responses > 0, "{mode} {clients} × {length}: nothing came back");
        assert_eq!(report.requests, report.responses);
    }
}

#[test]
fn pipelines_of_any_depth_are_verified() {
    let address = serve(echo);
    let depths = [(16, 128), (3, 1), (64, 4096), (8, 3_000_001)];
    for (mode, (pipeline, length)) in
        modes().into_iter().flat_map(|mode| depths.map(|depth| (mode, depth)))
    {
        let report = run(&Plan { mode, pipeline, ..plan(address, 3, length) }, &mut ()).unwrap();
        assert!(report.errors.is_empty(), "{mode} {pipeline} × {length}: {:?}", report.first_error);
        assert!(report.responses > 0, "{mode} {pipeline} × {length}: nothing came back");
    }
}

/// The server answers only once it has five messages, so fewer in flight would wait for ever, and looks for a sixth.
#[test]
fn as_many_messages_as_asked_for_are_in_flight_and_no_more() {
    let address = serve(|mut stream| {
        stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let (mut buffer, mut filled) = ([0; 501], 0);
        loop {
            match stream.read(&mut buffer[filled..]) {
                Ok(0) => return,
                Ok(count) => filled += count,
                Err(_) => {}
            }
            assert!(filled <= 500, "a sixth message came before any was answered");
            if filled == 500 {
                // Nothing more within the time-out.
                assert!(stream.read(&mut buffer[500..]).is_err());
                stream.write_all(&buffer[..500]).unwrap();
                filled = 0;
            }
        }
    });
    for mode in modes() {
        let plan = Plan { mode, pipeline: 5, ..plan(address, 2, 100) };
        // At the end of the run replies are due for whatever is in flight: always five.
        let report = run(&plan, &mut ()).unwrap();
        assert!(report.errors.is_empty(), "{mode}: {:?}", report.first_error);
        assert!(report.responses >= 10, "{mode}: {report:?}");
    }
}

#[test]
fn replies_in_the_wrong_order_are_wrong_bytes() {
    let address = serve(|mut stream| {
        let mut buffer = [0; 200];
        while stream.read_exact(&mut buffer).is_ok() {
            buffer.rotate_left(100);
            if stream.write_all(&buffer).is_err() {
                return;
            }
        }
    });
    for mode in modes() {
        expect_one("wrong bytes", &Plan { mode, pipeline: 2, ..plan(address, 1, 100) });
    }
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let address = serve(echo);
    for mode in modes() {
        let plan = Plan { mode, rate: Some(500.0), pipeline: 4, ..plan(address, 3, 100) };
        let report = run(&plan, &mut ()).unwrap();
        assert!(report.errors.is_empty(), "{mode}: {:?}", report.first_error);
        // A machine that stands still for a moment makes up for it later: the rate holds on the whole.
        let kept = report.requests_per_second / 500.0;
        assert!((0.5..=1.5).contains(&kept), "{mode}: {kept} of the rate");
    }
}

/// The server stands still for a while once: in an open loop the messages meant for that while are late.
#[test]
fn what_could_not_be_sent_in_time_counts_as_late() {
    let address = serve(|stream| {
        std::thread::sleep(Duration::from_millis(100));
        echo(stream);
    });
    for mode in modes() {
        let mut plan = Plan { mode, rate: Some(1000.0), ..plan(address, 1, 100) };
        plan.warm_up = Duration::ZERO;
        let report = run(&plan, &mut ()).unwrap();
        assert!(report.errors.is_empty(), "{mode}: {:?}", report.first_error);
        assert!(report.latency_us.p50 > 5_000.0, "{mode}: {:?}", report.latency_us);
    }
}

#[test]
fn the_figures_agree_with_each_other() {
    let report = load(serve(echo), 4, 256);
    assert_eq!(report.histogram.len(), report.responses);
    assert!(report.seconds >= 0.15, "measured {} s only", report.seconds);
    assert!((report.requests_per_second * report.seconds - report.responses as f64).abs() < 1.0);
    let latency = report.latency_us;
    let rising = [latency.min, latency.p50, latency.p90, latency.p99, latency.p99_9, latency.max];
    assert!(latency.min > 0.0 && rising.is_sorted(), "{rising:?}");
    // A closed loop: on average, clients × measured time is all spent waiting for replies.
    let waited = latency.mean * report.responses as f64;
    assert!(
        waited <= 1.3e6 * 4.0 * report.seconds,
        "{waited} µs of waiting in {} s",
        report.seconds
    );
    assert!(
        report.client_cpu_share > 0.0 && report.client_cpu_share < 1.5,
        "{}",
        report.client_cpu_share
    );
}

#[test]
fn the_observer_hears_of_the_window_and_of_progress() {
    #[derive(Default)]
    struct Notes(Vec<&'static str>, u64);
    impl Observer for Notes {
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
    let mut notes = Notes::default();
    let report = run(&plan(serve(echo), 2, 100), &mut notes).unwrap();
    assert_eq!(notes.0, ["opened", "closed"]);
    assert!(notes.1 <= report.responses);
}

#[test]
fn a_server_that_closes_after_half_a_reply() {
    let report = expect("closed early", |stream| {
        answer(stream, |stream, bytes| {
            stream.write_all(&bytes[..bytes.len() / 2])?;
            stream.shutdown(std::net::Shutdown::Write)
        });
    });
    assert!(report.first_error.unwrap().contains("of 4096 bytes"));
}

#[test]
fn a_server_that_resets() {
    // Closing with unread bytes resets the connection.
    expect("reset", |mut stream| {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
    });
}

#[test]
fn a_server_that_changes_one_byte() {
    let report = expect("wrong bytes", |stream| {
        answer(stream, |stream, bytes| {
            *bytes.last_mut().unwrap() ^= 0x20;
            stream.write_all(bytes)
        });
    });
    assert!(report.first_error.unwrap().contains("of 4096 is not what was sent"));
}

#[test]
fn a_server_that_adds_a_byte() {
    expect("too many bytes", |stream| {
        answer(stream, |stream, bytes| {
            stream.write_all(bytes)?;
            stream.write_all(b"!")
        });
    });
}

#[test]
fn a_server_that_answers_twice() {
    expect("too many bytes", |stream| {
        answer(stream, |stream, bytes| {
            stream.write_all(bytes)?;
            stream.write_all(bytes)
        });
    });
}

#[test]
fn a_server_that_adds_a_byte_at_the_very_end() {
    expect("too many bytes", |mut stream| {
        let mut buffer = vec![0; 65_536];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..count]).unwrap();
        }
        let _ = stream.write_all(b"!");
    });
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let address = serve(|stream| answer(stream, |_, _| Ok(())));
    for mode in modes() {
        let mut plan = Plan { mode, pipeline: 2, ..plan(address, 3, 10) };
        plan.reply_timeout = Duration::from_millis(100);
        plan.duration = Duration::from_secs(3600);
        let report = run(&plan, &mut ()).unwrap();
        let errors: Vec<_> = report.errors.into_iter().collect();
        assert_eq!(errors, [("reply timeout".to_owned(), 3)], "{mode}");
        assert_eq!((report.responses, report.requests), (0, 6), "{mode}");
    }
}

#[test]
fn a_server_that_never_closes_is_left_alone() {
    let address = serve(|stream| {
        let peer = stream.try_clone().unwrap();
        echo(stream);
        std::mem::forget(peer);
    });
    for mode in modes() {
        let report = run(&Plan { mode, ..plan(address, 2, 64) }, &mut ()).unwrap();
        assert!(report.errors.is_empty(), "{mode}: {:?}", report.first_error);
    }
}

#[test]
fn nobody_there() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for mode in modes() {
        let report = run(&Plan { mode, ..plan(address, 50, 64) }, &mut ()).unwrap();
        assert_eq!(report.errors.keys().collect::<Vec<_>>(), ["connect refused"], "{mode}");
        assert_eq!((report.seconds, report.responses), (0.0, 0), "{mode}");
    }
}

#[test]
fn more_clients_than_open_files_is_an_error_before_anything_happens() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hard = annulus_load::limits::room() + 1;
    if hard > annulus_load::MAX_CLIENTS {
        println!("skipped: the open-file limit is above the most clients a plan can have");
        return;
    }
    let error = run(&plan(address, hard, 64), &mut ()).unwrap_err().to_string();
    assert!(
        error.contains(&format!("{hard} connections need")) && error.contains("hard limit"),
        "{error}"
    );
}
