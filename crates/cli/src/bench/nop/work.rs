//! Our own contenders at work: a question a line, an answer a line.

use super::setup::MAX_ENTRIES;
use crate::bench::moment::Moment;
use crate::usage::Misuse;
use annulus::Runtime;
use annulus::ring::{Ring, Wait};
use annulus_driver::{Kind, Slab, Token};
use anyhow::{Context, Result, anyhow, ensure};
use clap::ValueEnum;
use std::cell::RefCell;
use std::io::{self, BufRead};
use std::rc::Rc;
use std::time::Duration;

/// Operations between two looks at the clock, at least.
const STRIDE: u64 = 4096;

/// How much of the ring is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Style {
    Ring,
    Lookup,
    Task,
}

/// Answers until there are no more questions.
pub(super) fn answer_all(style: Style) -> Result<()> {
    for question in io::stdin().lock().lines() {
        let (entries, window) = parse(&question.context("cannot read the next question")?)?;
        let answer = style.work(entries, Meter::new(window))?;
        crate::output::print(&answer)?;
    }
    Ok(())
}

fn parse(question: &str) -> Result<(u32, Duration)> {
    let numbers = || {
        let (entries, seconds) = question.split_once(' ')?;
        let entries = entries.parse().ok().filter(|entries| (1..=MAX_ENTRIES).contains(entries))?;
        Some((entries, Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?))
    };
    let usage = || format!("'{question}' is not ENTRIES SECONDS, with 1 to {MAX_ENTRIES} entries");
    Ok(numbers().ok_or_else(|| Misuse(usage()))?)
}

impl Style {
    fn work(self, entries: u32, meter: Meter) -> Result<String> {
        match self {
            Style::Ring => ring(entries, meter),
            Style::Lookup => lookup(entries, meter),
            Style::Task => task(entries, meter),
        }
    }
}

/// Nothing but the ring.
fn ring(entries: u32, mut meter: Meter) -> Result<String> {
    let mut ring = small_ring(entries)?;
    loop {
        for n in 0..entries {
            ring.push_nop(n.into())?;
        }
        ring.enter(Wait::No)?;
        let mut answers = 0;
        for completion in ring.completions() {
            expect(completion.result)?;
            answers += 1;
        }
        if !meter.count(answers, entries)? {
            return Ok(meter.answer());
        }
    }
}

/// Each operation has a slot, and each completion finds it, as in the runtime.
fn lookup(entries: u32, mut meter: Meter) -> Result<String> {
    let mut ring = small_ring(entries)?;
    let mut slots = Slab::new();
    let all: Vec<u32> = (0..entries).map(|_| slots.insert(0u64)).collect();
    loop {
        for &slot in &all {
            ring.push_nop(Token::new(Kind::Nop, slots.generation(slot), slot).bits())?;
        }
        ring.enter(Wait::No)?;
        let mut answers = 0;
        for completion in ring.completions() {
            expect(completion.result)?;
            let token = Token::from_bits(completion.user_data).context("somebody else's token")?;
            *slots.find(token.slot(), token.generation()).context("a slot is gone")? += 1;
            answers += 1;
        }
        if !meter.count(answers, entries)? {
            // Every slot was found as often as every other.
            let once = *slots.get(all[0]);
            ensure!(all.iter().all(|&slot| *slots.get(slot) == once), "a completion went astray");
            return Ok(meter.answer());
        }
    }
}

/// A task for each entry, woken by its completion to ask again.
fn task(entries: u32, meter: Meter) -> Result<String> {
    let driver = annulus::DriverChoice::Uring;
    let builder = Runtime::builder().driver(driver).entries(entries).completions(2 * entries);
    let meter = Rc::new(RefCell::new(meter));
    builder.build()?.block_on(async {
        let worker = |_| {
            let meter = meter.clone();
            annulus::spawn(async move {
                loop {
                    annulus::nop().await?;
                    if !meter.borrow_mut().goes_on(1) {
                        return io::Result::Ok(());
                    }
                }
            })
        };
        for worker in (0..entries).map(worker).collect::<Vec<_>>() {
            worker.await.map_err(|error| anyhow!("{error}"))??;
        }
        let answer = meter.borrow().answer();
        Ok(answer)
    })?
}

/// A ring whose completion queue holds one turn's.
fn small_ring(entries: u32) -> Result<Ring> {
    Ok(Ring::builder().entries(entries).completions(entries).build()?)
}

fn expect(result: i32) -> Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result).into()) } else { Ok(()) }
}

/// Counts operations, and knows when to begin and when to stop: a fifth of the window goes before it.
struct Meter {
    window: Duration,
    operations: u64,
    next_look: u64,
    born: Moment,
    opened: Option<(Moment, u64)>,
    closed: Option<(Moment, u64)>,
}

impl Meter {
    fn new(window: Duration) -> Meter {
        let born = Moment::now();
        Meter { window, operations: 0, next_look: 0, born, opened: None, closed: None }
    }

    /// Counts a turn, which must have brought an answer to everything. False when it is time to stop.
    fn count(&mut self, answers: u64, entries: u32) -> Result<bool> {
        ensure!(answers == u64::from(entries), "{answers} completions came of {entries}");
        Ok(self.goes_on(answers))
    }

    /// Counts operations. False when it is time to stop.
    #[inline]
    fn goes_on(&mut self, operations: u64) -> bool {
        self.operations += operations;
        self.operations < self.next_look || self.look()
    }

    #[cold]
    fn look(&mut self) -> bool {
        self.next_look = self.operations + STRIDE;
        let now = (Moment::now(), self.operations);
        match self.opened {
            None if (now.0 - self.born).wall >= self.window / 5 => self.opened = Some(now),
            Some((opened, _)) if (now.0 - opened).wall >= self.window => {
                self.closed.get_or_insert(now);
                // Everybody else is to hear of it, too.
                self.next_look = 0;
            }
            _ => {}
        }
        self.closed.is_none()
    }

    /// `OPERATIONS NANOSECONDS CPU_NANOSECONDS`, once it was time to stop.
    fn answer(&self) -> String {
        let (opened, closed) =
            self.opened.zip(self.closed).expect("asked for when the window has closed");
        let ((from, before), (to, after)) = (opened, closed);
        let spent = to - from;
        format!("{} {} {}\n", after - before, spent.wall.as_nanos(), spent.cpu.as_nanos())
    }
}
