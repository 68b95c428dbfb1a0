//! fio, where it is installed, asked as our own contenders are.

use super::blocks::Ground;
use annulus_lab::child;
use annulus_lab::file::{Blocks, Burst, Latency, Paths, Pattern};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Whether it can be run here; what is missing, where not.
pub(super) fn look_for() -> Result<(), String> {
    let seen = Command::new("fio").arg("--version").stdout(Stdio::null()).status();
    match seen {
        Ok(status) if status.success() => Ok(()),
        _ => Err("fio is left out: it is not installed (apt-get install fio)".into()),
    }
}

/// One run, with io_uring, as many at once, for as long.
pub(super) fn answer(ground: &Ground, cell: Blocks, slice: Duration) -> Result<Burst> {
    let order = match cell.pattern {
        Pattern::Mixed => "randrw".to_owned(),
        pattern => pattern.to_string(),
    };
    let mut fio = Command::new("fio");
    fio.args(["--name=annulus", "--ioengine=io_uring", "--time_based", "--norandommap"])
        .args(["--randrepeat=0", "--output-format=json"])
        .arg(format!("--filename={}", ground.path.display()))
        .arg(format!("--size={}", ground.bytes))
        .arg(format!("--rw={order}"))
        .arg(format!("--bs={}", cell.bytes))
        .arg(format!("--iodepth={}", cell.depth))
        .arg(format!("--direct={}", u8::from(ground.direct)))
        // As ours have it.
        .arg(format!("--fixedbufs={}", u8::from(ground.direct)))
        .arg(format!("--runtime={}ms", slice.as_millis().max(1)));
    let output = child::output(fio).context("cannot start fio")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("fio: {}: {}", output.status, said.lines().next().unwrap_or_default());
    }
    let report: Value =
        serde_json::from_slice(&output.stdout).context("fio's answer is no JSON")?;
    burst(&report["jobs"][0], cell).context("fio's answer lacks what is needed")
}

/// What a job's report tells.
fn burst(job: &Value, cell: Blocks) -> Option<Burst> {
    let sides = ["read", "write"].map(|side| &job[side]);
    let operations = sides.iter().filter_map(|side| side["total_ios"].as_u64()).sum::<u64>();
    let ns = job["job_runtime"].as_u64()? * 1_000_000;
    let share = (job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?) / 100.0;
    let busier = sides.into_iter().max_by_key(|side| side["total_ios"].as_u64());
    Some(Burst {
        operations,
        bytes: operations * cell.bytes,
        ns,
        cpu_ns: (ns as f64 * share) as u64,
        paths: Paths::default(),
        latency: latency(&busier?["clat_ns"]),
    })
}

fn latency(all: &Value) -> Option<Latency> {
    let at = |share: &str| all["percentile"][share].as_f64().map(|ns| ns / 1e3);
    Some(Latency {
        p50: at("50.000000")?,
        p99: at("99.000000")?,
        p99_9: at("99.900000")?,
        max: all["max"].as_f64()? / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_is_read() {
        let percentile = json!({ "50.000000": 80_000, "99.000000": 300_000, "99.900000": 500_000 });
        let job = json!({
            "job_runtime": 500, "usr_cpu": 10.0, "sys_cpu": 30.0,
            "read": { "total_ios": 1000, "clat_ns": { "max": 900_000, "percentile": percentile } },
            "write": { "total_ios": 0, "clat_ns": { "max": 0 } },
        });
        let cell = Blocks { pattern: Pattern::RandRead, depth: 32, bytes: 4096 };
        let burst = burst(&job, cell).unwrap();
        assert_eq!((burst.operations, burst.ns, burst.cpu_ns), (1000, 500_000_000, 200_000_000));
        let latency = burst.latency.unwrap();
        assert_eq!((latency.p50, latency.p99_9, latency.max), (80.0, 500.0, 900.0));
        assert!(super::burst(&json!({}), cell).is_none());
    }
}
