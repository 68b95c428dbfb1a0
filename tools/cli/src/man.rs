//! `annulus completions` and `annulus man`: shell completions and manual pages, generated from
//! the definition of the command line.

use crate::output;
use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const COMPLETIONS_AFTER_HELP: &str = "\
Examples:
  annulus completions bash > ~/.local/share/bash-completion/completions/annulus
  annulus completions zsh > ~/.zfunc/_annulus     # a directory of $fpath
  annulus completions fish > ~/.config/fish/completions/annulus.fish";

const MAN_AFTER_HELP: &str = "\
Without a directory, prints the page of annulus itself; each command has a page
of its own.

Examples:
  annulus man ~/.local/share/man/man1 && man annulus-load
  annulus man | man -l -";

/// Print completions of this command line for a shell
#[derive(Args, Debug)]
#[command(after_help = COMPLETIONS_AFTER_HELP)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Write the manual pages
#[derive(Args, Debug)]
#[command(after_help = MAN_AFTER_HELP)]
pub(crate) struct ManArgs {
    /// The directory for the pages of all commands; it is created if it is missing
    directory: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<ExitCode> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    output::print(&String::from_utf8(script).context("the completions are not UTF-8")?)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(args: &ManArgs, mut command: Command) -> Result<ExitCode> {
    // Fills in the full names of subcommands and the options that all of them have.
    command.build();
    match &args.directory {
        None => output::print(&String::from_utf8_lossy(&page(&command)?))?,
        Some(directory) => write_all(&command, directory)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Renders a page. A command's notes contain aligned examples in lines of at most 80 columns, so
/// they must not be refilled.
fn page(command: &Command) -> Result<Vec<u8>> {
    let notes = command.get_after_long_help().or(command.get_after_help());
    let notes = notes.map(ToString::to_string).unwrap_or_default();
    let mut page = Vec::new();
    Man::new(command.clone().after_help("").after_long_help(""))
        .render(&mut page)
        .context("cannot render the page")?;
    if !notes.is_empty() {
        let mut roff = Roff::new();
        roff.control("SH", ["NOTES"]).control("nf", []);
        notes.lines().for_each(|line| _ = roff.text([roman(line)]));
        roff.control("fi", []).to_writer(&mut page).context("cannot render the notes")?;
    }
    Ok(page)
}

/// Writes the pages of a command and of its subcommands.
fn write_all(command: &Command, directory: &Path) -> Result<()> {
    let advice = || format!("cannot write {}: choose another directory", directory.display());
    fs::create_dir_all(directory).with_context(advice)?;
    let name = command.get_display_name().unwrap_or(command.get_name());
    fs::write(directory.join(format!("{name}.1")), page(command)?).with_context(advice)?;
    let described = command
        .get_subcommands()
        .filter(|command| command.get_name() != "help" && !command.is_hide_set());
    described.into_iter().try_for_each(|command| write_all(command, directory))
}
