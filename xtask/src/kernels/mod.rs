//! The tests on other kernels: those of Debian's packages, booted in QEMU with the files of this machine.
//!
//! `packages` gets the kernels, `initramfs` makes what they boot from, `machine` boots them, `plan` lists what is run,
//! `run.sh` runs it, and `results` reads the outcome. All files are below `target/kernel-images`.

mod initramfs;
mod machine;
mod packages;
mod page;
mod plan;
mod results;

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::step::{Failure, Outcome, root, target};
use machine::{Accelerator, Machine};
use packages::{Kernel, Packages, make_directory, write};
use plan::{Plan, Scope, quoted};
use results::Results;

/// The kernels that are run by default.
const DEFAULT: [&str; 2] = ["6.1", "6.12"];
/// The name of the kernel of this machine.
const HERE: &str = "here";
/// The time that a machine takes to start, and to end.
const BOOT: u64 = 300;

/// Why something cannot be run here.
#[derive(Debug)]
struct Missing(String);

/// The options of the verb.
struct Choice {
    versions: Vec<String>,
    /// Whether to test the kernel of this machine, too.
    here: bool,
    scope: Scope,
    /// Whether to write the document.
    write: bool,
}

/// The part that `weekly` runs: on the oldest kernel on which io_uring is used.
pub(crate) fn quick() -> Outcome {
    run(&["6.1", "--quick"].map(String::from))
}

/// Runs the tests on the kernels named, or on the usual ones.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let choice = Choice::parse(arguments)?;
    let directory = target().join("kernel-images");
    let mut skipped = Vec::new();
    let mut kernels = Vec::new();
    if !choice.versions.is_empty() {
        match kernels_of(&choice.versions, &directory) {
            Ok((booted, missing)) => {
                kernels = booted;
                skipped = missing;
            }
            Err(Missing(what)) => {
                skipped.push(format!("kernels {} ({what})", choice.versions.join(" ")));
            }
        }
    }
    if kernels.is_empty() && !choice.here {
        return Ok(skipped);
    }
    let plan = Plan::build(choice.scope)?;
    let runner = Runner { directory, plan, accelerator: OnceCell::new() };
    let mut all = Vec::new();
    let runs = kernels.iter().map(Some).chain(choice.here.then_some(None));
    for kernel in runs {
        let results = kernel.map_or_else(|| runner.here(), |kernel| runner.boot(kernel));
        all.push(results.map_err(|Missing(what)| Failure::Failed(what))?);
        // After each of them: they take long, and one that is interrupted loses no other.
        if choice.write {
            page::write(&runner.plan, &all, &skipped)?;
        }
    }
    println!("\n{}", results::table(&runner.plan, &all));
    runner.verdict(&all)?;
    Ok(skipped)
}

impl Choice {
    fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let (versions, scope) = (Vec::new(), Scope::Usual);
        let mut choice = Self { versions, here: false, scope, write: false };
        for argument in arguments {
            match argument.as_str() {
                "--quick" => choice.scope = Scope::Quick,
                "--write" => choice.write = true,
                HERE => choice.here = true,
                known if packages::versions().any(|version| version == known) => {
                    choice.versions.push(known.into());
                }
                unknown => return Err(Failure::Usage(unknown_word(unknown))),
            }
        }
        if choice.versions.is_empty() && !choice.here {
            choice.versions = DEFAULT.map(String::from).into();
        }
        Ok(choice)
    }
}

fn unknown_word(word: &str) -> String {
    let known: Vec<_> = packages::versions().collect();
    format!(
        "'{word}' is no kernel there are packages of: one of {}, or {HERE}; or --quick, --write",
        known.join(", ")
    )
}

/// A kernel that can be booted.
struct Bootable {
    version: String,
    kernel: Kernel,
    initramfs: PathBuf,
}

