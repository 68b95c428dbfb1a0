//! A connection per message, to correct and to faulty servers.

mod common;

use annulus_load::{
    Figures, PerConnection, PerConnectionFigures, Plan, Report, SOURCE_ADDRESSES, Workload,
};
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

fn run(plan: &Plan) -> (Report, PerConnectionFigures) {
    let report = annulus_load::run(plan, &mut ()).unwrap();
    match report.figures.clone() {
        Figures::PerConnection(figures) => (report, figures),
        other => panic!("not of a connection per message: {other:?}"),
    }
}

#[test]
fn every_connection_is_made_and_verified_at_any_length() {
    let (address, _) = serve(0);
    for (connections, clients, length) in
        [(1, 1, 1), (100, 7, 1000), (30, 30, 16_384), (5, 2, 3_000_001)]
    {
        let (report, figures) = run(&plan(address, connections, clients, length));
        assert!(report.errors.is_empty(), "{length} bytes: {:?}", report.first_error);
        assert_eq!(figures.completed, connections as u64);
        let (echo, total) = (figures.echo_us, figures.total_us);
        assert!(0.0 < echo.min && echo.average <= total.average && total.p99 <= total.max);
        assert!((echo.sum / connections as f64 - echo.average).abs() < 1e-6);
        // No connection takes longer than the whole run.
        assert!(total.max <= report.seconds * 1e6, "{report:?}");
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
    let (report, figures) = run(&plan);
    assert!(figures.total_us.sum <= report.seconds * 1e6, "{report:?}");
    let product = figures.elapsed_us_per_connection * 50.0;
    assert!((product / (report.seconds * 1e6) - 1.0).abs() < 1e-9, "{report:?}");
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
    let (report, figures) = run(&plan(address, 100, 3, 500));
    let errors: Vec<_> = report.errors.into_iter().collect();
    assert_eq!((errors, figures.completed), (vec![("wrong bytes".to_owned(), 3)], 0));
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
    let (report, figures) = run(&plan(address, 20, 4, 64));
    let errors: Vec<_> = report.errors.into_iter().collect();
    assert_eq!(errors, [("connect refused".to_owned(), 4)]);
    assert_eq!((figures.completed, figures.echo_us.average), (0, 0.0));
}

#[test]
fn a_server_that_never_replies_is_a_reply_time_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut plan = plan(listener.local_addr().unwrap(), 9, 2, 64);
    plan.reply_timeout = Duration::from_millis(50);
    let errors: Vec<_> = run(&plan).0.errors.into_iter().collect();
    assert_eq!(errors, [("reply timeout".to_owned(), 2)]);
}
