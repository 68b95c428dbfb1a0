//! The suite of NOP throughput.

use super::Run;
use super::plan::every;
use super::report::{Answers, Report};
use crate::bench::run::{RunLock, peers};
use annulus_lab::bench::{Plan, Report as Comparison, Rounds};
use annulus_lab::nop::{self, Setup};
use annulus_lab::suite::{Figure, Question};
use anyhow::Result;
use std::time::Duration;

pub(super) fn measure(run: &Run<'_>, lock: &RunLock) -> Result<Report> {
    let mut answers = Answers::default();
    let known = |name: &str| nop::CONTENDERS.iter().any(|known| known.name == name);
    let names = every(run.suite, |question| question.servers.clone());
    let (contenders, unknown): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| known(name));
    unknown.iter().for_each(|name| answers.note(format!("no contender '{name}' in this version")));
    let slice = Duration::from_millis(if run.plan.quick { 30 } else { 50 });
    let entries = every(run.suite, |question| question.entries.into_iter().collect());
    let rounds = Rounds::fixed(run.plan.rounds());
    let mut setup = Setup {
        plan: Plan { name: format!("suite {}", run.name), rounds, seed: run.plan.seed },
        contenders,
        entries,
        slice,
        core: run.plan.cores.server,
        peers: peers(),
    };
    let (servers, cost) = (setup.contenders.len() + 1, setup.cost());
    setup.entries = run.plan.thin(setup.entries, servers, |_| cost, &mut answers);
    run.carry_out(lock, setup.prepare()?, answers, figure)
}

fn figure(report: &Comparison, question: &Question, server: &str) -> Option<f64> {
    let row = report.row(server, &nop::cell(question.entries?))?;
    match question.figure {
        Figure::Rate => row.value("rate"),
        _ => None,
    }
}
