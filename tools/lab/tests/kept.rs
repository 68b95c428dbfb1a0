//! The results that are kept in `docs/results`: whatever the engine becomes, their figures stay.

use std::fs;
use std::path::Path;

use annulus_lab::page::{Loaded, files};

/// The values, their intervals, the best rounds, and the ratios with their intervals, of every contender in every cell of at least so
/// many runs.
fn figures_stay(directory: &str, least: usize) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(directory);
    let kept = files(&directory).expect("the directory of results");
    assert!(kept.len() >= least, "{kept:?}");
    for path in kept {
        let loaded = Loaded::read(&path).expect("a file of results");
        let csv = fs::read_to_string(path.with_extension("csv")).expect("its figures");
        let found = loaded.document().csv();
        let differs = csv.lines().zip(found.lines()).find(|(kept, now)| kept != now);
        assert_eq!((differs, csv.lines().count()), (None, found.lines().count()), "{path:?}");
    }
}

#[test]
fn kept_results_give_the_figures_that_they_gave() {
    figures_stay("results", 15);
}

#[test]
fn results_with_the_systems_of_the_documents_give_the_figures_that_they_gave() {
    figures_stay("results/originals", 7);
}
