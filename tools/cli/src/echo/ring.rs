//! Server options for io_uring.

use super::mode::Mode;
use crate::usage::UsageError;
use annulus::{Builder, DriverChoice};
use clap::Args;
use std::time::Duration;

/// Options that require io_uring.
#[derive(Args, Clone, Debug)]
pub(super) struct RingArgs {
    /// Restrict io_uring to what the server needs, and deny this process any other ring
    #[arg(long)]
    pub(super) locked_down: bool,
    /// Before sleeping, poll for events for up to this many microseconds, as long as that pays off:
    /// lower latency for a busy core [default: 0, never]
    #[arg(long, value_name = "MICROS", default_value_t = 0, hide_default_value = true,
          value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub(super) busy_poll: u64,
    /// Before sleeping, make the kernel poll network devices for up to this many microseconds (NAPI):
    /// lower latency for a busy core; no effect on loopback; Linux 6.9 [default: 0, never]
    #[arg(long, value_name = "MICROS", default_value_t = 0, hide_default_value = true,
          value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    napi_busy_poll: u64,
    /// While several clients send, wait up to this many microseconds for eight events before serving
    /// them: less CPU for a higher latency; Linux 6.12 [default: 0, never]
    #[arg(long, value_name = "MICROS", default_value_t = 0, hide_default_value = true,
          value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    min_wait: u64,
    /// Send without copying if a send has at least this many bytes: for network cards and long
    /// sends; loopback copies anyway [default: never]
    #[arg(long, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) zero_copy_threshold: Option<u32>,
}

impl RingArgs {
    pub(super) fn configure(&self, builder: Builder) -> Builder {
        builder
            .locked_down(self.locked_down)
            .zero_copy_threshold(self.zero_copy_threshold.map(|bytes| bytes as usize))
            .busy_poll(Duration::from_micros(self.busy_poll))
            .napi_busy_poll(Duration::from_micros(self.napi_busy_poll))
            .min_wait(Duration::from_micros(self.min_wait))
    }

    /// Rejects these options for a mode that never has a ring.
    pub(super) fn check(&self, mode: Mode) -> Result<(), UsageError> {
        let is_epoll = mode == Mode::Tasks(DriverChoice::Epoll);
        if !is_epoll && mode != Mode::Threads {
            return Ok(());
        }
        let zero_copy = self.zero_copy_threshold;
        let given = [
            // With epoll, `--locked-down` still denies this process any ring.
            (self.locked_down && !is_epoll).then(|| "--locked-down".into()),
            (self.busy_poll > 0).then(|| format!("--busy-poll {}", self.busy_poll)),
            (self.napi_busy_poll > 0).then(|| format!("--napi-busy-poll {}", self.napi_busy_poll)),
            (self.min_wait > 0).then(|| format!("--min-wait {}", self.min_wait)),
            zero_copy.map(|bytes| format!("--zero-copy-threshold {bytes}")),
        ];
        given.into_iter().flatten().next().map_or(Ok(()), |option: String| {
            Err(UsageError(format!(
                "{option} requires io_uring, which --driver {mode} does not use; leave one of them out"
            )))
        })
    }
}
