//! Visits to servers that answer, and to servers that do not.

use annulus_load::per_connection::{
    self, PerConnectionPlan, PerConnectionReport, SOURCE_ADDRESSES,
};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

/// A server of blocking threads, one a connection; it ends with the test's process. It changes the last byte of what it
/// answers by `change`.
fn serve(change: u8) -> (SocketAddr, mpsc::Receiver<IpAddr>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, peers) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            // The test may have seen enough.
            let _ = sender.send(stream.peer_addr().unwrap().ip());
            std::thread::spawn(move || answer(stream, change));
        }
    });
    (address, peers)
}

fn answer(mut stream: TcpStream, change: u8) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        buffer[count - 1] ^= change;
        if stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

fn plan(
    address: SocketAddr,
    connections: usize,
    clients: usize,
    length: usize,
) -> PerConnectionPlan {
    let reply_timeout = Duration::from_secs(20);
    PerConnectionPlan {
        connections,
        clients,
        length,
        reply_timeout,
        ..PerConnectionPlan::new(address.into())
    }
}

fn run(plan: &PerConnectionPlan) -> PerConnectionReport {
    per_connection::run(plan, &mut ()).unwrap()
}

#[test]
fn every_visit_is_made_and_verified_at_any_size() {
    let (address, _) = serve(0);
    for (connections, clients, length) in
        [(1, 1, 1), (100, 7, 1000), (30, 30, 16_384), (5, 2, 3_000_001)]
    {
        let report = run(&plan(address, connections, clients, length));
        assert!(report.errors.is_empty(), "{length} bytes: {:?}", report.first_error);
        assert_eq!(report.completed, connections as u64);
        let (echo, visit) = (report.echo_us, report.total_us);
        assert!(0.0 < echo.min && echo.average <= visit.average && visit.p99 <= visit.max);
        assert!((echo.sum / connections as f64 - echo.average).abs() < 1e-6);
        // No visit takes longer than all of them together.
        assert!(visit.max <= report.seconds * 1e6, "{report:?}");
    }
}

#[test]
fn one_visit_after_the_other_takes_the_sum() {
    let (address, _) = serve(0);
    let report = run(&PerConnectionPlan { threads: 1, ..plan(address, 50, 1, 100) });
    assert!(report.total_us.sum <= report.seconds * 1e6, "{report:?}");
    let product = report.elapsed_us_per_connection * 50.0;
    assert!((product / (report.seconds * 1e6) - 1.0).abs() < 1e-9, "{report:?}");
}

#[test]
fn visits_come_from_several_addresses() {
    let (address, peers) = serve(0);
    run(&plan(address, 4 * SOURCE_ADDRESSES, 4, 10));
    let peers: Vec<IpAddr> = peers.try_iter().collect();
    assert_eq!(peers.len(), 4 * SOURCE_ADDRESSES);
    assert_eq!(peers.into_iter().collect::<HashSet<_>>().len(), SOURCE_ADDRESSES);
}

#[test]
fn a_wrong_byte_ends_a_client_and_is_counted() {
    let (address, _) = serve(1);
    let report = run(&plan(address, 100, 3, 500));
    let errors: Vec<_> = report.errors.into_iter().collect();
    assert_eq!((errors, report.completed), (vec![("wrong bytes".to_owned(), 3)], 0));
    assert!(report.first_error.unwrap().contains("byte 499 of a reply of 500"));
    assert!(report.doubts[0].starts_with("100 of 100 connections did not come about"));
}

#[test]
fn nobody_there() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let report = run(&plan(address, 20, 4, 64));
    let errors: Vec<_> = report.errors.into_iter().collect();
    assert_eq!(errors, [("connect refused".to_owned(), 4)]);
    assert_eq!((report.completed, report.echo_us.average), (0, 0.0));
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut plan = plan(listener.local_addr().unwrap(), 9, 2, 64);
    plan.reply_timeout = Duration::from_millis(50);
    let errors: Vec<_> = run(&plan).errors.into_iter().collect();
    assert_eq!(errors, [("reply timeout".to_owned(), 2)]);
}
