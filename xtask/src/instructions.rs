//! Counts the user-space instructions per message, with callgrind and the simulated kernel, where
//! batching and network are the same every time. Each workload is run with N and with 2N messages,
//! so that setup and shutdown cancel out. Instructions of the simulated kernel are not counted.

use std::thread;

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;

use crate::callgrind;
use crate::step::{Outcome, Step, root, target};

/// How much a count may differ from its recorded figure, in percent: compilers, and the `memcpy`
/// for each processor, differ a little.
const TOLERANCE_PERCENT: f64 = 1.5;
/// The minimum number of messages of the shorter run. It has at least ten per client, so that all
/// buffers have been used.
const MIN_MESSAGES: u64 = 4_000;
/// The fields of a line in a record.
const FIELD_NAMES: &str = "what, clients, bytes or requests at once, instructions";
const SIM_CRATE: &str = "annulus_sim::";

/// A file of recorded figures and the program that it is about.
struct Record {
    file: &'static str,
    build: &'static str,
    program: &'static str,
}

/// Clients and a server on the runtime alone.
const ECHO_RECORD: Record = Record {
    file: "xtask/instructions.txt",
    build: "build --profile dist -p annulus-instructions",
    program: "dist/annulus-instructions",
};

/// hyper, and an echo that copies, on annulus and on tokio. The rows of tokio, which runs on Linux,
/// are for comparison only and are not checked.
const TOKIO_RECORD: Record = Record {
    file: "crates/compat/instructions.txt",
    build: "build --release --locked --manifest-path crates/compat/Cargo.toml --example instructions",
    program: "release/examples/instructions",
};

/// A workload and its instructions per message.
#[derive(Clone)]
struct Figure {
    way: String,
    clients: u32,
    /// Per client: bytes per message; in the record of tokio, requests in flight.
    size: u32,
    instructions: f64,
}

/// The options of `cargo xtask instructions`.
#[derive(clap::Args, Default)]
pub(crate) struct InstructionsArgs {
    /// replace the recorded figures
    #[arg(long)]
    write: bool,
    /// count hyper and an echo that copies, with tokio for comparison
    #[arg(long)]
    beside_tokio: bool,
    /// list the files that execute at least 1 % of the instructions
    #[arg(long)]
    files: bool,
}

/// Runs the comparison with tokio, for `weekly`.
pub(crate) fn beside_tokio() -> Outcome {
    run(&InstructionsArgs { beside_tokio: true, ..InstructionsArgs::default() })
}

/// Counts instructions, and compares them with the recorded figures or replaces those.
pub(crate) fn run(choice: &InstructionsArgs) -> Outcome {
    let record = if choice.beside_tokio { TOKIO_RECORD } else { ECHO_RECORD };
    if !has_valgrind() {
        return Ok(vec!["instructions (no valgrind: `apt-get install valgrind`)".into()]);
    }
    let compiler = compiler()?;
    let path = root().join(record.file);
    let (known, figures) = parse(&fs::read_to_string(&path)?)?;
    record.build_step().run()?;
    let counted = figures.iter().map(|figure| record.count(figure, choice.files));
    let counted = counted.collect::<Result<Vec<_>>>()?;
    if choice.write {
        fs::write(path, listed(&compiler, &counted))?;
        return Ok(Vec::new());
    }
    let verdicts: Vec<_> = figures.iter().zip(&counted).filter_map(|(a, b)| check(a, b)).collect();
    if compiler != known {
        let text =
            format!("instructions (recorded with {known}; counted, not judged, with {compiler})");
        return Ok(vec![text]);
    }
    ensure!(verdicts.is_empty(), verdicts.join("; "));
    Ok(Vec::new())
}

/// Returns the version and host of the compiler, on which the counts depend.
fn compiler() -> Result<String> {
    let output = Step::new("rustc", "-vV").probe().unwrap_or_default();
    let field = |name| output.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let version = field("release:").zip(field("host:"));
    let (release, host) = version.context("`rustc -vV` printed no version")?;
    Ok(format!("rustc {release} {host}"))
}

/// Parses the compiler and the figures of a record.
fn parse(text: &str) -> Result<(String, Vec<Figure>)> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let compiler = lines.next().context("the record is empty")?;
    let figures = lines.map(|line| {
        figure(line).with_context(|| format!("'{line}' is not a line of: {FIELD_NAMES}"))
    });
    Ok((compiler.to_owned(), figures.collect::<Result<_>>()?))
}

fn figure(line: &str) -> Option<Figure> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [way, clients, size, instructions] = fields[..] else { return None };
    let (clients, size) = (clients.parse().ok()?, size.parse().ok()?);
    Some(Figure { way: way.into(), clients, size, instructions: instructions.parse().ok()? })
}

