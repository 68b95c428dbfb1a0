//! Counts the instructions of a message in user space, with callgrind over the simulated kernel, where batching and network
//! are the same every time. Each size is run with N messages and with 2N, so that set-up and end cancel out; the
//! instructions of the simulated kernel are not counted.

use std::thread;

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;

use crate::callgrind;
use crate::step::{Outcome, Step, root, target};

/// How much a count may differ from its figure, in percent: compilers, and `memcpy` of processors, differ a little.
const TOLERANCE_PERCENT: f64 = 1.5;
/// Messages of the shorter run: so many, or ten a client, so that all buffers have been in use.
const MIN_MESSAGES: u64 = 4_000;
/// The fields of a line of a record.
const FIELD_NAMES: &str = "what, clients, bytes or requests at once, instructions";
/// The crate of the simulated kernel.
const SIM_CRATE: &str = "annulus_sim::";

/// Figures on record, and the program that they are of.
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

/// hyper and an echo by copy, on annulus and on tokio. The rows of tokio, on Linux, are for comparison and decide nothing.
const TOKIO_RECORD: Record = Record {
    file: "crates/compat/instructions.txt",
    build: "build --release --locked --manifest-path crates/compat/Cargo.toml --example instructions",
    program: "release/examples/instructions",
};

/// A workload, and the cost of a message.
#[derive(Clone)]
struct Figure {
    way: String,
    clients: u32,
    /// Bytes a message, or requests at once.
    size: u32,
    instructions: f64,
}

/// The options of the verb.
#[derive(clap::Args, Default)]
pub(crate) struct InstructionsArgs {
    /// replaces the figures
    #[arg(long)]
    write: bool,
    /// those of hyper and of an echo by copy, beside tokio's
    #[arg(long)]
    beside_tokio: bool,
    /// lists the files that execute 1 % or more of them
    #[arg(long)]
    files: bool,
}

/// The part that `weekly` runs.
pub(crate) fn beside_tokio() -> Outcome {
    run(&InstructionsArgs { beside_tokio: true, ..InstructionsArgs::default() })
}

/// Counts, and compares with the figures on record, or replaces them.
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

/// The version and target of the compiler, on which the instructions depend.
fn compiler() -> Result<String> {
    let output = Step::new("rustc", "-vV").probe().unwrap_or_default();
    let field = |name| output.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let version = field("release:").zip(field("host:"));
    let (release, host) = version.context("`rustc -vV` tells no version")?;
    Ok(format!("rustc {release} {host}"))
}

/// The compiler and the figures on record.
fn parse(text: &str) -> Result<(String, Vec<Figure>)> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let compiler = lines.next().context("the record is empty")?;
    let figures =
        lines.map(|line| figure(line).with_context(|| format!("'{line}' is not: {FIELD_NAMES}")));
    Ok((compiler.to_owned(), figures.collect::<Result<_>>()?))
}

fn figure(line: &str) -> Option<Figure> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [way, clients, size, instructions] = fields[..] else { return None };
    let (clients, size) = (clients.parse().ok()?, size.parse().ok()?);
    Some(Figure { way: way.into(), clients, size, instructions: instructions.parse().ok()? })
}

/// Starts the build of the program that is counted, which takes a minute of one core, beside the parts that follow and leave a core
/// idle. The part itself builds it too: cargo lets it wait for this build, and prints its errors.
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

    /// Instructions of a message, at the size of a figure; with `files`, prints those of this project that execute 1 % of them or more.
    fn count(&self, figure: &Figure, files: bool) -> Result<Figure> {
        let messages = MIN_MESSAGES.max(10 * u64::from(figure.clients));
        let (once, twice) = thread::scope(|scope| {
            let once = scope.spawn(|| self.dump(figure, messages));
            let twice = self.dump(figure, 2 * messages);
            (once.join().expect("a run that fails returns why"), twice)
        });
        let (once, twice) = (once?, twice?);
        let spent = |dump: &str| {
            callgrind::outside(dump, SIM_CRATE).context("valgrind wrote no dump of callgrind's")
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

    /// The counts of one run.
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

/// Prints the count and its change; returns an error if the change is above the tolerance.
fn check(known: &Figure, counted: &Figure) -> Option<String> {
    let change = 100.0 * (counted.instructions / known.instructions - 1.0);
    let size = format!("{} {} × {}", known.way, known.clients, known.size);
    eprintln!("{size}: {:.0} instructions a message, {change:+.2} %", counted.instructions);
    let remedy = "find what costs or saves them; `cargo xtask instructions --write` records it";
    let (is, was) = (counted.instructions, known.instructions);
    let is_judged = !known.way.starts_with("tokio-") && change.abs() > TOLERANCE_PERCENT;
    is_judged.then(|| format!("{size}: {is:.0} instead of {was:.0}: {remedy}"))
}

/// The record: the compiler, and a line a figure.
fn listed(compiler: &str, figures: &[Figure]) -> String {
    let mut text = format!(
        "# Instructions a message: {FIELD_NAMES}. `cargo xtask instructions --write` writes this.\n{compiler}\n"
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
