//! What was asked for, and what will be done.

use super::blocks::STRETCH;
use super::contenders::{Conditions, Contender, Land};
use super::room;
use super::room::shown;
use super::work::Style;
use crate::bench::args::{Pin, some_bytes, some_time};
use crate::output::Target;
use crate::usage::{Misuse, only_with};
use annulus::DriverChoice;
use annulus::fs::Policy;
use annulus_lab::distinct;
use annulus_lab::file::{Blocks, Cycles, Pattern};
use annulus_load::limits;
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Workers at most: each is a thread with memory of its own.
const MAX_WORKERS: u64 = 10_000;
/// Blocks at once at most: with threads, each is one.
const MAX_DEPTH: u64 = 10_000;
/// Where nothing is said: blocks at once, bytes of each, and of what is read and sent at a time.
const DEPTH: u64 = 32;
const SIZE: u64 = 4096;
const PIECE: u64 = 256 * 1024;
/// The size of the file and the length of a round's slice, unless they are given.
const FILE_SIZE: u64 = 256 << 20;
const SLICE: Duration = Duration::from_millis(500);
/// Rounds where nothing is said.
const ROUNDS: u64 = 15;

const EXPLAIN: &str = "\
Each worker opens a file of its own, writes SIZE bytes, reads them back, checks
them and closes the file, so many times. Threads make plain calls; tasks share
one thread and await theirs, which the runtime makes on its loop or elsewhere as
the policy says: the table shows where it did.

With --mode both, threads and tasks are processes on one core, visited in turn,
round after round; threads run a second time as a control. A ratio is CPU or real
seconds over those of the first, taken within each round: the median, with its
bootstrap 95 % interval.

With --pattern blocks of one file are read or written instead, as many at once as
--depth says, for a while in each round: the table has operations a second and
how long they took. --direct goes past the page cache; --beside fio measures fio
on the same file (on one of its own where blocks are mixed), with io_uring and
the same depth, and compares with it.

With --pattern send or receive whole files go over TCP on loopback, --depth at
once: threads read and send pieces of -s bytes, tasks use io::copy. The far end
is this process, on another core where there is one; everything is checked.

All files lie in a folder of its own inside --dir, which is gone afterwards.

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
    /// Bytes that a cycle writes and reads, or of a block: 4096, 16K, 4M [default:
    /// 4096; to and from streams 256K]
    #[arg(short, long, value_name = "SIZE", value_parser = some_bytes)]
    size: Option<u64>,
    /// Blocks of one file instead: read, write, randread, randwrite or mixed; or
    /// all of it over TCP: send or receive
    #[arg(long, value_name = "ORDER")]
    pub(super) pattern: Option<Pattern>,
    /// Blocks under way at once [default: 32; of streams 1]
    #[arg(long, value_name = "COUNT",
          value_parser = clap::value_parser!(u64).range(1..=MAX_DEPTH))]
    depth: Option<u64>,
    /// Past the page cache (O_DIRECT)
    #[arg(long)]
    pub(super) direct: bool,
    /// The size of that one file [default: 256M]
    #[arg(long, value_name = "SIZE", value_parser = some_bytes)]
    file_size: Option<u64>,
    /// How long blocks are read and written in each round [default: 0.5]
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    seconds: Option<Duration>,
    /// Where the files are made [default: the folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub(super) dir: Option<PathBuf>,
    /// Who does the work: threads, tasks, or both in turn
    #[arg(long, value_name = "WHO", default_value = "both", hide_possible_values = true)]
    mode: Mode,
    /// What carries the tasks: auto, uring or epoll
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(super) driver: DriverChoice,
    /// Where tasks make their calls: inline (on the loop), adaptive, or offload
    #[arg(long, value_name = "POLICY", default_value_t)]
    pub(super) policy: Policy,
    /// Others to measure, too: tokio, or fio with --pattern
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', hide_possible_values = true)]
    beside: Vec<Peer>,
    /// How often each is visited [default: 15; threads or tasks alone: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rounds: Option<u64>,
    #[command(flatten)]
    pin: Pin,
    /// Write everything as JSON to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
    /// Decides the order of visits and the intervals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure nothing, but be one of ours: answer lines of WORKERS CYCLES BYTES, or
    /// with --pattern of PATTERN DEPTH BYTES SECONDS, on standard input, in the folder --dir
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    pub(super) contender: Option<Style>,
    /// Where a contender finds the other end of its streams
    #[arg(long, value_name = "ADDRESS", requires = "contender", hide = true)]
    pub(super) far: Option<SocketAddr>,
}

