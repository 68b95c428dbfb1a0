//! Unix sockets: `annulus echo --listen unix:…`, `unix-datagram:…`, and the load against them.

use crate::common::{ANNULUS, OwnLock, PATIENCE, Scratch, Server, annulus, finish, noise};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

fn stream_address(path: &Path) -> String {
    format!("unix:{}", path.display())
}

fn datagram_address(path: &Path) -> String {
    format!("unix-datagram:{}", path.display())
}

/// Starts a server on TCP and on `listen`.
fn start(driver: &str, listen: &str) -> Server {
    let listens = ["--listen", "127.0.0.1:0", "--listen", listen];
    Server::spawn(Command::new(ANNULUS).arg("echo").args(listens).args(["--driver", driver]))
}

fn round_trip(path: &Path, bytes: &[u8]) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back == bytes, "{} bytes came back as {}", bytes.len(), back.len());
    });
}

#[test]
fn unix_streams_are_served_beside_tcp_and_their_path_is_removed_at_the_end() {
    let directory = Scratch::short("unix-streams");
    let path = directory.join("s");
    for driver in ["auto", "epoll"] {
        let server = start(driver, &stream_address(&path));
        assert!(server.ready.contains(&stream_address(&path)), "{}", server.ready);
        for length in [0, 1, 1_000_000] {
            round_trip(&path, &noise(length));
        }
        crate::common::round_trip(&mut server.connect(), &noise(1000));
        let finished = server.stop();
        assert_eq!((finished.code, path.exists()), (Some(0), false), "{finished:?}");
    }
}

#[test]
fn first_of_several_workers_serves_the_path() {
    let directory = Scratch::short("unix-workers");
    let path = directory.join("s");
    let address = stream_address(&path);
    let args = ["echo", "--listen", "127.0.0.1:0", "--listen", &address, "--workers", "2"];
    let server = Server::spawn(Command::new(ANNULUS).args(args).args(["--pin", "0,0"]));
    round_trip(&path, &noise(5000));
    let finished = server.stop();
    assert_eq!((finished.code, path.exists()), (Some(0), false), "{finished:?}");
}

#[test]
fn every_stream_workload_runs_on_a_path() {
    let directory = Scratch::short("unix-load");
    let path = directory.join("s");
    let server = start("auto", &stream_address(&path));
    let address = stream_address(&path);
    let load = ["load", &address, "-c", "5", "-l", "1000"];
    let timed = ["-d", "0.5", "--warm-up", "0"];
    let ways: [&[&str]; 4] = [
        &["--pipeline", "8"],
        &["--driver", "epoll"],
        &["--driver", "epoll", "--pipeline", "300"],
        &["--rate", "1000"],
    ];
    for way in ways {
        let json = annulus(load.iter().chain(&timed).chain(way).chain(&["--json", "-"])).json();
        assert!(json["responses"].as_u64().unwrap() > 10, "{way:?}: {json}");
        assert_eq!(json["run"]["address"], address.as_str());
    }
    let finished = annulus(load.iter().chain(&["--per-connection", "-d", "0.5", "--warm-up", "0"]));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    assert_eq!(server.stop().code, Some(0));
    for driver in ["auto", "epoll"] {
        let finished = annulus(load.iter().chain(&timed).chain(&["--driver", driver]));
        finished.fails_with(1, &[&address, "is the server running there?"]);
    }
}

#[test]
fn datagrams_to_paths_are_echoed_without_loss() {
    let directory = Scratch::short("unix-datagrams");
    let (path, own) = (directory.join("d"), directory.join("own"));
    for driver in ["auto", "epoll"] {
        let server = start(driver, &datagram_address(&path));
        let socket = UnixDatagram::bind(&own).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        for length in [0, 1, 65_507] {
            let datagram = noise(length);
            socket.send_to(&datagram, &path).unwrap();
            let mut back = vec![0; 65_536];
            let received = socket.recv(&mut back).unwrap();
            assert!(back[..received] == datagram, "{length} bytes came back as {received}");
        }
        // A socket without a name gets no answer, and does not disturb other sockets.
        UnixDatagram::unbound().unwrap().send_to(b"x", &path).unwrap();
        let address = datagram_address(&path);
        let load = ["load", &address, "-c", "5", "--pipeline", "4", "-d", "0.5"];
        // Long enough that no datagram is given up on a slow machine.
        let patient = ["--warm-up", "0", "--reply-timeout", "30s", "--driver", driver];
        let finished = annulus(load.iter().chain(&patient));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
        for part in [address.as_str(), "lost         0", "corrupt      0"] {
            assert!(finished.stdout.contains(part), "'{part}' is not in:\n{}", finished.stdout);
        }
        let finished = server.stop();
        assert_eq!((finished.code, path.exists()), (Some(0), false), "{finished:?}");
        std::fs::remove_file(&own).unwrap();
    }
}

