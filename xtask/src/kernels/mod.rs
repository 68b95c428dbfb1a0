//! Tests on other kernels, which come from Debian's packages and boot in QEMU with the files of
//! this machine. `packages` gets the kernels, `initramfs` builds their boot images, `machine` boots
//! them, `plan` lists the checks, `run.sh` runs them, and `results` reads the outcome. All files
//! are below `target/kernel-images`.

mod initramfs;
mod machine;
mod packages;
mod page;
mod plan;
mod results;

use std::cell::OnceCell;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use fs_err as fs;

use crate::files::remove;
use crate::step::{Outcome, Step, root, target};
use machine::Machine;
use packages::{Kernel, Packages};
use plan::{Plan, Scope, quoted};
use results::Results;

/// The word for the kernel of this machine.
const HOST_KERNEL: &str = "here";
/// The script that runs a plan, in a virtual machine or on this one.
const RUN_SCRIPT: &str = "xtask/src/kernels/run.sh";
/// The maximum time in which a machine starts and stops.
const BOOT_SECONDS: u64 = 300;

/// The options of `cargo xtask kernels`.
#[derive(clap::Args)]
pub(crate) struct KernelsArgs {
    /// versions of Debian's kernels, and `here`
    #[arg(value_parser = names(), default_values = ["6.1", "6.12"])]
    kernels: Vec<String>,
    /// run only what the weekly run has: fewer tests, less optimised
    #[arg(long)]
    quick: bool,
    /// write the results to docs/kernels.md, and keep its other kernels
    #[arg(long)]
    write: bool,
}

/// Returns the names that the command takes.
fn names() -> Vec<&'static str> {
    packages::versions().chain([HOST_KERNEL]).collect()
}

/// Runs the quick plan, for `weekly`, on the oldest kernel on which io_uring is used.
pub(crate) fn quick() -> Outcome {
    run(&KernelsArgs { kernels: vec!["6.1".into()], quick: true, write: false })
}

/// Runs the tests on the given kernels.
pub(crate) fn run(choice: &KernelsArgs) -> Outcome {
    let directory = target().join("kernel-images");
    let versions: Vec<&str> =
        choice.kernels.iter().map(String::as_str).filter(|name| *name != HOST_KERNEL).collect();
    let (mut kernels, mut skipped) = (Vec::new(), Vec::new());
    if !versions.is_empty() {
        match Packages::open(&directory, &versions) {
            Ok(packages) => {
                for version in &versions {
                    match packages.kernel(version) {
                        Ok(kernel) => kernels.push(Some(kernel)),
                        Err(error) => skipped.push(format!("kernel {version} ({error:#})")),
                    }
                }
            }
            Err(error) => skipped.push(format!("kernels {} ({error:#})", versions.join(" "))),
        }
    }
    kernels.extend((versions.len() < choice.kernels.len()).then_some(None));
    if kernels.is_empty() {
        return Ok(skipped);
    }
    let plan = Plan::build(if choice.quick { Scope::Quick } else { Scope::Usual })?;
    let runner = Runner { directory, plan, accelerator: OnceCell::new() };
    let path = root().join("docs/kernels.md");
    let old = fs::read_to_string(&path)?;
    let mut all = Vec::new();
    for kernel in kernels {
        all.push(kernel.map_or_else(|| runner.here(), |kernel| runner.boot(&kernel))?);
        // Write after each kernel, because runs take long and an interrupted run must keep its
        // results.
        if choice.write {
            fs::write(&path, page::text(&runner.plan, &all, &skipped, &old))?;
        }
    }
    println!("\n{}", page::text(&runner.plan, &all, &skipped, ""));
    let failed: Vec<String> = all.iter().flat_map(|results| results.failed(&runner.plan)).collect();
    let logs = runner.directory.join("results");
    ensure!(failed.is_empty(), "{}; see {}", failed.join(", "), logs.display());
    Ok(skipped)
}

/// Runs a plan on kernels.
struct Runner {
    directory: PathBuf,
    plan: Plan,
    accelerator: OnceCell<&'static str>,
}

impl Runner {
    /// Runs the plan on a kernel in a virtual machine.
    fn boot(&self, kernel: &Kernel) -> Result<Results> {
        let probe = || machine::accelerator(&kernel.image(), &kernel.initramfs);
        let accelerator = self.accelerator.get_or_init(probe);
        let (results, plan) = self.fresh(&kernel.version)?;
        let shared = [
            ("modules", kernel.root.join("lib/modules")),
            ("run", root().join(RUN_SCRIPT)),
            ("plan", plan),
            ("results", results.clone()),
        ];
        let lines = shared.map(|(name, path)| format!("{name}={}\n", quoted(&path)));
        fs::write(results.join("settings"), lines.concat())?;
        let (image, initramfs) = (&kernel.image(), kernel.initramfs.as_path());
        let machine = Machine { kernel: image, initramfs, results: Some(&results) };
        let console = machine.boot(accelerator, self.plan.seconds() + BOOT_SECONDS)?;
        let mut read = Results::read(&kernel.release, &self.plan, &results);
        read.expect_driver(kernel.driver);
        if !console.contains("annulus: done") {
            let lines: Vec<_> = console.lines().collect();
            let last = lines[lines.len().saturating_sub(20)..].join("\n");
            eprintln!("the machine ended early; the end of its console:\n{last}");
        }
        Ok(read)
    }

    /// Runs the plan on this machine.
    fn here(&self) -> Result<Results> {
        let (results, plan) = self.fresh(HOST_KERNEL)?;
        let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        Step::new("sh", RUN_SCRIPT).argument(plan).argument(&results).status()?;
        // The suffix of the version is specific to this machine.
        let number = release.trim().split('-').next().unwrap_or_default();
        Ok(Results::read(&format!("{number} (here)"), &self.plan, &results))
    }

    /// Creates an empty directory for the results of a run and writes the plan into it; returns
    /// both paths.
    fn fresh(&self, name: &str) -> Result<(PathBuf, PathBuf)> {
        let results = self.directory.join("results").join(name);
        remove(&results)?;
        fs::create_dir_all(&results)?;
        let plan = results.join("plan");
        fs::write(&plan, self.plan.text())?;
        Ok((results, plan))
    }
}
