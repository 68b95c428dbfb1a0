//! `cargo xtask VERB` runs what CI runs, with a verb for each check, and needs nothing installed except Rust.
//!
//! Each command is printed before it runs, and the last line is the result.

use std::process::ExitCode;

use clap::Parser;

mod advisories;
mod api;
mod book;
mod callgrind;
mod compat;
mod failed_tests;
mod features;
mod files;
mod fuzz;
mod instructions;
mod kernels;
mod package;
mod part;
mod peers;
mod results;
mod sanitizers;
mod static_program;
mod step;
mod style;
mod verbs;

use step::Outcome;

/// Everything a change is checked with. Nothing to install.
///
/// Exit code: 0 passed, 1 something failed, 2 usage. A step that cannot run here is skipped and named.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Verb {
    /// style, format, licences, results, clippy, rustdoc, book
    Check,
    /// counts what the rules of style find, and lists the findings of those named
    Style {
        #[arg(value_parser = style::RULES.map(|(name, _)| name))]
        rules: Vec<String>,
    },
    /// the page of results and its picture against docs/results, from which --write makes them anew
    Results {
        #[arg(long)]
        write: bool,
    },
    /// the book, of docs and rustdoc, without a dead link (needs mdbook)
    Book,
    /// the preprocessor that mdBook calls: the book from stdin, with links that lead somewhere
    #[command(hide = true)]
    Preprocess {
        /// `supports RENDERER`, of which every one is
        question: Vec<String>,
    },
    /// every feature alone, none, and all together, without a warning
    Features,
    /// the workspace with the oldest Rust that Cargo.toml promises (needs that toolchain)
    Msrv,
    /// licences, sources and security advisories of what is linked (needs cargo-deny and its database)
    Advisories,
    /// every test of the workspace
    Test,
    /// format, lints and tests of crates/compat/, with the libraries that it adapts to
    Compat,
    /// the tests of the crates with unsafe code under the address sanitizer (needs a nightly toolchain)
    Asan,
    /// the unit tests of leases, datagrams, tasks and their like under Miri (needs a nightly toolchain with it)
    Miri,
    /// what parses foreign bytes, all targets or these (needs nightly and g++)
    Fuzz {
        #[arg(value_parser = fuzz::target)]
        targets: Vec<String>,
        /// the time of a target
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
        seconds: u32,
        /// adds what was found to the corpus
        #[arg(long)]
        keep: bool,
    },
    /// the mixed workload on the simulated kernel, once a seed, optimized; a failure prints its replay
    Sim {
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
    },
    /// build the servers in tools/peers/, all or these, and check that they echo (needs python3 and their tools)
    Peers {
        #[arg(value_parser = peers::peer)]
        names: Vec<String>,
    },
    /// every crate as it would be published, built from its package alone
    Package,
    /// the command as one static program, tried; --dist as it is published (needs musl's target and musl-gcc)
    Static {
        #[arg(long)]
        dist: bool,
    },
    /// the public API against the lists in docs/api, which --write makes anew
    Api {
        #[arg(long)]
        write: bool,
    },
    /// what a message costs in user space, against the figures on record, which --write replaces (needs valgrind)
    Instructions(instructions::InstructionsArgs),
    /// the tests on other kernels, in QEMU, and `here` on this machine's; --write makes docs/kernels.md of it
    Kernels(kernels::KernelsArgs),
    /// what every change must pass, with a table of the parts at the end
    Ci,
    /// the slow proofs: packages built alone, each feature alone, Miri, fuzzing, other kernels, all of asan, many seeds
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
        Verb::Asan => sanitizers::asan(),
        Verb::Miri => sanitizers::miri(),
        Verb::Fuzz { targets, seconds, keep } => fuzz::run(&targets, seconds, keep),
        Verb::Sim { seeds } => verbs::sim(seeds),
        Verb::Peers { names } => peers::run(&names),
        Verb::Package => package::all(),
        Verb::Static { dist } => static_program::run(dist),
        Verb::Api { write } => api::run(write),
        Verb::Instructions(choice) => instructions::run(&choice),
        Verb::Kernels(choice) => kernels::run(&choice),
        Verb::Ci => part::run(verbs::CHECK_PARTS.iter().chain(verbs::CI_PARTS)),
        Verb::Weekly => part::run(verbs::WEEKLY_PARTS),
    }
}

/// Runs the verb, and prints the last line.
fn main() -> ExitCode {
    let outcome = run(Verb::parse());
    let name = std::env::args().nth(1).unwrap_or_default();
    eprint!("{}", failed_tests::flaky_report());
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