/// The kernels of these versions, and why some are missing.
fn kernels_of(
    versions: &[String],
    directory: &Path,
) -> Result<(Vec<Bootable>, Vec<String>), Missing> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Missing("they are packages for x86-64, and this machine is another".into()));
    }
    machine::check()?;
    let packages = Packages::open(directory, versions)?;
    let busybox = packages.busybox()?;
    let (mut kernels, mut missing) = (Vec::new(), Vec::new());
    for version in versions {
        match bootable(version, &packages, &busybox, directory) {
            Ok(kernel) => kernels.push(kernel),
            Err(Missing(what)) => missing.push(format!("kernel {version} ({what})")),
        }
    }
    Ok((kernels, missing))
}

/// Gets a kernel, and makes what it boots from.
fn bootable(
    version: &str,
    packages: &Packages,
    busybox: &Path,
    directory: &Path,
) -> Result<Bootable, Missing> {
    let kernel = packages.kernel(version)?;
    let initramfs = directory.join(format!("{version}.cpio"));
    write(&initramfs, initramfs::build(&kernel, busybox)?)?;
    Ok(Bootable { version: version.into(), kernel, initramfs })
}

/// The directory in which plans are run.
struct Runner {
    directory: PathBuf,
    plan: Plan,
    accelerator: OnceCell<Accelerator>,
}

impl Runner {
    /// Runs the plan on a kernel.
    fn boot(&self, bootable: &Bootable) -> Result<Results, Missing> {
        let Bootable { version, kernel, initramfs } = bootable;
        let probe = || machine::accelerator(&kernel.image(), initramfs);
        let accelerator = self.accelerator.get_or_init(probe);
        eprintln!("$ boot Linux {} ({accelerator:?})", kernel.release);
        let results = self.fresh(version)?;
        let settings = results.join("settings");
        let shared = [
            ("modules", kernel.root.join("lib/modules")),
            ("run", script()),
            ("plan", self.plan_in(&results)?),
            ("results", results.clone()),
        ];
        let lines = shared.map(|(name, path)| format!("{name}={}\n", quoted(&path)));
        write(&settings, lines.concat())?;
        let machine = Machine { kernel: &kernel.image(), initramfs, results: Some(&results) };
        let most = Duration::from_secs(self.plan.seconds() + BOOT);
        let console = machine.boot(*accelerator, most)?;
        let mut read = Results::read(&kernel.release, &self.plan, &results);
        read.expect_driver(kernel.driver);
        if !console.contains("annulus: done") {
            eprintln!("the machine ended early; the end of its console:\n{}", last_lines(&console));
        }
        Ok(read)
    }

    /// Runs the plan on this machine.
    fn here(&self) -> Result<Results, Missing> {
        let results = self.fresh(HERE)?;
        let plan = self.plan_in(&results)?;
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        eprintln!("$ run on Linux {}, this machine's", release.trim());
        let mut command = Command::new("sh");
        let status = command.arg(script()).args([&plan, &results]).status();
        status.map_err(|error| Missing(format!("sh: {error}")))?;
        // The suffix of the number is specific to this machine.
        let number = release.trim().split('-').next().unwrap_or_default();
        Ok(Results::read(&format!("{number} (here)"), &self.plan, &results))
    }

    /// An empty directory for the results of a run.
    fn fresh(&self, name: &str) -> Result<PathBuf, Missing> {
        let results = self.directory.join("results").join(name);
        _ = fs::remove_dir_all(&results);
        make_directory(&results)?;
        Ok(results)
    }

    fn plan_in(&self, results: &Path) -> Result<PathBuf, Missing> {
        let path = results.join("plan");
        write(&path, self.plan.text())?;
        Ok(path)
    }

    fn verdict(&self, all: &[Results]) -> Result<(), Failure> {
        let failed: Vec<String> = all
            .iter()
            .flat_map(|results| {
                results.failed(&self.plan).map(|name| format!("{name} on {}", results.kernel))
            })
            .collect();
        if failed.is_empty() {
            return Ok(());
        }
        let logs = self.directory.join("results");
        Err(Failure::Failed(format!("{}; see {}", failed.join(", "), logs.display())))
    }
}

fn script() -> PathBuf {
    root().join("xtask/src/kernels/run.sh")
}

fn last_lines(console: &str) -> String {
    let lines: Vec<_> = console.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