/// Starts building the program whose instructions are counted. The build keeps one core busy for a
/// minute, and the next CI parts leave one idle. The `instructions` part runs the same build again:
/// cargo waits for this one, and then prints any errors.
pub(crate) fn build_ahead() -> Outcome {
    if has_valgrind() { ECHO_RECORD.build_step().start() } else { Ok(Vec::new()) }
}

fn has_valgrind() -> bool {
    Step::new("valgrind", "--version").probe().is_some()
}

impl Record {
    fn build_step(&self) -> Step {
        Step::new("cargo", self.build).env("CARGO_TARGET_DIR", &target().display().to_string())
    }

    /// Counts the instructions per message of a figure's workload. With `files`, prints the
    /// project's files that execute at least 1 % of them.
    fn count(&self, figure: &Figure, files: bool) -> Result<Figure> {
        let messages = MIN_MESSAGES.max(10 * u64::from(figure.clients));
        let (once, twice) = thread::scope(|scope| {
            let once = scope.spawn(|| self.dump(figure, messages));
            let twice = self.dump(figure, 2 * messages);
            (once.join().expect("the counting thread panicked"), twice)
        });
        let (once, twice) = (once?, twice?);
        let spent = |dump: &str| {
            callgrind::outside(dump, SIM_CRATE).context("valgrind wrote no callgrind dump")
        };
        let (less, most) = (spent(&once)?, spent(&twice)?);
        if files {
            let list = callgrind::files(&twice, SIM_CRATE, most / 100);
            let (way, clients, names) = (&figure.way, figure.clients, list.join(" "));
            eprintln!("{way} {clients}: {} files: {names}", list.len());
        }
        let instructions = most.saturating_sub(less) as f64 / messages as f64;
        Ok(Figure { instructions, ..figure.clone() })
    }

    /// Runs the program once and returns callgrind's dump.
    fn dump(&self, figure: &Figure, messages: u64) -> Result<String> {
        let dump = target().join(format!("callgrind-{messages}.out"));
        Step::new("valgrind", "-q --tool=callgrind --compress-strings=no --compress-pos=no")
            .argument(format!("--callgrind-out-file={}", dump.display()))
            .argument(target().join(self.program))
            .argument(&figure.way)
            .argument(figure.clients.to_string())
            .argument(figure.size.to_string())
            .argument(messages.to_string())
            .run()?;
        Ok(String::from_utf8_lossy(&fs::read(&dump)?).into_owned())
    }
}

/// Prints the count and its change; returns an error if the change exceeds the tolerance. A row of
/// tokio is only printed.
fn check(known: &Figure, counted: &Figure) -> Option<String> {
    let change = 100.0 * (counted.instructions / known.instructions - 1.0);
    let size = format!("{} {} × {}", known.way, known.clients, known.size);
    eprintln!("{size}: {:.0} instructions per message, {change:+.2} %", counted.instructions);
    let remedy = "find the cause; `cargo xtask instructions --write` records the new count";
    let (is, was) = (counted.instructions, known.instructions);
    let is_judged = !known.way.starts_with("tokio-") && change.abs() > TOLERANCE_PERCENT;
    is_judged.then(|| format!("{size}: {is:.0} instead of {was:.0}: {remedy}"))
}

/// Formats a record: the compiler, and one line per figure.
fn listed(compiler: &str, figures: &[Figure]) -> String {
    let mut text = format!(
        "# Instructions per message: {FIELD_NAMES}. `cargo xtask instructions --write` writes this.\n{compiler}\n"
    );
    for Figure { way, clients, size, instructions } in figures {
        text += &format!("{way} {clients} {size} {instructions:.0}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(instructions: f64) -> Figure {
        Figure { way: "tcp".into(), clients: 50, size: 128, instructions }
    }

    #[test]
    fn figure_outside_the_tolerance_is_an_error() {
        assert_eq!(check(&figure(1000.0), &figure(1010.0)), None);
        assert_eq!(check(&figure(1000.0), &figure(990.0)), None);
        assert!(check(&figure(1000.0), &figure(1020.0)).unwrap().contains("1020 instead of 1000"));
        assert!(check(&figure(1000.0), &figure(980.0)).unwrap().contains("980 instead of 1000"));
    }

    #[test]
    fn recorded_figures_are_parsed_and_written_alike() {
        for record in [ECHO_RECORD, TOKIO_RECORD] {
            let text = fs::read_to_string(root().join(record.file)).unwrap();
            let (compiler, figures) = parse(&text).unwrap();
            assert_eq!(listed(&compiler, &figures), text);
            assert!(compiler.starts_with("rustc ") && !figures.is_empty());
            assert!(figures.iter().all(|figure| figure.instructions > 0.0));
        }
    }

    #[test]
    fn invalid_line_is_named() {
        let text = parse("rustc 1\ntcp 50 128\n").err().unwrap().to_string();
        assert!(text.contains("'tcp 50 128'"), "{text}");
    }
}