impl FileArgs {
    /// The size of the one file that blocks are of.
    pub(super) fn file_size(&self) -> u64 {
        self.file_size.unwrap_or(FILE_SIZE)
    }

    /// Refuses options that would do nothing.
    fn check_options(&self) -> Result<(), Misuse> {
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

/// Who of ours is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    Threads,
    Tasks,
    Both,
}

/// Who else can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    Tokio,
    Fio,
}

/// All of them, the one that others are compared with first: fio, where it is asked for.
fn contenders(mode: Mode, beside: &[Peer], pattern: Option<Pattern>) -> Result<Vec<Contender>> {
    let ours: &[Contender] = match mode {
        Mode::Threads => &[Contender::Threads],
        Mode::Tasks => &[Contender::Tasks],
        Mode::Both => &[Contender::Threads, Contender::Tasks],
    };
    let mut all = ours.to_vec();
    for peer in beside {
        match (peer, pattern) {
            (Peer::Tokio, None) => all.push(Contender::Tokio),
            (Peer::Fio, Some(pattern)) if !pattern.is_of_streams() => {
                all.insert(0, Contender::Fio);
            }
            (Peer::Tokio, Some(_)) => {
                return Err(Misuse("--beside tokio: not with --pattern".into()).into());
            }
            (Peer::Fio, _) => {
                return Err(
                    Misuse("--beside fio: only with --pattern, and of blocks".into()).into()
                );
            }
        }
    }
    distinct(&all, |contender| format!("'{}'", contender.name()))?;
    Ok(all)
}

/// What they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Cycles(Cycles),
    Blocks(Blocks, Duration),
}

/// A run that can be carried out.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(super) work: Work,
    pub(super) dir: PathBuf,
    pub(super) contenders: Vec<Contender>,
    pub(super) conditions: Conditions,
    pub(super) rounds: usize,
    /// The cores that may be used.
    pub(super) allowed: Vec<usize>,
    pub(super) json: Option<Target>,
    pub(super) seed: u64,
}

impl Setup {
    /// Checks what was asked for.
    pub(super) fn new(args: FileArgs) -> Result<Setup> {
        args.check_options()?;
        let core = args.pin.choose()?;
        let allowed = annulus_load::affinity::allowed()?;
        let contenders = contenders(args.mode, &args.beside, args.pattern)?;
        let work = work(&args)?;
        let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
        check(work, &args, &dir)?;
        let land = args.pattern.map(|pattern| Land {
            pattern,
            bytes: args.file_size(),
            direct: args.direct,
            far: None,
        });
        let conditions = Conditions { driver: args.driver, policy: args.policy, core, land };
        let rounds = args.rounds.unwrap_or(if contenders.len() > 1 { ROUNDS } else { 1 }) as usize;
        let (json, seed) = (args.json, args.seed);
        Ok(Setup { work, dir, contenders, conditions, rounds, allowed, json, seed })
    }
}

