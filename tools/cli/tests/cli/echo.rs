//! `annulus echo` on every driver, with clients that share no code with it.

use crate::common::{
    ANNULUS, PATIENCE, Scratch, Server, annulus, drivers, finish, has_python, is_in_mask, noise,
    round_trip, runtime_drivers, serving_modes, try_finish,
};
use annulus_load::clock;
use annulus_skip::skip;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Runs a check on a new server for each driver, and on servers with several workers.
fn on_every_driver(args: &[&str], check: impl Fn(&Server)) {
    for way in serving_modes() {
        println!("{way:?}");
        let server = Server::start(&[args, &way].concat());
        check(&server);
        let finished = server.stop();
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{way:?}");
    }
}

#[test]
fn a_mebibyte_in_one_write_is_echoed() {
    let bytes = noise(1 << 20);
    on_every_driver(&[], |server| {
        let mut stream = server.connect();
        let mut writer = stream.try_clone().unwrap();
        let sent = bytes.clone();
        let writing = std::thread::spawn(move || writer.write_all(&sent));
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back).unwrap();
        writing.join().unwrap().unwrap();
        assert!(back == bytes, "the echo of a mebibyte differs");
    });
}

#[test]
fn half_close_echoes_everything_before_eof() {
    let bytes = noise(200_000);
    on_every_driver(&[], |server| {
        let mut stream = server.connect();
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back == bytes, "{} of {} bytes were echoed", back.len(), bytes.len());
    });
}

#[test]
fn many_tiny_writes_are_echoed() {
    let bytes = noise(5000);
    on_every_driver(&[], |server| {
        let mut stream = server.connect();
        stream.set_nodelay(true).unwrap();
        for byte in bytes.chunks(1) {
            stream.write_all(byte).unwrap();
        }
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == bytes, "the echo of tiny writes differs");
    });
}

#[test]
fn many_concurrent_clients_are_echoed() {
    let bytes = noise(3000);
    on_every_driver(&[], |server| {
        let mut streams: Vec<_> = (0..100).map(|_| server.connect()).collect();
        for turn in 0..3 {
            streams.iter_mut().for_each(|stream| stream.write_all(&bytes[turn..]).unwrap());
            for stream in &mut streams {
                let mut back = vec![0; bytes.len() - turn];
                stream.read_exact(&mut back).unwrap();
                assert!(back == bytes[turn..]);
            }
        }
    });
}

#[test]
fn a_python_client_gets_its_bytes_back() {
    if !has_python() {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/client.py");
    on_every_driver(&[], |server| {
        let port = server.address.port().to_string();
        let finished = finish(Command::new("python3").arg(&script).args(["127.0.0.1", &port]));
        assert_eq!((finished.code, finished.stdout.lines().count()), (Some(0), 5), "{finished:?}");
    });
}

#[test]
fn ready_line_names_address_driver_and_reason() {
    for driver in drivers() {
        let server = Server::start(&["--driver", driver]);
        assert_ne!(server.address.port(), 0);
        let (_, how) = server.ready.trim_end().split_once(" (").unwrap();
        let (name, reason) = how.strip_suffix(')').unwrap().split_once(": ").unwrap();
        assert!(driver == "auto" || name == driver, "asked for {driver}: {}", server.ready);
        assert!(!reason.is_empty(), "{}", server.ready);
    }
}

#[test]
fn connection_above_the_limit_waits_until_another_closes() {
    on_every_driver(&["--max-connections", "2"], |server| {
        let (mut one, mut two) = (server.connect(), server.connect());
        round_trip(&mut one, b"one");
        round_trip(&mut two, b"two");
        let mut three = server.connect();
        three.write_all(b"three").unwrap();
        // During these round trips, the server would have answered the third connection if it had
        // accepted it.
        (0..200).for_each(|_| round_trip(&mut one, b"one again"));
        three.set_nonblocking(true).unwrap();
        let early = three.read(&mut [0; 5]);
        assert_eq!(early.unwrap_err().kind(), ErrorKind::WouldBlock);
        three.set_nonblocking(false).unwrap();
        drop(two);
        let mut back = [0; 5];
        three.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"three");
        round_trip(&mut one, b"still here");
    });
}

