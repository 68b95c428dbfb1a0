//! Fuzzing of the code that parses foreign bytes, under libFuzzer and AddressSanitizer. The targets are a separate
//! workspace in `fuzz/`; their first inputs are in `fuzz/corpus/TARGET`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use crate::sanitizers::{TARGET, has_nightly};
use crate::step::{Failure, Outcome, Step, root, target};

/// The default time of a target.
const SECONDS: u32 = 60;
/// The time of a target in the weekly run, which starts from the kept inputs.
const SECONDS_WEEKLY: &str = "10";
/// How long one input may take before it counts as a hang.
const HANG: u32 = 10;
/// Most memory of a target, in MB.
const MEMORY: u32 = 1024;
/// Coverage of every edge and comparison, and the sanitizer.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address";
/// How much of a failed target's output is shown.
const SHOWN: usize = 40;

/// The options of the verb.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    targets: Vec<String>,
    seconds: u32,
    keep: bool,
}

/// Runs every target as long as the weekly run does.
pub(crate) fn all() -> Outcome {
    run(&["--seconds", SECONDS_WEEKLY].map(str::to_owned))
}

/// Runs the named targets, or all of them.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let settings = Settings::parse(arguments, &targets()?).map_err(Failure::Usage)?;
    if !has_nightly() {
        return Ok(vec!["fuzz (no nightly toolchain: `rustup toolchain install nightly`)".into()]);
    }
    if Step::new("c++", "--version").probe().is_none() {
        return Ok(vec!["fuzz (no C++ compiler for libFuzzer: `apt-get install g++`)".into()]);
    }
    build()?;
    let failed = in_parallel(&settings.targets, |name| fuzz(name, settings.seconds));
    if !failed.is_empty() {
        return Err(Failure::Failed(failed.join("; ")));
    }
    if settings.keep {
        settings.targets.iter().try_for_each(|name| keep(name))?;
    }
    Ok(Vec::new())
}

impl Settings {
    fn parse(arguments: &[String], known: &[String]) -> Result<Settings, String> {
        let mut settings = Settings { targets: Vec::new(), seconds: SECONDS, keep: false };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--keep" => settings.keep = true,
                "--seconds" => {
                    let value = words.next().map_or("", String::as_str);
                    let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
                    settings.seconds = seconds.ok_or_else(|| {
                        format!("'{value}' is no number of seconds; give one from 1 on, such as 60")
                    })?;
                }
                name if known.iter().any(|known| known == name) => {
                    settings.targets.push(name.to_owned());
                }
                other => {
                    let known = known.join(", ");
                    return Err(format!(
                        "unknown target '{other}': one of {known}, --seconds N, --keep"
                    ));
                }
            }
        }
        if settings.targets.is_empty() {
            settings.targets = known.to_vec();
        }
        Ok(settings)
    }
}

/// The targets by name.
fn targets() -> Result<Vec<String>, Failure> {
    let directory = root().join("fuzz").join("fuzz_targets");
    let entries = fs::read_dir(&directory)
        .map_err(|error| Failure::Failed(format!("{}: {error}", directory.display())))?;
    let name = |path: PathBuf| path.file_stem().map(|name| name.to_string_lossy().into_owned());
    let mut names: Vec<_> = entries.flatten().filter_map(|entry| name(entry.path())).collect();
    names.sort();
    Ok(names)
}

fn build() -> Result<(), Failure> {
    let line = format!(
        "run nightly cargo build --release --manifest-path fuzz/Cargo.toml --target {TARGET}"
    );
    let step = Step::new("rustup", &line).argument("--target-dir").argument(directory());
    step.env("RUSTFLAGS", FLAGS).run()
}

/// The directory of the built targets.
fn directory() -> PathBuf {
    target().join("fuzz")
}

fn program(name: &str) -> PathBuf {
    directory().join(TARGET).join("release").join(name)
}

/// Calls `run` for each name, as many at once as there are cores; returns the failures.
fn in_parallel(names: &[String], run: impl Fn(&str) -> Result<(), String> + Sync) -> Vec<String> {
    let (next, failed) = (Mutex::new(names.iter()), Mutex::new(Vec::new()));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let name = next.lock().expect("no thread panics with it").next();
                    let Some(name) = name else { break };
                    if let Err(why) = run(name) {
                        failed.lock().expect("no thread panics with it").push(why);
                    }
                }
            });
        }
    });
    failed.into_inner().expect("no thread panics with it")
}

/// The inputs of a target: found ones, which are not kept, and those that are.
fn corpora(name: &str) -> Result<[PathBuf; 2], String> {
    let found = directory().join("corpus").join(name);
    let kept = root().join("fuzz").join("corpus").join(name);
    let error = |error: std::io::Error| format!("{}: {error}", found.display());
    fs::create_dir_all(&found).map_err(error)?;
    Ok([found, kept])
}

