//! Who won a cell, and whether anybody may say so.

use std::fmt;

use crate::record::{Metric, Record};
use crate::schedule::Cell;
use crate::stats::{FEWEST_ROUNDS, Ratio};

/// How far from 1 the whole interval of the control may lie before the cell is worth nothing.
pub const CONTROL_TOLERANCE: f64 = 0.02;

/// How wide half of the control's interval may be: beyond that, a cell without a winner is worth
/// nothing.
pub const CONTROL_HALF_WIDTH: f64 = 0.10;

/// A winner by CPU must answer at least this multiple of the other's requests a second …
const LEAST_RATE: f64 = 0.97;

/// … with at most this multiple of its p99: else a server that only batches lazily would win.
const MOST_P99: f64 = 1.1;

/// What a cell showed. Its `Display` is the sentence for people, without the cell's name.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// One server needs less CPU a request than every other, by more than the control strayed, and
    /// answers no slower.
    Wins {
        /// The winner.
        winner: String,
        /// Its CPU a request, and its requests a second, as a multiple of each other's.
        over: Vec<(String, Ratio, Ratio)>,
    },
    /// One server needs less CPU a request than every other, but is slower than one of them.
    Slower {
        /// The one that needs least.
        least: String,
        /// The one it is slower than.
        than: String,
        /// CPU a request, requests a second and p99 as a multiple of that one's.
        ratios: [Ratio; 3],
    },
    /// Who needs least can't be told from another.
    Tied {
        /// The least median.
        least: String,
        /// The first of those it can't be told from.
        with: String,
        /// CPU a request as a multiple of that one's.
        cpu: Ratio,
        /// The control's: how far the same server strayed from itself.
        control: Ratio,
    },
    /// There was only one server.
    Alone {
        /// Its control.
        control: Ratio,
    },
    /// The control differs from the server that it is a copy of.
    ControlDiffers(Ratio),
    /// The control's interval is too wide to tell what is left to tell.
    ControlWide(Ratio),
    /// A server failed here.
    Failed {
        /// The server.
        server: String,
        /// How many of its slices failed.
        failed: usize,
        /// Out of how many.
        slices: usize,
        /// The first reason.
        reason: String,
    },
    /// Too few rounds for an interval.
    FewRounds(usize),
}

impl Verdict {
    /// The verdict on one cell.
    pub fn of(record: &Record, cell: usize) -> Verdict {
        failure(record, cell)
            .or_else(|| few_rounds(record, cell))
            .unwrap_or_else(|| judge(record, cell))
    }

    /// The winner's name, if one may be named.
    pub fn winner(&self) -> Option<&str> {
        match self {
            Verdict::Wins { winner, .. } => Some(winner),
            _ => None,
        }
    }

    /// Whether the cell's figures may not be used to compare.
    pub fn is_worthless(&self) -> bool {
        matches!(self, Verdict::ControlDiffers(_) | Verdict::ControlWide(_))
    }

    /// Whether a server failed.
    pub fn is_failure(&self) -> bool {
        matches!(self, Verdict::Failed { .. })
    }

    /// The sentence with the cell before it.
    pub fn sentence(&self, cell: Cell) -> String {
        format!("{cell}: {self}")
    }
}

/// Whether a control strayed so far from the server it is a copy of that nothing can be said beside it.
pub fn control_failed(control: Ratio) -> bool {
    control.distance() > CONTROL_TOLERANCE || control.half_width() > Some(CONTROL_HALF_WIDTH)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Wins { winner, over } => write_win(f, winner, over),
            Verdict::Slower { least, than, ratios: [cpu, rate, p99] } => write!(
                f,
                "no winner: {least} takes {cpu} × the CPU of {than}, but answers {:.2} × its \
                 requests with {:.2} × its p99",
                rate.median, p99.median
            ),
            Verdict::Tied { least, with, cpu, control } => {
                write!(f, "can't tell {least} from {with}: {cpu} × its CPU, the control {control}")
            }
            Verdict::Alone { control } => {
                write!(f, "nothing to compare with; measured twice, it is {control} × itself")
            }
            Verdict::ControlDiffers(ratio) => {
                write!(f, "worth nothing: the control differs from itself, {ratio}; run it again")
            }
            Verdict::ControlWide(ratio) => {
                write!(f, "worth nothing: the control is too unsteady, {ratio}; take more rounds")
            }
            Verdict::Failed { server, failed, slices, reason } => {
                write!(f, "no verdict: {server} failed in {failed} of {slices} slices: {reason}")
            }
            Verdict::FewRounds(rounds) => {
                write!(f, "can't tell: {rounds} rounds, an interval needs {FEWEST_ROUNDS}")
            }
        }
    }
}