#[test]
fn idle_connection_is_closed_and_active_one_stays_open() {
    let limit = Duration::from_millis(400);
    on_every_driver(&["--idle-timeout", "400ms"], |server| {
        let mut last = clock::now();
        let (mut idle, mut busy) = (server.connect(), server.connect());
        round_trip(&mut idle, b"hello");
        idle.set_nonblocking(true).unwrap();
        // The active client sends until the idle one has been closed.
        while let Err(error) = idle.read(&mut [0; 1]) {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            let began = std::mem::replace(&mut last, clock::now());
            if let Err(error) = try_round_trip(&mut busy) {
                // On a busy machine, the active connection may also have been idle for too long.
                assert!(clock::now() - began >= limit, "{error}");
                busy = server.connect();
            }
        }
    });
}

/// Sends a few bytes and reads them back; fails if the connection has been closed.
fn try_round_trip(stream: &mut TcpStream) -> io::Result<()> {
    let mut back = [0; 4];
    stream.write_all(b"tick").and_then(|()| stream.read_exact(&mut back))?;
    assert_eq!(&back, b"tick");
    Ok(())
}

#[test]
fn statistics_match_the_traffic() {
    for driver in drivers() {
        let server = Server::start(&["--driver", driver, "--stats", "-"]);
        for turn in 0..5 {
            let mut stream = server.connect();
            (0..10).for_each(|_| round_trip(&mut stream, &noise(100 + turn)));
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        }
        let finished = server.stop();
        assert_eq!(finished.code, Some(0));
        let stats = finished.json();
        assert_eq!(stats["connections"], 5, "{driver}: {stats}");
        assert_eq!(stats["messages"], 50, "{driver}: {stats}");
        assert_eq!(stats["bytes"], 10 * (100 + 101 + 102 + 103 + 104), "{driver}: {stats}");
        assert_eq!(stats["aborted"], 0, "{driver}: {stats}");
        assert!(driver == "auto" || stats["driver"] == driver, "{driver}: {stats}");
        assert!(stats["cpu_seconds"].as_f64().unwrap() > 0.0, "{stats}");
        assert!(stats["peak_rss_bytes"].as_u64().unwrap() > 500_000, "{stats}");
        assert!(driver != "uring" || stats["counters"]["enters"].as_u64().unwrap() >= 1, "{stats}");
    }
}

#[test]
fn address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for driver in drivers() {
        let finished = annulus(["echo", "--driver", driver, "--listen", &address]);
        finished.fails_with(1, &[&address, "in use", "choose another port"]);
    }
}

#[test]
fn foreign_address_is_named() {
    for driver in drivers() {
        let finished = annulus(["echo", "--driver", driver, "--listen", "192.0.2.1:7000"]);
        finished.fails_with(1, &["192.0.2.1:7000", "no such address"]);
    }
}

