//! A connection per message, to correct and to faulty servers.

use crate::common;

use annulus_load::recording::{Interval, Latencies, Recording, WorkloadKind};
use annulus_load::{PerConnection, Plan, SOURCE_ADDRESSES, Workload};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

/// A server with a blocking thread per connection; it ends with the process of the test. It flips the bits of `change` in
/// the last byte of each reply.
fn serve(change: u8) -> (SocketAddr, mpsc::Receiver<IpAddr>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, peers) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            // Fails if the test has dropped its receiver.
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

fn plan(address: SocketAddr, connections: usize, clients: usize, length: usize) -> Plan {
    let (connections, threads) = (Some(connections), 4);
    let workload = PerConnection { connections, threads, ..PerConnection::default() };
    let reply_timeout = Duration::from_secs(20);
    Plan { clients, length, reply_timeout, ..Plan::new(address.into(), workload) }
}

fn run(plan: &Plan) -> (Recording, Interval) {
    let report = annulus_load::run(plan, &mut ()).unwrap();
    assert_eq!(report.run.workload, WorkloadKind::PerConnection);
    let total = report.total();
    (report, total)
}

#[test]
fn every_connection_is_made_and_verified_at_any_length() {
    let (address, _) = serve(0);
    for (connections, clients, length) in
        [(1, 1, 1), (100, 7, 1000), (30, 30, 16_384), (5, 2, 3_000_001)]
    {
        let (report, found) = run(&plan(address, connections, clients, length));
        assert!(report.errors.is_empty(), "{length} bytes: {:?}", report.first_error);
        assert_eq!((found.answered, found.sent), (connections as u64, connections as u64));
        let bytes = (connections * length) as u64;
        assert_eq!((found.bytes_sent, found.bytes_received), (bytes, bytes));
        let (echo, total) = (&found.service, &found.response);
        assert!(0 < echo.min() && echo.mean() <= total.mean(), "{echo:?} {total:?}");
        let phases = found.phases.as_ref().unwrap();
        for (name, phase) in phases.named() {
            assert_eq!(phase.len(), connections as u64, "{name}");
        }
        let mean = |phase: &Latencies| phase.mean();
        let [connect, send, receive, _] = phases.named().map(|(_, phase)| mean(phase));
        // The reply may have come before all was accepted to be sent.
        let (parts, whole) = (connect + send + receive, total.mean());
        assert!(parts >= whole * 0.99, "{parts} of {whole} ns");
        // No connection takes longer than the whole run. The histogram rounds by up to 0.1 %.
        assert!(total.max() as f64 <= report.seconds * 1e9 * 1.001, "{report:?}");
    }
}

#[test]
fn a_single_client_takes_the_sum_of_its_connections() {
    let (address, _) = serve(0);
    let mut plan = plan(address, 50, 1, 100);
    plan.workload = Workload::PerConnection(PerConnection {
        connections: Some(50),
        ..PerConnection::default()
    });
    let (report, found) = run(&plan);
    assert!(found.response.mean() * 50.0 <= report.seconds * 1e9 * 1.001, "{report:?}");
    let last = report.intervals.last().unwrap();
    assert!((last.end() - report.seconds).abs() < 1e-9, "an interval ends with the run: {last:?}");
}

#[test]
fn connections_leave_from_several_addresses() {
    let (address, peers) = serve(0);
    run(&plan(address, 4 * SOURCE_ADDRESSES, 4, 10));
    let peers: Vec<IpAddr> = peers.try_iter().collect();
    assert_eq!(peers.len(), 4 * SOURCE_ADDRESSES);
    assert_eq!(peers.into_iter().collect::<HashSet<_>>().len(), SOURCE_ADDRESSES);
}

#[test]
fn a_wrong_byte_ends_a_client_and_is_counted() {
    let (address, _) = serve(1);
    let (report, found) = run(&plan(address, 100, 3, 500));
    let errors: Vec<_> = report.errors.into_iter().collect();
    assert_eq!((errors, found.answered), (vec![("wrong bytes".to_owned(), 3)], 0));
    assert_eq!((found.sent, found.failed), (3, 3));
    assert!(report.first_error.unwrap().contains("byte 499 of a reply of 500"));
    let doubts = &report.doubts;
    assert!(
        doubts.iter().any(|doubt| doubt == "100 of 100 connections failed or never began"),
        "{doubts:?}"
    );
}

#[test]
fn a_port_without_a_server() {
    let (_bound, address) = common::closed_tcp();
    let (report, found) = run(&plan(address, 20, 4, 64));
    let errors: Vec<_> = report.errors.into_iter().collect();
    assert_eq!(errors, [("connect refused".to_owned(), 4)]);
    assert_eq!((found.answered, found.failed, found.service.len()), (0, 4, 0));
}

#[test]
fn a_server_that_never_replies_is_a_reply_time_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut plan = plan(listener.local_addr().unwrap(), 9, 2, 64);
    plan.reply_timeout = Duration::from_millis(50);
    let errors: Vec<_> = run(&plan).0.errors.into_iter().collect();
    assert_eq!(errors, [("reply timeout".to_owned(), 2)]);
}