/// Runs one target; its output is shown if it fails.
fn fuzz(name: &str, seconds: u32) -> Result<(), String> {
    let artifacts = root().join("fuzz").join("artifacts").join(name);
    fs::create_dir_all(&artifacts).map_err(|error| format!("{}: {error}", artifacts.display()))?;
    let mut command = Command::new(program(name));
    command.args([
        format!("-max_total_time={seconds}"),
        format!("-timeout={HANG}"),
        format!("-rss_limit_mb={MEMORY}"),
        format!("-artifact_prefix={}/", artifacts.display()),
    ]);
    let words = root().join("fuzz").join("words").join(name);
    if words.is_file() {
        command.arg(format!("-dict={}", words.display()));
    }
    command.args(corpora(name)?).current_dir(root());
    // The suites of this repository are inputs, too.
    if name == "suite" {
        command.arg("tools/suites");
    }
    eprintln!("$ {} for {seconds} s", program(name).display());
    let output = command.output().map_err(|error| format!("{name} did not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        eprintln!("fuzz: {name}: {}", last_status(&text));
        return Ok(());
    }
    let lines: Vec<&str> = text.lines().collect();
    let shown = lines[lines.len().saturating_sub(SHOWN)..].join("\n");
    eprintln!("{shown}");
    Err(replay(name, &text).unwrap_or_else(|| format!("fuzz {name} ended with {}", output.status)))
}

/// The last line of libFuzzer about coverage.
fn last_status(text: &str) -> &str {
    let line = text.lines().rev().find(|line| line.contains("cov: "));
    line.unwrap_or("it said nothing").trim()
}

/// How to repeat a failure.
fn replay(name: &str, text: &str) -> Option<String> {
    let written = text.lines().find_map(|line| line.split_once("Test unit written to "))?.1.trim();
    Some(format!("fuzz {name}: replay with `{} {written}`", program(name).display()))
}

/// Adds the found inputs that reach new code to those that are kept.
fn keep(name: &str) -> Result<(), Failure> {
    let [found, kept] = corpora(name).map_err(Failure::Failed)?;
    fs::create_dir_all(&kept).map_err(|error| Failure::Failed(error.to_string()))?;
    let program = program(name);
    let step = Step::new(&program.display().to_string(), "-set_cover_merge=1").argument(kept);
    step.argument(found).run()
}

/// Whether a directory has inputs to start from.
#[cfg(test)]
fn has_inputs(directory: &std::path::Path) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Settings, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Settings::parse(&words, &["one".to_owned(), "two".to_owned()])
    }

    #[test]
    fn targets_and_options_are_read_in_any_order() {
        let settings = parse(&["--seconds", "5", "two", "--keep"]).unwrap();
        assert_eq!(settings, Settings { targets: vec!["two".into()], seconds: 5, keep: true });
        assert_eq!(parse(&[]).unwrap().targets, ["one", "two"]);
        for (words, part) in [
            (&["three"][..], "unknown target 'three': one of one, two"),
            (&["--seconds"], "'' is no number"),
            (&["--seconds", "0"], "'0' is no number"),
        ] {
            assert!(parse(words).unwrap_err().contains(part), "{words:?}");
        }
    }

    #[test]
    fn every_target_has_inputs_to_start_from_and_a_place_in_the_manifest() {
        let manifest = fs::read_to_string(root().join("fuzz").join("Cargo.toml")).unwrap();
        for name in targets().ok().unwrap() {
            let kept = root().join("fuzz").join("corpus").join(&name);
            assert!(has_inputs(&kept), "{}", kept.display());
            assert!(manifest.contains(&format!("fuzz_targets/{name}.rs")), "{name}");
        }
    }

    #[test]
    fn what_libfuzzer_says_is_found() {
        let text = "INFO: Seed\n#2 INITED cov: 3\n#9 DONE cov: 4 \nDone 9 runs\n";
        assert_eq!(last_status(text), "#9 DONE cov: 4");
        let text = "panicked\nartifact_prefix='a/'; Test unit written to a/crash-1\n";
        assert!(replay("one", text).unwrap().ends_with("/one a/crash-1`"));
        assert_eq!(replay("one", "killed"), None);
    }

    #[test]
    fn all_names_are_run_and_all_failures_returned() {
        let names: Vec<String> = (0..20).map(|name| name.to_string()).collect();
        let odd = |name: &str| match name.parse::<u32>() {
            Ok(number) if number % 2 == 0 => Ok(()),
            _ => Err(name.to_owned()),
        };
        let mut failed = in_parallel(&names, odd);
        failed.sort_by_key(|name| name.parse::<u32>().unwrap());
        assert_eq!(failed, ["1", "3", "5", "7", "9", "11", "13", "15", "17", "19"]);
    }
}