#[test]
fn privileged_port_is_named() {
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")
        .unwrap_or_default();
    if first.trim() != "1024" {
        skip!("ports below 1024 need no permission here");
        return;
    }
    const UNPRIVILEGED: u32 = 65_534;
    for driver in drivers() {
        let mut command = Command::new(ANNULUS);
        command.args(["echo", "--driver", driver, "--listen", "127.0.0.1:81"]);
        if rustix::process::geteuid().is_root() {
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        match try_finish(&mut command) {
            Ok(finished) => finished.fails_with(1, &["127.0.0.1:81", "ermission denied", "1024"]),
            Err(error) => skip!("another user cannot run the binary: {error}"),
        }
    }
}

#[test]
fn too_low_open_file_limit_is_reported_with_both_numbers() {
    let script =
        format!("ulimit -n 64 && exec {ANNULUS} echo --listen 127.0.0.1:0 --max-connections 100");
    let finished = finish(Command::new("sh").args(["-c", &script]));
    finished.fails_with(1, &["100 connections need", "limit is 64", "at most", "ulimit -Hn"]);
}

/// The server needs further files for its metrics.
#[test]
fn advised_number_of_connections_is_accepted() {
    let command = |count: &str| {
        let script = format!(
            "ulimit -n 512 && exec {ANNULUS} echo --listen 127.0.0.1:0 --metrics 127.0.0.1:0 \
             --max-connections {count}"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command
    };
    let refused = finish(&mut command("1000"));
    refused.fails_with(1, &["1000 connections need", "limit is 512"]);
    let (_, advice) = refused.stderr.split_once("use at most ").unwrap();
    let server = Server::spawn(&mut command(advice.split(',').next().unwrap()));
    round_trip(&mut server.connect(), b"within the limit");
}

#[test]
fn soft_open_file_limit_is_raised() {
    let script =
        format!("ulimit -Sn 32 && exec {ANNULUS} echo --listen 127.0.0.1:0 --max-connections 100");
    let server = Server::spawn(Command::new("sh").args(["-c", &script]));
    let mut streams: Vec<_> = (0..100).map(|_| server.connect()).collect();
    streams.iter_mut().for_each(|stream| round_trip(stream, b"all of us"));
}

#[test]
fn client_reset_does_not_affect_other_clients() {
    on_every_driver(&[], |server| {
        let mut steady = server.connect();
        for _ in 0..20 {
            reset_connection(server.connect());
            round_trip(&mut steady, b"unimpressed");
        }
    });
}

/// Closes with unread bytes, which resets the connection.
fn reset_connection(mut stream: TcpStream) {
    stream.write_all(b"never read").unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.peek(&mut [0; 1]).unwrap();
}

#[test]
fn a_locked_down_server_serves() {
    let server = Server::start(&["--locked-down", "--driver", "auto"]);
    round_trip(&mut server.connect(), &noise(100_000));
    assert_eq!(server.stop().code, Some(0));
    annulus(["echo", "--locked-down", "--driver", "threads"])
        .fails_with(2, &["--locked-down", "threads"]);
}

#[test]
fn zero_copy_server_counts_what_the_kernel_copied() {
    if drivers().contains(&"uring") {
        let server = Server::start(&["--zero-copy-threshold=4096", "--driver=uring", "--stats=-"]);
        round_trip(&mut server.connect(), &noise(100_000));
        let counters = &server.stop().json()["counters"];
        for name in ["zero_copy_sends", "zero_copy_copied"] {
            assert!(counters[name].as_u64().unwrap() > 0, "{name}: {counters}");
        }
    }
    annulus(["echo", "--zero-copy-threshold", "0"]).fails_with(2, &["0", "1"]);
    for driver in ["threads", "epoll"] {
        annulus(["echo", "--zero-copy-threshold=1", "--driver", driver])
            .fails_with(2, &["--zero-copy-threshold 1", driver]);
    }
}

#[test]
fn busy_polling_server_serves_and_invalid_values_are_usage_errors() {
    if drivers().contains(&"uring") {
        let server = Server::start(&["--busy-poll=50", "--driver=uring"]);
        round_trip(&mut server.connect(), &noise(100_000));
        assert_eq!(server.stop().code, Some(0));
    }
    for option in ["--napi-busy-poll", "--min-wait"] {
        annulus(["echo", option, "9999999"]).fails_with(2, &["9999999", "1000000"]);
        annulus(["echo", option, "50", "--driver", "epoll"]).fails_with(2, &[option, "epoll"]);
    }
    annulus(["echo", "--busy-poll", "9999999"]).fails_with(2, &["9999999", "1000000"]);
    annulus(["echo", "--busy-poll=50", "--driver", "threads"]).fails_with(2, &["--driver threads"]);
}

/// A runtime reserves address space for its receive buffers. It counts against `ulimit -v` although
/// it uses no memory.
#[test]
fn address_space_limit_leaves_fewer_buffers_and_is_reported() {
    let limited = |more: &str| {
        let script = format!("ulimit -v 200000 && exec {ANNULUS} echo --listen 127.0.0.1:0 {more}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        command
    };
    for driver in runtime_drivers() {
        for more in ["", "--workers 2", "--listen udp://127.0.0.1:0"] {
            let mut server = Server::spawn(&mut limited(&format!("--driver {driver} {more}")));
            let warning = server.next_line();
            for part in ["receive buffers per worker, not 1024", "ulimit -v", "--recv-buffers"] {
                assert!(warning.contains(part), "no {part} in {warning}");
            }
            round_trip(&mut server.connect(), &noise(1 << 20));
            assert_eq!(server.stop().stderr, "");
        }
        let asked = format!("--driver {driver} --recv-buffers 1024");
        finish(&mut limited(&asked))
            .fails_with(1, &["reserving 256 MiB of addresses", "195 MiB", "ulimit -v", "fewer"]);
        let few = format!("--driver {driver} --recv-buffers 64");
        let server = Server::spawn(&mut limited(&few));
        round_trip(&mut server.connect(), b"enough");
        assert_eq!(server.stop().stderr, "");
    }
    annulus(["echo", "--recv-buffers", "100"]).fails_with(2, &["'100'", "power of two"]);
    annulus(["echo", "--recv-buffers", "64", "--driver", "threads"]).fails_with(2, &["threads"]);
}

#[test]
fn unknown_ipv6_zone_is_named() {
    let nowhere = "[fe80::1%nowhere]:0";
    annulus(["echo", "--listen", nowhere]).fails_with(1, &["is 'nowhere' an interface", "ip link"]);
}

/// A link-local address requires its zone. The interface is in the test's own network namespace.
#[test]
fn link_local_address_is_served_and_loaded() {
    let script = r#"
        ip link set lo up && ip -6 addr add fe80::1/64 dev lo nodad || exit 77
        for try in $(seq 1000); do ip -6 route get fe80::1 oif lo >&2 && break; done
        "$0" echo --listen "[fe80::1%lo]:7000" --listen "udp://[fe80::1%lo]:7000" 2>ready >&2 &
        until grep -q listening ready; do kill -0 $! || exit 1; done
        for try in $(seq 50); do
            "$0" load "[fe80::1%lo]:7000" -n 1 -c 1 2>unreachable && break
            grep -q "Network is unreachable" unreachable || break
        done
        "$0" load "[fe80::1%lo]:7000" -c 2 -d 0.5 --warm-up 0 &&
        "$0" load "udp://[fe80::1%lo]:7000" -c 2 -d 0.5 --warm-up 0
        ended=$?; kill $!; wait $!; exit $ended"#;
    let directory = Scratch::new("link-local");
    let mut command = Command::new("unshare");
    let command = command.args(["--net", "sh", "-c", script, ANNULUS]).current_dir(&directory);
    match try_finish(command) {
        Ok(finished) if finished.code == Some(0) => {}
        Ok(finished) if finished.code == Some(77) || finished.stderr.starts_with("unshare:") => {
            skip!("cannot create a network namespace: {finished:?}");
        }
        Ok(finished) => panic!("{finished:?}"),
        Err(error) => skip!("no unshare: {error}"),
    }
}

/// Sets a soft limit of a running server; returns the previous one.
fn limit(server: &Server, resource: Resource, soft: Option<u64>) -> Option<u64> {
    // The server inherited the hard limit of this process.
    let maximum = getrlimit(resource).maximum;
    prlimit(Some(server.pid()), resource, Rlimit { current: soft, maximum }).unwrap().current
}

/// When descriptors are short, a new connection waits, and other connections continue.
#[test]
fn threads_server_survives_a_shortage_of_descriptors() {
    let server = Server::start(&["--driver", "threads", "--stats", "-"]);
    let (mut one, mut two) = (server.connect(), server.connect());
    round_trip(&mut one, b"one");
    round_trip(&mut two, b"two");
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid().as_raw_nonzero()));
    let before = limit(&server, Resource::Nofile, Some(open.unwrap().count() as u64));
    let mut three = server.connect();
    three.write_all(b"three").unwrap();
    for _ in 0..20 {
        round_trip(&mut one, b"one again");
    }
    drop(two);
    let mut back = [0; 5];
    three.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"three");
    // The next connection causes the shortage again, and it ends when another connection is closed.
    let mut four = server.connect();
    four.write_all(b"4").unwrap();
    drop(three);
    four.read_exact(&mut back[..1]).unwrap();
    limit(&server, Resource::Nofile, before);
    round_trip(&mut server.connect(), b"five");
    let finished = server.stop();
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_eq!(finished.stderr.lines().count(), 1, "each reason once: {finished:?}");
}

