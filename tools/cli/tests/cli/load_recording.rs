//! The recordings that `annulus load` writes.

use crate::common::{Finished, Scratch, Server, annulus, free_address, runtime_drivers};
use annulus_load::recording::Recording;

fn load(server: &Server, args: &[&str]) -> Finished {
    let address = server.address.to_string();
    let short = ["load", &address, "-c", "3", "-l", "64", "--warm-up", "0"];
    annulus(short.iter().chain(args))
}

#[test]
fn every_load_mode_is_recorded() {
    let server = Server::start(&[]);
    let ways = runtime_drivers().into_iter().map(|driver| vec!["--driver", driver]);
    for way in ways.chain([vec!["--threads", "2"], vec!["--rate", "500", "--pipeline", "4"]]) {
        let args = ["-d", "0.4", "--interval", "0.1", "--label", "a run", "--json", "-"];
        let finished = load(&server, &[&way[..], &args].concat());
        assert_eq!(
            (finished.code, finished.stderr.as_str()),
            (Some(0), ""),
            "{way:?}: {finished:?}"
        );
        let recording = finished.recording();
        let (total, run) = (recording.total(), &recording.run);
        let driver = way.iter().find(|word| ["epoll", "uring"].contains(word));
        assert!(driver.is_none_or(|driver| run.driver.starts_with(driver)), "{way:?}: {run:?}");
        assert!(total.answered > 0 && total.sent >= total.answered, "{way:?}: {total:?}");
        assert_eq!(total.answered, total.response.len(), "{way:?}");
        assert_eq!(total.answered, total.service.len(), "{way:?}");
        assert!(total.service.quantile(0.5) <= total.response.quantile(0.5), "{way:?}");
        assert_eq!(recording.summary().responses, finished.json()["responses"], "{way:?}");
        assert!(!recording.intervals.is_empty() && recording.intervals.len() <= 4, "{way:?}");
        let end = recording.intervals.last().unwrap().end();
        assert!(end <= recording.seconds + 1e-6, "{way:?}: {end} of {}", recording.seconds);
        assert_eq!(
            (run.label.as_deref(), run.connections, run.length),
            (Some("a run"), 3, Some(64))
        );
        assert!(run.command.contains(&"--interval".into()) && run.started > 0.0, "{run:?}");
        let text = load(&server, &[&way[..], &["-d", "0.1"]].concat()).stdout;
        assert!(text.contains("requests/s") && text.contains("service"), "{way:?}: {text}");
    }
}

/// Records and compares runs with datagrams, and with a connection per message.
#[test]
fn datagram_and_per_connection_runs_are_recorded_and_comparable() {
    let server = Server::start(&["--listen", "udp://127.0.0.1:0"]);
    let udp = format!("udp://{}", server.udp_address());
    let tcp = server.address.to_string();
    // Long enough that no datagram is given up on a slow machine.
    let datagrams = ["load", &udp, "--pipeline", "4", "--reply-timeout", "30s"];
    let connections = ["load", &tcp, "--per-connection"];
    for (name, way) in [("udp", &datagrams[..]), ("per-connection", &connections)] {
        let scratch = Scratch::new(&format!("workload-{name}"));
        let json = scratch.path(&format!("{name}.json"));
        let common = ["-c", "3", "-l", "64", "-d", "0.4", "--warm-up", "0", "--interval", "0.1"];
        let outputs = ["--label", name, "--json", &json];
        let finished = annulus(way.iter().chain(&common).chain(&outputs));
        assert_eq!((finished.code, &*finished.stderr), (Some(0), ""), "{name}: {finished:?}");
        let recording = Recording::open(&json).unwrap();
        let (total, run) = (recording.total(), &recording.run);
        assert_eq!(total.answered, total.response.len(), "{name}");
        assert_eq!((run.label.as_deref(), run.length), (Some(name), Some(64)));
        assert!(total.answered > 0 && total.bytes_sent >= 64 * total.sent, "{name}: {total:?}");
        if let Some(counts) = total.datagrams {
            assert_eq!((name, counts.received, counts.lost), ("udp", total.sent, 0));
        }
        let compared = annulus(["load", "compare", &json, &json]);
        assert_eq!((compared.code, &*compared.stderr), (Some(0), ""), "{compared:?}");
        let rate = if name == "udp" { "echoes/s" } else { "a new connection for each request" };
        assert!(finished.stdout.contains(rate), "{finished:?}");
    }
}

/// Every write to `/dev/full` fails.
#[test]
fn full_disk_is_reported_and_the_results_are_shown() {
    let server = Server::start(&[]);
    let finished = load(&server, &["-d", "0.1", "--json", "/dev/full"]);
    finished.fails_with(1, &["cannot write /dev/full", "No space left"]);
    assert!(finished.stdout.contains("requests/s"), "{finished:?}");
}

#[test]
fn zero_interval_is_refused() {
    let address = free_address().to_string();
    let load = |args: &[&str]| annulus(["load", &address].iter().chain(args));
    load(&["--interval", "0"]).fails_with(2, &["the recorded interval must be above zero"]);
}
