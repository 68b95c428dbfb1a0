//! Compares servers on this machine: io_uring, epoll, and one thread per connection, at a workload
//! where the choice hardly matters (an echo) and at one where it does (a file per request, and a
//! reply in pieces). Only the runtime has to be built, so the first result appears quickly.
//! `annulus bench echo` compares more servers, and adds latencies, memory and pages.
//!
//! Each server is a process on one core. The clients are tasks on another core, each with one
//! message in flight (a closed loop). Contenders are measured in turn, in short slices, and
//! compared within rounds. The interval of a ratio comes from the sign test on the median (Conover,
//! *Practical Nonparametric Statistics*, 3.2), which reaches 95 % from six rounds on.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use annulus::fs::File;
use annulus::net::{TcpListener, TcpStream};
use annulus::task::spawn_blocking;
use annulus::time::{self, Instant};
use annulus::{DriverChoice, Runtime, spawn};
use annulus_kernel::Resource::OpenFiles;
use annulus_kernel::{Limit, affinity};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

const HELP: &str = "\
Compares TCP servers on this machine by CPU time per request, in a minute:
an echo, and a server that reads a file of 16 KiB per request and replies in 16
pieces. There, epoll reads files on blocking threads.

Usage: annulus-compare [OPTIONS]

Options:
  -c, --connections COUNT,…  of the echo, a table each    [default: 50]
  -b, --bytes BYTES          length of a message          [default: 128]
  -r, --rounds COUNT         rounds of a table, from 6 on [default: 12]
      --slice MS             length of one measurement    [default: 250]
      --only WORKLOAD        measure only echo, or only files
      --long                 4 minutes: 50, 1 and 500 connections, 30 rounds
      --json                 print only JSON: a line per contender and table
  -h, --help                 print this text

Exit code: 0 measured, 1 something failed, 2 usage, 141 the reader of standard
output has closed the pipe.";

/// Rounds needed for an interval, and thus for the first table.
const FIRST: usize = 6;
/// How long each slice runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(10);
/// Ratios within this distance of 1 count as the same.
const MARGIN: f64 = 0.03;
/// Index of the contender that the others are compared with. It also runs as the control.
const BASE: usize = 1;
/// The number of connections for files, and by default for the echo.
const CONNECTIONS: usize = 50;
const LONG_CONNECTIONS: [usize; 3] = [50, 1, 500];
const LONG_ROUNDS: usize = 30;
/// The length of the file that a server sends.
const FILE_BYTES: usize = 16 << 10;
const PIECE_BYTES: usize = 1 << 10;
/// A contender's name, and its mode for `--serve`.
const CONTENDERS: [(&str, &str); 4] =
    [("io_uring", "uring"), ("epoll", "epoll"), ("threads", "threads"), ("control", "epoll")];

/// The exit code of a program that SIGPIPE ends: 128 + 13.
const PIPE_CLOSED: u8 = 141;

/// What a server does with a message.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Workload {
    /// Sends the message back.
    Echo,
    /// Opens and reads a file for each message, and sends it in pieces.
    Files,
}

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Workload::Echo => "echo",
            Workload::Files => "files",
        }
    }

    /// Returns the end of a sentence that says what was measured.
    fn place(self, connections: usize) -> String {
        let at = counted(connections);
        match self {
            Workload::Echo => format!("for an echo at {at}, on this machine"),
            Workload::Files => {
                format!("for files in pieces at {at}, on this machine")
            }
        }
    }
}

fn counted(connections: usize) -> String {
    if connections == 1 { "1 connection".to_owned() } else { format!("{connections} connections") }
}

struct Options {
    /// Numbers of connections for the echo, with a table each.
    connections: Vec<usize>,
    bytes: usize,
    rounds: usize,
    slice: Duration,
    only: Option<Workload>,
    json: bool,
}

