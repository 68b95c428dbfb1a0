//! Compares TCP echo servers on this machine: io_uring, epoll, and one thread per connection. Only
//! the runtime has to be built, so the first result appears quickly. `annulus bench echo` compares
//! more servers, and adds latencies, memory and pages.
//!
//! Each server is a process on one core. The clients are tasks on another core, each with one
//! message in flight (a closed loop). Contenders are measured in turn, in short slices, and
//! compared within rounds. The interval of a ratio comes from the sign test on the median (Conover,
//! *Practical Nonparametric Statistics*, 3.2), which reaches 95 % from six rounds on.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use annulus::net::{TcpListener, TcpStream};
use annulus::time::{self, Instant};
use annulus::{DriverChoice, Runtime, affinity, spawn};
use rustix::time::{ClockId, clock_gettime};

const HELP: &str = "\
Compares echo servers over TCP on this machine by CPU time per message.

Usage: annulus-compare [OPTIONS]

Options:
  --clients COUNT,…  clients at once, one table each     [default: 50,1,500]
  --bytes BYTES      length of a message                 [default: 128]
  --rounds COUNT     rounds of a table, from 6 on        [default: 12]
  --slice MS         how long one is measured at a time  [default: 250]
  --json             print only JSON: a line per contender and table
  --help             print this text

Exit code: 0 measured, 1 something failed, 2 usage.";

/// Rounds needed for an interval, and thus for the first table.
const FIRST: usize = 6;
/// How long each slice runs before it is measured, and the longest wait for its first message.
const WARM_UP: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(10);
/// Ratios within this distance of 1 count as the same.
const MARGIN: f64 = 0.03;
/// The contender that the others are compared with. It runs a second time as the control.
const BASE: usize = 1;
/// A contender's name, and its mode for `--serve`.
const CONTENDERS: [(&str, &str); 4] =
    [("io_uring", "uring"), ("epoll", "epoll"), ("threads", "threads"), ("control", "epoll")];

