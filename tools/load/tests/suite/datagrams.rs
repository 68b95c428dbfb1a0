//! Datagrams to servers that echo correctly, and to servers that lose, duplicate, reorder and
//! corrupt them.

use crate::common;

use annulus_load::recording::{DatagramCounts, Recording, WorkloadKind};
use annulus_load::{Datagrams, Plan};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// Starts a server that answers each datagram with those that `answer` returns for its number and
/// bytes. It ends with the test process.
fn serve(answer: impl Fn(usize, &[u8]) -> Vec<Vec<u8>> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        for count in 0.. {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            for reply in answer(count, &buffer[..length]) {
                // Sending fails if the client has ended.
                let _ = socket.send_to(&reply, from);
            }
        }
    });
    address
}

fn echo() -> SocketAddr {
    serve(|_, bytes| vec![bytes.to_vec()])
}

/// Returns a plan with which no datagram is lost, however slow the machine is.
fn plan(address: SocketAddr, clients: usize, length: usize, window: usize) -> Plan {
    Plan {
        clients,
        length,
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(150),
        reply_timeout: Duration::from_secs(10),
        ..Plan::new(address.into(), Datagrams { window, ..Datagrams::default() })
    }
}

fn run(plan: &Plan) -> (Recording, DatagramCounts) {
    let report = annulus_load::run(plan, &mut ()).unwrap();
    assert_eq!(report.run.workload, WorkloadKind::Datagrams);
    let total = report.total();
    let counts = total.datagrams.expect("a run with datagrams has no counts");
    assert_eq!(total.sent, counts.received + counts.lost, "{report:?}");
    assert!(total.answered <= counts.received, "more were answered than received: {report:?}");
    (report, counts)
}

/// Runs a plan against a new server, with longer and longer windows, until `enough` returns true: a
/// busy machine may need more time than planned.
fn run_until(
    server: impl Fn() -> SocketAddr,
    plan: impl Fn(SocketAddr) -> Plan,
    enough: impl Fn(&DatagramCounts) -> bool,
) -> (Recording, DatagramCounts) {
    let mut factor = 1;
    loop {
        let mut plan = plan(server());
        plan.duration *= factor;
        let (report, figures) = run(&plan);
        if enough(&figures) {
            return (report, figures);
        }
        factor *= 2;
        assert!(factor <= 64, "not enough in {:?}: {report:?}", plan.duration);
    }
}

#[test]
fn echo_loses_nothing_at_any_length() {
    for (clients, length, window) in [(1, 1, 1), (3, 7, 4), (3, 8, 4), (5, 1000, 2), (1, 65_507, 1)]
    {
        let plan = |address| plan(address, clients, length, window);
        let (report, figures) = run_until(echo, plan, |figures| figures.received > 0);
        assert!(report.errors.is_empty(), "{length}: {:?}", report.first_error);
        let odd = [figures.late, figures.duplicated, figures.reordered, figures.corrupt];
        assert_eq!((odd, figures.lost), ([0; 4], 0), "{length}: {report:?}");
        let total = report.total();
        assert_eq!(total.bytes_sent, total.sent * length as u64);
        assert_eq!(total.bytes_received, total.answered * length as u64);
        assert!(total.answered == 0 || total.response.min() > 0, "{report:?}");
    }
}

#[test]
fn loss_is_counted_and_does_not_stall_the_clients() {
    for length in [4, 100] {
        let server = || {
            serve(|count, bytes| match count % 5 {
                4 => Vec::new(),
                _ => vec![bytes.to_vec()],
            })
        };
        let reply_timeout = Duration::from_millis(10);
        let plan = |address| Plan { reply_timeout, ..plan(address, 2, length, 4) };
        // The server drops every fifth datagram, so lost datagrams would soon fill the windows if
        // they never timed out.
        let enough = |figures: &DatagramCounts| figures.lost > 10 && figures.received > 40;
        let (report, _) = run_until(server, plan, enough);
        assert!(report.errors.is_empty(), "loss is not an error: {report:?}");
        assert!(report.warnings.iter().any(|warning| warning.contains("were lost")), "{report:?}");
    }
}

#[test]
fn duplicate_echoes_are_counted_separately() {
    let server = || serve(|_, bytes| vec![bytes.to_vec(), bytes.to_vec()]);
    let plan = |address| plan(address, 1, 100, 2);
    let (report, figures) = run_until(server, plan, |figures| figures.duplicated > 0);
    assert!(report.errors.is_empty() && figures.lost == 0, "{report:?}");
    // The last duplicates may arrive after the client has ended.
    assert!(figures.duplicated <= figures.received, "{report:?}");
}

#[test]
fn reordered_echoes_are_counted() {
    let server = || {
        serve(|count, bytes| {
            // Every second datagram is echoed after the next one.
            thread_local!(static KEPT: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) });
            match count % 2 {
                0 => KEPT.with(|kept| {
                    kept.replace(bytes.to_vec());
                    Vec::new()
                }),
                _ => vec![bytes.to_vec(), KEPT.take()],
            }
        })
    };
    let reply_timeout = Duration::from_millis(200);
    let plan = |address| Plan { reply_timeout, ..plan(address, 1, 64, 4) };
    let (report, figures) = run_until(server, plan, |figures| figures.reordered > 0);
    assert!(report.errors.is_empty(), "{report:?}");
    assert!(figures.reordered < figures.received, "{report:?}");
}

#[test]
fn changed_bytes_lengths_and_numbers_count_as_corrupt() {
    let spoil: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes[99] ^= 1,
        |bytes| bytes.truncate(99),
        |bytes| bytes.push(0),
        |bytes| bytes[7] ^= 0x80,
    ];
    for (case, spoil) in spoil.into_iter().enumerate() {
        let server = || {
            serve(move |count, bytes| {
                let mut reply = bytes.to_vec();
                if count == 3 {
                    spoil(&mut reply);
                }
                vec![reply]
            })
        };
        let reply_timeout = Duration::from_millis(50);
        let plan = |address| Plan { reply_timeout, ..plan(address, 1, 100, 1) };
        let enough = |figures: &DatagramCounts| figures.received > 3 && figures.corrupt > 0;
        let (report, figures) = run_until(server, plan, enough);
        let counted = (figures.corrupt, report.errors.get("corrupt"));
        assert_eq!(counted, (1, Some(&1)), "{case}: {report:?}");
        // The corrupt datagram counts as lost; on a slow machine others may be lost as well.
        assert!(figures.lost >= 1, "{case}: {report:?}");
    }
}

#[test]
fn closed_udp_port_is_connect_refused() {
    let (_bound, address) = common::closed_udp();
    let (report, figures) =
        run(&Plan { reply_timeout: Duration::from_millis(50), ..plan(address, 2, 64, 1) });
    assert_eq!(report.errors.into_iter().collect::<Vec<_>>(), [("connect refused".to_owned(), 2)]);
    assert_eq!(figures.received, 0);
}

#[test]
fn unanswered_datagrams_are_all_lost() {
    let reply_timeout = Duration::from_millis(20);
    let plan = |address| Plan { reply_timeout, ..plan(address, 2, 64, 3) };
    let (report, figures) =
        run_until(|| serve(|_, _| Vec::new()), plan, |figures| figures.lost >= 6);
    assert!(report.errors.is_empty() && figures.received == 0, "{report:?}");
}