fn write_win(
    f: &mut fmt::Formatter<'_>,
    winner: &str,
    over: &[(String, Ratio, Ratio)],
) -> fmt::Result {
    write!(f, "{winner} wins: ")?;
    for (place, (other, cpu, rate)) in over.iter().enumerate() {
        let comma = if place == 0 { "" } else { "; " };
        write!(f, "{comma}{cpu} × the CPU of {other}, {:.2} × its requests/s", rate.median)?;
    }
    Ok(())
}

fn failure(record: &Record, cell: usize) -> Option<Verdict> {
    (0..record.servers().len()).find_map(|server| {
        let outcomes: Vec<_> = record.slices_of(server, cell).map(|(_, outcome)| outcome).collect();
        let reason = outcomes.iter().find_map(|outcome| outcome.as_ref().err())?.clone();
        let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
        let server = record.servers()[server].clone();
        Some(Verdict::Failed { server, failed, slices: outcomes.len(), reason })
    })
}

fn few_rounds(record: &Record, cell: usize) -> Option<Verdict> {
    let rounds = (0..record.servers().len())
        .map(|server| record.values(Metric::Cpu, server, cell).len())
        .min()
        .unwrap_or(0);
    (rounds < FEWEST_ROUNDS).then_some(Verdict::FewRounds(rounds))
}

/// The winner among the servers asked for, where every one of them has an interval and the control
/// does not forbid one.
fn judge(record: &Record, cell: usize) -> Verdict {
    let control = record
        .ratio(Metric::Cpu, record.control(), 0, cell)
        .expect("every server has enough rounds here, the control too");
    if control.distance() > CONTROL_TOLERANCE {
        return Verdict::ControlDiffers(control);
    }
    let (least, others) = contest(record, cell);
    if others.is_empty() {
        return Verdict::Alone { control };
    }
    let steady = control.half_width() <= Some(CONTROL_HALF_WIDTH);
    match decide(least, others, control) {
        Verdict::Tied { .. } if !steady => Verdict::ControlWide(control),
        verdict => verdict,
    }
}

/// The server that needs least CPU, and its figures against each other one's.
fn contest(record: &Record, cell: usize) -> (String, Vec<Against>) {
    let cost = |server: &usize| record.median(Metric::Cpu, *server, cell).unwrap_or(f64::MAX);
    let least = (0..record.control())
        .min_by(|a, b| cost(a).total_cmp(&cost(b)))
        .expect("a record has at least one server");
    let others = (0..record.control())
        .filter(|&other| other != least)
        .filter_map(|other| Against::new(record, least, other, cell));
    (record.servers()[least].clone(), others.collect())
}

fn decide(least: String, others: Vec<Against>, control: Ratio) -> Verdict {
    // That its interval excludes 1 is not enough: so far as the control strays, anybody may.
    let margin = control.reach();
    if let Some(other) = others.iter().find(|other| !other.cpu.is_below_one(margin)) {
        return Verdict::Tied { least, with: other.name.clone(), cpu: other.cpu, control };
    }
    if let Some(other) = others.iter().find(|other| other.is_faster()) {
        let ratios = [other.cpu, other.rate, other.p99];
        return Verdict::Slower { least, than: other.name.clone(), ratios };
    }
    let over = others.into_iter().map(|other| (other.name, other.cpu, other.rate)).collect();
    Verdict::Wins { winner: least, over }
}

/// The figures of the one that needs least CPU, as multiples of another's.
struct Against {
    name: String,
    cpu: Ratio,
    rate: Ratio,
    p99: Ratio,
}

impl Against {
    fn new(record: &Record, least: usize, other: usize, cell: usize) -> Option<Against> {
        let ratio = |metric| record.ratio(metric, least, other, cell);
        Some(Against {
            name: record.servers()[other].clone(),
            cpu: ratio(Metric::Cpu)?,
            rate: ratio(Metric::Rate)?,
            p99: ratio(Metric::P99)?,
        })
    }