struct Options {
    clients: Vec<usize>,
    bytes: usize,
    rounds: usize,
    slice: Duration,
    json: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ended = match words[..] {
        ["--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        // The program starts itself with these arguments to run a server.
        ["--serve", kind, core] => serve(kind, core),
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
        Err(error) => {
            eprintln!("annulus-compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(words: &[&str]) -> Result<Options, String> {
    let slice = Duration::from_millis(250);
    let mut options =
        Options { clients: vec![50, 1, 500], bytes: 128, rounds: 12, slice, json: false };
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        let mut number = |from: usize, to: usize| {
            let value = words.next().ok_or(format!("{word} needs a value"))?;
            let numbers = value.split(',').map(|text| match text.parse() {
                Ok(number) if (from..=to).contains(&number) => Ok(number),
                _ => Err(format!("{word} {value}: '{text}' is not a number from {from} to {to}")),
            });
            numbers.collect::<Result<Vec<usize>, _>>()
        };
        match word {
            "--clients" => options.clients = number(1, 10_000)?,
            "--bytes" => options.bytes = number(1, 1 << 16)?[0],
            "--rounds" => options.rounds = number(FIRST, 1000)?[0],
            "--slice" => options.slice = Duration::from_millis(number(1, 60_000)?[0] as u64),
            "--json" => options.json = true,
            _ => return Err(format!("unexpected argument '{word}'")),
        }
    }
    Ok(options)
}

/// Serves on this core until stdin ends, which happens when the parent process exits. Answers each
/// line on stdin with the CPU time used so far, in nanoseconds.
fn serve(kind: &str, core: &str) -> io::Result<()> {
    let _pinned =
        affinity::pin(core.parse().map_err(io::Error::other)?).map_err(io::Error::other)?;
    let announce = |address: SocketAddr| {
        println!("{address}");
        thread::spawn(|| {
            for _ in io::stdin().lock().lines() {
                println!("{}", now(ClockId::ProcessCPUTime).as_nanos());
            }
            std::process::exit(0);
        });
    };
    let driver = match kind {
        "uring" => DriverChoice::Uring,
        "epoll" => DriverChoice::Epoll,
        _ => return serve_by_threads(announce),
    };
    Runtime::builder().driver(driver).build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        announce(listener.local_addr()?);
        loop {
            let (mut stream, _) = listener.accept().await?;
            spawn(async move {
                while let Ok(Some(lease)) = stream.recv().await {
                    if stream.send(lease).await.is_err() {
                        break;
                    }
                }
            });
        }
    })
}

fn serve_by_threads(announce: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    announce(listener.local_addr()?);
    for stream in listener.incoming() {
        let mut stream = stream?;
        stream.set_nodelay(true)?;
        thread::spawn(move || {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..count]).is_err() {
                    break;
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
    fn start(kind: &str, core: usize) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--serve", kind, &core.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let questions = child.stdin.take().expect("a pipe");
        let mut answers = BufReader::new(child.stdout.take().expect("a pipe"));
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

fn measure(server: &mut Server, clients: usize, options: &Options) -> io::Result<Sample> {
    Runtime::new()?.block_on(async {
        let (echoed, ends) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let mut tasks = Vec::new();
        for number in 0..clients {
            let stream = TcpStream::connect(server.address).await?;
            let message: Vec<u8> = (0..options.bytes).map(|at| (at * 31 + number) as u8).collect();
            tasks.push(spawn(client(stream, message, echoed.clone(), ends.clone())));
        }
        time::sleep(WARM_UP).await;
        let (before, from, began) = (server.cpu()?, echoed.get(), Instant::now());
        // On a busy machine no echo may arrive for a while: the slice lasts until one has.
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
            return Err(io::Error::other("no echo arrived within ten seconds"));
        }
        let rate = count as f64 / took.as_secs_f64();
        Ok(Sample { rate, cpu: cpu.as_secs_f64() * 1e6 / count as f64 })
    })
}

/// Sends a message, compares every byte of the echo, and repeats.
async fn client(
    mut stream: TcpStream,
    mut message: Vec<u8>,
    echoed: Rc<Cell<u64>>,
    ends: Rc<Cell<bool>>,
) -> io::Result<()> {
    while !ends.get() {
        message[0] = message[0].wrapping_add(1);
        stream.send(message.clone()).await?;
        let mut left = &message[..];
        while !left.is_empty() {
            let lease = stream.recv().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let rest = left.strip_prefix(&lease[..]);
            left = rest.ok_or_else(|| io::Error::other("the echo differs from the message"))?;
        }
        echoed.set(echoed.get() + 1);
    }
    Ok(())
}

/// A contender: its server, and one sample per round for each number of clients.
struct Contender {
    name: &'static str,
    server: Server,
    samples: Vec<Vec<Sample>>,
}

fn compare(options: &Options) -> io::Result<()> {
    let cores = affinity::allowed()?;
    let (first, last) = (cores[0], cores[cores.len() - 1]);
    let mut contenders = Vec::new();
    for (name, kind) in CONTENDERS {
        match Server::start(kind, first) {
            Ok(server) => {
                let samples = vec![Vec::new(); options.clients.len()];
                contenders.push(Contender { name, server, samples });
            }
            Err(_) if kind == "uring" => eprintln!("io_uring is skipped: see the line above"),
            Err(error) => return Err(error),
        }
    }
    let _pinned = affinity::pin(last).map_err(io::Error::other)?;
    let mut sentence = String::new();
    for (from, to) in [(0, FIRST), (FIRST, options.rounds)] {
        for (cell, &clients) in options.clients.iter().enumerate().filter(|_| from < to) {
            rounds(&mut contenders, cell, from..to, options)?;
            let table = table(&contenders, cell);
            match options.json {
                true if to == options.rounds => print!("{}", json(&table, clients, options)),
                true => {}
                false => print!("{}", text(&table, clients, options.bytes, to)),
            }
            if cell == 0 {
                sentence = summary(&table, clients);
            }
        }
    }
    if !options.json {
        println!("\n{sentence}");
        println!("More servers, latencies and memory: cargo run --release -- bench echo");
    }
    Ok(())
}

/// Measures all contenders in turn. Each round starts with a different one.
fn rounds(
    contenders: &mut [Contender],
    cell: usize,
    rounds: std::ops::Range<usize>,
    options: &Options,
) -> io::Result<()> {
    let (clients, count) = (options.clients[cell], contenders.len());
    for round in rounds.clone() {
        if io::stderr().is_terminal() {
            eprint!("\r{clients} clients: round {} of {} \r", round + 1, rounds.end);
        }
        for turn in 0..count {
            let contender = &mut contenders[(turn + round) % count];
            contender.samples[cell].push(measure(&mut contender.server, clients, options)?);
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
    let base = &base.expect("epoll is everywhere").samples[cell];
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
    // The probability of at most that many heads in `count` coin tosses.
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

fn text(table: &[Row], clients: usize, bytes: usize, rounds: usize) -> String {
    let mut text = format!(
        "\n{clients} clients, {bytes} bytes, {rounds} rounds\n\
         {:<10}{:>12}{:>12}   CPU ÷ epoll [95 %]\n",
        "", "messages/s", "CPU µs"
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

fn json(table: &[Row], clients: usize, options: &Options) -> String {
    let line = |row: &Row| {
        let Row { name, rate, cpu, ratio: Ratio { median, low, high } } = row;
        format!(
            "{{\"contender\": \"{name}\", \"clients\": {clients}, \"bytes\": {}, \"rounds\": {}, \"messages_per_second\": {rate:.1}, \
             \"cpu_us\": {cpu:.4}, \"cpu_ratio\": {median:.4}, \"low\": {low:.4}, \"high\": {high:.4}}}\n",
            options.bytes, options.rounds
        )
    };
    table.iter().map(line).collect()
}

/// Describes in words how the first contender compares with the base.
fn summary(table: &[Row], clients: usize) -> String {
    let find = |name| table.iter().find(|row| row.name == name).map(|row| row.ratio);
    let base = CONTENDERS[BASE].0;
    let place = format!("at {clients} connections, on this machine");
    let Some(ratio) = find(CONTENDERS[0].0) else {
        return format!("Without io_uring there is nothing to compare with {base} {place}.");
    };
    let Ratio { low, high, .. } = find("control").expect("the control is always measured");
    if low > 1.0 || high < 1.0 {
        return format!(
            "{base} takes {low:.2} to {high:.2} × its own CPU\n{place}: something else runs here."
        );
    }
    let Ratio { median, low, high } = ratio;
    match ratio.verdict() {
        "same" => format!("io_uring takes the same CPU as {base} (within 3 %) {place}."),
        "can't tell yet" => format!(
            "io_uring takes {low:.2} to {high:.2} × the CPU of {base}\n{place}: can't tell yet, --rounds 30 may."
        ),
        _ => format!("io_uring takes {median:.2} × the CPU of {base} {place}."),
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
        summary(&[row("io_uring", uring), row("epoll", epoll), row("control", control)], 50)
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
        assert!(better.starts_with("io_uring takes 0.88 × the CPU of epoll at 50 connections"));
        assert!(said([0.9, 0.95, 1.01], control).contains("can't tell yet"));
        assert!(said([0.85, 0.88, 0.91], [1.01, 1.1, 1.2]).contains("its own CPU"));
        assert!(summary(&[row("epoll", [1.0; 3])], 50).starts_with("Without io_uring"));
    }

    #[test]
    fn bad_arguments_are_named_with_their_limits() {
        let error = |words: &[&str]| options(words).err().expect("it is refused");
        assert_eq!(
            error(&["--clients", "1,0"]),
            "--clients 1,0: '0' is not a number from 1 to 10000"
        );
        assert_eq!(error(&["--rounds", "5"]), "--rounds 5: '5' is not a number from 6 to 1000");
        assert_eq!(error(&["--slice"]), "--slice needs a value");
        assert_eq!(error(&["--fast"]), "unexpected argument '--fast'");
    }
}
