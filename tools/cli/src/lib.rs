//! The annulus command: an echo server, a load generator, benchmarks, and a report on the machine.
//! The binary only calls [`main`]; the library exists for the binary and the fuzz targets.

// The denied macros panic if the stream cannot be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod agent;
mod bench;
mod contender;
mod doctor;
mod duration;
mod echo;
mod frames;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod load;
mod man;
mod output;
mod short_help;
mod signals;
mod text;
mod token;
mod usage;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

const AFTER_HELP: &str = "\
Examples:
  annulus echo                         serve on 127.0.0.1:7000
  annulus load -c 200 -l 128 -d 10     200 connections, 128 bytes, 10 s
  annulus bench echo                   compare our echo servers, a minute
  annulus bench quick                  measure the published tables again
  annulus doctor                       what this machine offers

Exit status: 0 success, 1 failure, 2 usage error; 128 + N ended by signal N
(141: the reader of standard output has closed the pipe).";

/// An I/O runtime on io_uring, and tools to measure it.
#[derive(Debug, Parser)]
#[command(name = "annulus", version, max_term_width = 80, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Echo(echo::EchoArgs),
    Load(Box<load::LoadArgs>),
    Agent(Box<agent::AgentArgs>),
    Bench(Box<bench::BenchArgs>),
    #[command(hide = true)]
    Contender(contender::ContenderArgs),
    Doctor(doctor::DoctorArgs),
    Completions(man::CompletionsArgs),
    Man(man::ManArgs),
}

/// Runs the command with the arguments of the process; returns its exit status.
pub fn main() -> ExitCode {
    let matches = short_help::added_to(Cli::command()).try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return usage::report_clap_error(&error),
    };
    let done = match cli.command {
        Command::Echo(args) => echo::run(args),
        Command::Load(args) => load::run(*args),
        Command::Agent(args) => agent::run(*args),
        Command::Bench(args) => bench::run(*args),
        Command::Contender(args) => contender::run(&args),
        Command::Doctor(args) => doctor::run(args),
        Command::Completions(args) => man::completions(&args, Cli::command()),
        Command::Man(args) => man::man(&args, Cli::command()),
    };
    done.unwrap_or_else(|error| usage::fail(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;
    use clap::error::{ContextKind, ErrorKind};

    /// Values such that every option accepts at least one of them.
    const VALUES: [&str; 10] = [
        "1",
        "0.5",
        "1x1",
        "auto",
        "least-connections",
        "multishot",
        "read",
        "inline",
        "127.0.0.1:1",
        "poisson",
    ];

    /// Collects every subcommand: its words and its options.
    fn verbs(words: &[String], command: &clap::Command, found: &mut Vec<(Vec<String>, Vec<Arg>)>) {
        let options = command.get_arguments().filter(|arg| arg.get_long().is_some());
        found.push((words.to_vec(), options.cloned().collect()));
        for verb in command.get_subcommands() {
            verbs(&[words, &[verb.get_name().into()]].concat(), verb, found);
        }
    }

    fn parse(words: &[String], options: &[&str]) -> Result<(), ErrorKindAndText> {
        let words = words.iter().map(String::as_str).chain(options.iter().copied());
        Cli::try_parse_from(words).map(drop).map_err(|error| {
            let missing = error.get(ContextKind::InvalidArg).map(ToString::to_string);
            (error.kind(), missing.unwrap_or_default())
        })
    }

    type ErrorKindAndText = (ErrorKind, String);

    /// Returns the option as an argument, with one of `VALUES` that it accepts if it takes a value.
    fn given(words: &[String], option: &Arg) -> Option<String> {
        let long = format!("--{}", option.get_long()?);
        if !option.get_action().takes_values() {
            return Some(long);
        }
        let values = VALUES.map(|value| format!("{long}={value}"));
        values.into_iter().find(|text| {
            let wrong = [ErrorKind::ValueValidation, ErrorKind::InvalidValue];
            !parse(words, &[text]).is_err_and(|(kind, _)| wrong.contains(&kind))
        })
    }

    /// clap ignores `requires` when an argument conflicts with the required one.
    #[test]
    fn an_option_that_needs_another_is_never_accepted_without_it() {
        let mut found = Vec::new();
        verbs(&["annulus".into()], &Cli::command(), &mut found);
        for (words, options) in found {
            let given: Vec<String> =
                options.iter().filter_map(|option| given(&words, option)).collect();
            for one in &given {
                let Err((ErrorKind::MissingRequiredArgument, missing)) = parse(&words, &[one])
                else {
                    continue;
                };
                for other in &given {
                    let name = other.split('=').next().expect("the option has no name");
                    assert!(
                        missing.contains(name) || parse(&words, &[one, other]).is_err(),
                        "{words:?} {one} {other} was accepted without {missing}"
                    );
                }
            }
        }
    }
}