#[test]
fn shortage_of_descriptors_is_printed_once() {
    for driver in runtime_drivers() {
        let script =
            format!("ulimit -n 32 && exec {ANNULUS} echo --listen 127.0.0.1:0 --driver {driver}");
        let server = Server::spawn(Command::new("sh").args(["-c", &script]));
        for _ in 0..2 {
            let clients: Vec<TcpStream> = (0..40).map(|_| server.connect()).collect();
            clients.iter().for_each(|mut client| client.write_all(b"x").unwrap());
            // In order, so that each closed client frees a descriptor for a waiting one.
            for mut client in clients {
                client.read_exact(&mut [0]).unwrap();
            }
        }
        let finished = server.stop();
        assert_eq!(finished.code, Some(0), "{finished:?}");
        assert_eq!(finished.stderr.matches("no descriptor was left").count(), 1, "{finished:?}");
    }
}

/// When no thread can be started for a connection, the server closes it, and other connections
/// continue. The limit on the address space leaves no room for another thread's stack.
#[test]
fn threads_server_survives_a_thread_that_cannot_be_started() {
    let server = Server::start(&["--driver", "threads"]);
    let mut one = server.connect();
    round_trip(&mut one, b"one");
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid().as_raw_nonzero()));
    let (status, kib) = (status.unwrap(), |line: &str| line.trim_end_matches(" kB").trim().parse());
    let size: u64 =
        kib(status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap()).unwrap();
    let before = limit(&server, Resource::As, Some(size << 10));
    let mut two = server.connect();
    assert_eq!(two.read(&mut [0; 1]).unwrap(), 0, "the connection was not closed");
    round_trip(&mut one, b"one again");
    limit(&server, Resource::As, before);
    round_trip(&mut server.connect(), b"three");
    let finished = server.stop();
    assert_eq!((finished.code, finished.stderr.lines().count()), (Some(0), 1), "{finished:?}");
    assert!(finished.stderr.contains("starting a thread: "), "{finished:?}");
}

#[test]
fn sighup_drains_and_sigusr1_leaves_connections_open() {
    let ignores_hangup = is_in_mask("SigIgn", std::process::id(), Signal::HUP);
    for driver in ["auto", "threads"] {
        let mut server = Server::start(&["--driver", driver]);
        let mut client = server.connect();
        round_trip(&mut client, b"before");
        server.signal(Signal::USR1);
        assert!(!server.next_line().is_empty(), "{driver}: it has ended");
        round_trip(&mut client, b"after");
        server.signal(Signal::HUP);
        if ignores_hangup {
            round_trip(&mut client, b"on");
            server.signal(Signal::TERM);
        }
        let ended = client.read(&mut [0]);
        assert!(matches!(ended, Ok(0)), "{driver}: {ended:?}");
        assert_eq!(server.wait().code, Some(0), "{driver}");
    }
}
