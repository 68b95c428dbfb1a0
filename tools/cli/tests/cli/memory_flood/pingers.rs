//! Clients that send a little, wait for the answer, and note how long it took.

use annulus_load::clock;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time between an answer and the next ping of a client.
const PING_INTERVAL: Duration = Duration::from_millis(20);
/// Turns a ping that is never answered into a failure.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Clients, on a thread each.
pub(crate) struct Pingers {
    threads: Vec<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
    times: Arc<Mutex<Vec<Duration>>>,
}

impl Pingers {
    /// Starts `count` pingers, which go on until they are stopped.
    pub(crate) fn start(address: SocketAddr, count: usize) -> Pingers {
        let (stopping, times) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let thread = |number| {
            let (stopping, times) = (Arc::clone(&stopping), Arc::clone(&times));
            std::thread::spawn(move || ping(address, number, &stopping, &times))
        };
        Pingers { threads: (0..count).map(thread).collect(), stopping, times }
    }

    /// How long pings took since the last call, sorted.
    pub(crate) fn take(&self) -> Vec<Duration> {
        let mut times = std::mem::take(&mut *lock(&self.times));
        times.sort_unstable();
        times
    }

    /// How long the next `count` pings take, sorted.
    pub(crate) fn next(&self, count: usize, patience: Duration) -> Vec<Duration> {
        drop(self.take());
        let deadline = clock::now() + patience;
        while lock(&self.times).len() < count {
            assert!(clock::now() < deadline, "no {count} pings were answered");
            std::thread::sleep(PING_INTERVAL);
        }
        self.take()
    }

    /// Ends them. Each of their pings was answered, with the bytes that it had.
    pub(crate) fn stop(self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("every ping is answered"));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ping(address: SocketAddr, number: usize, stopping: &AtomicBool, times: &Mutex<Vec<Duration>>) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_nodelay(true).expect("a socket has options");
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).expect("a socket has options");
    let (mut text, mut back) = ([number as u8; 128], [0; 128]);
    while !stopping.load(Ordering::Relaxed) {
        text[0] = text[0].wrapping_add(1);
        let start = clock::now();
        stream.write_all(&text).expect("the server takes a ping");
        stream.read_exact(&mut back).expect("the server answers a ping");
        lock(times).push(clock::now() - start);
        assert!(back == text, "the answer is what was sent");
        std::thread::sleep(PING_INTERVAL);
    }
}

/// The one in the middle of times in order.
pub(crate) fn median(times: &[Duration]) -> Duration {
    times[times.len() / 2]
}

/// The 99th percentile of times in order: 99 of 100 do not exceed it.
pub(crate) fn p99(times: &[Duration]) -> Duration {
    times[(times.len() * 99).div_ceil(100) - 1]
}
