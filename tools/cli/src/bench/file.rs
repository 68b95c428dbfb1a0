//! `annulus bench file`: comparisons of file I/O in threads and in tasks.

use super::args::{Pin, some_bytes, some_time};
use super::results::{doubts, heading, tables};
use super::run::{OutputArgs, carry_out, peers};
use crate::text::wrapped;
use crate::usage::{UsageError, only_with};
use annulus::DriverChoice;
use annulus::fs::Policy;
use annulus_lab::bench::{NOTHING, Plan, Report, Rounds, Row, grouped};
use annulus_lab::distinct;
use annulus_lab::file::{self, Blocks, Cycles, Pattern, STRETCH, Settings, Setup, Style, Work};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Most workers: each is a thread with memory of its own.
const MAX_WORKERS: u64 = 10_000;
/// Most blocks in flight: with threads, each is a thread.
const MAX_DEPTH: u64 = 10_000;
/// Defaults: blocks in flight, bytes of each, and bytes moved at a time over streams.
const DEPTH: u64 = 32;
const SIZE: u64 = 4096;
const PIECE: u64 = 256 * 1024;
/// Defaults: the size of the file, and the length of a slice.
const FILE_SIZE: u64 = 256 << 20;
const SLICE: Duration = Duration::from_millis(500);
/// The default number of rounds of a comparison.
const ROUNDS: u64 = 15;

/// The rule around each contender in the published output.
const RULE: &str = "------------------------------------------------------\n";

const EXPLAIN: &str = "\
Each worker repeatedly opens a file of its own, writes SIZE bytes, reads them
back, verifies them and closes the file. Threads make blocking calls. Tasks
share one thread and await their calls, which the runtime makes on its loop or
elsewhere, by its policy: the table shows where.

With --mode both, threads and tasks are processes on one core, measured in
turn, round after round; threads run a second time as a control. A ratio is
CPU or real seconds over those of the first, taken within each round: the
median, with its 95 % interval.

With --pattern blocks of one file are read or written instead, --depth at once,
for a while in each round: the table has operations per second and their
latency. --direct bypasses the page cache; --beside fio measures fio
on the same file (on one of its own if blocks are mixed), with io_uring and the
same depth, and compares with it.

With --pattern send or receive whole files go over TCP on loopback, --depth at
once: threads read and send pieces of -s bytes, tasks use io::copy. The peer
end is this process, on another core if there is one; everything is checked.

All files lie in a directory of their own inside --dir, which is removed
afterwards.

Examples:
  annulus bench file                                    about half a minute
  annulus bench file -n 20 -c 10 -s 16M --dir /dev/shm
  annulus bench file --policy offload --beside tokio
  annulus bench file -n 20 -c 40960 --mode tasks        once, no comparison
  annulus bench file --pattern randread --depth 32 --direct --beside fio
  annulus bench file --pattern randread --depth 1       cached reads
  annulus bench file --pattern send --file-size 1G      a file over TCP";