/// A client sends far more datagrams than the server may queue for it, and reads no answer.
#[test]
fn datagram_client_that_does_not_read_does_not_block_other_clients() {
    let directory = Scratch::short("unix-deaf");
    let (path, deaf, own) = (directory.join("d"), directory.join("deaf"), directory.join("own"));
    for driver in ["auto", "epoll"] {
        let server = start(driver, &datagram_address(&path));
        let flooder = UnixDatagram::bind(&deaf).unwrap();
        for _ in 0..5000 {
            flooder.send_to(&[0; 100], &path).unwrap();
        }
        let socket = UnixDatagram::bind(&own).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        for turn in 0..50u32 {
            socket.send_to(&turn.to_ne_bytes(), &path).unwrap();
            let mut back = [0; 4];
            assert_eq!(socket.recv(&mut back).unwrap(), 4);
            assert_eq!(back, turn.to_ne_bytes());
        }
        drop(flooder);
        assert_eq!(server.stop().code, Some(0));
        [&deaf, &own].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}

#[test]
fn stale_path_is_reused_and_one_in_use_is_not() {
    let directory = Scratch::short("unix-taken");
    let path = directory.join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let echo = |listen: &str| annulus(["echo", "--listen", listen]);
    echo(&stream_address(&path))
        .fails_with(1, &[&stream_address(&path), "another program listens there"]);
    echo(&datagram_address(&path))
        .fails_with(1, &["another program listens there, or the path is not a socket"]);
    assert!(path.exists(), "a refused server removed the path");
    drop(listener);
    let server = start("auto", &stream_address(&path));
    round_trip(&path, b"hello");
    assert_eq!(server.stop().code, Some(0));
    let file = directory.join("file");
    std::fs::write(&file, "precious").unwrap();
    echo(&stream_address(&file)).fails_with(1, &["the path is not a socket"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn invalid_path_is_refused_with_its_limit() {
    let long = format!("unix:/{}", "x".repeat(107));
    annulus(["echo", "--listen", &long]).fails_with(2, &["108 bytes", "1 to 107"]);
    annulus(["load", &long]).fails_with(2, &["108 bytes", "1 to 107"]);
    let nowhere = "unix:/nowhere/at/all";
    annulus(["echo", "--listen", nowhere])
        .fails_with(1, &[nowhere, "the directory does not exist"]);
    let threads = ["echo", "--driver", "threads", "--listen", "unix:/x"];
    annulus(threads).fails_with(2, &["--driver threads", "one TCP address"]);
}

#[test]
fn bench_echo_runs_over_unix_sockets() {
    let args = ["bench", "echo", "--transport", "unix", "--servers", "auto,threads"];
    annulus(args).fails_with(2, &["no server 'auto'"]);
    let args = ["bench", "echo", "--transport", "unix", "--servers", "epoll,threads"];
    annulus(args).fails_with(2, &["server 'threads' serves TCP only"]);
    let args = [
        "bench",
        "echo",
        "--transport",
        "unix",
        "--servers",
        "epoll",
        "--connections",
        "3",
        "--rounds",
        "2",
    ];
    let counted = ["--per-connection", "--json", "-"];
    let finished = finish(Command::new(ANNULUS).args(args).args(counted).own_lock());
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let json = finished.json();
    assert_eq!(json["settings"]["bench"], "unix");
    let command = json["settings"]["contenders"][0]["command"].as_array().unwrap();
    let path = command.iter().find_map(|word| word.as_str()?.strip_prefix("unix:")).unwrap();
    assert!(!Path::new(path).parent().unwrap().exists(), "the directory of {path} was not removed");
    for row in [&json["results"][0], &json["controls"][0]] {
        assert!(row["figures"]["rate"]["value"].as_f64().unwrap() > 0.0, "{row}");
    }
}

/// A name after `@` is not in the file system.
#[test]
fn abstract_names_are_served_and_loaded() {
    let name = format!("annulus-test-{}", std::process::id());
    let (stream, datagram) = (format!("unix:@{name}"), format!("unix-datagram:@{name}-d"));
    for driver in ["auto", "epoll"] {
        let listens = ["--listen", "127.0.0.1:0", "--listen", &stream, "--listen", &datagram];
        let mut command = Command::new(ANNULUS);
        let server = Server::spawn(command.arg("echo").args(listens).args(["--driver", driver]));
        assert!(server.ready.contains(&format!("{stream}, {datagram}")), "{}", server.ready);
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let mut client = UnixStream::connect_addr(&address).unwrap();
        client.write_all(b"no file").unwrap();
        let mut back = [0; 7];
        client.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"no file");
        assert!(!Path::new(&format!("@{name}")).exists());
        let timed = ["-d", "0.5", "--warm-up", "0", "-c", "2", "--driver", driver];
        for kind in [["load", &stream], ["load", &datagram]] {
            let finished = annulus(kind.iter().chain(&timed));
            assert_eq!(
                (finished.code, finished.stderr.as_str()),
                (Some(0), ""),
                "{kind:?}: {finished:?}"
            );
        }
        let finished = annulus(["load", &stream, "--per-connection"].iter().chain(&timed));
        assert_eq!(finished.code, Some(0), "{finished:?}");
        drop(client);
        assert_eq!(server.stop().code, Some(0));
    }
    annulus(["echo", "--listen", "unix:@"]).fails_with(2, &["0 bytes", "1 to 107"]);
}
