//! The examples must not be more than a tenth longer than the same programs on tokio, nor longer than
//! the guide says.

use std::fs;
use std::path::Path;

/// Counts the lines that are neither empty nor only a comment.
fn lines_of_code(path: &Path) -> usize {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
    text.lines().map(str::trim).filter(is_code).count()
}

#[test]
fn no_example_is_longer_than_its_twin() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let twins = crate_root.join("../../tools/peers/tokio-examples/src/bin");
    let mut compared = 0;
    for twin in fs::read_dir(twins).expect("the directory cannot be read") {
        let twin = twin.expect("the entry cannot be read").path();
        let name = twin.file_name().expect("no name");
        let (ours, twin) =
            (lines_of_code(&crate_root.join("examples").join(name)), lines_of_code(&twin));
        println!("{}: {ours} lines, its twin {twin}", name.display());
        assert!(10 * ours <= 11 * twin, "{}: {ours} lines, its twin {twin}", name.display());
        compared += 1;
    }
    assert!(compared > 0, "no twin found");
}

/// The guide to storage says so.
#[test]
fn the_log_has_at_most_400_lines() {
    let lines = lines_of_code(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/log.rs"));
    assert!(lines <= 400, "log.rs has {lines} lines of code");
}
