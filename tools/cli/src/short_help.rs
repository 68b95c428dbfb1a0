//! The short help. `-h` shows the options that most runs need, with one line each, so that it fits
//! on a screen; `--help` shows all options and explains them.
//!
//! An option that `-h` shows has a line of its own before its explanation. A command without such
//! options shows all of them.

use clap::Command;

const MORE_HELP: &str = "--help has all options, explanations and examples.";

/// Returns the command line with short helps.
pub(crate) fn added_to(command: Command) -> Command {
    shortened(with_negative_numbers(command))
}

/// Lets every option take a negative number as its value, so that the error says what is wrong with
/// it.
fn with_negative_numbers(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let takes_values = arg.get_action().takes_values() && !arg.is_positional();
        arg.allow_negative_numbers(takes_values)
    });
    command.mut_subcommands(with_negative_numbers)
}

fn shortened(command: Command) -> Command {
    let command = command.mut_subcommands(shortened);
    if command.get_arguments().all(|arg| arg.get_long_help().is_none()) {
        return command;
    }
    command.after_help(MORE_HELP).mut_args(|arg| match arg.get_long_help() {
        Some(_) => arg.help_heading(None),
        None => arg.hide_short_help(true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// A short help has to fit into a terminal window, below the prompt and the command.
    const MAX_LINES: usize = 40;

    fn each_command(command: &mut Command, check: &mut dyn FnMut(&mut Command)) {
        check(command);
        command.get_subcommands_mut().for_each(|verb| each_command(verb, check));
    }

    #[test]
    fn short_help_of_every_command_fits_on_a_screen() {
        let mut command = added_to(crate::Cli::command());
        command.build();
        each_command(&mut command, &mut |command| {
            let help = command.render_help().to_string();
            let lines = help.lines().count();
            let name = command.get_display_name().unwrap_or_default();
            assert!(lines <= MAX_LINES, "-h of {name} has {lines} lines:\n{help}");
            let long = help.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "-h of {name} has a line of more than 80 columns");
        });
    }

    /// The long help must not lose its notes when the short help gets others.
    #[test]
    fn only_the_long_help_has_notes_if_there_are_two_helps() {
        let mut command = added_to(crate::Cli::command());
        command.build();
        each_command(&mut command, &mut |command| {
            if command.get_arguments().any(clap::Arg::is_hide_short_help_set) {
                let name = command.get_display_name().unwrap_or_default().to_owned();
                assert!(command.render_help().to_string().ends_with(&format!("{MORE_HELP}\n")));
                assert!(command.render_long_help().to_string().contains("Examples:"), "{name}");
            }
        });
    }
}