impl Options {
    /// Returns the workload and the number of connections of each table.
    fn cells(&self) -> Vec<(Workload, usize)> {
        let echo = self.connections.iter().map(|&connections| (Workload::Echo, connections));
        let is_measured = |cell: &(Workload, usize)| self.only.is_none_or(|only| only == cell.0);
        let mut cells: Vec<_> = echo.collect();
        cells.insert(1, (Workload::Files, CONNECTIONS));
        cells.into_iter().filter(is_measured).collect()
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ended = match words[..] {
        ["--help" | "-h"] => show(&format!("{HELP}\n")),
        // The program starts itself with these arguments to run a server.
        ["--serve", kind, core] => serve(kind, core, None),
        ["--serve", kind, core, file] => serve(kind, core, Some(file.into())),
        _ => match options(&words) {
            Ok(options) => compare(&options),
            Err(error) => {
                eprintln!("annulus-compare: {error}; --help lists all options");
                return ExitCode::from(2);
            }
        },
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(PIPE_CLOSED),
        Err(error) => {
            eprintln!("annulus-compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(words: &[&str]) -> Result<Options, String> {
    let slice = Duration::from_millis(250);
    let mut options = Options {
        connections: vec![CONNECTIONS],
        bytes: 128,
        rounds: 12,
        slice,
        only: None,
        json: false,
    };
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        let mut value = || words.next().copied().ok_or(format!("{word} needs a value"));
        let parse = |text: &str, from: usize, to: usize| match text.parse() {
            Ok(number) if (from..=to).contains(&number) => Ok(number),
            _ => Err(format!("{word}: '{text}' is not a number from {from} to {to}")),
        };
        let mut number = |from, to| parse(value()?, from, to);
        match word {
            "-c" | "--connections" => {
                let numbers = value()?.split(',').map(|text| parse(text, 1, 10_000));
                options.connections = numbers.collect::<Result<_, _>>()?;
            }
            "-b" | "--bytes" => options.bytes = number(1, 1 << 16)?,
            "-r" | "--rounds" => options.rounds = number(FIRST, 1000)?,
            "--long" => {
                options.connections = LONG_CONNECTIONS.into();
                options.rounds = LONG_ROUNDS;
            }
            "--only" => {
                options.only = Some(match value()? {
                    "echo" => Workload::Echo,
                    "files" => Workload::Files,
                    other => {
                        return Err(format!("--only '{other}': the workloads are echo and files"));
                    }
                });
            }
            "--slice" => options.slice = Duration::from_millis(number(1, 60_000)? as u64),
            "--json" => options.json = true,
            _ => return Err(format!("unexpected argument '{word}'")),
        }
    }
    Ok(options)
}

/// Serves on this core until stdin ends, which happens when the parent process exits. Answers each
/// line on stdin with the CPU time used so far, in nanoseconds. With a file, the reply to each
/// message is the file's content in pieces; otherwise it is the message. Removes the file at the
/// end of stdin, because a signal may have ended the parent process.
fn serve(kind: &str, core: &str, file: Option<PathBuf>) -> io::Result<()> {
    let _pinned =
        affinity::pin(core.parse().map_err(io::Error::other)?).map_err(io::Error::other)?;
    let sent = file.clone();
    let announce = |address: SocketAddr| {
        println!("{address}");
        thread::spawn(|| {
            for _ in io::stdin().lock().lines() {
                println!("{}", now(ClockId::ProcessCPUTime).as_nanos());
            }
            drop(sent.map(SentFile));
            std::process::exit(0);
        });
    };
    let driver = match kind {
        "uring" => DriverChoice::Uring,
        "epoll" => DriverChoice::Epoll,
        _ => return serve_by_threads(announce, file),
    };
    // With epoll, a call on a file would block the loop.
    let is_pooled = driver == DriverChoice::Epoll;
    Runtime::builder().driver(driver).build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        announce(listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            match file.clone() {
                None => _ = spawn(echo(stream)),
                Some(file) => _ = spawn(send_file(stream, file, is_pooled)),
            }
        }
    })
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    Ok(())
}

/// Sends the file once per received buffer, so a message must fit in one buffer.
async fn send_file(mut stream: TcpStream, path: PathBuf, is_pooled: bool) -> io::Result<()> {
    while stream.recv().await?.is_some() {
        let content = if is_pooled {
            let path = path.clone();
            spawn_blocking(move || std::fs::read(path)).await.map_err(io::Error::other)??
        } else {
            let file = File::open(&path).await?;
            let (read, mut content) = file.read_at(Vec::with_capacity(FILE_BYTES), 0).await;
            content.truncate(read?);
            content
        };
        for piece in content.chunks(PIECE_BYTES) {
            stream.send(piece.to_vec()).await?;
        }
    }
    Ok(())
}

fn serve_by_threads(announce: impl FnOnce(SocketAddr), file: Option<PathBuf>) -> io::Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    announce(listener.local_addr()?);
    for stream in listener.incoming() {
        let mut stream = stream?;
        stream.set_nodelay(true)?;
        let file = file.clone();
        thread::spawn(move || -> io::Result<()> {
            let mut buffer = vec![0; 16 << 10];
            loop {
                match (stream.read(&mut buffer)?, &file) {
                    (0, _) => return Ok(()),
                    (count, None) => stream.write_all(&buffer[..count])?,
                    (_, Some(file)) => {
                        let content = std::fs::read(file)?;
                        content
                            .chunks(PIECE_BYTES)
                            .try_for_each(|piece| stream.write_all(piece))?;
                    }
                }
            }
        });
    }
    Ok(())
}

