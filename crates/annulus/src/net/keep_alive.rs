//! When an idle TCP connection is probed.

use annulus_kernel::SocketOption;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

/// When an idle TCP connection is probed, to detect a peer that has silently disappeared. The
/// connection then fails with `TimedOut` or with the error that a router on the way reported.
///
/// Times are rounded up to whole seconds. The defaults are the same as on Linux: 2 hours, 75
/// seconds, 9 probes.
///
/// ```
/// use annulus::net::{KeepAlive, TcpListener, TcpStream};
/// use std::time::Duration;
///
/// # annulus::run(async {
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?).await?;
/// let keepalive = KeepAlive { time: Duration::from_secs(60), ..KeepAlive::default() };
/// stream.set_keepalive(Some(keepalive))?;
/// assert_eq!(stream.keepalive()?, Some(keepalive));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// How long the connection is idle before the first probe (`TCP_KEEPIDLE`): 1 to 32,767
    /// seconds.
    pub time: Duration,
    /// The time between unanswered probes (`TCP_KEEPINTVL`): 1 to 32,767 seconds.
    pub interval: Duration,
    /// Number of unanswered probes before the connection fails (`TCP_KEEPCNT`): 1 to 127.
    pub retries: u32,
}

const PROBE_SECONDS: RangeInclusive<u64> = 1..=32_767;
const PROBE_RETRIES: RangeInclusive<u32> = 1..=127;

impl Default for KeepAlive {
    fn default() -> Self {
        Self { time: Duration::from_secs(7200), interval: Duration::from_secs(75), retries: 9 }
    }
}

impl KeepAlive {
    /// Returns the socket options that turn probing on.
    ///
    /// # Errors
    /// `InvalidInput` for a value that Linux does not support.
    pub(super) fn options(self) -> io::Result<[(SocketOption, u32); 4]> {
        if !PROBE_RETRIES.contains(&self.retries) {
            return Err(out_of_range("retries", &self.retries.to_string(), "1 to 127"));
        }
        Ok([
            (SocketOption::KeepAliveTime, seconds("time", self.time)?),
            (SocketOption::KeepAliveInterval, seconds("interval", self.interval)?),
            (SocketOption::KeepAliveRetries, self.retries),
            (SocketOption::KeepAlive, 1),
        ])
    }
}

fn seconds(what: &str, time: Duration) -> io::Result<u32> {
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    if !PROBE_SECONDS.contains(&seconds) {
        return Err(out_of_range(what, &format!("{time:?}"), "1 to 32767 seconds"));
    }
    Ok(seconds as u32)
}

fn out_of_range(what: &str, value: &str, allowed: &str) -> io::Error {
    let text = format!("a keep-alive {what} of {value} is out of range; choose {allowed}");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
