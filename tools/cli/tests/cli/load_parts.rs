//! Runs of several machines: the parts meet, start together, and give one report.

use crate::common::{
    ANNULUS, Finished, PATIENCE, Server, annulus, finished, free_address, noted_echo,
};
use annulus_skip::skip;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

const TOKEN: &str = "0123456789abcdef";
const VARIABLES: [&str; 6] = [
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "SLURM_PROCID",
    "JOB_COMPLETION_INDEX",
    "ANNULUS_MEET_TOKEN",
];

/// A running part, killed on drop.
struct Part(Option<Child>);

impl Part {
    fn start(command: &mut Command) -> Part {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Part(Some(command.spawn().unwrap()))
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    fn signal(&mut self, signal: Signal) {
        kill_process(Pid::from_child(self.child()), signal).unwrap();
    }

    fn wait(mut self) -> Finished {
        finished(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

/// Returns the command of a part, without the variables of launchers.
fn command(server: SocketAddr, meet: SocketAddr, args: &[&str]) -> Command {
    let mut command = Command::new(ANNULUS);
    VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    command.args(["load", &server.to_string(), "--meet", &meet.to_string(), "-l", "64"]).args(args);
    command.env("ANNULUS_MEET_TOKEN", TOKEN);
    command
}

fn part(server: SocketAddr, meet: SocketAddr, part: &str, args: &[&str]) -> Part {
    Part::start(command(server, meet, args).args(["--part", part]))
}

/// Options for a run that sends its first request after all parts have started measuring.
const LONG: [&str; 6] = ["-c", "6", "-n", "100M", "-d", "2"];

#[test]
fn parts_of_three_launchers_send_exactly_the_planned_requests() {
    let (server, meet) = (Server::start(&[]), free_address());
    let args = ["-c", "10", "-n", "1001", "-t", "2", "--label", "three", "--json", "-"];
    let start = |variables: &[(&str, &str)]| {
        Part::start(command(server.address, meet, &args).envs(variables.iter().copied()))
    };
    // The first part starts last.
    let others = [
        start(&[("PMI_RANK", "1"), ("PMI_SIZE", "3")]),
        start(&[("SLURM_PROCID", "2"), ("SLURM_NTASKS", "3")]),
    ];
    let first = start(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "3")]).wait();
    assert_eq!((first.code, &*first.stderr), (Some(0), ""), "{first:?}");
    for other in others {
        let other = other.wait();
        assert_eq!((other.code, &*other.stdout, &*other.stderr), (Some(0), "", ""));
    }
    let recording = first.recording();
    let (total, run) = (recording.total(), &recording.run);
    assert_eq!((total.sent, total.answered, total.response.len()), (1001, 1001, 1001));
    assert_eq!((run.connections, run.requests, run.threads), (10, Some(1001), 6));
    assert_eq!((run.label.as_deref(), run.parts.len()), (Some("three"), 3));
    assert_eq!(run.parts.iter().map(|part| part.responses).sum::<u64>(), 1001);
    assert!(run.parts.iter().all(|part| part.responses > 0), "{:?}", run.parts);
    assert!(!first.stdout.contains(TOKEN), "the token is in the recording");
}

/// Runs the launchers themselves, if they are installed. Another test only sets their variables.
#[test]
fn real_launchers_start_parts_that_meet() {
    for (launcher, package) in [("mpirun.openmpi", "openmpi-bin"), ("mpiexec.hydra", "mpich")] {
        let found = Command::new(launcher).arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            skip!("{launcher} is not installed: apt-get install {package}");
            continue;
        }
        let (server, meet) = (Server::start(&[]), free_address());
        let parts = command(server.address, meet, &["-c", "9", "-n", "1001", "--json", "-"]);
        let mut command = Command::new(launcher);
        // A machine may have fewer cores than parts, and tests may run as root.
        if package == "openmpi-bin" {
            command.arg("--oversubscribe").envs(
                ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"]
                    .map(|name| (name, "1")),
            );
        }
        VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
        command.args(["-n", "3"]).arg(parts.get_program()).args(parts.get_args());
        let finished = Part::start(command.env("ANNULUS_MEET_TOKEN", TOKEN)).wait();
        assert_eq!(finished.code, Some(0), "{launcher}: {finished:?}");
        let recording = finished.recording();
        let parts: Vec<_> = recording.run.parts.iter().map(|part| part.part).collect();
        assert_eq!((parts, recording.run.connections), (vec![1, 2, 3], 9), "{launcher}");
        assert_eq!(recording.total().answered, 1001, "{launcher}");
    }
}

#[test]
fn parts_divide_the_rate_and_the_report_lists_them() {
    let (server, meet) = (Server::start(&[]), free_address());
    let args = ["-c", "8", "--rate", "1000", "-d", "1", "--warm-up", "0.1"];
    let other = part(server.address, meet, "2/2", &args);
    let first = part(server.address, meet, "1/2", &args).wait();
    assert_eq!((first.code, other.wait().code), (Some(0), Some(0)), "{first:?}");
    let sent = first.stdout.lines().find(|line| line.contains("responses")).unwrap();
    let count = sent.split_whitespace().nth(1).unwrap().replace(',', "").parse::<f64>().unwrap();
    assert!((900.0..=1100.0).contains(&count), "{count} responses at 1000 per second: {first:?}");
    assert!(first.stdout.contains("8 connections"), "{first:?}");
    for name in ["part", " 1 ", " 2 "] {
        assert!(first.stdout.contains(name), "{name} is not in {}", first.stdout);
    }
}

#[test]
fn lost_part_makes_the_report_partial_and_the_others_say_so() {
    let ((server, began), meet) = (noted_echo(), free_address());
    let first = part(server, meet, "1/3", &[&LONG[..], &["--json", "-"]].concat());
    let mut second = part(server, meet, "2/3", &LONG);
    let third = part(server, meet, "3/3", &LONG);
    began.recv_timeout(PATIENCE).expect("the load has not started");
    second.signal(Signal::KILL);
    let (first, third) = (first.wait(), third.wait());
    assert_eq!((first.code, third.code), (Some(1), Some(0)), "{first:?} {third:?}");
    let text = "part 2 of 3";
    for part in [&first, &third] {
        let said = part.stderr.lines().next().unwrap_or_default();
        assert!(
            said.contains(text) && said.contains("was lost, so the results are partial"),
            "{part:?}"
        );
    }
    assert!(first.stderr.contains("annulus: the results are partial: part 2"), "{first:?}");
    let recording = first.recording();
    assert!(recording.warnings[0].contains("1 of 3 parts are missing"), "{recording:?}");
    assert!(recording.run.parts[1].missing.is_some() && recording.run.parts[2].responses > 0);
    assert_eq!(recording.total().answered, recording.total().response.len());
}

#[test]
fn other_parts_end_when_the_first_is_lost() {
    let ((server, began), meet) = (noted_echo(), free_address());
    let mut first = part(server, meet, "1/2", &LONG);
    let second = part(server, meet, "2/2", &LONG);
    began.recv_timeout(PATIENCE).expect("the load has not started");
    first.signal(Signal::KILL);
    second.wait().fails_with(1, &["part 1, which collects the results, was lost"]);
}

#[test]
fn signal_to_one_part_stops_all() {
    let ((server, began), meet) = (noted_echo(), free_address());
    let args = ["-c", "6", "-n", "100M", "-d", "60"];
    let first = part(server, meet, "1/2", &[&args[..], &["--json", "-"]].concat());
    let mut second = part(server, meet, "2/2", &args);
    began.recv_timeout(PATIENCE).expect("the load has not started");
    second.signal(Signal::INT);
    let (first, second) = (first.wait(), second.wait());
    first.fails_with(1, &["the run was stopped: part 2 of 2", "was interrupted by SIGINT"]);
    assert!(first.recording().interrupted && first.recording().run.parts.len() == 2);
    second.fails_with(130, &["interrupted by SIGINT"]);
}

#[test]
fn wrong_token_and_garbage_are_refused_and_the_run_waits_for_the_right_part() {
    let (server, meet) = (Server::start(&[]), free_address());
    let args = ["-c", "4", "-n", "40"];
    let mut first = part(server.address, meet, "1/2", &args);
    let mut stderr = BufReader::new(first.child().stderr.take().unwrap());
    let mut next_line = || {
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        line
    };
    let mut wrong = command(server.address, meet, &args);
    wrong.env("ANNULUS_MEET_TOKEN", "0123456789abcdeX").args(["--part", "2/2"]);
    Part::start(&mut wrong).wait().fails_with(1, &["it refuses: the token is wrong"]);
    assert!(next_line().contains("the token is wrong"));
    let mut garbage = TcpStream::connect(meet).unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let said = next_line();
    assert!(said.contains("1195725856 bytes, but the limit is 4096"), "{said}");
    let other = part(server.address, meet, "2/2", &["-c", "5", "-n", "40"]).wait();
    let said = next_line();
    for text in [&other.stderr, &said] {
        assert!(
            text.contains("connections 5 instead of 4") && text.contains("same options"),
            "{text}"
        );
    }
    let twin = part(server.address, meet, "1/2", &args);
    // The first part has the port, so a second one cannot listen there.
    twin.wait().fails_with(1, &["part 1 cannot listen at the meeting point", "free port"]);
    let third = part(server.address, meet, "3/3", &args).wait();
    third.fails_with(1, &["it is one of 3 parts, but part 1 is one of 2"]);
    assert!(next_line().contains("one of 3 parts"));
    assert_eq!(part(server.address, meet, "2/2", &args).wait().code, Some(0));
    let first = first.wait();
    assert_eq!(first.code, Some(0), "{first:?}");
    assert!(first.stdout.contains("40 in "), "{first:?}");
}

#[test]
fn missing_part_is_named_after_the_time_limit() {
    let (server, meet) = (Server::start(&[]), free_address());
    let args = ["-n", "100", "-c", "4", "--meet-timeout", "300ms"];
    let first = part(server.address, meet, "1/3", &args).wait();
    first.fails_with(
        1,
        &["only 1 of 3 parts met within 300ms, without part 2, 3", "--meet-timeout"],
    );
    let second = part(server.address, meet, "2/3", &args).wait();
    second.fails_with(1, &["part 1 does not answer at", "within 300ms", "start it"]);
}

#[test]
fn part_that_cannot_connect_stops_all_before_measuring() {
    let (nowhere, meet) = (free_address(), free_address());
    let args = ["-c", "4", "-n", "100", "--meet-timeout", "30s"];
    let other = part(nowhere, meet, "2/2", &args);
    let first = part(nowhere, meet, "1/2", &args).wait();
    first.fails_with(1, &["the run was stopped:", "could not start"]);
    other.wait().fails_with(1, &["the run was stopped:", "could not start"]);
}

#[test]
fn options_for_parts_are_checked() {
    let meet = ["load", "-n", "100", "--meet", "127.0.0.1:1"];
    let with = |args: &[&str]| {
        let mut command = Command::new(ANNULUS);
        VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
        Part::start(command.args(meet).args(args)).wait()
    };
    with(&["--part", "5/4"]).fails_with(2, &["part 5 of 4 does not exist"]);
    with(&[]).fails_with(2, &["no launcher has numbered this part", "--part 1/4"]);
    with(&["--part", "1/2"]).fails_with(2, &["--meet needs a token", "ANNULUS_MEET_TOKEN"]);
    with(&["--part", "1/2", "--meet-token-file", "/no/such"]).fails_with(1, &["/no/such"]);
    annulus(["load", "--part", "1/2"]).fails_with(2, &["--part does nothing without --meet"]);
    let mut many = Command::new(ANNULUS);
    many.args(meet).args(["--part", "1/200"]).env("ANNULUS_MEET_TOKEN", TOKEN);
    Part::start(&mut many)
        .wait()
        .fails_with(2, &["50 connections cannot be divided among 200 parts"]);
    let mut short = Command::new(ANNULUS);
    short.args(meet).args(["--part", "1/2"]).env("ANNULUS_MEET_TOKEN", "short");
    Part::start(&mut short).wait().fails_with(1, &["it has 5 bytes", "openssl rand"]);
    let mut job = Command::new(ANNULUS);
    VARIABLES.iter().for_each(|name| _ = job.env_remove(name));
    job.args(meet).env("JOB_COMPLETION_INDEX", "1");
    Part::start(&mut job).wait().fails_with(2, &["add --parts COUNT"]);
}
