//! A bulk transfer of datagrams with tokio: a runtime that sends and one that receives, each on a thread. The contract
//! is in ../../README.md.

use std::io::{self, BufRead, Error, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use tokio::net::UdpSocket;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

const HEAD: usize = 8;
const LONGEST: usize = 65_507;
const MOST_WINDOW: u64 = 4096;
/// How long until unacknowledged datagrams are given up.
const PATIENCE: Duration = Duration::from_millis(20);
/// How often the end is repeated.
const LAST_WORDS: usize = 1000;
/// The buffer size to request for a socket; the kernel caps it.
const BUFFER: usize = 8 << 20;
const END: u64 = u64::MAX;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bulk-tokio: {error}");
            ExitCode::from(if error.kind() == ErrorKind::InvalidInput { 2 } else { 1 })
        }
    }
}

fn run() -> io::Result<()> {
    let wrong = |what: String| Error::new(ErrorKind::InvalidInput, what);
    let words: Vec<String> = std::env::args().skip(1).collect();
    let cores: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let (2, &[sender, receiver]) = (words.len(), cores.as_slice()) else {
        return Err(wrong("usage: bulk-tokio SENDER_CORE RECEIVER_CORE".into()));
    };
    for question in io::stdin().lock().lines() {
        let question = question?;
        let flow = Flow::parse(&question, [sender, receiver]);
        answer(flow.ok_or_else(|| wrong(format!("`{question}` is not BYTES WINDOW SECONDS")))?)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Flow {
    length: usize,
    window: u64,
    duration: Duration,
    cores: [usize; 2],
}

impl Flow {
    fn parse(question: &str, cores: [usize; 2]) -> Option<Flow> {
        let [length, window, seconds] = *question.split(' ').collect::<Vec<_>>() else { return None };
        Some(Flow {
            length: length.parse().ok().filter(|length| (HEAD..=LONGEST).contains(length))?,
            window: window.parse().ok().filter(|window| (1..=MOST_WINDOW).contains(window))?,
            duration: Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?,
            cores,
        })
    }
}

/// The state that both ends share.
#[derive(Default)]
struct Stage {
    /// Edges of the measured time that have passed.
    passed: AtomicUsize,
    /// The receiver has seen the end.
    is_over: AtomicBool,
}

#[derive(Clone, Copy)]
struct Mark {
    time: Duration,
    cpu: Duration,
    received: u64,
    next: u64,
}

impl Mark {
    fn new(received: u64, next: u64) -> Mark {
        Mark { time: now(ClockId::Monotonic), cpu: now(ClockId::ThreadCPUTime), received, next }
    }
}

fn answer(flow: Flow) -> io::Result<()> {
    let stage = Arc::new(Stage::default());
    let [receiver, sender] = [socket()?, socket()?];
    sender.connect(receiver.local_addr()?)?;
    let receiving = on_core(flow.cores[1], receiver, {
        let stage = Arc::clone(&stage);
        async move |socket| receive(socket, flow, &stage).await
    });
    let sending = on_core(flow.cores[0], sender, async move |socket| send(socket, flow, &stage).await);
    let (received, sent) = (end_of(receiving)?, end_of(sending)?);
    let (&[opened, closed], &[began, ended]) = (received.as_slice(), sent.as_slice()) else {
        return Err(Error::other("nothing came within the measured time"));
    };
    let (count, due) = (closed.received - opened.received, closed.next - opened.next);
    let [time, sender, receiver] =
        [closed.time - opened.time, ended.cpu - began.cpu, closed.cpu - opened.cpu].map(|time| time.as_nanos());
    let (lost, bytes) = (due.saturating_sub(count), count * flow.length as u64);
    println!(
        r#"{{"operations":{count},"lost":{lost},"bytes":{bytes},"ns":{time},"sender_cpu_ns":{sender},"receiver_cpu_ns":{receiver}}}"#
    );
    Ok(())
}

fn socket() -> io::Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    set_socket_recv_buffer_size(&socket, BUFFER)?;
    set_socket_send_buffer_size(&socket, BUFFER)?;
    Ok(socket)
}

type End = thread::JoinHandle<io::Result<Vec<Mark>>>;

fn on_core(
    core: usize,
    socket: std::net::UdpSocket,
    end: impl AsyncFnOnce(UdpSocket) -> io::Result<Vec<Mark>> + Send + 'static,
) -> End {
    thread::spawn(move || {
        let mut cores = CpuSet::new();
        cores.set(core);
        sched_setaffinity(None, &cores)?;
        Builder::new_current_thread().enable_all().build()?.block_on(async { end(UdpSocket::from_std(socket)?).await })
    })
}

fn end_of(end: End) -> io::Result<Vec<Mark>> {
    end.join().unwrap_or_else(|_| Err(Error::other("an end of the transfer panicked")))
}

async fn send(socket: UdpSocket, flow: Flow, stage: &Stage) -> io::Result<Vec<Mark>> {
    let edges = [flow.duration / 5, flow.duration / 5 + flow.duration];
    let (began, mut marks) = (now(ClockId::Monotonic), Vec::new());
    let (mut datagram, mut sent, mut settled) = (vec![0; flow.length], 0u64, 0u64);
    while marks.len() < edges.len() {
        let here = Mark::new(0, sent);
        if here.time - began >= edges[marks.len()] {
            marks.push(here);
            stage.passed.fetch_add(1, Ordering::Relaxed);
        }
        while sent - settled < flow.window {
            datagram[..HEAD].copy_from_slice(&sent.to_le_bytes());
            socket.send(&datagram).await?;
            sent += 1;
        }
        let mut number = [0; HEAD];
        settled = match timeout(PATIENCE, socket.recv(&mut number)).await {
            Ok(came) => came.map(|_| settled.max(u64::from_le_bytes(number)))?,
            Err(_) => sent,
        };
    }
    for _ in 0..LAST_WORDS {
        socket.send(&END.to_le_bytes()).await?;
        sleep(Duration::from_millis(1)).await;
        if stage.is_over.load(Ordering::Relaxed) {
            return Ok(marks);
        }
    }
    Err(Error::other("the receiver has stopped"))
}

async fn receive(socket: UdpSocket, flow: Flow, stage: &Stage) -> io::Result<Vec<Mark>> {
    let mut marks = Vec::new();
    let (mut buffer, mut received, mut next, mut unacknowledged) = (vec![0; 1 << 16], 0, 0, 0);
    loop {
        let (length, sender): (usize, SocketAddr) = socket.recv_from(&mut buffer).await?;
        if stage.passed.load(Ordering::Relaxed) > marks.len() {
            marks.push(Mark::new(received, next));
        }
        let head = buffer[..length].first_chunk().ok_or_else(|| Error::other("a datagram without a number"))?;
        let number = u64::from_le_bytes(*head);
        if number == END {
            break;
        }
        if length != flow.length {
            return Err(Error::other(format!("a datagram of {length} bytes came where {} were sent", flow.length)));
        }
        received += 1;
        unacknowledged += 1;
        next = next.max(number + 1);
        if unacknowledged >= flow.window.div_ceil(8) {
            unacknowledged = 0;
            socket.send_to(&next.to_le_bytes(), sender).await?;
        }
    }
    stage.is_over.store(true, Ordering::Relaxed);
    Ok(marks)
}

fn now(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
