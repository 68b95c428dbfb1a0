//! `cargo xtask VERB` runs what CI runs, with a verb for each check, and needs nothing installed except Rust.
//!
//! A verb is a row of [`VERBS`]. Each command is printed before it runs, and the last line is the result.

use std::process::ExitCode;

mod advisories;
mod api;
mod book;
mod callgrind;
mod check;
mod compat;
mod failed_tests;
mod features;
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

use step::{Failure, Outcome};

/// A verb.
struct Verb {
    name: &'static str,
    /// The arguments, as the help shows them; empty if there are none.
    arguments: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Outcome,
}

impl Verb {
    fn call(&self, arguments: &[String]) -> Outcome {
        match arguments.first() {
            Some(extra) if self.arguments.is_empty() => Err(Failure::Usage(format!(
                "unexpected argument '{extra}': {} takes none",
                self.name
            ))),
            _ => (self.run)(arguments),
        }
    }
}

const VERBS: &[Verb] = &[
    Verb {
        name: "check",
        arguments: "",
        about: "style, format, licences, results, clippy, rustdoc, book",
        run: |_| check::run(),
    },
    Verb {
        name: "style",
        arguments: "[RULE...]",
        about: "counts what the rules of style find, and lists the findings of those named",
        run: style::list,
    },
    Verb {
        name: "results",
        arguments: "[--write]",
        about: "the page of results and its picture against docs/results, from which --write makes them anew",
        run: results::run,
    },
    Verb {
        name: "book",
        arguments: "[preprocess]",
        about: "the book, of docs and rustdoc, without a dead link (needs mdbook, which calls `preprocess`)",
        run: book::run,
    },
    Verb {
        name: "features",
        arguments: "",
        about: "every feature alone, none, and all together, without a warning",
        run: |_| features::check(),
    },
    Verb {
        name: "msrv",
        arguments: "",
        about: "the workspace with the oldest Rust that Cargo.toml promises (needs that toolchain)",
        run: |_| features::msrv(),
    },
    Verb {
        name: "advisories",
        arguments: "",
        about: "licences, sources and security advisories of what is linked (needs cargo-deny and its database)",
        run: |_| advisories::all(),
    },
    Verb {
        name: "test",
        arguments: "",
        about: "every test of the workspace",
        run: |_| verbs::test(),
    },
    Verb {
        name: "compat",
        arguments: "",
        about: "format, lints and tests of crates/compat/, with the libraries that it adapts to",
        run: |_| compat::run(),
    },
    Verb {
        name: "asan",
        arguments: "",
        about: "the tests of the crates with unsafe code under the address sanitizer (needs a nightly toolchain)",
        run: |_| sanitizers::asan(),
    },
    Verb {
        name: "miri",
        arguments: "",
        about: "the unit tests of leases, datagrams, tasks and their like under Miri (needs a nightly toolchain with it)",
        run: |_| sanitizers::miri(),
    },
    Verb {
        name: "fuzz",
        arguments: "[TARGET...] [--seconds N] [--keep]",
        about: "what parses foreign bytes, a minute a target (needs nightly and g++); --keep adds to the corpus",
        run: fuzz::run,
    },
    Verb {
        name: "sim",
        arguments: "SEEDS",
        about: "the mixed workload on the simulated kernel, once a seed, optimized; a failure prints its replay",
        run: verbs::sim,
    },
    Verb {
        name: "peers",
        arguments: "[NAME...]",
        about: "build the servers in tools/peers/, all or these, and check that they echo (needs python3 and their tools)",
        run: peers::run,
    },
    Verb {
        name: "package",
        arguments: "",
        about: "every crate as it would be published, built from its package alone",
        run: |_| package::all(),
    },
    Verb {
        name: "static",
        arguments: "[--dist]",
        about: "the command as one static program, tried; --dist as it is published (needs musl's target and musl-gcc)",
        run: static_program::run,
    },
    Verb {
        name: "api",
        arguments: "[--write]",
        about: "the public API against the lists in docs/api, which --write makes anew",
        run: api::run,
    },
    Verb {
        name: "instructions",
        arguments: "[record]",
        about: "what a message costs in user space, against the figures on record (needs valgrind)",
        run: instructions::run,
    },
    Verb {
        name: "kernels",
        arguments: "[VERSION...] [here] [--quick] [--write]",
        about: "the tests on other kernels, in QEMU, and `here` on this machine's; --write makes docs/kernels.md of it",
        run: kernels::run,
    },
    Verb {
        name: "ci",
        arguments: "",
        about: "what every change must pass, with a table of the parts at the end",
        run: |_| verbs::ci(),
    },
    Verb {
        name: "weekly",
        arguments: "",
        about: "the slow proofs: packages built alone, each feature alone, Miri, fuzzing, other kernels, all of asan, many seeds",
        run: |_| verbs::weekly(),
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        None => usage(&format!("a verb is missing: one of {}", names())),
        Some((verb, _)) if ["help", "-h", "--help"].contains(&verb.as_str()) => help(),
        Some((verb, rest)) => match VERBS.iter().find(|known| known.name == verb) {
            Some(known) => verdict(known.name, known.call(rest)),
            None => usage(&format!("unknown verb '{verb}': one of {}", names())),
        },
    }
}

fn names() -> String {
    let names: Vec<_> = VERBS.iter().map(|verb| verb.name).collect();
    names.join(", ") + ", help"
}

fn help() -> ExitCode {
    println!("cargo xtask VERB: everything a change is checked with. Nothing to install.\n");
    for verb in VERBS {
        println!("  {:<16} {}", format!("{} {}", verb.name, verb.arguments), verb.about);
    }
    println!("  {:<16} this text", "help");
    println!(
        "\nExit code: 0 passed, 1 something failed, 2 usage. A step that cannot run here is skipped and named."
    );
    ExitCode::SUCCESS
}

fn usage(message: &str) -> ExitCode {
    eprintln!("xtask: {message}; `cargo xtask help` explains them");
    ExitCode::from(2)
}

/// Prints the last line and turns the outcome into an exit code.
fn verdict(name: &str, outcome: Outcome) -> ExitCode {
    eprint!("{}", failed_tests::unsteady());
    match outcome {
        Ok(skipped) if skipped.is_empty() => {
            eprintln!("xtask {name}: ok");
            ExitCode::SUCCESS
        }
        Ok(skipped) => {
            eprintln!("xtask {name}: ok; skipped: {}", skipped.join("; "));
            ExitCode::SUCCESS
        }
        Err(Failure::Failed(what)) => {
            let (reason, report) = what.split_once('\n').unwrap_or((&what, ""));
            eprintln!("{report}\nxtask {name}: FAILED: {reason}");
            ExitCode::FAILURE
        }
        Err(Failure::Usage(message)) => usage(&message),
    }
}