/// Whether it fits memory, disk and open files.
fn check(work: Work, args: &FileArgs, dir: &Path) -> Result<()> {
    match work {
        Work::Cycles(cell) => {
            room::check_cycles(cell, dir)?;
            Ok(limits::reserve(cell.workers as usize)?)
        }
        Work::Blocks(cell, _) => {
            let (bytes, file) = (shown(cell.bytes), shown(args.file_size()));
            let asked = format!("{} × {bytes} of a file of {file}", cell.depth);
            let memory = cell.depth.checked_mul(cell.bytes);
            let more = match cell.pattern {
                // Then fio has one of its own.
                Pattern::Mixed => u64::from(args.beside.contains(&Peer::Fio)),
                Pattern::Receive => cell.depth,
                _ => 0,
            };
            let files = args.file_size().checked_mul(1 + more);
            room::check(&asked, memory, files, dir)
        }
    }
}

/// What is to be done, if it can be.
fn work(args: &FileArgs) -> Result<Work> {
    let Some(pattern) = args.pattern else { return cycles(args).map(Work::Cycles) };
    let usual = if pattern.is_of_streams() { (1, PIECE) } else { (DEPTH, SIZE) };
    let (depth, bytes) = (args.depth.unwrap_or(usual.0), args.size.unwrap_or(usual.1));
    let file = args.file_size();
    if pattern.is_of_streams() && args.direct {
        return Err(Misuse(format!("--direct: not with --pattern {pattern}")).into());
    }
    if !bytes.is_multiple_of(STRETCH) || bytes > file {
        let text =
            format!("-s {bytes}: with --pattern a multiple of {STRETCH}, up to the file's {file}");
        return Err(Misuse(text).into());
    }
    Ok(Work::Blocks(Blocks { pattern, depth, bytes }, args.seconds.unwrap_or(SLICE)))
}

/// Cycles, if all of them can be counted.
fn cycles(args: &FileArgs) -> Result<Cycles> {
    let FileArgs { workers, cycles, size, .. } = *args;
    let bytes = size.unwrap_or(SIZE);
    let line = format!("{workers} {cycles} {bytes}");
    let beyond = || Misuse(format!("-n {workers} -c {cycles} -s {bytes}: more bytes than 2^64"));
    Ok(Cycles::parse(&line).ok_or_else(beyond)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::args::tests::parsed;

    #[test]
    fn the_documents_flags_are_taken() {
        let setup = Setup::new(parsed("-n 3 -c 7 -s 4K --mode both").unwrap()).unwrap();
        assert_eq!(setup.work, Work::Cycles(Cycles { workers: 3, cycles: 7, bytes: 4096 }));
        assert_eq!((setup.rounds, setup.contenders.len()), (15, 2));
        let setup = Setup::new(parsed("--mode tasks").unwrap()).unwrap();
        assert_eq!((setup.rounds, setup.contenders.len()), (1, 1));
        let setup =
            Setup::new(parsed("--pattern randread --depth 4 --beside fio").unwrap()).unwrap();
        assert_eq!(setup.contenders, [Contender::Fio, Contender::Threads, Contender::Tasks]);
        let cell = Blocks { pattern: Pattern::RandRead, depth: 4, bytes: 4096 };
        assert_eq!(setup.work, Work::Blocks(cell, Duration::from_millis(500)));
        let setup = Setup::new(parsed("--pattern send --seconds 1").unwrap()).unwrap();
        let cell = Blocks { pattern: Pattern::Send, depth: 1, bytes: 256 * 1024 };
        assert_eq!(setup.work, Work::Blocks(cell, Duration::from_secs(1)));
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
            "--pattern send --far 127.0.0.1:1",
        ] {
            assert!(parsed::<FileArgs>(line).is_err(), "{line}");
        }
        let error = parsed::<FileArgs>("--policy lazy").unwrap_err().to_string();
        assert!(error.contains("lazy") && error.contains("inline, adaptive, offload"), "{error}");
    }

    #[test]
    fn what_cannot_be_is_misuse() {
        for (line, part) in [
            ("--pin 9999", "--pin 9999: this process may use "),
            ("--beside tokio,tokio", "'tokio' is asked for twice"),
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
            let error = Setup::new(parsed(line).unwrap()).unwrap_err();
            assert!(error.is::<Misuse>() && error.to_string().contains(part), "{line}: {error}");
        }
    }
}
