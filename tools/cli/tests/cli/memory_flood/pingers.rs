//! Clients that send a little, wait for the answer, and record how long it took.

use annulus_load::clock;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time between an answer and the next ping of a client.
const PING_INTERVAL: Duration = Duration::from_millis(20);
/// How long an answer may take before the test fails.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The clients, each on its own thread.
pub(crate) struct Pingers {
    threads: Vec<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
    times: Arc<Mutex<Vec<Duration>>>,
}

impl Pingers {
    /// Starts `count` pingers, which run until they are stopped.
    pub(crate) fn start(address: SocketAddr, count: usize) -> Pingers {
        let (stopping, times) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let thread = |number| {
            let (stopping, times) = (Arc::clone(&stopping), Arc::clone(&times));
            std::thread::spawn(move || ping(address, number, &stopping, &times))
        };
        Pingers { threads: (0..count).map(thread).collect(), stopping, times }
    }

    /// Returns how long the pings since the last call took, sorted.
    pub(crate) fn take(&self) -> Vec<Duration> {
        let mut times = std::mem::take(&mut *lock(&self.times));
        times.sort_unstable();
        times
    }

    /// Waits for the next `count` pings and returns how long they took, sorted.
    pub(crate) fn next(&self, count: usize, patience: Duration) -> Vec<Duration> {
        drop(self.take());
        let deadline = clock::now() + patience;
        while lock(&self.times).len() < count {
            assert!(clock::now() < deadline, "fewer than {count} pings were answered");
            std::thread::sleep(PING_INTERVAL);
        }
        self.take()
    }

    /// Stops the clients. Panics if a ping was not answered, or answered with other bytes.
    pub(crate) fn stop(self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("a pinger failed"));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ping(address: SocketAddr, number: usize, stopping: &AtomicBool, times: &Mutex<Vec<Duration>>) {
    let mut stream = TcpStream::connect(address).expect("cannot connect to the server");
    stream.set_nodelay(true).expect("cannot set TCP_NODELAY");
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).expect("cannot set the read timeout");
    let (mut text, mut back) = ([number as u8; 128], [0; 128]);
    while !stopping.load(Ordering::Relaxed) {
        text[0] = text[0].wrapping_add(1);
        let start = clock::now();
        stream.write_all(&text).expect("cannot send a ping");
        stream.read_exact(&mut back).expect("no answer to a ping");
        lock(times).push(clock::now() - start);
        assert!(back == text, "the answer differs from the ping");
        std::thread::sleep(PING_INTERVAL);
    }
}

/// Returns the median of sorted times.
pub(crate) fn median(times: &[Duration]) -> Duration {
    times[times.len() / 2]
}

/// Returns the 99th percentile of sorted times: 99 of 100 do not exceed it.
pub(crate) fn p99(times: &[Duration]) -> Duration {
    times[(times.len() * 99).div_ceil(100) - 1]
}