    fn is_faster(&self) -> bool {
        self.rate.median < LEAST_RATE || self.p99.median > MOST_P99
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{record, sample};
    use crate::schedule::Visit;

    /// Noise of a few thousandths that differs by server and round.
    fn noise(server: usize, round: usize) -> f64 {
        1.0 + ((server * 7 + round * 5) % 11) as f64 / 2000.0
    }

    fn verdict(servers: &[&str], cpu: impl Fn(usize) -> f64) -> Verdict {
        let record = record(servers, 15, |server, round| cpu(server) * noise(server, round));
        Verdict::of(&record, 0)
    }

    #[test]
    fn the_cheaper_server_wins_by_how_much() {
        let verdict = verdict(&["uring", "threads"], |server| [2.0, 4.0, 2.0][server]);
        assert_eq!(verdict.winner(), Some("uring"));
        let text = verdict.to_string();
        assert!(text.starts_with("uring wins: 0.5"), "{text}");
        assert!(text.ends_with("× the CPU of threads, 2.00 × its requests/s"), "{text}");
    }

    #[test]
    fn the_order_of_the_servers_does_not_pick_the_winner() {
        let verdict = verdict(&["threads", "uring"], |server| [4.0, 2.0, 4.0][server]);
        assert_eq!(verdict.winner(), Some("uring"));
    }

    #[test]
    fn a_server_that_ties_with_the_best_takes_the_win_away() {
        let verdict = verdict(&["a", "b", "c"], |server| [2.0, 2.0, 4.0, 2.0][server]);
        assert!(matches!(&verdict, Verdict::Tied { .. }), "{verdict:?}");
        assert_eq!(verdict.winner(), None);
    }

    #[test]
    fn three_servers_are_each_named_in_a_win() {
        let verdict = verdict(&["a", "b", "c"], |server| [2.0, 3.0, 4.0, 2.0][server]);
        let text = verdict.to_string();
        assert!(text.contains("CPU of b") && text.contains("CPU of c"), "{text}");
    }

    #[test]
    fn a_control_that_differs_spoils_the_cell() {
        let verdict = verdict(&["uring", "threads"], |server| [2.0, 4.0, 2.1][server]);
        assert!(verdict.is_worthless() && verdict.winner().is_none(), "{verdict:?}");
        assert!(verdict.to_string().contains("differs from itself, 1.0"), "{verdict}");
    }

    #[test]
    fn nobody_wins_by_less_than_the_control_strayed() {
        let close = |other: f64| verdict(&["a", "b"], |server| [2.0, other, 2.03][server]);
        assert!(matches!(close(2.02), Verdict::Tied { .. }), "{:?}", close(2.02));
        assert_eq!(close(2.2).winner(), Some("a"));
    }

    #[test]
    fn a_control_that_jumps_about_hides_what_is_smaller_than_its_jumps() {
        let jumpy = |other: f64| {
            let record = record(&["a", "b"], 15, |server, round| match server {
                1 => other,
                2 => [1.5, 2.0, 2.5][round % 3],
                _ => 2.0,
            });
            Verdict::of(&record, 0)
        };
        assert!(matches!(jumpy(2.2), Verdict::ControlWide(_)), "{:?}", jumpy(2.2));
        assert_eq!(jumpy(4.0).winner(), Some("a"));
    }

    #[test]
    fn less_cpu_but_fewer_requests_is_no_win() {
        let mut record = record(&["lazy", "eager"], 15, |server, _| [2.0, 4.0, 2.0][server]);
        for round in 0..15 {
            let slow = crate::record::Sample { requests_per_second: 100.0, ..sample(2.0) };
            record.keep(Visit { round, server: 0, cell: 0 }, Ok(slow));
        }
        let verdict = Verdict::of(&record, 0);
        let text = verdict.to_string();
        assert_eq!(verdict.winner(), None);
        assert!(text.starts_with("no winner: lazy takes 0.500"), "{text}");
        assert!(text.ends_with("answers 0.40 × its requests with 0.50 × its p99"), "{text}");
    }

    #[test]
    fn one_failed_slice_is_told_and_nobody_wins() {
        let mut record = record(&["a", "b"], 15, |server, _| [2.0, 4.0, 2.0][server]);
        record.keep(Visit { round: 3, server: 1, cell: 0 }, Err("reset by the peer".into()));
        let verdict = Verdict::of(&record, 0);
        assert!(verdict.is_failure());
        let text = verdict.sentence(record.cells()[0]);
        assert_eq!(
            text,
            "50 clients × 128 bytes: no verdict: b failed in 1 of 15 slices: reset by the peer"
        );
    }

    #[test]
    fn too_few_rounds_name_no_winner_however_clear() {
        let record = record(&["a", "b"], 5, |server, _| [1.0, 9.0, 1.0][server]);
        assert_eq!(Verdict::of(&record, 0), Verdict::FewRounds(5));
    }

    #[test]
    fn a_server_alone_has_only_its_control() {
        let verdict = verdict(&["a"], |_| 2.0);
        assert!(matches!(verdict, Verdict::Alone { .. }), "{verdict:?}");
    }
}
