//! Datagrams to servers that echo, and to servers that lose, double, shuffle and change them.

use annulus_load::datagrams::{self, DatagramPlan, DatagramReport};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// A server that answers each datagram with what `answer` makes of it, given how many came before; it ends with the
/// test's process.
fn serve(answer: impl Fn(usize, &[u8]) -> Vec<Vec<u8>> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        for count in 0.. {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            for reply in answer(count, &buffer[..length]) {
                // Whoever asked may have gone.
                let _ = socket.send_to(&reply, from);
            }
        }
    });
    address
}

fn plan(address: SocketAddr, clients: usize, length: usize, window: usize) -> DatagramPlan {
    DatagramPlan {
        clients,
        length,
        window,
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(150),
        timeout: Duration::from_secs(10),
        ..DatagramPlan::new(address.into())
    }
}

fn run(plan: &DatagramPlan) -> DatagramReport {
    let report = datagrams::run(plan, &mut ()).unwrap();
    assert_eq!(report.sent, report.received + report.lost, "{report:?}");
    report
}

#[test]
fn an_echo_loses_nothing_at_any_length() {
    let address = serve(|_, bytes| vec![bytes.to_vec()]);
    for (clients, length, window) in [(1, 1, 1), (3, 7, 4), (3, 8, 4), (5, 1000, 2), (1, 65_507, 1)]
    {
        let report = run(&plan(address, clients, length, window));
        assert!(report.errors.is_empty(), "{length}: {:?}", report.first_error);
        assert!(report.received > 0 && report.lost == 0, "{length}: {report:?}");
        let odd = [report.late, report.duplicated, report.reordered, report.corrupt];
        assert_eq!(odd, [0; 4], "{length}: {report:?}");
        let megabytes = report.datagrams_per_second * length as f64 / 1e6;
        assert!((report.megabytes_per_second - megabytes).abs() < 1e-9);
        assert!(report.latency_us.p50 > 0.0);
    }
}

#[test]
fn what_leaves_as_one_is_many() {
    let address = serve(|_, bytes| vec![bytes.to_vec()]);
    for (length, window) in [(1200, 30), (7, 3), (60_000, 1)] {
        let plan = DatagramPlan { segments: true, ..plan(address, 2, length, window) };
        let report = run(&plan);
        assert!(report.errors.is_empty(), "{length}: {:?}", report.first_error);
        assert!(report.received > 2 * window as u64 && report.lost == 0, "{length}: {report:?}");
        assert_eq!([report.duplicated, report.corrupt], [0; 2], "{length}: {report:?}");
    }
}

#[test]
fn loss_is_counted_and_stalls_nobody() {
    for length in [4, 100] {
        let address = serve(|count, bytes| match count % 5 {
            4 => Vec::new(),
            _ => vec![bytes.to_vec()],
        });
        let plan =
            DatagramPlan { timeout: Duration::from_millis(10), ..plan(address, 2, length, 4) };
        let report = run(&plan);
        // One client's window alone would be used up after twenty datagrams.
        assert!(report.lost > 10 && report.received > 40, "{length}: {report:?}");
        assert!(report.errors.is_empty(), "loss is no error: {report:?}");
        assert!(report.doubts.iter().any(|doubt| doubt.contains("were lost")), "{report:?}");
    }
}

#[test]
fn what_comes_twice_counts_once() {
    let address = serve(|_, bytes| vec![bytes.to_vec(), bytes.to_vec()]);
    let report = run(&plan(address, 1, 100, 2));
    assert!(report.errors.is_empty() && report.lost == 0, "{report:?}");
    // The last ones may come when nobody listens any more.
    assert!(report.duplicated > 0 && report.duplicated <= report.received, "{report:?}");
}

#[test]
fn what_overtakes_is_told() {
    let address = serve(|count, bytes| {
        // Every second datagram is kept back until the next has been answered.
        thread_local!(static KEPT: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) });
        match count % 2 {
            0 => KEPT.with(|kept| {
                kept.replace(bytes.to_vec());
                Vec::new()
            }),
            _ => vec![bytes.to_vec(), KEPT.take()],
        }
    });
    let report =
        run(&DatagramPlan { timeout: Duration::from_millis(200), ..plan(address, 1, 64, 4) });
    assert!(report.errors.is_empty(), "{report:?}");
    assert!(report.reordered > 0 && report.reordered < report.received, "{report:?}");
}

#[test]
fn changed_bytes_lengths_and_numbers_are_corrupt() {
    let spoil: [fn(&mut Vec<u8>); 4] = [
        |bytes| bytes[99] ^= 1,
        |bytes| bytes.truncate(99),
        |bytes| bytes.push(0),
        |bytes| bytes[7] ^= 0x80,
    ];
    for (case, spoil) in spoil.into_iter().enumerate() {
        let address = serve(move |count, bytes| {
            let mut reply = bytes.to_vec();
            if count == 3 {
                spoil(&mut reply);
            }
            vec![reply]
        });
        let report =
            run(&DatagramPlan { timeout: Duration::from_millis(50), ..plan(address, 1, 100, 1) });
        assert_eq!(
            (report.corrupt, report.errors.get("corrupt")),
            (1, Some(&1)),
            "{case}: {report:?}"
        );
        // The one that was spoiled, and on a slow machine some whose echo came too late.
        assert!(report.received > 3 && report.lost >= 1, "{case}: {report:?}");
        assert_eq!(report.received + report.lost, report.sent, "{case}: {report:?}");
    }
}

#[test]
fn nobody_there() {
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let report =
        run(&DatagramPlan { timeout: Duration::from_millis(50), ..plan(address, 2, 64, 1) });
    assert_eq!(report.errors.into_iter().collect::<Vec<_>>(), [("connect refused".to_owned(), 2)]);
    assert_eq!(report.received, 0);
}

#[test]
fn a_server_that_never_answers_ends_in_time() {
    let address = serve(|_, _| Vec::new());
    let report =
        run(&DatagramPlan { timeout: Duration::from_millis(20), ..plan(address, 2, 64, 3) });
    assert!(report.errors.is_empty() && report.received == 0, "{report:?}");
    assert!(report.lost >= 6, "{report:?}");
}
