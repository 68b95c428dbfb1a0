use crate::recording::{Recording, RunInfo};
use serde::Serialize;

/// A setting that differs between the two sides, or among the runs of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanDifference {
    /// The name of the setting.
    pub what: &'static str,
    /// The values for A; more than one if its runs differ.
    pub a: Vec<String>,
    /// The values for B; more than one if its runs differ.
    pub b: Vec<String>,
}

type ComparedSetting = (&'static str, fn(&RunInfo) -> String);

/// Settings that may affect the figures of a run.
const COMPARED_SETTINGS: [ComparedSetting; 15] = [
    ("workload", |run| run.workload.to_string()),
    ("server", |run| run.address.clone()),
    ("protocol", |run| run.protocol.clone()),
    ("bytes", |run| run.length.map_or("several".into(), |length| length.to_string())),
    ("connections", |run| run.connections.to_string()),
    ("in flight", |run| run.pipeline.to_string()),
    ("schedule", |run| run.schedule.clone()),
    ("rate", |run| run.rate.map_or("as answered".into(), |rate| rate.to_string())),
    ("threads", |run| run.threads.to_string()),
    ("driver", |run| run.driver.clone()),
    ("warm-up", |run| format!("{} s", run.warm_up)),
    ("duration", |run| format!("{} s", run.duration)),
    ("host", |run| run.machine.host.clone()),
    ("kernel", |run| run.machine.kernel.clone()),
    ("annulus", |run| run.annulus.clone()),
];

/// Returns the settings that are not the same in all runs of both sides.
pub(super) fn differences(a: &[Recording], b: &[Recording]) -> Vec<PlanDifference> {
    let difference = |(what, of): ComparedSetting| {
        let [a, b] = [a, b].map(|runs| values(runs, of));
        (a != b || a.len() > 1).then_some(PlanDifference { what, a, b })
    };
    COMPARED_SETTINGS.into_iter().filter_map(difference).collect()
}

fn values(runs: &[Recording], of: fn(&RunInfo) -> String) -> Vec<String> {
    let mut values: Vec<String> = runs.iter().map(|run| of(&run.run)).collect();
    values.sort();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(connections: u64, address: &str) -> Recording {
        Recording::new(RunInfo { connections, address: address.into(), ..RunInfo::default() })
    }

    #[test]
    fn identical_plans_have_no_differences() {
        assert_eq!(differences(&[run(1, "a"), run(1, "a")], &[run(1, "a")]), []);
    }

    #[test]
    fn differences_between_and_within_sides_are_listed() {
        let found = differences(&[run(50, "a"), run(60, "a")], &[run(50, "b")]);
        assert_eq!(
            found.iter().map(|found| found.what).collect::<Vec<_>>(),
            ["server", "connections"]
        );
        assert_eq!((found[1].a.len(), found[1].b.len()), (2, 1));
    }
}