/// Compare file I/O: open, write, read, close in threads and in tasks
#[derive(Args, Debug)]
#[command(after_help = EXPLAIN)]
pub(crate) struct FileArgs {
    /// Workers at once
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20,
          conflicts_with = "pattern", value_parser = clap::value_parser!(u64).range(1..=MAX_WORKERS))]
    workers: u64,
    /// Cycles of each worker [in each round]
    #[arg(short, long, value_name = "COUNT", default_value_t = 4096,
          conflicts_with = "pattern", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    cycles: u64,
    /// Bytes that a cycle writes and reads, or of a block: 4096, 16K, 4M [default: 4096; with streams 256K]
    #[arg(short, long, value_name = "SIZE", value_parser = some_bytes)]
    size: Option<u64>,
    /// Blocks of one file instead: read, write, randread, randwrite or mixed; or the whole file over TCP: send or
    /// receive
    #[arg(long, value_name = "ORDER")]
    pattern: Option<Pattern>,
    /// Blocks in flight [default: 32; with streams 1]
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=MAX_DEPTH))]
    depth: Option<u64>,
    /// Bypass the page cache (O_DIRECT)
    #[arg(long)]
    direct: bool,
    /// The size of that one file [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = some_bytes)]
    file_size: Option<u64>,
    /// How long blocks are read and written in each round [default: 0.5]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    seconds: Option<Duration>,
    /// Where the files are made [default: the directory for temporary files]
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// Which of ours to measure: threads, tasks, or both in turn
    #[arg(long, value_name = "MODE", default_value = "both", hide_possible_values = true)]
    mode: Mode,
    /// The driver of tasks: auto, uring or epoll
    #[arg(long, value_name = "KIND", default_value = "auto")]
    driver: DriverChoice,
    /// Where tasks make their calls: inline (on the loop), adaptive, or offload
    #[arg(long, value_name = "POLICY", default_value_t)]
    policy: Policy,
    /// Further contenders: tokio, or fio with --pattern
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', hide_possible_values = true)]
    beside: Vec<Peer>,
    /// How often each is measured [default: 15; threads or tasks alone: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: Option<u64>,
    #[command(flatten)]
    pin: Pin,
    #[command(flatten)]
    output: OutputArgs,
    /// Measure nothing, but be one of ours: answer lines of WORKERS CYCLES BYTES, or
    /// with --pattern of PATTERN DEPTH BYTES SECONDS, on standard input, in the directory --dir
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    contender: Option<Style>,
    /// The address of the peer end of a contender's streams
    #[arg(long, value_name = "ADDRESS", requires = "contender", hide = true)]
    peer_end: Option<SocketAddr>,
}

impl FileArgs {
    /// The size of the file of blocks.
    fn file_size(&self) -> u64 {
        self.file_size.unwrap_or(FILE_SIZE)
    }

    /// Rejects options without an effect.
    fn check_options(&self) -> Result<(), UsageError> {
        let of_blocks = [
            ("--depth", self.depth.is_some()),
            ("--direct", self.direct),
            ("--file-size", self.file_size.is_some()),
            ("--seconds", self.seconds.is_some()),
        ];
        only_with("--pattern", self.pattern.is_some(), &of_blocks)?;
        let of_tasks = [
            ("--driver", self.driver != DriverChoice::Auto),
            ("--policy", self.policy != Policy::default()),
        ];
        only_with("--mode tasks or both", self.mode != Mode::Threads, &of_tasks)
    }
}

/// Which of our contenders to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    Threads,
    Tasks,
    Both,
}

/// Further contenders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    Tokio,
    Fio,
}

pub(crate) fn run(args: FileArgs) -> Result<ExitCode> {
    if let Some(style) = args.contender {
        return answer(style, args).map(|()| ExitCode::SUCCESS);
    }
    let json = args.output.json.clone();
    let setup = setup(&args)?;
    // Invalid values are reported even while another measurement holds the lock.
    let scratch = setup.check()?;
    carry_out(json, || setup.prepare(scratch), text)
}

/// Acts as a contender.
fn answer(style: Style, args: FileArgs) -> Result<()> {
    let file_size = args.file_size();
    let FileArgs { driver, policy, pattern, direct, peer_end, .. } = args;
    let directory = args.dir.ok_or_else(|| UsageError("--contender needs --dir".into()))?;
    let settings = Settings { directory, driver, policy };
    match pattern {
        None => file::answer_cycles(style, &settings),
        Some(pattern) if pattern.is_of_streams() && peer_end.is_none() => {
            Err(UsageError(format!("--contender --pattern {pattern} needs --peer-end")).into())
        }
        Some(_) => file::answer_blocks(style, &settings, file_size, direct, peer_end),
    }
}

/// Checks the arguments.
pub(crate) fn setup(args: &FileArgs) -> Result<Setup> {
    args.check_options()?;
    let core = args.pin.choose()?;
    let contenders = contenders(args)?;
    let usual = if contenders.len() > 1 { ROUNDS } else { 1 };
    let rounds = Rounds::fixed(args.rounds.unwrap_or(usual) as usize);
    Ok(Setup {
        plan: Plan { name: "file".into(), rounds, seed: args.output.seed },
        contenders,
        work: work(args)?,
        directory: args.dir.clone().unwrap_or_else(std::env::temp_dir),
        driver: args.driver,
        policy: args.policy,
        core,
        peers: peers(),
    })
}

