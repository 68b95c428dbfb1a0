//! How long threads wait for a core.

use std::fs;
use std::time::Duration;

/// The maximum number of threads to query, because each one takes reading a file.
const MAX_THREADS: usize = 256;

/// Returns the total time for which the threads of this process were ready to run but did not run.
/// Returns `None` if the kernel does not report it, or if there are too many threads.
pub(crate) fn core_wait() -> Option<Duration> {
    let threads: Vec<_> = fs::read_dir("/proc/self/task").ok()?.take(MAX_THREADS + 1).collect();
    if threads.len() > MAX_THREADS {
        return None;
    }
    let mut sum = Duration::ZERO;
    for thread in threads {
        // The thread may have ended in the meantime.
        let Ok(text) = fs::read_to_string(thread.ok()?.path().join("schedstat")) else { continue };
        sum += parse(&text)?;
    }
    Some(sum)
}

/// Parses the second number, which is the time in the run queue in ns.
fn parse(text: &str) -> Option<Duration> {
    let nanos = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use annulus_skip::skip;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[test]
    fn schedstat_second_number_is_run_queue_time() {
        assert_eq!(parse("5066001 1234567 15\n"), Some(Duration::from_nanos(1_234_567)));
        assert_eq!(parse("5066001"), None);
    }

    #[test]
    fn threads_that_share_a_core_wait() {
        if core_wait().is_none() {
            return skip!("the kernel does not report how long threads wait");
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
        // Both threads inherit the affinity, so one waits while the other runs.
        std::thread::scope(|scope| {
            [scope.spawn(spin), scope.spawn(spin)].map(|thread| thread.join().unwrap())
        });
        assert!(seen.into_inner(), "two threads ran on one core for a minute without waiting");
    }
}
