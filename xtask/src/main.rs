//! `cargo xtask VERB` runs what CI runs, with one verb per check. A check that requires more than
//! Rust is skipped where that is missing.
//!
//! Each command is printed before it runs, and the last line is the result.

use std::process::ExitCode;

use clap::Parser;

mod advisories;
mod api;
mod arena;
mod book;
mod callgrind;
mod compat;
mod failed_tests;
mod features;
mod files;
mod fuzz;
mod instructions;
mod kernels;
mod locks;
mod package;
mod part;
mod peers;
mod results;
mod sanitizers;
mod skipped;
mod static_program;
mod step;
mod style;
mod verbs;

use step::Outcome;

/// Run the checks of this project. Exit status: 0 passed, 1 failed, 2 usage error. Steps that
/// cannot run here, such as those whose tools are missing, are skipped and listed.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Verb {
    /// check style, format, licences, results, clippy, rustdoc and the book
    Check,
    /// count the findings of the style rules, and list those of the given rules
    Style {
        #[arg(value_parser = style::RULES.map(|(name, _)| name))]
        rules: Vec<String>,
    },
    /// check the page of results and its map against docs/results; --write generates them
    Results {
        #[arg(long)]
        write: bool,
    },
    /// build the book from docs and rustdoc, and check its links (requires mdbook)
    Book,
    /// the preprocessor that mdBook calls: reads the book from stdin and rewrites its links
    #[command(hide = true)]
    Preprocess {
        /// `supports RENDERER`: every renderer is supported
        question: Vec<String>,
    },
    /// lint with every feature alone, with none, and with all together
    Features,
    /// check annulus and annulus-tokio with the oldest Rust in Cargo.toml (requires that toolchain)
    Msrv,
    /// check licences, sources and security advisories of dependencies (requires cargo-deny and its
    /// database)
    Advisories,
    /// run every test of the workspace
    Test,
    /// check format, lints and tests of crates/compat/, with the libraries that it adapts
    Compat,
    /// check the servers in arena/ by the requests of HttpArena (requires python3)
    Arena,
    /// test the crates with unsafe code under AddressSanitizer (requires a nightly toolchain)
    Asan,
    /// run unit tests of leases, datagrams, tasks and similar modules under Miri (requires nightly
    /// with Miri)
    Miri,
    /// fuzz the code that parses untrusted bytes, all targets or these (requires nightly and g++)
    Fuzz {
        #[arg(value_parser = fuzz::target)]
        targets: Vec<String>,
        /// how long to run each target
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
        /// add the found inputs to the corpus
        #[arg(long)]
        keep: bool,
    },
    /// run the mixed workload on the simulated kernel, optimised, once per seed; a failure prints
    /// how to repeat it
    Sim {
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
    },
    /// build the servers in tools/peers/, all or these, and check what they serve (requires python3
    /// and their tools)
    Peers {
        #[arg(value_parser = peers::peer)]
        names: Vec<String>,
    },
    /// check that every Cargo.lock is up to date, without downloading crates
    Locks,
    /// build every crate from its package alone, as it would be published
    Package,
    /// build and try the command as a static program; --dist as published (requires the musl target
    /// and musl-gcc)
    Static {
        #[arg(long)]
        dist: bool,
    },
    /// check the public API against the lists in docs/api; --write updates them
    Api {
        #[arg(long)]
        write: bool,
    },
    /// count the user-space instructions per message and compare with the record; --write replaces
    /// it (requires valgrind)
    Instructions(instructions::InstructionsArgs),
    /// run the tests on other kernels in QEMU, and with `here` on this one; --write generates
    /// docs/kernels.md
    Kernels(kernels::KernelsArgs),
    /// run everything that a change must pass, with a table of the parts at the end
    Ci,
    /// run the slow checks: packages and features alone, Miri, fuzzing, other kernels, all of asan,
    /// many seeds
    Weekly,
}

fn run(verb: Verb) -> Outcome {
    match verb {
        Verb::Check => part::run(verbs::CHECK_PARTS),
        Verb::Style { rules } => style::list(&rules),
        Verb::Results { write } => results::run(write),
        Verb::Book => book::build(),
        Verb::Preprocess { question } if question.is_empty() => book::preprocess(),
        Verb::Preprocess { .. } => Ok(Vec::new()),
        Verb::Features => features::all_targets(),
        Verb::Msrv => features::msrv(),
        Verb::Advisories => advisories::all(),
        Verb::Test => verbs::test(),
        Verb::Compat => compat::run(),
        Verb::Arena => arena::run(),
        Verb::Asan => sanitizers::asan(),
        Verb::Miri => sanitizers::miri(),
        Verb::Fuzz { targets, seconds, keep } => fuzz::run(&targets, seconds, keep),
        Verb::Sim { seeds } => verbs::sim(seeds),
        Verb::Peers { names } => peers::run(&names),
        Verb::Locks => locks::run(),
        Verb::Package => package::all(),
        Verb::Static { dist } => static_program::run(dist),
        Verb::Api { write } => api::run(write),
        Verb::Instructions(choice) => instructions::run(&choice),
        Verb::Kernels(choice) => kernels::run(&choice),
        Verb::Ci => part::run(verbs::CHECK_PARTS.iter().chain(verbs::CI_PARTS)),
        Verb::Weekly => part::run(verbs::WEEKLY_PARTS),
    }
}

/// Runs the verb and prints the result as the last line.
fn main() -> ExitCode {
    let outcome = run(Verb::parse());
    let name = std::env::args().nth(1).unwrap_or_default();
    eprint!("{}{}", skipped::report(), failed_tests::flaky_report());
    match outcome {
        Ok(skipped) => {
            let skipped = skipped.join("; ");
            let without = if skipped.is_empty() { "" } else { "; skipped: " };
            eprintln!("xtask {name}: ok{without}{skipped}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let (reason, report) = step::reason_and_report(&error);
            eprintln!("{report}\nxtask {name}: FAILED: {reason}");
            ExitCode::FAILURE
        }
    }
}