/// All contenders, the baseline first: fio, if it is named.
fn contenders(args: &FileArgs) -> Result<Vec<String>> {
    let ours: &[&str] = match args.mode {
        Mode::Threads => &["threads"],
        Mode::Tasks => &["tasks"],
        Mode::Both => &["threads", "tasks"],
    };
    let mut all = ours.to_vec();
    for peer in &args.beside {
        match (peer, args.pattern) {
            (Peer::Tokio, None) => all.push("tokio"),
            (Peer::Fio, Some(pattern)) if !pattern.is_of_streams() => all.insert(0, "fio"),
            (Peer::Tokio, Some(_)) => {
                return Err(UsageError("--beside tokio: not with --pattern".into()).into());
            }
            (Peer::Fio, _) => {
                let text = "--beside fio: only with --pattern, and of blocks";
                return Err(UsageError(text.into()).into());
            }
        }
    }
    distinct(&all, |contender| format!("'{contender}'"))?;
    Ok(all.into_iter().map(String::from).collect())
}

/// The work, if it is valid.
fn work(args: &FileArgs) -> Result<Work, UsageError> {
    let Some(pattern) = args.pattern else { return cycles(args) };
    let usual = if pattern.is_of_streams() { (1, PIECE) } else { (DEPTH, SIZE) };
    let (depth, bytes) = (args.depth.unwrap_or(usual.0), args.size.unwrap_or(usual.1));
    let (file_size, direct) = (args.file_size(), args.direct);
    if pattern.is_of_streams() && direct {
        return Err(UsageError(format!("--direct: not with --pattern {pattern}")));
    }
    if !bytes.is_multiple_of(STRETCH) || bytes > file_size {
        let most = format!("with --pattern a multiple of {STRETCH}, up to the file's {file_size}");
        return Err(UsageError(format!("-s {bytes}: {most}")));
    }
    let (cell, slice) = (Blocks { pattern, depth, bytes }, args.seconds.unwrap_or(SLICE));
    Ok(Work::Blocks { cell, slice, file_size, direct })
}

/// Cycles, if their bytes do not exceed the range of a count.
fn cycles(args: &FileArgs) -> Result<Work, UsageError> {
    let (workers, cycles, bytes) = (args.workers, args.cycles, args.size.unwrap_or(SIZE));
    let beyond =
        || UsageError(format!("-n {workers} -c {cycles} -s {bytes}: more bytes than 2^64"));
    let cell = Cycles::parse(&format!("{workers} {cycles} {bytes}")).ok_or_else(beyond)?;
    Ok(Work::Cycles(vec![cell]))
}

/// For cycles the paragraphs of the published output, followed by further results.
fn text(report: &Report) -> String {
    let paragraphs: String = report.results.iter().filter_map(paragraph).collect();
    let paths: String = report.results.iter().filter_map(paths).collect();
    heading(report) + &paragraphs + &tables(report) + &paths + &doubts(report)
}

/// A paragraph as in the published output, with the median of the rounds.
fn paragraph(row: &Row) -> Option<String> {
    let [workers, cycles, bytes] = ["workers", "cycles", "bytes"].map(|name| row.cell.number(name));
    let (workers, cycles, bytes) = (workers?, cycles?, bytes?);
    let name = &row.contender;
    let kind = if name == "threads" { "thread" } else { "task" };
    let seconds = |key| row.value(key).map_or(NOTHING.into(), |seconds| format!("{seconds:.6}"));
    let (cpu, real) = (seconds("cpu_seconds"), seconds("real_seconds"));
    Some(format!(
        "{RULE}Benchmarking read write files with {name} with params:\n\
         [{workers} {kind}s, {cycles} IO cycles per {kind}, {bytes} bytes per IO]\n\n\
         Finished read write files with {name} in\n{cpu} seconds CPU time, {real} seconds real time\n{RULE}"
    ))
}

