//! A recording as a page: one file of HTML with charts (feature `page`).
//!
//! ```
//! use annulus_load::page;
//! use annulus_load::recording::{Interval, Latencies, Recording, RunInfo};
//!
//! let mut second = Interval::new(0.0, 1.0);
//! second.answered = 2000;
//! second.response = Latencies::from_iter((1..=2000).map(|n| n * 1_000));
//! let recording = Recording { seconds: 1.0, intervals: vec![second], ..Recording::new(RunInfo::default()) };
//! let html = page::html(&recording);
//! assert!(html.contains("2,000") && html.contains("<svg"));
//! ```

mod charts;
mod columns;
mod details;
mod summary;

use crate::recording::Recording;
use annulus_page::{Block, Page, Section};

/// The page of a recording. It loads nothing and runs no script.
pub fn html(recording: &Recording) -> String {
    page(recording).html()
}

fn page(recording: &Recording) -> Page {
    let columns = columns::of(recording);
    let latency = vec![
        Block::Figure(charts::by_percentile(recording)),
        Block::Figure(charts::over_time(recording, &columns)),
        Block::Figure(charts::heat_map(recording, &columns)),
        Block::Table(summary::percentiles(recording)),
    ];
    let mut requests = vec![Block::Figure(charts::rates(recording, &columns))];
    requests.push(Block::Figure(charts::failures(recording, &columns)));
    requests.extend(details::outcomes(recording));
    let section = Section::new;
    Page {
        title: summary::title(&recording.run),
        subtitle: summary::subtitle(recording),
        tiles: summary::tiles(recording),
        notices: summary::notices(recording),
        links: Vec::new(),
        sections: vec![
            section("Latency", latency),
            section("Requests", requests),
            section("The run", details::run(recording)),
        ],
    }
}