fn now(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A running server, killed on drop.
struct Server {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    fn start(kind: &str, core: usize, file: Option<&Path>) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--serve", kind, &core.to_string()]).args(file);
        // Ctrl-C at the terminal ends only the parent process; the server ends with its stdin.
        command.process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let questions = child.stdin.take().expect("stdin is not a pipe");
        let mut answers = BufReader::new(child.stdout.take().expect("stdout is not a pipe"));
        match answer(&mut answers) {
            Ok(address) => Ok(Self { child, questions, answers, address }),
            Err(error) => {
                child.wait()?;
                Err(error)
            }
        }
    }

    fn cpu(&mut self) -> io::Result<Duration> {
        self.questions.write_all(b"\n")?;
        answer(&mut self.answers).map(Duration::from_nanos)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn answer<T: std::str::FromStr>(answers: &mut impl BufRead) -> io::Result<T> {
    let mut line = String::new();
    answers.read_line(&mut line)?;
    line.trim().parse().map_err(|_| io::Error::other("a server ended before it answered"))
}

/// A server's work in one slice.
#[derive(Clone, Copy)]
struct Sample {
    /// Messages per second.
    rate: f64,
    /// CPU time per message, in microseconds.
    cpu: f64,
}

fn measure(
    server: &mut Server,
    (workload, connections): (Workload, usize),
    options: &Options,
) -> io::Result<Sample> {
    Runtime::new()?.block_on(async {
        let (echoed, ends) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let reply: Option<Rc<[u8]>> = (workload == Workload::Files).then(|| content().into());
        let mut tasks = Vec::new();
        for number in 0..connections {
            let stream = TcpStream::connect(server.address).await?;
            let message: Vec<u8> = (0..options.bytes).map(|at| (at * 31 + number) as u8).collect();
            let asked = (message, reply.clone());
            tasks.push(spawn(client(stream, asked, echoed.clone(), ends.clone())));
        }
        time::sleep(WARM_UP).await;
        let (before, from, began) = (server.cpu()?, echoed.get(), Instant::now());
        // On a busy machine no reply may arrive for a while: wait longer, for at most `PATIENCE`.
        time::sleep(options.slice).await;
        while echoed.get() == from && began.elapsed() < PATIENCE {
            time::sleep(options.slice).await;
        }
        let (took, count) = (began.elapsed(), echoed.get() - from);
        let cpu = server.cpu()? - before;
        ends.set(true);
        for task in tasks {
            task.await.map_err(io::Error::other)??;
        }
        if count == 0 {
            return Err(io::Error::other("no reply arrived within ten seconds"));
        }
        let rate = count as f64 / took.as_secs_f64();
        Ok(Sample { rate, cpu: cpu.as_secs_f64() * 1e6 / count as f64 })
    })
}

fn content() -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at * 31 + at / PIECE_BYTES) as u8).collect()
}

/// Sends a message, compares every byte of the reply, and repeats. If `reply` is `None`, the server
/// must send the message back.
async fn client(
    mut stream: TcpStream,
    (mut message, reply): (Vec<u8>, Option<Rc<[u8]>>),
    echoed: Rc<Cell<u64>>,
    ends: Rc<Cell<bool>>,
) -> io::Result<()> {
    while !ends.get() {
        message[0] = message[0].wrapping_add(1);
        stream.send(message.clone()).await?;
        let mut left = reply.as_deref().unwrap_or(&message);
        while !left.is_empty() {
            let lease = stream.recv().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let rest = left.strip_prefix(&lease[..]);
            left =
                rest.ok_or_else(|| io::Error::other("the reply differs from the expected one"))?;
        }
        echoed.set(echoed.get() + 1);
    }
    Ok(())
}

