//! Fuzzes the code that parses untrusted bytes, under libFuzzer and AddressSanitizer. The targets
//! are a separate workspace in `fuzz/`; their initial inputs are in `fuzz/corpus/TARGET`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use fs_err as fs;

use crate::files::{entries, name};
use crate::sanitizers::{TARGET, has_nightly};
use crate::step::{Outcome, Step, root};

/// How long one input may take before it counts as a hang.
const HANG_SECONDS: u32 = 10;
/// The maximum memory of a target, in MB.
const MAX_MEMORY_MB: u32 = 1024;
/// Compiler flags for coverage of every edge and comparison, and for the sanitizer.
const FUZZ_RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address";
/// How many of the last lines of a failed target's output are shown.
const MAX_OUTPUT_LINES: usize = 40;

/// Runs the named targets, or all targets if `names` is empty.
pub(crate) fn run(names: &[String], seconds: u32, keep: bool) -> Outcome {
    if !has_nightly() {
        return Ok(vec!["fuzz (no nightly toolchain: `rustup toolchain install nightly`)".into()]);
    }
    if Step::new("c++", "--version").probe().is_none() {
        return Ok(vec!["fuzz (no C++ compiler for libFuzzer: `apt-get install g++`)".into()]);
    }
    let names = if names.is_empty() { &targets()? } else { names };
    build()?;
    let failed = in_parallel(names, |name| fuzz(name, seconds));
    ensure!(failed.is_empty(), failed.join("; "));
    if keep {
        names.iter().try_for_each(|name| keep_found(name))?;
    }
    Ok(Vec::new())
}

/// Parses the name of a target.
pub(crate) fn target(name: &str) -> Result<String> {
    let known = targets()?;
    ensure!(known.iter().any(|known| known == name), "known targets are {}", known.join(", "));
    Ok(name.to_owned())
}

/// Returns the names of all targets.
fn targets() -> Result<Vec<String>> {
    let targets = entries(&root().join("fuzz/fuzz_targets"))?;
    Ok(targets.iter().map(|path| name(&path.with_extension(""))).collect())
}

fn build() -> Outcome {
    let line = format!(
        "run nightly cargo build --release --manifest-path fuzz/Cargo.toml --target {TARGET}"
    );
    let step = Step::new("rustup", &line).argument("--target-dir").argument(directory());
    step.env("RUSTFLAGS", FUZZ_RUSTFLAGS).run()
}

/// Returns the directory of the built targets.
fn directory() -> PathBuf {
    crate::step::target().join("fuzz")
}

fn program(name: &str) -> PathBuf {
    directory().join(TARGET).join("release").join(name)
}

/// Calls `run` for each name, on as many threads as there are cores; returns the failures.
fn in_parallel(names: &[String], run: impl Fn(&str) -> Result<()> + Sync) -> Vec<String> {
    let (names, failed) = (Mutex::new(names.iter()), Mutex::new(Vec::new()));
    let next = || names.lock().expect("a thread panicked with the lock").next();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(name) = next() {
                    if let Err(why) = run(name) {
                        failed
                            .lock()
                            .expect("a thread panicked with the lock")
                            .push(format!("{why:#}"));
                    }
                }
            });
        }
    });
    failed.into_inner().expect("a thread panicked with the lock")
}

/// Returns the two directories with a target's inputs, and creates them if they are missing: the
/// inputs found by fuzzing here, and the kept inputs in `fuzz/corpus`.
fn corpora(name: &str) -> Result<[PathBuf; 2]> {
    let corpora = [directory().join("corpus"), root().join("fuzz/corpus")];
    let corpora = corpora.map(|corpora| corpora.join(name));
    corpora.iter().try_for_each(fs::create_dir_all)?;
    Ok(corpora)
}

/// Runs one target and shows its output if it fails.
fn fuzz(name: &str, seconds: u32) -> Result<()> {
    let artifacts = root().join("fuzz/artifacts").join(name);
    fs::create_dir_all(&artifacts)?;
    let mut command = Command::new(program(name));
    command.args([
        format!("-max_total_time={seconds}"),
        format!("-timeout={HANG_SECONDS}"),
        format!("-rss_limit_mb={MAX_MEMORY_MB}"),
        format!("-artifact_prefix={}/", artifacts.display()),
    ]);
    let words = root().join("fuzz/words").join(name);
    if words.is_file() {
        command.arg(format!("-dict={}", words.display()));
    }
    command.args(corpora(name)?).current_dir(root());
    // The suites of this repository are also inputs.
    if name == "suite" {
        command.arg("tools/lab/catalogue");
    }
    eprintln!("$ {} for {seconds} s", program(name).display());
    let output = command.output().with_context(|| format!("{name} did not start"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        eprintln!("fuzz: {name}: {}", last_status(&text));
        return Ok(());
    }
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines[lines.len().saturating_sub(MAX_OUTPUT_LINES)..].join("\n");
    eprintln!("{shown}");
    bail!(
        replay(name, &text).unwrap_or_else(|| format!("fuzz {name} ended with {}", output.status))
    )
}

/// Returns libFuzzer's last line about coverage.
fn last_status(text: &str) -> &str {
    let line = text.lines().rev().find(|line| line.contains("cov: "));
    line.unwrap_or("no status line").trim()
}

/// Returns how to repeat a failure.
fn replay(name: &str, text: &str) -> Option<String> {
    let written = text.lines().find_map(|line| line.split_once("Test unit written to "))?.1.trim();
    Some(format!("fuzz {name}: replay with `{} {written}`", program(name).display()))
}

/// Adds the found inputs that reach code which no kept input reaches to the kept inputs.
fn keep_found(name: &str) -> Result<()> {
    let [found, kept] = corpora(name)?;
    let program = program(name);
    let step = Step::new(&program.display().to_string(), "-set_cover_merge=1").argument(kept);
    step.argument(found).run().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_target_is_refused_with_the_known_ones() {
        assert_eq!(target("suite").unwrap(), "suite");
        assert!(target("three").unwrap_err().to_string().contains("suite"));
    }

    #[test]
    fn every_target_has_a_corpus_and_is_in_the_manifest() {
        let manifest = fs::read_to_string(root().join("fuzz").join("Cargo.toml")).unwrap();
        for name in targets().unwrap() {
            let kept = root().join("fuzz").join("corpus").join(&name);
            assert!(!entries(&kept).unwrap().is_empty(), "{}", kept.display());
            assert!(manifest.contains(&format!("fuzz_targets/{name}.rs")), "{name}");
        }
    }

    #[test]
    fn status_and_replay_are_found_in_libfuzzer_output() {
        let text = "INFO: Seed\n#2 INITED cov: 3\n#9 DONE cov: 4 \nDone 9 runs\n";
        assert_eq!(last_status(text), "#9 DONE cov: 4");
        let text = "panicked\nartifact_prefix='a/'; Test unit written to a/crash-1\n";
        assert!(replay("one", text).unwrap().ends_with("/one a/crash-1`"));
        assert_eq!(replay("one", "killed"), None);
    }

    #[test]
    fn in_parallel_runs_all_names_and_returns_all_failures() {
        let names: Vec<String> = (0..20).map(|name| name.to_string()).collect();
        let odd = |name: &str| match name.parse::<u32>() {
            Ok(number) if number % 2 == 0 => Ok(()),
            _ => bail!(name.to_owned()),
        };
        let mut failed = in_parallel(&names, odd);
        failed.sort_by_key(|name| name.parse::<u32>().unwrap());
        assert_eq!(failed, ["1", "3", "5", "7", "9", "11", "13", "15", "17", "19"]);
    }
}
