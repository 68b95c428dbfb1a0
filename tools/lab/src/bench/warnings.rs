//! Reasons not to rely on a result, each in one sentence with a remedy.

use super::Bench;
use super::cell::Cell;
use super::contest::{control_differs, control_failed};
use super::metric::{Metric, Role};
use super::record::Record;
use super::report::Row;
use super::sweep::is_peak;
use super::verdict::CellVerdict;
use crate::cores::Cores;
use crate::environment::{Environment, OWN_PROGRAM};
use crate::process::Spec;
use annulus_load::stats::{Ratio, median};

/// Above this share of its core, the load rather than the server may be the bottleneck.
const SATURATED_CPU_SHARE: f64 = 0.9;

/// The name of a number in a sample: the share of its core that the load used, from 0 to 1.
pub const CLIENT_CPU_SHARE: &str = "client_cpu_share";

/// The name of a number in a sample: the CPU time of a client that is a program, in ns, from its
/// start to its end.
pub const CLIENT_CPU_NS: &str = "client_cpu_ns";

/// Above this share of slices with far cores, a run has a warning.
const MAX_FAR_SHARE: f64 = 0.01;

/// The Cargo profile that builds annulus like the programs that it is compared with.
const FULL_PROFILE: &str = "dist";

/// Returns all warnings about a run so far.
pub(super) fn all(
    bench: &Bench,
    record: &Record,
    controls: &[Row],
    environment: &Environment,
) -> Vec<String> {
    let shared = bench.cores.filter(|cores| cores.are_shared()).map(shared_core);
    let all = [
        shared,
        interrupted(bench, record),
        undecided(bench, record),
        imprecise(bench, record),
        saturated(bench, record),
        moved(record),
        deviating(bench, controls),
        varying(bench, controls),
        build(bench, environment),
    ];
    all.into_iter().flatten().collect()
}

/// Returns a warning if annulus is a debug build, or was not built like the programs that it is
/// compared with.
fn build(bench: &Bench, environment: &Environment) -> Option<String> {
    if environment.debug_build {
        return Some(
            "annulus is a debug build: its servers and its load take several times the CPU time of a release build; \
             build it with --release"
                .to_owned(),
        );
    }
    let profile = environment.profile.as_deref().filter(|profile| *profile != FULL_PROFILE)?;
    let specs = &bench.contenders.specs;
    let is_own = |spec: &&Spec| spec.program.file_name().is_some_and(|name| name == OWN_PROGRAM);
    let own = specs.iter().filter(is_own).count();
    (own > 0 && own < specs.len()).then(|| {
        format!(
            "annulus was built with the profile {profile}, without the link-time optimisation of the other programs: \
             its CPU time is too high; build it with `cargo build --profile {FULL_PROFILE} -p annulus-cli`"
        )
    })
}

fn shared_core(cores: Cores) -> String {
    match cores {
        Cores { server, load, .. } if server == load => format!(
            "server and load share core {server}: rates and latencies mean little, and CPU time includes \
             their effect on each other's caches"
        ),
        Cores { server, load, .. } => format!(
            "cores {server} and {load} are two threads of one core: server and load slow each other down; choose \
             other cores"
        ),
    }
}

fn interrupted(bench: &Bench, record: &Record) -> Option<String> {
    let (done, planned) = (record.slices().len(), bench.planned());
    (done < planned).then(|| {
        format!("interrupted after {done} of {planned} slices: these are the results so far")
    })
}

/// Returns a warning about undecided cells that lack some of their rounds, once all cells have the
/// minimum.
fn undecided(bench: &Bench, record: &Record) -> Option<String> {
    let rounds = &bench.plan.rounds;
    if !rounds.until_decided || record.slices().len() < bench.planned() {
        return None;
    }
    let is_open = |&cell: &usize| {
        record.rounds_of(cell) < rounds.most && CellVerdict::needs_rounds(bench, record, cell)
    };
    let open = (0..bench.cells.len()).filter(is_open);
    let cells = list(open.map(|cell| &bench.cells[cell]))?;
    Some(format!("interrupted: more rounds may decide {cells}: these are the results so far"))
}