/// A contender: its servers by workload, and one sample per round for each table.
struct Contender {
    name: &'static str,
    servers: [Server; 2],
    samples: Vec<Vec<Sample>>,
}

/// The path of the file that servers send, which is removed on drop.
struct SentFile(PathBuf);

impl SentFile {
    /// Creates the file under a name that nothing has. Other users may have placed links to files
    /// of this user in the directory for temporary files.
    fn create() -> io::Result<Self> {
        let mut number = 0;
        loop {
            let path = Self::path(number);
            match std::fs::File::create_new(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                created => {
                    let file = Self(path);
                    created?.write_all(&content())?;
                    return Ok(file);
                }
            }
        }
    }

    fn path(number: u32) -> PathBuf {
        let name = format!("annulus-compare-{}-{number}", std::process::id());
        std::env::temp_dir().join(name)
    }
}

impl Drop for SentFile {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

fn compare(options: &Options) -> io::Result<()> {
    if cfg!(debug_assertions) {
        eprintln!(
            "annulus-compare: this is a debug build, so the figures mean little: use --release"
        );
    }
    raise_open_files();
    let cores = affinity::allowed()?;
    let (first, last) = (cores[0], cores[cores.len() - 1]);
    let (file, cells) = (SentFile::create()?, options.cells());
    let mut contenders = Vec::new();
    for (name, kind) in CONTENDERS {
        let started = Server::start(kind, first, None)
            .and_then(|echo| Ok([echo, Server::start(kind, first, Some(&file.0))?]));
        match started {
            Ok(servers) => {
                let samples = vec![Vec::new(); cells.len()];
                contenders.push(Contender { name, servers, samples });
            }
            Err(_) if kind == "uring" => eprintln!("io_uring is skipped: see the line above"),
            Err(error) => return Err(error),
        }
    }
    let _pinned = affinity::pin(last).map_err(io::Error::other)?;
    let mut sentences = String::new();
    for (from, to) in [(0, FIRST), (FIRST, options.rounds)] {
        for (number, &cell) in cells.iter().enumerate().filter(|_| from < to) {
            rounds(&mut contenders, (number, cell), from..to, options)?;
            let table = table(&contenders, number);
            let is_last = to == options.rounds;
            match options.json {
                true if is_last => show(&json(&table, cell, options))?,
                true => {}
                false => show(&text(&table, cell, options.bytes, to))?,
            }
            if is_last {
                sentences += &format!("\n{}", summary(&table, cell));
            }
        }
    }
    if !options.json {
        show(&format!(
            "{sentences}\n\nMore servers, latencies and memory: cargo run --release -- bench echo\n"
        ))?;
    }
    Ok(())
}

/// Raises the limit on open files as far as this process may, for many connections. The servers
/// inherit it.
fn raise_open_files() {
    let hard = Limit::of(OpenFiles).hard;
    _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
}

/// Prints a text on standard output. Unlike `print!`, it does not panic if that is closed or full.
fn show(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes())
}

/// Measures all contenders in turn. Each round starts with a different one.
fn rounds(
    contenders: &mut [Contender],
    (number, cell): (usize, (Workload, usize)),
    rounds: std::ops::Range<usize>,
    options: &Options,
) -> io::Result<()> {
    let count = contenders.len();
    for round in rounds.clone() {
        if io::stderr().is_terminal() {
            let (workload, connections) = (cell.0.name(), cell.1);
            eprint!("\r{workload}, {connections}: round {} of {} \r", round + 1, rounds.end);
        }
        for turn in 0..count {
            let contender = &mut contenders[(turn + round) % count];
            let server = &mut contender.servers[cell.0 as usize];
            contender.samples[number].push(measure(server, cell, options)?);
        }
    }
    Ok(())
}

/// A contender's row in a table.
struct Row {
    name: &'static str,
    rate: f64,
    cpu: f64,
    ratio: Ratio,
}

/// The ratio of CPU times, contender to base: the median over the rounds, with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ratio {
    median: f64,
    low: f64,
    high: f64,
}