/// Where a contender's runtime made its calls, if it had a choice.
fn paths(row: &Row) -> Option<String> {
    let [inline, misses, ring, registered, worker] =
        ["inline", "misses", "ring", "registered", "worker"].map(|key| row.value(key));
    let calls = inline? + ring? + worker?;
    let share = |count: Option<f64>| 100.0 * count.unwrap_or_default() / calls;
    let (name, calls, misses) = (&row.contender, grouped(calls, 0), grouped(misses?, 0));
    let text = format!(
        "{name}: {calls} calls, {:.2} % on the loop, {:.2} % by the ring ({:.2} % in registered memory), \
         {:.2} % by workers; {misses} were tried on the loop and missed",
        share(inline),
        share(ring),
        share(registered),
        share(worker),
    );
    (calls != "0").then(|| format!("\n{}", wrapped("", &text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::args::tests::{parsed, refused};

    fn setup(line: &str) -> Result<Setup> {
        super::setup(&parsed(line).expect("it parses"))
    }

    #[test]
    fn the_flags_of_the_document_are_accepted() {
        let plain = setup("-n 3 -c 7 -s 4K --mode both").unwrap();
        let cycles = Cycles { workers: 3, cycles: 7, bytes: 4096 };
        assert_eq!(plain.work, Work::Cycles(vec![cycles]));
        assert_eq!((plain.plan.rounds.least, plain.contenders.len()), (15, 2));
        let alone = setup("--mode tasks").unwrap();
        assert_eq!((alone.plan.rounds.least, alone.contenders.len()), (1, 1));
        let blocks = setup("--pattern randread --depth 4 --beside fio").unwrap();
        assert_eq!(blocks.contenders, ["fio", "threads", "tasks"]);
        let cell = Blocks { pattern: Pattern::RandRead, depth: 4, bytes: 4096 };
        let (slice, file_size, direct) = (SLICE, FILE_SIZE, false);
        assert_eq!(blocks.work, Work::Blocks { cell, slice, file_size, direct });
        let streams = setup("--pattern send --seconds 1").unwrap();
        let cell = Blocks { pattern: Pattern::Send, depth: 1, bytes: PIECE };
        let slice = Duration::from_secs(1);
        assert_eq!(streams.work, Work::Blocks { cell, slice, file_size, direct });
    }

    #[test]
    fn values_out_of_range_do_not_parse() {
        for line in [
            "-n 0",
            "-n 10001",
            "-c 0",
            "-s 0",
            "-s x",
            "--mode fibers",
            "--policy lazy",
            "--driver kqueue",
            "--beside glommio",
            "--rounds 0",
            "--pattern dance",
            "--pattern read -n 2",
            "--pattern read --depth 0",
            "--pattern read --seconds 0",
            "--pattern send --peer-end 127.0.0.1:1",
        ] {
            assert!(parsed::<FileArgs>(line).is_err(), "{line}");
        }
        let error = parsed::<FileArgs>("--policy lazy").unwrap_err().to_string();
        assert!(error.contains("lazy") && error.contains("inline, adaptive, offload"), "{error}");
    }

    #[test]
    fn invalid_values_are_usage_errors() {
        for (line, part) in [
            ("--pin 9999", "--pin 9999: this process may use "),
            ("--beside tokio,tokio", "'tokio' is given twice"),
            ("-n 10000 -c 1000000000 -s 1G", "more bytes than 2^64"),
            ("-n 1000 -c 1 -s 1024G", "memory"),
            ("--dir /nowhere/at/all", "/nowhere/at/all"),
            ("--pattern read -s 1000", "-s 1000: with --pattern a multiple of 512"),
            ("--pattern read -s 4K --file-size 1K", "up to the file's 1024"),
            ("--pattern read --file-size 1000000G", "a file of"),
            ("--depth 2 -c 5", "--depth does nothing without --pattern"),
            ("--direct -n 5", "--direct does nothing without --pattern"),
            ("--file-size 1M -c 5", "--file-size does nothing without --pattern"),
            ("--seconds 1 -n 5", "--seconds does nothing without --pattern: add that"),
            ("--mode threads --driver epoll", "--driver does nothing without --mode tasks"),
            ("--mode threads --policy inline", "--policy does nothing without --mode tasks"),
            ("--beside fio", "only with --pattern"),
            ("--pattern read --beside tokio", "not with --pattern"),
            ("--pattern send --beside fio", "and of blocks"),
            ("--pattern receive --direct", "--direct: not with --pattern receive"),
            ("--pattern receive --depth 10000 --file-size 1000G", "a file of"),
        ] {
            refused(setup(line).and_then(|setup| setup.check()), part);
        }
    }
}
