//! `annulus load --find-rate`: the highest rate that meets a target.

use super::{Watch, exit_status};
use crate::output::{self, JsonFile, note};
use crate::text::{Listing, thousands};
use crate::usage::UsageError;
use annulus_load::{
    FoundRate, LoadError, Plan, RateSearch, RateSearchError, RateWindow, SEARCH_WINDOWS, SearchEnd,
};
use anyhow::{Result, bail};
use std::process::ExitCode;

/// Searches, prints each window and the result, and decides the exit status.
pub(super) fn run(
    json: Option<JsonFile>,
    plan: &Plan,
    search: &RateSearch,
    watch: &mut Watch,
) -> Result<ExitCode> {
    search.validate(plan).map_err(classify)?;
    note(format_args!(
        "annulus: searches for the highest rate with {} at {}: {SEARCH_WINDOWS} windows of {:.1?}, {:.0?} at most",
        search.target,
        plan.address,
        search.window(),
        search.time,
    ));
    let found = search.run(plan, watch, |window| note(format_args!("{}", described(window))));
    let found = found.map_err(classify)?;
    output::deliver(json, &found, Some(listing(plan, &found)))?;
    match (&found.last, found.end) {
        (Some(last), SearchEnd::Failed | SearchEnd::Interrupted) => {
            exit_status(last, &watch.stop, Ok(()))
        }
        (_, SearchEnd::NoRate) => bail!("no rate meets {} at {}", found.target, plan.address),
        (_, SearchEnd::TooFewResponses) => bail!(
            "too few responses for {} in windows of {:.1} s: measure for longer (-t), or ask for a lower percentile",
            found.target,
            found.window_seconds
        ),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Only errors of the plan are usage errors if a run cannot begin.
fn classify(error: RateSearchError) -> anyhow::Error {
    match error {
        RateSearchError::Load(error @ LoadError::Plan(_)) => UsageError(error.to_string()).into(),
        RateSearchError::Load(error) => error.into(),
        error => UsageError(error.to_string()).into(),
    }
}

fn described(window: &RateWindow) -> String {
    let RateWindow { rate, answered, figures, missed, .. } = window;
    let verdict = match missed {
        None => "met".to_owned(),
        Some(missed) => format!("missed: {missed}"),
    };
    format!("  {:>9}/s: {:>9} answered, {figures}, {verdict}", whole(*rate), whole(*answered))
}

fn whole(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { thousands(rate.round() as u64) }
}

fn listing(plan: &Plan, found: &FoundRate) -> String {
    let mut text = Listing::new();
    text.row("server", &plan.address.to_string());
    text.row("target", &found.target);
    text.row("closed loop", &format!("{} requests/s", whole(found.closed_loop)));
    let per_second = |rate| format!("{}/s", whole(rate));
    text.row("highest rate", &found.rate.map_or("none".to_owned(), per_second));
    let (met, all) = (found.windows_met, found.windows_at_rate);
    if found.rate.is_some() {
        text.row("confidence", &format!("{met} of {all} windows at it meet the target"));
    }
    // A bound is missing if no window was measured beyond it.
    if let Some(met) = found.all_met_up_to {
        text.row("all meet", &format!("up to {}", per_second(met)));
    }
    if let Some(missed) = found.none_met_from {
        text.row("none meets", &format!("from {}", per_second(missed)));
    }
    text.row("windows", &format!("{} of {:.2} s", found.windows.len(), found.window_seconds));
    for line in remarks(found) {
        text.row("note", line);
    }
    text.finish()
}

/// How the search ended, if not with a rate and both of its bounds.
fn remarks(found: &FoundRate) -> Vec<&'static str> {
    let end = match found.end {
        SearchEnd::OutOfTime => "the time was over: allow more (-t) for a closer result",
        SearchEnd::EveryRate => "every rate that was tried meets the target: ask for more clients",
        SearchEnd::NoRate => "even the lowest rate with enough responses misses it",
        SearchEnd::TooFewResponses => "a closed loop has too few responses for it",
        SearchEnd::Interrupted => "interrupted: the rate is the highest so far",
        _ => "",
    };
    let bounded = "the limit is what was answered at all, not the target's times";
    let bounded = found.is_bounded_by_delivery().then_some(bounded);
    [end].into_iter().chain(bounded).filter(|line| !line.is_empty()).collect()
}