fn table(contenders: &[Contender], cell: usize) -> Vec<Row> {
    let base = contenders.iter().find(|contender| contender.name == CONTENDERS[BASE].0);
    let base = &base.expect("epoll was not measured").samples[cell];
    let row = |contender: &Contender| {
        let samples = &contender.samples[cell];
        let ratios = samples.iter().zip(base).map(|(ours, base)| ours.cpu / base.cpu);
        Row {
            name: contender.name,
            rate: median(samples.iter().map(|sample| sample.rate).collect()),
            cpu: median(samples.iter().map(|sample| sample.cpu).collect()),
            ratio: Ratio::of(ratios.collect()),
        }
    };
    contenders.iter().map(row).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

impl Ratio {
    /// Computes the median of at least six values, and the innermost two values that enclose it
    /// with a confidence of at least 95 %.
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let outside = outside(values.len());
        let (low, high) = (values[outside], values[values.len() - 1 - outside]);
        Self { median: median(values), low, high }
    }

    fn verdict(self) -> &'static str {
        match self {
            Self { low, high, .. } if low >= 1.0 - MARGIN && high <= 1.0 + MARGIN => "same",
            Self { high, .. } if high < 1.0 => "better",
            Self { low, .. } if low > 1.0 => "worse",
            _ => "can't tell yet",
        }
    }
}

/// Returns how many values at each end lie outside the interval: the highest number for which the
/// median is outside with a probability of at most 5 %.
fn outside(count: usize) -> usize {
    // `chance` is the probability of exactly `heads` heads in `count` coin tosses, and `sum` the
    // probability of at most `heads`.
    let mut chance = 0.5f64.powi(count as i32);
    let mut sum = chance;
    for heads in 0.. {
        chance *= (count - heads) as f64 / (heads + 1) as f64;
        if 2.0 * (sum + chance) > 0.05 {
            return heads;
        }
        sum += chance;
    }
    unreachable!("the probabilities add up to 1")
}

fn text(
    table: &[Row],
    (workload, connections): (Workload, usize),
    bytes: usize,
    rounds: usize,
) -> String {
    let work = match workload {
        Workload::Echo => format!("echo of {bytes} bytes"),
        Workload::Files => format!(
            "a file of {} KiB in {} pieces, epoll with blocking threads",
            FILE_BYTES >> 10,
            FILE_BYTES / PIECE_BYTES
        ),
    };
    let mut text = format!(
        "\n{work}\n{}, {rounds} rounds\n\
         {:<10}{:>12}{:>12}   CPU ÷ epoll [95 %]\n",
        counted(connections),
        "",
        "requests/s",
        "CPU µs"
    );
    for Row { name, rate, cpu, ratio } in table {
        let Ratio { median, low, high } = ratio;
        let verdict = if *name == CONTENDERS[BASE].0 { "" } else { ratio.verdict() };
        text += &format!(
            "{name:<10}{rate:>12.0}{cpu:>12.2}   {median:.2} [{low:.2}, {high:.2}]  {verdict}\n"
        );
    }
    text
}

fn json(table: &[Row], (workload, connections): (Workload, usize), options: &Options) -> String {
    let workload = workload.name();
    let line = |row: &Row| {
        let Row { name, rate, cpu, ratio: Ratio { median, low, high } } = row;
        format!(
            "{{\"contender\": \"{name}\", \"workload\": \"{workload}\", \"connections\": {connections}, \"bytes\": {}, \
             \"rounds\": {}, \"requests_per_second\": {rate:.1}, \
             \"cpu_us\": {cpu:.4}, \"cpu_ratio\": {median:.4}, \"low\": {low:.4}, \"high\": {high:.4}}}\n",
            options.bytes, options.rounds
        )
    };
    table.iter().map(line).collect()
}

