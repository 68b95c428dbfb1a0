//! Connections during a run: shared by threads, replaced, and lost.

use super::{echo, figures, plan, run_without_errors, serve};
use annulus_load::{
    Observer, Plan, Progress, Rate, SOURCE_ADDRESSES, Schedule, ServerAddress, Streams, run,
};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn several_threads_share_the_clients() {
    let address = serve(echo);
    for schedule in [Schedule::default(), Schedule::open(Rate::constant(2000.0))] {
        let streams = Streams { threads: 3, pipeline: 2, ..Streams::default() };
        let report = run_without_errors(Plan { schedule, ..plan(address, 7, 300, streams) });
        let figures = figures(&report);
        assert_eq!((report.run.threads, figures.requests), (3, figures.responses));
        assert_eq!(report.total().response.len(), figures.responses);
    }
    // No thread is started without a client.
    let streams = Streams { threads: 5, ..Streams::default() };
    assert_eq!(run_without_errors(plan(address, 2, 10, streams)).run.threads, 2);
}

/// The server closes each connection after two replies, and each client opens a new one.
#[test]
fn failed_connections_are_replaced_and_counted() {
    let address = serve(|mut stream| {
        let mut message = [0; 100];
        for _ in 0..2 {
            if stream.read_exact(&mut message).is_err() || stream.write_all(&message).is_err() {
                return;
            }
        }
    });
    let streams = Streams { reconnect: true, ..Streams::default() };
    let mut plan = plan(address, 2, 100, streams);
    loop {
        let report = run(&plan, &mut ()).unwrap();
        let figures = figures(&report);
        if figures.reconnects < 4 {
            // A busy machine needs more time.
            plan.duration *= 2;
            continue;
        }
        let faults: u64 = report.errors.values().sum();
        assert!(faults >= figures.reconnects && figures.responses > 0, "{:?}", report.errors);
        // The last byte of a connection may still be in flight when its socket is closed.
        let known = ["closed early", "reset"];
        assert!(
            report.errors.keys().all(|kind| known.contains(&kind.as_str())),
            "{:?}",
            report.errors
        );
        return;
    }
}

/// A Unix socket server that closes its connections and ends when it is dropped.
struct RestartableServer(Arc<Mutex<Option<Vec<UnixStream>>>>, PathBuf);

impl RestartableServer {
    fn start(path: &Path) -> RestartableServer {
        let listener = UnixListener::bind(path).unwrap();
        let streams = Arc::new(Mutex::new(Some(Vec::new())));
        let open = Arc::clone(&streams);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                match &mut *open.lock().unwrap() {
                    Some(streams) => streams.push(stream.try_clone().unwrap()),
                    None => return,
                }
                std::thread::spawn(move || {
                    let (mut input, mut output) = (&stream, &stream);
                    std::io::copy(&mut input, &mut output)
                });
            }
        });
        RestartableServer(streams, path.to_owned())
    }
}

impl Drop for RestartableServer {
    fn drop(&mut self) {
        let streams = self.0.lock().unwrap().take();
        // One more connection ends the listener thread, because it finds no list of streams.
        let last = UnixStream::connect(&self.1).unwrap();
        std::fs::remove_file(&self.1).unwrap();
        for stream in streams.unwrap() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        // The read returns once the listener thread has dropped the connection.
        let _ = (&last).read(&mut [0]);
    }
}

/// The server ends in the middle of the run, and another one starts at the same address.
#[test]
fn measuring_continues_after_a_server_restart() {
    struct RestartingObserver {
        path: PathBuf,
        server: Option<RestartableServer>,
        /// Responses before the restart, and the number of reports without new ones since.
        before: (u64, u32),
        is_over: bool,
    }
    impl Observer for RestartingObserver {
        fn progress(&mut self, progress: Progress) {
            let (before, silent) = self.before;
            let more = progress.responses > before;
            match (silent, more) {
                // Responses are published periodically, so some from before the end of the server
                // may appear later.
                (0..3, true) => {
                    drop(self.server.take());
                    self.before = (progress.responses, 0);
                }
                (0..3, false) if self.server.is_none() => self.before.1 += 1,
                (0..3, false) => {}
                (_, true) => self.is_over = true,
                (_, false) => {
                    self.server.get_or_insert_with(|| RestartableServer::start(&self.path));
                }
            }
        }
        fn is_interrupted(&self) -> bool {
            self.is_over
        }
    }
    let path = std::env::temp_dir().join(format!("annulus-load-restart-{}", std::process::id()));
    let server = Some(RestartableServer::start(&path));
    let streams = Streams { reconnect: true, threads: 2, ..Streams::default() };
    let duration = Duration::from_secs(60);
    let address = ServerAddress::Unix(path.clone());
    let plan =
        Plan { clients: 3, duration, warm_up: Duration::ZERO, ..Plan::new(address, streams) };
    let mut restart = RestartingObserver { path, server, before: (0, 0), is_over: false };
    let report = run(&plan, &mut restart).unwrap();
    let figures = figures(&report);
    let (responses, errors) = (figures.responses, &report.errors);
    assert!(report.interrupted && responses > restart.before.0, "{responses} {errors:?}");
    assert!(figures.reconnects >= 1 && errors.contains_key("connect failed"), "{errors:?}");
}

/// Each connection carries as many requests as planned, at any pipeline depth.
#[test]
fn connection_is_replaced_after_its_planned_requests() {
    static SHORT_CONNECTIONS: AtomicU64 = AtomicU64::new(0);
    let address = serve(|mut stream| {
        let (mut bytes, mut buffer) = (0, [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            bytes += count;
            assert!(bytes <= 700, "more than seven messages on a connection");
            if stream.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
        SHORT_CONNECTIONS.fetch_add(u64::from(bytes != 700), Ordering::Relaxed);
    });
    for pipeline in [1, 3, 16] {
        let requests_per_connection = Some(7);
        let streams = Streams { pipeline, requests_per_connection, ..Streams::default() };
        let report = run_without_errors(plan(address, 3, 100, streams));
        let figures = figures(&report);
        assert!(figures.responses <= 7 * (figures.reconnects + 2 * 3), "{:?}", report.errors);
        // A connection that is still open at the end of the run has carried fewer messages.
        assert!(SHORT_CONNECTIONS.swap(0, Ordering::Relaxed) <= 3 * 20, "{:?}", report.errors);
    }
}

/// With one request per connection, the response time includes the connect, but the service time
/// does not.
#[test]
fn connection_per_message_uses_several_source_addresses() {
    static CLIENT_ADDRESSES: Mutex<Vec<IpAddr>> = Mutex::new(Vec::new());
    let address = serve(|stream| {
        CLIENT_ADDRESSES.lock().unwrap().push(stream.peer_addr().unwrap().ip());
        echo(stream);
    });
    let streams = Streams { requests_per_connection: Some(1), threads: 2, ..Streams::default() };
    let report = run_without_errors(plan(address, 4 * SOURCE_ADDRESSES, 3000, streams));
    let total = report.total();
    assert!(0 < total.service.min() && total.service.mean() <= total.response.mean(), "{total:?}");
    assert!(
        report.run.schedule.contains("a new connection for each request"),
        "{}",
        report.run.schedule
    );
    assert_eq!(
        CLIENT_ADDRESSES.lock().unwrap().iter().collect::<HashSet<_>>().len(),
        SOURCE_ADDRESSES
    );
}
