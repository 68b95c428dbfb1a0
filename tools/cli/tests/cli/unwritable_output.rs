//! Standard output and standard error that are closed, full, or pipes without a reader. No command
//! panics.

use crate::common::{ANNULUS, OwnLock, PATIENCE, Server, free_address};
use annulus_load::clock;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{Read, pipe};
use std::net::TcpStream;
use std::process::{Command, ExitStatus, Stdio};

/// Where a standard stream goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sink {
    Null,
    /// Every write fails with ENOSPC.
    Full,
    /// Every write fails with EPIPE.
    Broken,
    Closed,
}

impl Sink {
    fn stdio(self) -> Stdio {
        match self {
            Sink::Null | Sink::Closed => Stdio::null(),
            Sink::Full => File::options().write(true).open("/dev/full").unwrap().into(),
            Sink::Broken => pipe().unwrap().1.into(),
        }
    }
}

/// Returns a command with these targets. A shell closes the streams that must be closed.
fn annulus(args: &[&str], stdout: Sink, stderr: Sink) -> Command {
    let close =
        |sink, number| if sink == Sink::Closed { format!(" {number}>&-") } else { "".into() };
    let script = format!("exec \"$0\" \"$@\"{}{}", close(stdout, 1), close(stderr, 2));
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script, ANNULUS]).args(args).own_lock();
    command.stdin(Stdio::null()).stdout(stdout.stdio()).stderr(stderr.stdio());
    command
}

fn run(args: &[&str], stdout: Sink, stderr: Sink) -> ExitStatus {
    annulus(args, stdout, stderr).status().unwrap()
}

/// Returns short runs of commands that print to standard output.
fn commands(server: &str, udp: &str) -> Vec<Vec<String>> {
    let timed = "-c 2 -d 0.1 --warm-up 0";
    let lines = [
        "--help".to_owned(),
        "--version".to_owned(),
        "load --help".to_owned(),
        "doctor".to_owned(),
        "doctor --json -".to_owned(),
        format!("load {server} {timed}"),
        format!("load {server} {timed} --json -"),
        format!("load {server} --per-connection {timed}"),
        format!("load {udp} {timed}"),
        "bench echo --servers epoll --connections 1 --rounds 2 --per-connection".to_owned(),
        "bench --help".to_owned(),
        "bench list".to_owned(),
    ];
    lines.iter().map(|line| line.split(' ').map(String::from).collect()).collect()
}

#[test]
fn unwritable_stdout_fails_the_exit_status() {
    let server = Server::start(&["--listen", "udp://127.0.0.1:0"]);
    let udp = format!("udp://{}", server.udp_address());
    for line in commands(&server.address.to_string(), &udp) {
        let line: Vec<_> = line.iter().map(String::as_str).collect();
        for (sink, code) in
            [(Sink::Null, 0), (Sink::Closed, 0), (Sink::Full, 1), (Sink::Broken, 141)]
        {
            let finished =
                annulus(&line, sink, Sink::Null).stderr(Stdio::piped()).output().unwrap();
            let stderr = String::from_utf8(finished.stderr).unwrap();
            assert_eq!(finished.status.code(), Some(code), "{line:?}, {sink:?}: {stderr}");
            // A pipe without a reader ends a program silently; a full device is reported in one
            // line.
            let lines = usize::from(sink == Sink::Full);
            assert_eq!(stderr.lines().count(), lines, "{line:?}, {sink:?}: {stderr}");
            assert!(lines == 0 || stderr.contains("cannot write to standard output"), "{stderr}");
        }
    }
}

#[test]
fn unwritable_stderr_does_not_change_the_exit_status() {
    let nowhere = free_address().to_string();
    for (line, code) in [
        (&["doctor"][..], 0),
        (&["load", &nowhere, "-c", "1", "-d", "0.1"], 1),
        (&["echo", "--listen", "192.0.2.1:7000"], 1),
        (&["echo", "--loud"], 2),
        (&["load", "--length", "0"], 2),
        (&[], 2),
        (&["bench", "suite", "nowhere"], 2),
        (&["bench", "echo", "--servers", "none"], 2),
    ] {
        for sink in [Sink::Full, Sink::Broken, Sink::Closed] {
            assert_eq!(run(line, Sink::Null, sink).code(), Some(code), "{line:?}, {sink:?}");
            assert_ne!(run(line, sink, sink).code(), Some(101), "{line:?}, {sink:?} both");
        }
    }
}

#[test]
fn server_that_cannot_announce_itself_serves() {
    for driver in ["auto", "epoll", "threads"] {
        for sink in [Sink::Full, Sink::Broken, Sink::Closed] {
            let free = free_address();
            let address = free.to_string();
            let args = ["echo", "--listen", &address, "--driver", driver];
            let mut server = annulus(&args, sink, sink).spawn().unwrap();
            let deadline = clock::now() + PATIENCE;
            let mut stream = loop {
                match TcpStream::connect(free) {
                    Ok(stream) => break stream,
                    Err(error) => assert!(clock::now() < deadline, "{driver}, {sink:?}: {error}"),
                }
            };
            assert_eq!(server.try_wait().unwrap(), None, "{driver}, {sink:?}");
            crate::common::round_trip(&mut stream, b"all the same");
            drop(stream);
            kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
            assert_eq!(server.wait().unwrap().code(), Some(0), "{driver}, {sink:?}");
        }
    }
}

#[test]
fn unwritable_statistics_fail_the_exit_status() {
    for (stats, stdout, code) in
        [("-", Sink::Full, 1), ("-", Sink::Broken, 141), ("/dev/full", Sink::Null, 1)]
    {
        let mut command =
            annulus(&["echo", "--listen", "127.0.0.1:0", "--stats", stats], stdout, Sink::Null);
        let mut server = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = std::io::BufReader::new(server.stderr.take().unwrap());
        let mut finished = String::new();
        std::io::BufRead::read_line(&mut stderr, &mut finished).unwrap();
        kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
        finished.clear();
        std::io::Read::read_to_string(&mut stderr, &mut finished).unwrap();
        assert_eq!(server.wait().unwrap().code(), Some(code), "{stats}, {stdout:?}: {finished}");
        let name = if stats == "-" { "standard output" } else { stats };
        assert!(
            code == 141 && finished.is_empty() || finished.contains("cannot write"),
            "{finished}"
        );
        assert!(code == 141 || finished.contains(name), "{finished}");
    }
}

/// Standard output is a pipe of one page that another program has made non-blocking, and is read
/// late.
#[test]
fn a_nonblocking_standard_output_gets_everything() {
    for line in [&["load", "--help"][..], &["completions", "bash"]] {
        let whole = annulus(line, Sink::Null, Sink::Null).stdout(Stdio::piped()).output().unwrap();
        let (mut reader, writer) = pipe().unwrap();
        let page = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
        assert!(whole.stdout.len() > page, "{line:?}: {} bytes", whole.stdout.len());
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let mut command = annulus(line, Sink::Null, Sink::Null);
        let mut child = command.stdout(writer).spawn().unwrap();
        drop(command);
        while rustix::io::ioctl_fionread(&reader).unwrap() < page as u64 {
            assert_eq!(
                child.try_wait().unwrap(),
                None,
                "{line:?}: it ends before the pipe is full"
            );
            std::thread::yield_now();
        }
        let mut printed = Vec::new();
        reader.read_to_end(&mut printed).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{line:?}");
        assert!(
            printed == whole.stdout,
            "{line:?}: {} of {} bytes",
            printed.len(),
            whole.stdout.len()
        );
    }
}
