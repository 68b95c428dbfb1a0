//! The client of a slice that is annulus's own load of a broadcast.

use std::time::Duration;

use annulus_load::fan_out::{self, FanOut};
use annulus_load::{Observer, ServerAddress};

use crate::bench::{CLIENT_CPU_SHARE, Sample};
use crate::describe::{DEFAULT_WARM_UP, Load};

/// Runs a broadcast and returns its sample. The latency of a message counts until the last
/// subscriber has received it.
pub(super) fn run(
    load: &Load,
    message_bytes: usize,
    address: &ServerAddress,
    duration: Duration,
    observer: &mut dyn Observer,
) -> Result<Sample, String> {
    let ServerAddress::Inet(address) = address else {
        return Err("a broadcast needs a server with a TCP address".into());
    };
    let (subscribers, in_flight) = (load.connections as usize, load.depth as usize);
    let warm_up = DEFAULT_WARM_UP;
    let broadcast =
        FanOut { address: *address, subscribers, message_bytes, in_flight, warm_up, duration };
    let done = fan_out::run(&broadcast, observer).map_err(|error| error.to_string())?;
    let at = |share| done.latencies.quantile(share) as f64 / 1e3;
    Ok(Sample::from([
        ("operations", done.count as f64),
        ("ns", done.elapsed.as_nanos() as f64),
        ("mean_us", done.latencies.mean() / 1e3),
        ("p50_us", at(0.5)),
        ("p99_us", at(0.99)),
        ("p99_9_us", at(0.999)),
        (CLIENT_CPU_SHARE, done.cpu_share),
    ]))
}
