//! The findings of the doctor.

use super::limits::{self, Limit};
use annulus::{DriverChoice, DriverInfo, DriverKind, Runtime};
use annulus_ring::{Feature, Features};
use anyhow::{Context, Result};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct Findings {
    /// The version of annulus.
    pub(super) version: &'static str,
    pub(super) kernel: String,
    pub(super) io_uring: Uring,
    /// The driver that `auto` chooses.
    pub(super) driver: Driver,
    pub(super) limits: Vec<Limit>,
    /// Missing features, each with its benefit.
    pub(super) missing: Vec<String>,
    /// When to enable features that are off by default.
    pub(super) advice: Vec<String>,
}

/// io_uring as this process may use it.
#[derive(Debug, Serialize)]
pub(super) struct Uring {
    pub(super) available: bool,
    pub(super) error: Option<String>,
    pub(super) features: Vec<FeatureReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct FeatureReport {
    pub(super) name: &'static str,
    pub(super) since: String,
    pub(super) present: bool,
    pub(super) buys: &'static str,
}

/// A driver and the reason for choosing it.
#[derive(Debug, Serialize)]
pub(super) struct Driver {
    pub(super) kind: String,
    pub(super) reason: String,
}

/// Builds a runtime with a driver and returns information on the driver.
pub(super) fn build(choice: DriverChoice) -> Result<DriverInfo> {
    let runtime = Runtime::builder().driver(choice).build();
    let runtime = runtime.with_context(|| format!("the {choice} driver does not work here"))?;
    Ok(runtime.driver().clone())
}

impl Findings {
    pub(super) fn gather() -> Findings {
        let io_uring = Uring::detect();
        let driver = Driver::choose();
        Findings {
            version: env!("CARGO_PKG_VERSION"),
            kernel: limits::sysctl("kernel/osrelease").unwrap_or_else(|| "unknown".into()),
            missing: io_uring.missing(),
            io_uring,
            advice: driver.advice(),
            driver,
            limits: limits::gather(),
        }
    }
}

/// When busy polling pays off.
const BUSY_POLLING_ADVICE: &str = "busy polling (echo --busy-poll 50): for a few clients that each wait for a reply, if \
    latency is worth a core; it stops by itself if it does not pay off";

/// Why `auto` never prefers epoll.
const EPOLL_ADVICE: &str = "epoll (ANNULUS_DRIVER=epoll): auto takes it only if io_uring does not work, because no \
    kept measurement shows that it takes less CPU time; annulus bench map compares both here";

impl Driver {
    /// Returns the driver that `auto` chooses.
    fn choose() -> Driver {
        match build(DriverChoice::Auto) {
            Ok(info) => Driver { kind: info.kind.to_string(), reason: info.reason },
            Err(error) => Driver { kind: "none".into(), reason: format!("{error:#}") },
        }
    }

    /// Returns advice for this driver. All of it is about io_uring.
    fn advice(&self) -> Vec<String> {
        if self.kind != DriverKind::Uring.to_string() {
            return Vec::new();
        }
        vec![BUSY_POLLING_ADVICE.into(), EPOLL_ADVICE.into()]
    }

    pub(super) fn works(&self) -> bool {
        self.kind != "none"
    }
}

impl Uring {
    fn detect() -> Uring {
        match Features::detect() {
            Ok(features) => {
                let features = features.iter().map(FeatureReport::new).collect();
                Uring { available: true, error: None, features }
            }
            Err(error) => {
                // The runtime's error states the cause and the remedy.
                let known = Runtime::builder().driver(DriverChoice::Uring).build().err();
                let error = known.map_or_else(|| error.to_string(), |known| known.to_string());
                Uring { available: false, error: Some(error), features: Vec::new() }
            }
        }
    }

    fn missing(&self) -> Vec<String> {
        let features = self.features.iter().filter(|line| !line.present);
        let mut missing: Vec<_> = features
            .map(|line| format!("{} (Linux {}): {}", line.name, line.since, line.buys))
            .collect();
        if let Some(error) = &self.error {
            missing.push(format!("io_uring: many requests per system call, and no buffer for an idle connection ({error})"));
        }
        missing
    }
}

impl FeatureReport {
    fn new(feature: &Feature) -> FeatureReport {
        let Feature { name, since: (major, minor), buys, present } = *feature;
        FeatureReport { name, since: format!("{major}.{minor}"), present, buys }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(present: bool) -> FeatureReport {
        FeatureReport {
            name: "bundles",
            since: "6.10".into(),
            present,
            buys: "several buffers per receive",
        }
    }

    #[test]
    fn a_missing_feature_says_what_it_provides() {
        let uring = Uring { available: true, error: None, features: vec![line(true), line(false)] };
        assert_eq!(uring.missing(), ["bundles (Linux 6.10): several buffers per receive"]);
        let uring = Uring { available: false, error: Some("blocked".into()), features: Vec::new() };
        assert!(uring.missing()[0].contains("(blocked)"));
    }
}
