//! The load against servers that answer, and servers that do not: each failure is counted under its name.

use annulus_load::{Observer, Plan, Progress, Report, run};
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
    let mut plan = Plan::new(address);
    (plan.clients, plan.length) = (clients, length);
    (plan.warm_up, plan.duration) = (Duration::from_millis(20), Duration::from_millis(150));
    plan.reply_timeout = Duration::from_secs(20);
    plan
}

fn load(address: SocketAddr, clients: usize, length: usize) -> Report {
    run(&plan(address, clients, length), &mut ()).unwrap()
}

/// Runs one client of 4096 bytes against a faulty server, and expects exactly one error, of this kind.
fn expect(kind: &str, talk: fn(TcpStream)) -> Report {
    let report = load(serve(talk), 1, 4096);
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
    for (clients, length) in [(1, 1), (1, 128), (7, 1000), (3, 65_536), (3, 65_537), (2, 3_000_001)]
    {
        let report = load(address, clients, length);
        assert!(report.errors.is_empty(), "{clients} × {length}: {:?}", report.first_error);
        assert!(report.responses > 0, "{clients} × {length}: nothing came back");
        assert_eq!(report.requests, report.responses);
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
    let mut plan = plan(serve(|stream| answer(stream, |_, _| Ok(()))), 3, 10);
    plan.reply_timeout = Duration::from_millis(100);
    plan.duration = Duration::from_secs(3600);
    let report = run(&plan, &mut ()).unwrap();
    assert_eq!(report.errors.into_iter().collect::<Vec<_>>(), [("reply timeout".to_owned(), 3)]);
    assert_eq!((report.responses, report.requests), (0, 3));
}

#[test]
fn a_server_that_never_closes_is_left_alone() {
    let address = serve(|stream| {
        let peer = stream.try_clone().unwrap();
        echo(stream);
        std::mem::forget(peer);
    });
    let report = load(address, 2, 64);
    assert!(report.errors.is_empty(), "{:?}", report.first_error);
}

#[test]
fn nobody_there() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let report = load(address, 50, 64);
    assert_eq!(report.errors.keys().collect::<Vec<_>>(), ["connect refused"]);
    assert_eq!((report.seconds, report.responses), (0.0, 0));
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
