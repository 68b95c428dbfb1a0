//! Counts the instructions of a message in user space, with callgrind over the simulated kernel, where batching and network
//! are the same every time. Each size is run with N messages and with 2N, so that set-up and end cancel out; the
//! instructions of the simulated kernel are not counted.

use std::path::PathBuf;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;

use crate::callgrind;
use crate::step::{Outcome, Step, root, target};

/// How much a count may differ from its figure, in percent: compilers, and `memcpy` of processors, differ a little.
const TOLERANCE: f64 = 1.5;
/// Messages of the shorter run: so many, or ten a client, so that all buffers have been in use.
const MESSAGES: u64 = 4_000;
/// The crate of the simulated kernel.
const SIMULATED: &str = "annulus_sim::";

/// A workload, and the cost of a message.
#[derive(Clone)]
struct Figure {
    way: String,
    clients: u32,
    bytes: u32,
    instructions: f64,
}

/// Counts, and compares with the figures on record, or replaces them.
pub(crate) fn run(record: bool) -> Outcome {
    if !has_valgrind() {
        return Ok(vec!["instructions (no valgrind: `apt-get install valgrind`)".into()]);
    }
    let compiler = compiler()?;
    let (known, figures) = parse(&fs::read_to_string(path())?)?;
    build_step().run()?;
    let counted = figures.iter().map(count).collect::<Result<Vec<_>>>()?;
    if record {
        fs::write(path(), listed(&compiler, &counted))?;
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

fn path() -> PathBuf {
    root().join("xtask/instructions.txt")
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
    let compiler = lines.next().context("xtask/instructions.txt is empty")?;
    let figures = lines.map(|line| {
        let wanted = "tcp, tcp-measured or udp, clients, bytes, instructions";
        figure(line).with_context(|| format!("xtask/instructions.txt: '{line}' is not: {wanted}"))
    });
    Ok((compiler.to_owned(), figures.collect::<Result<_>>()?))
}

fn figure(line: &str) -> Option<Figure> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [way, clients, bytes, instructions] = fields[..] else { return None };
    let (clients, bytes) = (clients.parse().ok()?, bytes.parse().ok()?);
    Some(Figure { way: way.into(), clients, bytes, instructions: instructions.parse().ok()? })
}

/// Starts the build of the program that is counted, which takes a minute of one core, beside the parts that follow and leave a core
/// idle. The part itself builds it too: cargo lets it wait for this build, and prints its errors.
pub(crate) fn build_ahead() -> Outcome {
    if has_valgrind() { build_step().start() } else { Ok(Vec::new()) }
}

fn build_step() -> Step {
    Step::new("cargo", "build --profile dist -p annulus-instructions")
}

fn has_valgrind() -> bool {
    Step::new("valgrind", "--version").probe().is_some()
}

/// Instructions of a message, at the size of a figure.
fn count(figure: &Figure) -> Result<Figure> {
    let messages = MESSAGES.max(10 * u64::from(figure.clients));
    let (once, twice) = thread::scope(|scope| {
        let once = scope.spawn(|| spent(figure, messages));
        let twice = spent(figure, 2 * messages);
        (once.join().expect("a run that fails returns why"), twice)
    });
    let instructions = (twice?.saturating_sub(once?)) as f64 / messages as f64;
    Ok(Figure { instructions, ..figure.clone() })
}

/// Instructions of one run, without those of the simulated kernel.
fn spent(figure: &Figure, messages: u64) -> Result<u64> {
    let target = target();
    let dump = target.join(format!("callgrind-{messages}.out"));
    let program = target.join("dist/annulus-instructions");
    Step::new("valgrind", "-q --tool=callgrind --compress-strings=no --compress-pos=no")
        .argument(format!("--callgrind-out-file={}", dump.display()))
        .argument(program)
        .argument(&figure.way)
        .argument(figure.clients.to_string())
        .argument(figure.bytes.to_string())
        .argument(messages.to_string())
        .run()?;
    let text = fs::read(&dump)?;
    callgrind::outside(&String::from_utf8_lossy(&text), SIMULATED)
        .with_context(|| format!("{} is no dump of callgrind's", dump.display()))
}

/// Prints the count and its change; returns an error if the change is above the tolerance.
fn check(known: &Figure, counted: &Figure) -> Option<String> {
    let change = 100.0 * (counted.instructions / known.instructions - 1.0);
    let size = format!("{} {} × {} bytes", known.way, known.clients, known.bytes);
    eprintln!("{size}: {:.0} instructions a message, {change:+.2} %", counted.instructions);
    let remedy = match change > 0.0 {
        true => "find what costs them, or record the figure and say why",
        false => "better: lower the figure with `cargo xtask instructions --write`",
    };
    let (is, was) = (counted.instructions, known.instructions);
    (change.abs() > TOLERANCE).then(|| format!("{size}: {is:.0} instead of {was:.0}: {remedy}"))
}

/// The record: the compiler, and a line a figure.
fn listed(compiler: &str, figures: &[Figure]) -> String {
    let mut text = format!(
        "# Instructions a message: tcp, tcp-measured or udp, clients, bytes, instructions. `cargo xtask instructions --write` writes this.\n{compiler}\n"
    );
    for Figure { way, clients, bytes, instructions } in figures {
        text += &format!("{way} {clients} {bytes} {instructions:.0}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(instructions: f64) -> Figure {
        Figure { way: "tcp".into(), clients: 50, bytes: 128, instructions }
    }

    #[test]
    fn a_figure_above_or_below_the_tolerance_is_an_error() {
        assert_eq!(check(&figure(1000.0), &figure(1010.0)), None);
        assert_eq!(check(&figure(1000.0), &figure(990.0)), None);
        assert!(check(&figure(1000.0), &figure(1020.0)).unwrap().contains("1020 instead of 1000"));
        assert!(check(&figure(1000.0), &figure(980.0)).unwrap().contains("lower the figure"));
    }

    #[test]
    fn what_is_on_record_is_read() {
        let text = fs::read_to_string(path()).unwrap();
        let (compiler, figures) = parse(&text).unwrap();
        assert_eq!(listed(&compiler, &figures), text);
        assert!(compiler.starts_with("rustc ") && !figures.is_empty());
        assert!(figures.iter().all(|figure| figure.instructions > 0.0));
    }

    #[test]
    fn a_line_that_is_no_figure_is_named() {
        let text = parse("rustc 1\ntcp 50 128\n").err().unwrap().to_string();
        assert!(text.contains("'tcp 50 128'"), "{text}");
    }
}
