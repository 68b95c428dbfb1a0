//! fio as a contender, if it is installed.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::blocks::{Blocks, Pattern, TestFile};
use crate::bench::Sample;
use crate::child;

/// Whether it is installed; if not, the reason why it is missing.
pub(super) fn find() -> Result<(), String> {
    let seen = Command::new("fio").arg("--version").stdout(Stdio::null()).status();
    match seen {
        Ok(status) if status.success() => Ok(()),
        _ => Err("fio is left out: it is not installed (apt-get install fio)".into()),
    }
}

/// One run on io_uring with the same depth and duration.
pub(super) fn answer(file: &TestFile, cell: Blocks, slice: Duration) -> Result<Sample> {
    let order = match cell.pattern {
        Pattern::Mixed => "randrw".to_owned(),
        pattern => pattern.to_string(),
    };
    // A path need not be UTF-8.
    let mut filename = OsString::from("--filename=");
    filename.push(&file.path);
    let mut fio = Command::new("fio");
    fio.args(["--name=annulus", "--ioengine=io_uring", "--time_based", "--norandommap"])
        .args(["--randrepeat=0", "--output-format=json"])
        .arg(filename)
        .arg(format!("--size={}", file.bytes))
        .arg(format!("--rw={order}"))
        .arg(format!("--bs={}", cell.bytes))
        .arg(format!("--iodepth={}", cell.depth))
        .arg(format!("--direct={}", u8::from(file.direct)))
        // As in our contenders.
        .arg(format!("--fixedbufs={}", u8::from(file.direct)))
        .arg(format!("--runtime={}ms", slice.as_millis().max(1)));
    let output = child::output(fio).context("cannot start fio")?;
    if !output.status.success() {
        let finished = String::from_utf8_lossy(&output.stderr);
        bail!("fio: {}: {}", output.status, finished.lines().next().unwrap_or_default());
    }
    let report: Value =
        serde_json::from_slice(&output.stdout).context("fio's answer is no JSON")?;
    sample(&report["jobs"][0], cell).context("fio's answer lacks what is needed")
}

/// The sample of a job in fio's report.
fn sample(job: &Value, cell: Blocks) -> Option<Sample> {
    let sides = ["read", "write"].map(|side| &job[side]);
    let operations = sides.iter().filter_map(|side| side["total_ios"].as_u64()).sum::<u64>();
    let ns = job["job_runtime"].as_u64()? as f64 * 1e6;
    let share = (job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?) / 100.0;
    let mut sample = Sample::from([
        ("operations", operations as f64),
        ("bytes", operations as f64 * cell.bytes as f64),
        ("ns", ns),
        ("cpu_ns", ns * share),
    ]);
    let busier = sides.into_iter().max_by_key(|side| side["total_ios"].as_u64())?;
    let latency = &busier["clat_ns"];
    let percentile = |share: &str| latency["percentile"][share].as_f64();
    for (name, ns) in [
        ("p50_us", percentile("50.000000")),
        ("p99_us", percentile("99.000000")),
        ("p99_9_us", percentile("99.900000")),
        ("max_us", latency["max"].as_f64()),
    ] {
        sample.set(name, ns? / 1e3);
    }
    Some(sample)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_report_of_fio_is_parsed() {
        let percentile = json!({ "50.000000": 80_000, "99.000000": 300_000, "99.900000": 500_000 });
        let job = json!({
            "job_runtime": 500, "usr_cpu": 10.0, "sys_cpu": 30.0,
            "read": { "total_ios": 1000, "clat_ns": { "max": 900_000, "percentile": percentile } },
            "write": { "total_ios": 0, "clat_ns": { "max": 0 } },
        });
        let cell = Blocks { pattern: Pattern::RandRead, depth: 32, bytes: 4096 };
        let sample = super::sample(&job, cell).expect("a sample");
        let numbers = ["operations", "ns", "cpu_ns", "p50_us", "p99_9_us", "max_us"];
        let numbers = numbers.map(|name| sample.get(name).expect("it is told"));
        assert_eq!(numbers, [1000.0, 5e8, 2e8, 80.0, 500.0, 900.0]);
        assert!(super::sample(&json!({}), cell).is_none());
    }
}
