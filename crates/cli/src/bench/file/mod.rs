//! `annulus bench file`: what it costs to open, write, read and close files, in threads and in tasks.

mod blocks;
pub(super) mod contenders;
mod far;
mod fio;
pub(super) mod room;
mod setup;
mod streams;
mod table;
mod work;
mod worker;

pub(crate) use setup::FileArgs;

use super::session::{Desk, Purpose, Rounds, Session};
use crate::bench::field::Field;
use crate::usage::Misuse;
use annulus_lab::contest::{Question, Rig};
use annulus_lab::environment::Environment;
use annulus_lab::file::{Burst, Report, Settings};
use annulus_lab::record::Record;
use annulus_lab::schedule::{Measure, Visit};
use annulus_lab::scratch::Scratch;
use anyhow::{Context, Result, bail};
use blocks::Ground;
use serde::Serialize;
use setup::{Setup, Work};
use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;
use work::Style;

/// What can be measured, one at a time.
trait Cell: Question<Answer = Burst> + Display + Serialize {}

impl<C: Question<Answer = Burst> + Display + Serialize> Cell for C {}

pub(crate) fn run(args: FileArgs) -> Result<ExitCode> {
    if let Some(style) = args.contender {
        return answer(style, &args).map(|()| ExitCode::SUCCESS);
    }
    let setup = Setup::new(args)?;
    match setup.work {
        Work::Cycles(cell) => bench(&setup, cell, Duration::ZERO, table::of_cycles),
        Work::Blocks(cell, slice) if cell.pattern.is_of_streams() => {
            bench(&setup, cell, slice, table::of_streams)
        }
        Work::Blocks(cell, slice) => bench(&setup, cell, slice, table::of_blocks),
    }
}

/// Is one of those that are measured.
fn answer(style: Style, args: &FileArgs) -> Result<()> {
    let folder = args.dir.as_deref().ok_or_else(|| Misuse("--contender needs --dir".into()))?;
    match args.pattern {
        None => work::answer_cycles(style, folder, args.driver, args.policy),
        Some(pattern) => {
            if pattern.is_of_streams() && args.far.is_none() {
                return Err(Misuse(format!("--contender --pattern {pattern} needs --far")).into());
            }
            let ground = Ground::new(folder, args.file_size(), args.direct);
            work::answer_blocks(style, &ground, args.far, args.driver, args.policy)
        }
    }
}

fn bench<C: Cell>(
    setup: &Setup,
    cell: C,
    slice: Duration,
    table: fn(&Report<C>) -> String,
) -> Result<ExitCode> {
    // What cannot be is told even while another measurement holds the lock.
    let scratch = scratch(setup)?;
    let desk = Desk::take(setup.json.clone())?;
    let report = measure(setup, cell, slice, scratch, &desk)?;
    desk.deliver(&report, || table(&report))?;
    if let Some(row) = report.failures().next() {
        let why = row.error.as_deref().unwrap_or_default();
        bail!("{} failed in {} slices: {why}", row.contender, row.failed);
    }
    Ok(desk.status())
}

fn scratch(setup: &Setup) -> Result<Scratch> {
    let cannot = |error| {
        let dir = setup.dir.display();
        Misuse(format!("--dir {dir}: cannot make a folder there: {error}; choose another"))
    };
    Ok(Scratch::within(&setup.dir).map_err(cannot)?)
}

fn measure<C: Cell>(
    setup: &Setup,
    cell: C,
    slice: Duration,
    scratch: Scratch,
    desk: &Desk,
) -> Result<Report<C>> {
    let mut conditions = setup.conditions;
    if let Some(land) = &mut conditions.land {
        let ground = Ground::new(scratch.path(), land.bytes, land.direct);
        let mut grounds = vec![ground.of_fio(land.pattern), ground];
        grounds.dedup_by(|one, other| one.path == other.path);
        let laid: Result<()> = grounds.iter().try_for_each(Ground::lay_out);
        laid.context("cannot lay the file out")?;
        if land.pattern.is_of_streams() {
            let other = setup.allowed.iter().copied().find(|core| *core != conditions.core);
            land.far = Some(far::serve(land.bytes, other)?);
        }
    }
    let field = contenders::field(&setup.contenders, conditions, scratch.path())?;
    let environment = Environment::read();
    let comparison = Comparison { settings: settings(setup, &field)?, environment };
    let report = match field.specs.len() {
        1 => look(setup, cell, slice, &field, &comparison)?,
        _ => compare(setup, cell, slice, &field, desk, &comparison)?,
    };
    let left = scratch.path().display().to_string();
    scratch.remove().with_context(|| format!("cannot remove {left}: remove it by hand"))?;
    Ok(report)
}

/// All of them in turn, round after round.
fn compare<C: Cell>(
    setup: &Setup,
    cell: C,
    slice: Duration,
    field: &Field,
    desk: &Desk,
    comparison: &Comparison,
) -> Result<Report<C>> {
    let rounds = Rounds { least: setup.rounds, most: setup.rounds };
    let cells = [cell];
    let mut session = Session::new(&field.names(), &cells, rounds, setup.seed);
    let mut rig = Rig::start(&field.specs, &cells, slice)?;
    session.measure(desk, &mut rig, comparison);
    Ok(comparison.report(&session))
}

/// One of them alone, and no control.
fn look<C: Cell>(
    setup: &Setup,
    cell: C,
    slice: Duration,
    field: &Field,
    comparison: &Comparison,
) -> Result<Report<C>> {
    let cells = [cell];
    let mut record = Record::new(&field.names(), &cells, setup.seed);
    let mut rig = Rig::without_control(&field.specs, &cells, slice)?;
    for round in 0..setup.rounds {
        let visit = Visit { round, server: 0, cell: 0 };
        record.keep(visit, rig.measure(visit));
    }
    let Comparison { settings, environment } = comparison;
    Ok(Report::new(&record, settings.clone(), environment, None))
}

/// What a report needs beside the slices.
struct Comparison {
    settings: Settings,
    environment: Environment,
}

impl<C: Clone + Display + Serialize> Purpose<C, Burst> for Comparison {
    type Report = Report<C>;

    fn report(&self, session: &Session<C, Burst>) -> Report<C> {
        let settings = self.settings.clone();
        Report::new(session.record(), settings, &self.environment, session.interrupted())
    }
}

fn settings(setup: &Setup, field: &Field) -> Result<Settings> {
    let terms = setup.conditions.terms(&setup.dir)?;
    Ok(field.settings("file", setup.rounds, setup.seed, terms))
}
