//! How long threads wait for a core.

use std::fs;
use std::time::Duration;

/// The most threads that are asked: each costs the reading of a file.
const MAX_THREADS: usize = 256;

/// How long the threads of this process were ready to run and did not, together. `None` if the kernel does not report it, or there
/// are very many.
pub(crate) fn core_wait() -> Option<Duration> {
    let threads: Vec<_> = fs::read_dir("/proc/self/task").ok()?.take(MAX_THREADS + 1).collect();
    if threads.len() > MAX_THREADS {
        return None;
    }
    let mut sum = Duration::ZERO;
    for thread in threads {
        // A thread may have ended since.
        let Ok(text) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        sum += parse(&text)?;
    }
    Some(sum)
}

/// The second number: the time in the run queue, in ns.
fn parse(text: &str) -> Option<Duration> {
    let nanos = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[test]
    fn schedstat_second_number_is_run_queue_time() {
        assert_eq!(parse("5066001 1234567 15\n"), Some(Duration::from_nanos(1_234_567)));
        assert_eq!(parse("5066001"), None);
    }

    #[test]
    fn threads_that_share_a_core_wait() {
        if core_wait().is_none() {
            return println!("skipped: the kernel does not tell how long threads wait");
        }
        let core = crate::affinity::allowed().unwrap()[0];
        let _pinned = crate::affinity::pin(core).unwrap();
        let wanted = core_wait().unwrap() + Duration::from_millis(5);
        let (seen, deadline) = (AtomicBool::new(false), clock::now() + Duration::from_secs(60));
        let spin = || {
            while !seen.load(Relaxed) && clock::now() < deadline {
                if core_wait().is_some_and(|now| now >= wanted) {
                    seen.store(true, Relaxed);
                }
            }
        };
        // Both inherit the affinity. One of them waits while the other runs.
        std::thread::scope(|scope| {
            [scope.spawn(spin), scope.spawn(spin)].map(|thread| thread.join().unwrap())
        });
        assert!(seen.into_inner(), "two threads ran on one core for a minute, and neither waited");
    }
}
