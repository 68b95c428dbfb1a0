//! Our load, in this process: for what echoes, such as a proxy with an echo server behind it.

use std::time::Duration;

use annulus_load::{Mode, Observer, Plan, Rate, Schedule, ServerAddress, Streams};

use crate::bench::Sample;
use crate::own_load;
use crate::server::one_line;
use crate::server_bench::load::Load;

/// How long to run before measuring.
const WARM_UP: Duration = Duration::from_millis(100);

/// Loads a server: in an open loop if there is a rate, in messages per second, else in a closed one.
pub(super) fn run(
    load: &Load,
    mode: Mode,
    address: &str,
    rate: Option<f64>,
    seconds: u64,
    observer: &mut dyn Observer,
) -> Result<Sample, String> {
    let address: ServerAddress = address.parse().map_err(one_line)?;
    let streams = Streams { pipeline: load.depth as usize, mode, ..Streams::default() };
    let open = |rate| Schedule::open(Rate::constant(rate));
    let plan = Plan {
        clients: load.connections as usize,
        length: load.bytes as usize,
        schedule: rate.map_or_else(Schedule::default, open),
        warm_up: WARM_UP,
        duration: Duration::from_secs(seconds),
        ..Plan::new(address, streams)
    };
    own_load::run(&plan, observer)
}
