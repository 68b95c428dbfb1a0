//! The shutdown of `annulus echo`: what is in flight is answered within the shutdown timeout, and a
//! second signal ends the server at once.

use crate::common::{Server, noise, round_trip, serving_modes};
use annulus_load::clock;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often to check whether the server still accepts. Connecting in a tight loop would take CPU
/// time from its shutdown.
const CONNECT_INTERVAL: Duration = Duration::from_millis(5);

/// Writes without reading until the server ends, so that more is always in flight than it can send.
fn flood(server: &Server) -> JoinHandle<()> {
    let mut stream = server.connect();
    round_trip(&mut stream, b"hello");
    let bytes = noise(1 << 16);
    std::thread::spawn(move || while stream.write_all(&bytes).is_ok() {})
}

/// Waits until the server no longer accepts.
fn await_closed_listener(server: &Server) {
    while TcpStream::connect(server.address).is_ok() {
        std::thread::sleep(CONNECT_INTERVAL);
    }
}

#[test]
fn sigint_and_sigterm_end_an_idle_server_with_success() {
    for way in serving_modes() {
        for signal in [Signal::INT, Signal::TERM] {
            let server = Server::start(&way);
            server.signal(signal);
            let finished = server.wait();
            assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{way:?}");
        }
    }
}

#[test]
fn idle_connections_do_not_delay_the_end() {
    for way in serving_modes() {
        let server = Server::start(&[&way[..], &["--shutdown-timeout", "1h"]].concat());
        let mut streams: Vec<_> = (0..10).map(|_| server.connect()).collect();
        streams.iter_mut().for_each(|stream| round_trip(stream, b"hello"));
        let finished = server.stop();
        assert_eq!(finished.code, Some(0), "{way:?}");
        for mut stream in streams {
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "{way:?}: unexpected bytes");
        }
    }
}

#[test]
fn bytes_in_flight_are_echoed_after_the_signal() {
    let bytes = noise(4 << 20);
    for way in serving_modes() {
        let server = Server::start(&[&way[..], &["--shutdown-timeout", "1h"]].concat());
        let mut stream = server.connect();
        let mut writer = stream.try_clone().unwrap();
        let sent = bytes.clone();
        let writing = std::thread::spawn(move || writer.write_all(&sent));
        let mut back = vec![0; 1];
        stream.read_exact(&mut back).unwrap();
        server.signal(Signal::TERM);
        await_closed_listener(&server);
        stream.read_to_end(&mut back).unwrap();
        writing.join().unwrap().unwrap();
        assert!(back == bytes, "{way:?}: {} of {} bytes came back", back.len(), bytes.len());
        assert_eq!(server.wait().code, Some(0), "{way:?}");
    }
}

#[test]
fn client_that_does_not_read_delays_the_end_by_the_shutdown_timeout_only() {
    for way in serving_modes() {
        let server = Server::start(&[&way[..], &["--shutdown-timeout", "400ms"]].concat());
        let writing = flood(&server);
        let signalled = clock::now();
        let finished = server.stop();
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{way:?}");
        assert!(
            clock::now() - signalled >= Duration::from_millis(300),
            "{way:?}: the server did not wait for the client"
        );
        writing.join().unwrap();
    }
}

#[test]
fn connections_open_after_the_shutdown_timeout_are_aborted_and_counted() {
    for way in serving_modes() {
        let server =
            Server::start(&[&way[..], &["--shutdown-timeout", "0", "--stats", "-"]].concat());
        let mut streams = [server.connect(), server.connect()];
        streams.iter_mut().for_each(|stream| round_trip(stream, b"hello"));
        let finished = server.stop();
        assert_eq!(finished.code, Some(0), "{way:?}: {finished:?}");
        assert_eq!(finished.json()["aborted"], 2, "{way:?}: {finished:?}");
    }
}

#[test]
fn second_signal_ends_the_server_at_once() {
    for way in serving_modes() {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let server = Server::start(&[&way[..], &["--shutdown-timeout", "1h"]].concat());
            let writing = flood(&server);
            server.signal(Signal::TERM);
            await_closed_listener(&server);
            server.signal(signal);
            assert_eq!(server.wait().code, Some(code), "{way:?}");
            writing.join().unwrap();
        }
    }
}
