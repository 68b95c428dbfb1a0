//! Annulus's own contenders for NOP throughput.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use annulus::Runtime;
use annulus_driver::{OpKind, Slab, Token};
use annulus_ring::{Ring, Wait, op};
use anyhow::{Context, Result, anyhow, ensure};

use crate::bench::Sample;
use crate::jobs::{self, ClockSample};
use crate::usage_error::{UsageError, find_own};

/// The largest submission queue that the kernel supports.
pub const MAX_ENTRIES: u32 = 32_768;

/// The minimum number of operations between two readings of the clock.
const OPERATIONS_PER_CLOCK_READ: u64 = 4096;

/// Measures a contender with this many entries.
type ContenderFn = fn(u32, Meter) -> Result<Sample>;

/// The contenders: the ring alone; the ring with a slot per operation, which its completion looks
/// up by its token; and the runtime, with a task per operation, which its completion wakes.
const CONTENDERS: [(&str, ContenderFn); 3] = [("ring", ring), ("lookup", lookup), ("task", task)];

/// Acts as a contender: answers jobs until its input ends.
///
/// # Errors
/// If the name or a job is invalid, or a ring is not available.
pub fn answer_all(name: &str) -> Result<()> {
    let run = find_own(&CONTENDERS, name)?;
    jobs::answer_all(|job| {
        let (entries, window) = parse(job)?;
        run(entries, Meter::new(window))
    })
}

fn parse(job: &str) -> Result<(u32, Duration), UsageError> {
    let numbers = || {
        let (entries, seconds) = job.split_once(' ')?;
        let entries = entries.parse().ok().filter(|entries| (1..=MAX_ENTRIES).contains(entries))?;
        Some((entries, Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?))
    };
    let usage = || format!("'{job}' is not ENTRIES SECONDS, with 1 to {MAX_ENTRIES} entries");
    numbers().ok_or_else(|| UsageError(usage()))
}

fn ring(entries: u32, mut meter: Meter) -> Result<Sample> {
    let mut ring = small_ring(entries)?;
    loop {
        for n in 0..entries {
            ring.push(op::Nop.entry().user_data(n.into()))?;
        }
        ring.enter(Wait::No)?;
        let mut completed = 0;
        for completion in ring.completions() {
            expect(completion.result)?;
            completed += 1;
        }
        if !meter.count(completed, entries)? {
            return Ok(meter.sample());
        }
    }
}

/// Measures the ring with a slot per operation, which its completion looks up as in the runtime.
fn lookup(entries: u32, mut meter: Meter) -> Result<Sample> {
    let mut ring = small_ring(entries)?;
    let mut slots = Slab::new();
    let all: Vec<u32> = (0..entries).map(|_| slots.insert(0u64)).collect();
    loop {
        for &slot in &all {
            let token = slots.id(slot).token(OpKind::Nop);
            ring.push(op::Nop.entry().user_data(token.bits()))?;
        }
        ring.enter(Wait::No)?;
        let mut completed = 0;
        for completion in ring.completions() {
            expect(completion.result)?;
            let token = Token::from_bits(completion.user_data).context("an unknown token")?;
            *slots.find(token.id()).context("a slot is gone")? += 1;
            completed += 1;
        }
        if !meter.count(completed, entries)? {
            // Every slot must have been found equally often.
            let once = *slots.get(all[0]);
            ensure!(all.iter().all(|&slot| *slots.get(slot) == once), "a slot was not found");
            return Ok(meter.sample());
        }
    }
}

/// Measures the runtime with a task per entry, which its completion wakes to submit again.
fn task(entries: u32, meter: Meter) -> Result<Sample> {
    let driver = annulus::DriverChoice::Uring;
    let builder = Runtime::builder().driver(driver).sq_entries(entries).cq_entries(2 * entries);
    let meter = Rc::new(RefCell::new(meter));
    builder.build()?.try_block_on(async {
        let worker = |_| {
            let meter = meter.clone();
            annulus::spawn(async move {
                loop {
                    annulus::internals::nop().await?;
                    if !meter.borrow_mut().keeps_running(1) {
                        return io::Result::Ok(());
                    }
                }
            })
        };
        for worker in (0..entries).map(worker).collect::<Vec<_>>() {
            worker.await.map_err(|error| anyhow!("{error}"))??;
        }
        Ok(meter.borrow().sample())
    })?
}

/// Builds a ring whose completion queue holds one submission queue's completions.
fn small_ring(entries: u32) -> Result<Ring> {
    Ok(Ring::builder().entries(entries).completions(entries).build()?)
}

fn expect(result: i32) -> Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result).into()) } else { Ok(()) }
}

/// Counts operations and decides when to stop. The warm-up takes a fifth of the window.
struct Meter {
    window: Duration,
    operations: u64,
    next_reading: u64,
    created: ClockSample,
    opened: Option<(ClockSample, u64)>,
    closed: Option<(ClockSample, u64)>,
}

impl Meter {
    fn new(window: Duration) -> Meter {
        let created = ClockSample::now();
        Meter { window, operations: 0, next_reading: 0, created, opened: None, closed: None }
    }

    /// Counts the completed operations of one submission, which must be all of its entries. Returns
    /// false at the end.
    fn count(&mut self, completed: u64, entries: u32) -> Result<bool> {
        ensure!(completed == u64::from(entries), "{completed} completions of {entries} entries");
        Ok(self.keeps_running(completed))
    }

    /// Counts operations. Returns false at the end.
    #[inline]
    fn keeps_running(&mut self, operations: u64) -> bool {
        self.operations += operations;
        self.operations < self.next_reading || self.read_clock()
    }

    #[cold]
    fn read_clock(&mut self) -> bool {
        self.next_reading = self.operations + OPERATIONS_PER_CLOCK_READ;
        let now = (ClockSample::now(), self.operations);
        match self.opened {
            None if (now.0 - self.created).wall >= self.window / 5 => self.opened = Some(now),
            Some((opened, _)) if (now.0 - opened).wall >= self.window => {
                self.closed.get_or_insert(now);
                // Makes all other tasks stop at their next operation.
                self.next_reading = 0;
            }
            _ => {}
        }
        self.closed.is_none()
    }

    /// Returns the result. Panics if the window has not closed.
    fn sample(&self) -> Sample {
        let window = self.opened.zip(self.closed);
        let ((from, before), (to, after)) = window.expect("the window has not closed");
        (to - from).sample(after - before)
    }
}