fn imprecise(bench: &Bench, record: &Record) -> Option<String> {
    let half_width = bench.plan.rounds.precision.as_ref()?.half_width;
    let wide = (0..bench.cells.len()).filter(|&cell| !bench.is_precise(record, cell));
    let cells = list(wide.map(|cell| &bench.cells[cell]))?;
    Some(format!(
        "ratios are not known to within ± {half_width} at {cells}: allow more rounds (--rounds), or use a quieter \
         machine"
    ))
}

fn saturated(bench: &Bench, record: &Record) -> Option<String> {
    let share = |cell: usize| {
        let share = |contender| {
            let samples =
                record.outcomes(contender, cell).filter_map(|outcome| outcome.as_ref().ok());
            let shares = samples.filter_map(|sample| sample.get(CLIENT_CPU_SHARE));
            median(&shares.collect::<Vec<_>>())
        };
        let shares = (0..bench.contenders.all().count()).filter_map(share);
        shares.fold(0.0, f64::max)
    };
    let busy = || {
        (0..bench.cells.len()).map(|cell| (cell, share(cell))).filter(|c| c.1 > SATURATED_CPU_SHARE)
    };
    // In a sweep, only the cells that measure the peaks count: the other rates follow from them,
    // and beyond the peak the load is busy anyway.
    if bench.sweep.is_some() {
        let cells = list(busy().map(|(cell, _)| &bench.cells[cell]).filter(|cell| is_peak(cell)))?;
        return Some(format!(
            "the load was busy with its own core at the peak, {cells}: the peak may be the load's and not the \
             server's; give the load more threads (-t 2) and --share-cores, or use several machines"
        ));
    }
    let cells = list(busy().map(|(cell, _)| &bench.cells[cell]))?;
    let most = 100.0 * busy().map(|(_, share)| share).fold(0.0, f64::max);
    Some(format!(
        "the load used {most:.0} % of its core at {cells}: it may be the bottleneck, so rates and latencies may be wrong \
         (CPU time is unaffected)"
    ))
}

/// Returns a warning if the cores of servers and load were not always near each other.
fn moved(record: &Record) -> Option<String> {
    let (nearest, far) = (record.nearest()?, record.far_distances());
    let share = far.len() as f64 / record.slices().len() as f64;
    let distance = median(&far).filter(|_| share > MAX_FAR_SHARE)?;
    Some(format!(
        "in {:.0} % of the slices, a cache line took {distance:.0} ns instead of {nearest:.0} from the servers' core to \
         the load's and back, and requests cost more: the host has probably moved its cores; these slices do not count \
         where at least six others remain",
        100.0 * share
    ))
}

/// Returns the ratios of the metrics that decide, of one control.
fn deciding<'a>(bench: &'a Bench, control: &'a Row) -> impl Iterator<Item = Ratio> + 'a {
    let decides = |metric: &&Metric| matches!(metric.role, Role::Checked | Role::Primary);
    let figures = bench.metrics.iter().filter(decides).map(|of| control.figures.get(&of.key));
    figures.filter_map(|figure| figure?.ratio)
}

fn deviating(bench: &Bench, controls: &[Row]) -> Option<String> {
    let differs = |row: &&Row| deciding(bench, row).any(control_differs);
    let cells = list(controls.iter().filter(differs).map(|row| &row.cell))?;
    Some(format!(
        "the same contender, measured twice, gave different results at {cells}: only much larger differences count \
         there; measure more rounds on a quieter machine"
    ))
}

fn varying(bench: &Bench, controls: &[Row]) -> Option<String> {
    let varies = |ratio: Ratio| control_failed(ratio) && !control_differs(ratio);
    let only_varies =
        |row: &&Row| deciding(bench, row).any(varies) && !deciding(bench, row).any(control_differs);
    let cells = list(controls.iter().filter(only_varies).map(|row| &row.cell))?;
    Some(format!(
        "the same contender, measured twice, varied too much to compare with at {cells}: only much larger \
         differences count there; measure more rounds on a quieter machine"
    ))
}

