//! Our load, in this process.

use std::time::Duration;

use annulus_load::{Observer, Plan};

use super::PlanParser;
use crate::bench::Sample;
use crate::own_load;
use crate::server::one_line;
use crate::server_bench::load::Load;
use crate::server_bench::words::filled;

/// How long to run before measuring, in seconds.
const WARM_UP: &str = "0.1";

/// The plan of a load for a server.
pub(super) fn plan(
    words: &[String],
    load: &Load,
    address: &str,
    rate: Option<f64>,
    time: Duration,
    parse: PlanParser,
) -> anyhow::Result<Plan> {
    let known = load.words(address);
    let mut words: Vec<String> = words.iter().map(|word| filled(word, &known)).collect();
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    option("-c", load.connections.to_string());
    option("-t", time.as_secs_f64().to_string());
    option("--warm-up", WARM_UP.to_owned());
    if load.depth > 1 {
        option("--pipeline", load.depth.to_string());
    }
    if let Some(rate) = rate {
        option("--rate", rate.to_string());
    }
    parse(&words)
}

/// Loads a server.
pub(super) fn run(
    plan: anyhow::Result<Plan>,
    observer: &mut dyn Observer,
) -> Result<Sample, String> {
    let plan = plan.map_err(|error| one_line(format!("{error:#}")))?;
    own_load::run(&plan, observer)
}