/// Describes in words how the first contender compares with the base.
fn summary(table: &[Row], (workload, connections): (Workload, usize)) -> String {
    let find = |name| table.iter().find(|row| row.name == name).map(|row| row.ratio);
    let base = CONTENDERS[BASE].0;
    let place = workload.place(connections);
    let Some(ratio) = find(CONTENDERS[0].0) else {
        return format!("Without io_uring there is nothing to compare with {base} {place}.");
    };
    let Ratio { low, high, .. } = find("control").expect("the control was not measured");
    if low > 1.0 || high < 1.0 {
        return format!(
            "{base} takes {low:.2} to {high:.2} × its own CPU\n{place}:\nsomething else runs here."
        );
    }
    let Ratio { median, low, high } = ratio;
    match ratio.verdict() {
        "same" => format!("io_uring takes the same CPU as {base} (within 3 %)\n{place}."),
        "can't tell yet" => format!(
            "io_uring takes {low:.2} to {high:.2} × the CPU of {base}\n{place}:\ncan't tell yet: try --long."
        ),
        _ => format!("io_uring takes {median:.2} × the CPU of {base}\n{place}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, values: [f64; 3]) -> Row {
        let [low, median, high] = values;
        Row { name, rate: 1e5, cpu: 5.0, ratio: Ratio { median, low, high } }
    }

    fn said(uring: [f64; 3], control: [f64; 3]) -> String {
        let epoll = [1.0; 3];
        summary(
            &[row("io_uring", uring), row("epoll", epoll), row("control", control)],
            (Workload::Echo, 50),
        )
    }

    #[test]
    fn intervals_match_the_table_of_the_sign_test() {
        // Conover, table A3: the number of signs with a probability of at most 2.5 % on each side.
        assert_eq!([6, 8, 9, 12, 15, 20, 25].map(outside), [0, 0, 1, 2, 3, 5, 7]);
        let ratio = Ratio::of(vec![6.0, 1.0, 5.0, 2.0, 4.0, 3.0]);
        assert_eq!(ratio, Ratio { median: 3.5, low: 1.0, high: 6.0 });
    }

    #[test]
    fn the_summary_claims_no_more_than_the_intervals_support() {
        let (same, control) = ([0.98, 1.0, 1.02], [0.98, 1.0, 1.02]);
        assert!(said(same, control).contains("the same CPU as epoll (within 3 %)"));
        let better = said([0.85, 0.88, 0.91], control);
        assert!(
            better.starts_with(
                "io_uring takes 0.88 × the CPU of epoll\nfor an echo at 50 connections"
            )
        );
        assert!(said([0.9, 0.95, 1.01], control).contains("can't tell yet"));
        assert!(said([0.85, 0.88, 0.91], [1.01, 1.1, 1.2]).contains("its own CPU"));
        assert!(
            summary(&[row("epoll", [1.0; 3])], (Workload::Files, 50))
                .starts_with("Without io_uring")
        );
    }

    #[test]
    fn the_file_is_not_written_through_a_link_that_has_its_name() {
        let [link, target] = [0, 1000].map(SentFile::path);
        std::os::unix::fs::symlink(&target, &link).expect("the link cannot be created");
        let file = SentFile::create();
        std::fs::remove_file(&link).expect("the link was removed");
        let file = file.expect("the file cannot be created");
        assert!(!target.exists() && file.0 == SentFile::path(1), "{:?}", file.0);
        assert_eq!(std::fs::read(&file.0).expect("the file cannot be read"), content());
    }

    #[test]
    fn the_first_run_shows_both_workloads_within_a_minute() {
        let Ok(options) = options(&[]) else { panic!("the defaults are rejected") };
        assert_eq!(options.cells(), [(Workload::Echo, 50), (Workload::Files, 50)]);
        let slices = options.cells().len() * options.rounds * CONTENDERS.len();
        assert!((options.slice + WARM_UP) * slices as u32 <= Duration::from_secs(40));
    }

    #[test]
    fn bad_arguments_are_named_with_their_limits() {
        let error = |words: &[&str]| options(words).err().expect("the arguments were accepted");
        assert_eq!(error(&["-c", "1,0"]), "-c: '0' is not a number from 1 to 10000");
        assert_eq!(error(&["-b", "1,2"]), "-b: '1,2' is not a number from 1 to 65536");
        assert_eq!(error(&["--only", "udp"]), "--only 'udp': the workloads are echo and files");
        assert_eq!(error(&["--rounds", "5"]), "--rounds: '5' is not a number from 6 to 1000");
        assert_eq!(error(&["--slice"]), "--slice needs a value");
        assert_eq!(error(&["--only"]), "--only needs a value");
        assert_eq!(error(&["--fast"]), "unexpected argument '--fast'");
    }
}
