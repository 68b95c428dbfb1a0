//! Panics of misused functions report the line of the call.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::time::Duration;

use annulus::Runtime;
use annulus::task::JoinSet;
use annulus::time::{Instant, interval, interval_at};

thread_local!(static LINE: Cell<Option<(bool, u32)>> = const { Cell::new(None) });

/// Records whether a panic was in this file, and in which line.
fn keep(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(|at| (at.file() == file!(), at.line()));
    LINE.set(place);
}

/// Returns the line in this file at which a call panics.
fn panics(call: impl FnOnce() + std::panic::UnwindSafe) -> Option<u32> {
    catch_unwind(call).expect_err("the call did not panic");
    LINE.take().filter(|(here, _)| *here).map(|(_, line)| line)
}

#[test]
fn panics_report_the_line_of_the_call() {
    set_hook(Box::new(keep));
    let lines = [
        panics(|| drop(annulus::spawn(async {}))),
        panics(|| drop(annulus::task::spawn_blocking(|| ()))),
        panics(|| drop(JoinSet::new().spawn(async {}))),
        panics(|| drop(interval(Duration::ZERO))),
        panics(|| drop(interval_at(Instant::now(), Duration::ZERO))),
        panics(|| annulus::run(async { annulus::run(async {}) })),
    ];
    let first = lines[0].expect("spawn did not panic");
    assert_eq!(lines, std::array::from_fn(|number| Some(first + number as u32)));
    let cancelled = Runtime::new().unwrap().block_on(async {
        let task = annulus::spawn(std::future::pending::<()>());
        task.abort();
        task.await.unwrap_err()
    });
    let line = panics(AssertUnwindSafe(|| drop(cancelled.into_panic())));
    assert_eq!(line, Some(line!() - 1));
}