/// Returns the names of the cells, or `None` without cells.
fn list<'a>(cells: impl Iterator<Item = &'a Cell>) -> Option<String> {
    let names: Vec<String> = cells.map(Cell::to_string).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::formula::Formula;
    use super::super::metric::{Metric, Role, Sample, cpu};
    use super::super::record::CORE_DISTANCE_NS;
    use super::super::report::Report;
    use super::super::schedule::Slice;
    use super::super::tests::{bench, record, sample};
    use super::super::{PERCENT_PARAMETER, Precision, Rounds, Sweep};
    use super::*;

    fn warnings(bench: &Bench, record: &Record) -> Vec<String> {
        let environment = Environment { debug_build: false, ..Environment::read() };
        Report::new(bench, record, &environment).warnings
    }

    #[test]
    fn an_undisturbed_run_has_no_warnings() {
        let record = record(3, 15, |index, _| [2.0, 4.0, 2.0][index]);
        assert_eq!(warnings(&bench(&["a", "b"]), &record), [""; 0]);
    }

    #[test]
    fn a_saturated_load_is_one_warning_with_its_cells() {
        let mut record = record(3, 15, |_, _| 2.0);
        for round in 0..15 {
            let mut busy = Sample::from([
                ("operations", 1000.0),
                ("cpu_ns", 2e6),
                ("ns", 2e6),
                ("p99_us", 40.0),
            ]);
            busy.set(CLIENT_CPU_SHARE, 0.97);
            record.keep(Slice { round, cell: 0, contender: 1 }, Ok(busy));
        }
        let warnings = warnings(&bench(&["a", "b"]), &record);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let expected = "the load used 97 % of its core at 50 connections × 128 bytes:";
        assert!(warnings[0].starts_with(expected), "{warnings:?}");
    }

    #[test]
    fn load_that_is_saturated_at_a_peak_is_a_warning_about_the_peak_only() {
        let mut bench = bench(&["a", "b"]);
        bench.cells.push(bench.cells[0].with(PERCENT_PARAMETER, 120.into()));
        bench.sweep = Some(Sweep::default());
        let mut record = Record::new();
        let mut keep = |cell, share| {
            let mut sample = Sample::from([("operations", 1000.0), ("ns", 2e6), ("p99_us", 40.0)]);
            sample.set(CLIENT_CPU_SHARE, share);
            for (round, contender) in (0..15).flat_map(|round| (0..3).map(move |one| (round, one)))
            {
                record.keep(Slice { round, cell, contender }, Ok(sample.clone()));
            }
        };
        keep(0, 0.5);
        keep(1, 0.97);
        assert_eq!(warnings(&bench, &record), [""; 0]);
        let mut record = record.clone();
        let mut sample = Sample::from([("operations", 1000.0), ("ns", 2e6), ("p99_us", 40.0)]);
        sample.set(CLIENT_CPU_SHARE, 0.97);
        for round in 0..15 {
            record.keep(Slice { round, cell: 0, contender: 1 }, Ok(sample.clone()));
        }
        let found = warnings(&bench, &record);
        assert!(
            found[0].contains("at the peak, 50 connections × 128 bytes: the peak may be"),
            "{found:?}"
        );
    }

    #[test]
    fn an_interval_wider_than_requested_is_a_warning() {
        let record =
            record(3, 15, |index, round| 2.0 + 0.1 * if index == 1 { round % 3 } else { 0 } as f64);
        let found = |half_width| {
            let mut bench = bench(&["a", "b"]);
            bench.plan.rounds.precision = Some(Precision { metric: "cpu_us".into(), half_width });
            warnings(&bench, &record).concat()
        };
        // The rounds' ratios are 1, 1.05 and 1.1.
        assert!(!found(0.06).contains('±'));
        assert!(found(0.01).contains("± 0.01 at 50 connections × 128 bytes"), "{}", found(0.01));
    }

    #[test]
    fn a_failed_control_and_a_short_run_are_warnings() {
        let failed = record(3, 15, |index, _| [2.0, 4.0, 2.5][index]);
        let found = warnings(&bench(&["a", "b"]), &failed);
        assert!(
            found[0].contains("gave different results at 50 connections × 128 bytes: "),
            "{found:?}"
        );
        let unsteady = |index: usize, round: usize| match index {
            2 => [1.5, 2.0, 2.5][round % 3],
            _ => 2.0,
        };
        let found = warnings(&bench(&["a", "b"]), &record(3, 15, unsteady));
        let text = "varied too much to compare with at 50 connections × 128 bytes: ";
        assert!(found.len() == 1 && found[0].contains(text), "{found:?}");
        let short = warnings(&bench(&["a", "b"]), &record(3, 4, |_, _| 2.0));
        assert!(short[0].starts_with("interrupted after 12 of 45 slices"), "{short:?}");
    }

    #[test]
    fn an_undecided_cell_without_all_rounds_is_a_warning() {
        let found = |until_decided, rounds| {
            let mut bench = bench(&["a", "b"]);
            if until_decided {
                bench.plan.rounds = Rounds::until_decided(8, 32);
            }
            let noisy = |index: usize, round: usize| [2.0, [1.9, 2.2][round % 2], 2.0][index];
            warnings(&bench, &record(3, rounds, noisy)).concat()
        };
        let text = "interrupted: more rounds may decide 50 connections × 128 bytes: ";
        assert!(found(true, 16).starts_with(text), "{}", found(true, 16));
        assert_eq!([found(true, 32), found(false, 15)], ["", ""]);
    }

    /// A checked metric causes a warning although it does not choose the winner.
    #[test]
    fn a_control_deviating_by_a_checked_metric_is_a_warning() {
        let mut bench = bench(&["a", "b"]);
        bench.metrics.push(Metric {
            key: "real".into(),
            role: Role::Checked,
            of: Formula::number("p99_us"),
            ..cpu()
        });
        let mut record = record(3, 15, |_, _| 2.0);
        for round in 0..15 {
            let slow = [("operations", 1000.0), ("cpu_ns", 2e6), ("ns", 2e6), ("p99_us", 80.0)];
            record.keep(Slice { round, cell: 0, contender: 2 }, Ok(Sample::from(slow)));
        }
        assert!(warnings(&bench, &record)[0].contains("measured twice"));
    }

    #[test]
    fn a_debug_build_is_a_warning() {
        let environment = Environment { debug_build: true, ..Environment::read() };
        let record = record(2, 15, |_, _| 1.0);
        let found = Report::new(&bench(&["a"]), &record, &environment).warnings;
        assert!(found.len() == 1 && found[0].starts_with("annulus is a debug build"), "{found:?}");
    }

    #[test]
    fn an_annulus_that_is_built_unlike_its_rivals_is_a_warning() {
        let record = record(2, 15, |_, _| 1.0);
        let mut bench = bench(&["a", "b"]);
        for (programs, profile, expected) in [
            (["annulus", "other"], Some("release"), true),
            (["annulus", "other"], Some("dist"), false),
            (["annulus", "other"], None, false),
            (["annulus", "annulus"], Some("release"), false),
            (["tokio", "other"], Some("release"), false),
        ] {
            let profile = profile.map(str::to_owned);
            let environment = Environment { debug_build: false, profile, ..Environment::read() };
            for (spec, program) in bench.contenders.specs.iter_mut().zip(programs) {
                spec.program = format!("/some/{program}").into();
            }
            let found = Report::new(&bench, &record, &environment).warnings;
            let has_warned =
                found.iter().any(|found| found.contains("was built with the profile release"));
            assert_eq!(has_warned, expected, "{programs:?} {:?}: {found:?}", environment.profile);
        }
    }

    #[test]
    fn cores_that_were_moved_are_a_warning() {
        let mut record = record(3, 15, |index, _| [2.0, 4.0, 2.0][index]);
        for round in 0..15 {
            let distance = if round < 3 { 330.0 } else { 55.0 };
            let mut sample = sample(4.0);
            sample.set(CORE_DISTANCE_NS, distance);
            record.keep(Slice { round, cell: 0, contender: 1 }, Ok(sample));
        }
        let found = warnings(&bench(&["a", "b"]), &record);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0]
                .starts_with("in 7 % of the slices, a cache line took 330 ns instead of 55 from"),
            "{found:?}"
        );
    }

    #[test]
    fn a_shared_core_is_a_warning() {
        let mut bench = bench(&["a"]);
        bench.cores = Some(Cores::new(0, 0));
        let warnings = warnings(&bench, &record(2, 15, |_, _| 1.0));
        assert!(warnings[0].starts_with("server and load share core 0"), "{warnings:?}");
    }
}
