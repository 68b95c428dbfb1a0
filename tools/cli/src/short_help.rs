//! The short help. `-h` shows the options that most runs need, with one line each, so that it fits
//! on a screen; `--help` shows all options and explains them.

use clap::Command;

/// What `-h` shows of one command.
struct ShortHelp {
    command: &'static [&'static str],
    /// The arguments to show, by id, with a text of one line each.
    arguments: &'static [(&'static str, &'static str)],
    examples: &'static str,
}

const SHORT_HELPS: [ShortHelp; 4] = [
    ShortHelp {
        command: &["echo"],
        arguments: &[
            ("listen", "Where to listen"),
            ("driver", "auto, uring, epoll or threads"),
            ("workers", "Runtimes, one thread and CPU each"),
            ("pin", "Run on these CPUs"),
            ("max_connections", "Further ones wait in the backlog"),
            ("memory_limit", "For connections and datagrams: 64M, 1G"),
            ("idle_timeout", "Close idle connections: 30, 500ms"),
            ("shutdown_timeout", "Time to finish after a signal [5]"),
            ("metrics", "Serve Prometheus metrics at HOST:PORT"),
            ("stats", "Write statistics as JSON at the end"),
        ],
        examples: "\
Examples:
  annulus echo                              serve on 127.0.0.1:7000
  annulus echo --listen [::]:0              any free port, IPv6 and IPv4
  annulus echo --listen 127.0.0.1:7000 --listen udp://127.0.0.1:7000
  annulus echo --workers 4                  four runtimes, each pinned to a CPU",
    },
    ShortHelp {
        command: &["load"],
        arguments: &[
            ("target", "http://HOST:PORT/PATH, tcp://, udp://, unix:/path …"),
            ("connections", "Number of connections [50]"),
            ("duration", "How long to measure: 30s, 2m [10s]"),
            ("count", "Stop after this many requests"),
            ("length", "Bytes per message of an echo [512]"),
            ("pipeline", "Requests in flight per connection [1]"),
            ("rate", "Requests per second, an open loop"),
            ("threads", "Event loops that share the load [1]"),
            ("method", "The HTTP method [GET]"),
            ("headers", "An HTTP header, any number of times"),
            ("body", "The HTTP body"),
            ("h2", "HTTP/2, with or without TLS"),
            ("insecure", "Do not check the TLS certificate"),
            ("expect", "Which reply is right"),
            ("reply_timeout", "How long to wait for a reply [5s]"),
            ("json", "Write the results as JSON"),
            ("fail_if", "Exit with 1 if broken: p99<5ms,errors<1%"),
        ],
        examples: "\
Examples:
  annulus load -c 1000 -l 128 -d 30s       an echo server on 127.0.0.1:7000
  annulus load --rate 20k --pipeline 64    an open loop of 20,000 per second
  annulus load -t2 -c100 -d10s http://127.0.0.1:8080/index.html

--help has all options: arrivals, scripts, scenario files, several machines …",
    },
    ShortHelp {
        command: &["bench"],
        arguments: &[
            ("names", "Suites (bench list), files, or servers of your own"),
            ("quick", "A few minutes each"),
            ("rounds", "Rounds to measure [15]"),
            ("only", "Measure only CONTENDER/CELL,…"),
            ("out", "Where results go; an old run resumes"),
            ("json", "Write every figure as JSON"),
            ("load", "The load for servers: 'URL OPTIONS'"),
            ("connections", "One cell per number [50]"),
            ("pipeline", "Requests in flight each [1]"),
            ("rate", "Requests per second, an open loop"),
            ("sweep", "Latency at 10 % to 120 % of the peak"),
            ("duration", "How long a slice is measured [1s]"),
        ],
        examples: "\
Examples:
  annulus bench quick                      all suites, in about 90 minutes
  annulus bench 'my-server {port}' 'other-server {port}' \\
    --load 'http://127.0.0.1:{port}/' --connections 1,50

--help has all options and how to compare programs of any kind.",
    },
    ShortHelp {
        command: &["bench", "echo"],
        arguments: &[
            ("servers", "uring, epoll, threads, peer:NAME …"),
            ("transport", "tcp, udp or unix"),
            ("connections", "Numbers of connections [1,50,200]"),
            ("bytes", "Bytes per message [128]"),
            ("cells", "Pairs of both, such as 50x16K"),
            ("pipeline", "Messages in flight each"),
            ("per_connection", "A new connection for each message"),
            ("rounds", "Rounds to measure"),
            ("precision", "Until intervals are within ± RATIO"),
            ("duration", "Seconds per slice"),
            ("out", "Keep the results there, with pages"),
            ("json", "Write every figure as JSON"),
        ],
        examples: "\
Examples:
  annulus bench echo                       about 50 seconds
  annulus bench echo -c 50 --pipeline 16
  annulus bench echo --cells 1x128,50x1000,10x1M --precision 0.03",
    },
];

/// Returns the command line with short helps.
pub(crate) fn added_to(command: Command) -> Command {
    let command = with_negative_numbers(command);
    SHORT_HELPS.iter().fold(command, |command, help| shortened(command, help.command, help))
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

fn shortened(command: Command, path: &[&str], help: &'static ShortHelp) -> Command {
    if let [first, rest @ ..] = path {
        return command.mut_subcommand(first, |verb| shortened(verb, rest, help));
    }
    let notes = command.get_after_long_help().or(command.get_after_help()).cloned();
    let command = command.after_help(help.examples).after_long_help(notes.unwrap_or_default());
    command.mut_args(|arg| {
        let shown = help.arguments.iter().find(|(name, _)| *name == arg.get_id().as_str());
        let full = arg.get_long_help().or(arg.get_help()).cloned().unwrap_or_default();
        match shown {
            Some((_, text)) => arg.long_help(full).help(*text).help_heading(None),
            None => arg.hide_short_help(true),
        }
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

    #[test]
    fn short_helps_refer_to_existing_arguments() {
        for ShortHelp { command: path, arguments, .. } in &SHORT_HELPS {
            let mut command = crate::Cli::command();
            command.build();
            let find = |command: Command, verb: &&str| {
                command.find_subcommand(verb).expect("the command exists").clone()
            };
            let command = path.iter().fold(command, find);
            for (name, _) in *arguments {
                let known = command.get_arguments().any(|arg| arg.get_id() == name);
                assert!(known, "annulus {} has no argument {name}", path.join(" "));
            }
        }
    }
}
