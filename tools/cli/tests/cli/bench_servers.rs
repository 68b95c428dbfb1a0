//! `annulus bench` with servers from a command line or a file, and everything that can be wrong
//! with them.

use crate::common::{ANNULUS, Finished, OwnLock, Scratch, Server, finish, has_python};
use rustix::process::{Pid, test_kill_process};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

const LOAD_COMMAND: &str = "--load-command";

/// A test's directory.
struct Directory(Scratch);

impl Directory {
    fn new(test: &str) -> Directory {
        Directory(Scratch::short(&format!("servers-{test}")))
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path(name);
        fs::write(&path, text.replace("ANNULUS", ANNULUS)).unwrap();
        path
    }

    /// Runs `annulus bench` with two rounds; the results are in `results`.
    fn run(&self, arguments: &[&str]) -> Finished {
        let mut run = Command::new(ANNULUS);
        run.args(["bench"]).args(arguments).current_dir(&self.0).own_lock();
        run.args(["--rounds", "2", "--out", "results"]);
        finish(&mut run)
    }

    /// Like [`run`](Self::run), but with options for servers and short slices.
    fn compare(&self, arguments: &[&str]) -> Finished {
        self.run(
            &[arguments, &["--duration", "0.2", "--start-timeout", "20", "--verbose"]].concat(),
        )
    }

    /// Returns the lines of a file; a missing file has no lines.
    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.0.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Returns the command of an echo server with these options.
fn echo(listen: &str, options: &str) -> String {
    format!("'{ANNULUS}' echo --listen {listen} {options}")
}

#[track_caller]
fn assert_table(finished: &Finished, parts: &[&str]) {
    // Two rounds are too few to decide anything.
    assert_eq!(finished.code, Some(3), "{finished:?}");
    for part in parts {
        assert!(finished.stdout.contains(part), "'{part}' is not in {}", finished.stdout);
    }
}

#[test]
fn two_server_commands_are_compared_under_our_load() {
    let directory = Directory::new("two");
    let servers =
        [echo("127.0.0.1:{port}", "--driver epoll"), echo("127.0.0.1:{port}", "--driver threads")];
    let [first, second] = servers.each_ref().map(String::as_str);
    let load = ["--load", "tcp://127.0.0.1:{port} -l 64", "--connections", "1,4"];
    let names = ["--name", "one,two"];
    let finished = directory.compare(&[&[first, second], &load[..], &names].concat());
    assert_table(
        &finished,
        &["tcp × 1 connection × depth 1", "4 connections", "one (control)", "CPU ÷ one"],
    );
    assert!(directory.0.join("results/one+two.jsonl").exists(), "{finished:?}");
    // A run with a different second command must not reuse these results, and must not start the
    // command.
    let trace = format!("sh -c 'touch started; exec {}'", second.replace('\'', ""));
    let other = directory.compare(&[&[first, &*trace], &load[..], &names].concat());
    other.fails_with(
        2,
        &["one+two.jsonl has the results of another run: commands[1]", "another --out"],
    );
    assert!(!directory.0.join("started").exists(), "{other:?}");
    let unnamed =
        directory.compare(&[&[first, second], &load[..2], &["--connections", "1"]].concat());
    assert_table(&unnamed, &["annulus-2"]);
}

/// The names of our drivers mean nothing in a comparison of a user's own servers.
#[test]
fn a_server_with_the_name_of_a_driver_is_not_annulus() {
    let directory = Directory::new("names");
    let server = echo("127.0.0.1:{port}", "--driver epoll");
    let load = ["--load", "tcp://127.0.0.1:{port} -l 64", "--connections", "1"];
    let names = ["--name", "mine,epoll"];
    let finished = directory.compare(&[&[&*server, &*server], &load[..], &names].concat());
    assert_table(&finished, &["mine shows no clear difference from epoll"]);
}

#[test]
fn running_server_is_compared_with_one_whose_port_is_looked_up() {
    let directory = Directory::new("running");
    let running = Server::start(&[]);
    let address = running.address.to_string();
    let other = echo("127.0.0.1:0", "");
    let finished = directory.compare(&[&address, &other, "--load", "{address} -l 64"]);
    assert_table(&finished, &[&address, "annulus", "CPU"]);
    let pinned = "runs already, so nothing is pinned to a core";
    assert!(finished.stderr.contains(pinned), "{finished:?}");
    // The file name keeps the text after the last dot, so another port has another file.
    let name = format!("results/{}+annulus.jsonl", address.replace(':', "-"));
    assert!(directory.0.join(&name).exists(), "{name}: {finished:?}");
    assert!(!finished.stderr.contains("not known"), "{finished:?}");
    // The bench must not have ended the running server.
    let stopped = running.stop();
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
}

/// A server that takes longer to answer than the trial of a load lasts.
const SLOW_SERVER: &str = "import socket, sys, threading, time
def serve(s):
    while True:
        data = s.recv(64)
        if not data: return
        time.sleep(0.3)
        s.sendall(data)
l = socket.socket(); l.bind(('127.0.0.1', int(sys.argv[1]))); l.listen()
while True: threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
";

#[test]
fn a_slow_server_is_measured() {
    if !has_python() {
        return;
    }
    let directory = Directory::new("slow");
    let server = format!("python3 {} {{port}}", directory.write("slow.py", SLOW_SERVER));
    let load = ["--load", "tcp://{address} -l 64", "--connections", "2"];
    let finished = directory.run(&[&[&*server][..], &load, &["--duration", "0.7"]].concat());
    assert_table(&finished, &["python3", "CPU"]);
}

#[test]
fn a_server_at_a_path_is_compared_with_one_at_a_port() {
    let directory = Directory::new("path");
    let at = format!("unix:{}", directory.0.join("a socket").display());
    let running = Server::start(&["--listen", &at]);
    let load = ["--load", "{address} -l 64", "--name", "path", "--name", "port"];
    let finished = directory.compare(&[&[&*at, &echo("127.0.0.1:0", "")][..], &load].concat());
    assert_table(&finished, &["path (control)", "port", "CPU"]);
    assert!(!finished.stderr.contains("not known"), "its process was not found: {finished:?}");
    let refused = ["--load", "tcp://127.0.0.1:{port}"];
    directory.run(&[&[&*at], &refused[..]].concat()).fails_with(2, &["{path} only the path"]);
    drop(running);
}

#[test]
fn server_that_dies_under_a_load_command_costs_one_slice() {
    let directory = Directory::new("dies");
    let server = "echo $$ >>pids\necho $$ >$1.pid\nANNULUS echo --listen 127.0.0.1:$1 &\n\
        while :; do sleep 0.01; done\n";
    let server = directory.write("server", server);
    // The third run of the load is the first slice: the server and its control each have a trial
    // before.
    let load = "echo run >>runs\n[ $(wc -l <runs) != 3 ] || { kill -9 $(cat $1.pid); exit 3; }\n\
        sleep 0.05\necho did 1000 a second in 1 s, p99 3 ms\n";
    let load = directory.write("load", load);
    let (server, load) =
        (format!("sh {server} {{port}}"), format!("sh {load} {{port}} {{connections}}"));
    let parse = [
        "--parse",
        "rate=did ([0-9]+)",
        "--parse",
        "time=in ([0-9.]+ s)",
        "--parse",
        r"p99=p99 (\d+ ms)",
    ];
    let finished = directory.compare(&[&[&server, LOAD_COMMAND, &load][..], &parse].concat());
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert!(finished.stdout.contains("1,000") && finished.stdout.contains("3,000"), "{finished:?}");
    assert!(finished.stdout.contains("ended (signal: 9 (SIGKILL))"), "{finished:?}");
    // The server, its control, and the replacement of the one that died.
    assert_eq!(directory.lines("pids").len(), 3);
    assert!(directory.lines("runs").len() >= 6, "fewer runs than a trial and two slices for each");
    for pid in directory.lines("pids") {
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        assert!(test_kill_process(pid).is_err(), "{pid:?} is left");
    }
}

#[test]
fn a_failed_comparison_says_why_in_the_terminal() {
    let directory = Directory::new("why");
    let second = "echo >$1.second\nexec ANNULUS echo --listen 127.0.0.1:$1\n";
    let second = directory.write("second", second);
    // The first three runs of the load are trials. Afterwards, the load of the second server fails.
    let load = "echo run >>runs\n[ $(wc -l <runs) -le 3 ] || [ ! -e $1.second ] || exit 3\n\
        ANNULUS load tcp://127.0.0.1:$1 -c 2 -d 0.1 --warm-up 0 >load.out || exit 4\n\
        echo did 1000 a second\n";
    let load = directory.write("load", load);
    let (first, second) = (echo("127.0.0.1:{port}", ""), format!("sh {second} {{port}}"));
    let load = format!("sh {load} {{port}} {{connections}}");
    let load = [LOAD_COMMAND, &load, "--parse", "rate=did ([0-9]+)", "--duration", "0.1"];
    let finished =
        directory.run(&[&[&*first, &second], &load[..], &["--name", "one,two"]].concat());
    assert_eq!(finished.code, Some(1), "{finished:?}");
    let void = "→ void: two failed in 2 of 2 slices: ";
    assert!(finished.stdout.contains(void), "{finished:?}");
    for part in ["one+two: two failed in 2 slices at ", "exit status: 3", "failed: one+two"] {
        assert!(finished.stderr.contains(part), "'{part}' is not in {finished:?}");
    }
}

#[test]
fn a_server_that_prints_without_end_is_measured() {
    let directory = Directory::new("prints");
    let server =
        directory.write("server", "yes it is up &\nexec ANNULUS echo --listen 127.0.0.1:$1\n");
    let server = format!("sh {server} {{port}}");
    let finished = directory.compare(&[&server, "--ready", "is up", "--load", "tcp://{address}"]);
    assert_table(&finished, &["sh (control)"]);
}

/// Asserts that a server cannot be measured, and that the reason is printed before the first round.
#[track_caller]
fn refused(directory: &Directory, server: &str, arguments: &[&str], parts: &[&str]) {
    let usual = ["--start-timeout", "20"];
    let usual = if arguments.contains(&usual[0]) { &[][..] } else { &usual };
    let mut run = Command::new(ANNULUS);
    run.args(["bench", server]).args(arguments).args(usual);
    run.args(["--duration", "0.1", "--rounds", "2"]).current_dir(&directory.0).own_lock();
    let finished = finish(&mut run);
    assert_eq!(finished.code, Some(1), "{server}: {finished:?}");
    for part in parts {
        assert!(finished.stderr.contains(part), "'{part}' is not in: {}", finished.stderr);
    }
}

#[test]
fn server_that_does_not_become_ready_is_reported_before_the_first_round() {
    let directory = Directory::new("starts");
    let load = ["--load", "tcp://{address}"];
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let at_port = ["--port", &port];
    let short = ["--start-timeout", "0.3"];
    let silent = ["--start-timeout", "0.3", "--ready", "no such line"];
    let good = echo("127.0.0.1:{port}", "");
    let elsewhere = format!("sh -c \"exec {ANNULUS} echo --listen 127.0.0.1:0\" {{port}}");
    let fails = "sh -c 'echo in use >&2; exit 1' {port}";
    for (server, options, parts) in [
        ("/no/such/server {port}", &[][..], &["/no/such/server is not an executable file"][..]),
        ("no-such-server {port}", &[], &["server no-such-server", "is not installed"]),
        ("sleep 1000 {port}", &short, &["sleep: it does not listen on port ", "within 300ms"]),
        (&elsewhere, &short, &["it does not listen on port ", ", but on 127.0.0.1:"]),
        (fails, &[], &["annulus: sh: ended (exit status: 1); its last line: in use"]),
        ("sh -c 'exit 0' {port}", &[], &["keep it in the foreground"]),
        ("sleep 1000", &at_port, &["sleep: its port ", " is taken by process "]),
        (&good, &silent, &["it did not print 'no such line'"]),
    ] {
        refused(&directory, server, &[&load[..], options].concat(), parts);
    }
}

#[test]
fn failing_load_is_reported_before_the_first_round() {
    let directory = Directory::new("loads");
    let server = echo("127.0.0.1:{port}", "");
    let failing =
        [LOAD_COMMAND, "sh -c 'echo no route >&2; exit 3' {port}", "--parse", "rate=(.*)"];
    let unknown = [LOAD_COMMAND, "sh -c 'echo so much' {port}", "--parse", "rate=did (.*)"];
    for (server, load, what) in [
        (
            server.as_str(),
            &failing[..],
            "'sh' with 50 connections: sh failed (exit status: 3); its last line: no route",
        ),
        (
            &server,
            &unknown,
            "'sh' with 50 connections: the output of sh is not as expected (rate is not found) and cannot be read; its last line: so much",
        ),
        (&server, &["--load", "http://{address}/"], "'http' with 50 connections: "),
        (
            "python3 -m http.server --bind 127.0.0.1 {port}",
            &["--load", "http://{address}/missing", "--connections", "2"],
            "'http' with 2 connections: every reply is a refusal (4xx",
        ),
        (
            "127.0.0.1:1",
            &["--load", "tcp://{address}"],
            "'tcp' with 50 connections: 50 × connect refused",
        ),
    ] {
        refused(&directory, server, load, &[&format!(" under load {what}")]);
    }
}

#[test]
fn wrong_usage_names_the_option() {
    let directory = Directory::new("usage");
    let server = "sleep 1 {port}";
    for (arguments, parts) in [
        (
            &[server, "--load", "http://127.0.0.1:80/"][..],
            &[": 'http://127.0.0.1:80/' has neither {port} nor {address}"][..],
        ),
        (
            &["sleep {prot}", "--load", "tcp://{address}"],
            &["unknown placeholder {prot}: known placeholders are {port}"],
        ),
        (
            &[server, "--load", "gopher://{address}"],
            &["--load 'gopher", "the scheme 'gopher' is not supported"],
        ),
        (
            &[server, "--load", "tcp://{address} --sped"],
            &["--load 'tcp", "unexpected argument '--sped'"],
        ),
        (
            &[server, "--load", "tcp://{address} --json x"],
            &["--load 'tcp", "unexpected argument '--json'"],
        ),
        (&[server, LOAD_COMMAND, "some {port}"], &["the output format of some is unknown"]),
        (&[server, LOAD_COMMAND, "wrk {port}", "--connections", "1,2"], &["has no {connections}"]),
        (
            &[server, "--load", "tcp://{address}", "--parse", "rate=(.*)"],
            &["--parse does nothing without --load-command"],
        ),
        (
            &[server, "--load", "tcp://{address}", "--name", "a", "--name", "b"],
            &["the numbers of --name (2) and of servers (1) differ"],
        ),
        (&[server, "--load", "tcp://{address}", "--connections", "0"], &["connections 0"]),
        (&["10.0.0.1:80", "--load", "tcp://127.0.0.1:{port}"], &["write {address}"]),
        (
            &["http://127.0.0.1:80/", "--load", "tcp://{address}"],
            &["is not a server: give its address"],
        ),
        (&[server], &["'sleep 1 {port}' is a server without a load: add --load"]),
        (&["nop", "--port", "80"], &["--port does nothing without --load or --load-command"]),
    ] {
        let finished = directory.run(arguments);
        finished.fails_with(2, parts);
    }
}

#[test]
fn servers_file_is_measured_and_its_errors_name_the_line() {
    let directory = Directory::new("file");
    directory.write("where.txt", "--listen\n127.0.0.1:{port}\n");
    let server = directory.write("server", "exec ANNULUS echo $(cat \"$1\")\n");
    let text = format!(
        "title = \"one server\"\n[[server]]\nname = \"one\"\ncommand = \"sh {server} {{configuration}}\"\n\
         configuration = \"where.txt\"\n[[load]]\nurl = \"tcp://{{address}}\"\nconnections = 2\n"
    );
    let file = directory.write("mine.toml", &text);
    let finished = directory.run(&[&file, "--verbose"]);
    assert_table(&finished, &["tcp × 2 connections × depth 1", "one (control)"]);
    assert!(directory.0.join("results/mine.jsonl").exists(), "{finished:?}");
    let wrong = directory.write("wrong.toml", &text.replace("connections =", "conections ="));
    let place = format!("{wrong}: line 8, `conections = 2`: unknown field `conections`");
    directory.run(&[&wrong]).fails_with(2, &[&place]);
    assert!(Path::new(&wrong).exists());
}

#[test]
fn load_generators_are_compared_by_their_own_cpu_time() {
    let directory = Directory::new("clients");
    // This client first spends part of a second in a loop, and then runs the same load as the other
    // client.
    let slow = directory.write(
        "slow",
        "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done\nexec ANNULUS load \"$@\" --json -\n",
    );
    let server = format!("command = \"'{ANNULUS}' echo --listen 127.0.0.1:0\"\n");
    let options = "tcp://{address} -c {connections} -d {seconds} --warm-up 0";
    let parse =
        "parse = ['requests=\"responses\":(\\d+)', 'rate=\"requests_per_second\":([\\d.]+)']";
    let text = format!(
        "title = \"loads\"\n[[server]]\nname = \"fast\"\n{server}\
         client = \"annulus load {options} --json -\"\n[[server]]\nname = \"slow\"\n{server}\
         client = \"sh {slow} {options}\"\n{parse}\n[[load]]\nname = \"any\"\nconnections = 2\n"
    );
    let file = directory.write("loads.toml", &text);
    let finished = directory.run(&[&file, "--verbose"]);
    assert_table(&finished, &["any × 2 connections × depth 1", "client CPU", "fast (control)"]);
    let json = fs::read_to_string(directory.0.join("results/loads.json")).unwrap();
    for key in ["client_cpu_us", "clients"] {
        assert!(json.contains(&format!("\"{key}\"")), "{key} is not in {json}");
    }
    for (from, to, part) in [
        ("client = \"annulus", "clint = \"annulus", "unknown field `clint`"),
        ("[[load]]\n", "[[load]]\nurl = \"tcp://{address}\"\n", "both have a client"),
        (
            "client = \"annulus load tcp://{address}",
            "client = \"annulus load",
            "has neither {port}",
        ),
        (
            &format!("client = \"sh {slow} {options}\"\n{parse}\n"),
            "",
            "server 'slow' has no client",
        ),
        (parse, "", "the output format of sh is unknown"),
    ] {
        assert!(text.contains(from), "{from}");
        let wrong = directory.write("wrong.toml", &text.replacen(from, to, 1));
        directory.run(&[&wrong]).fails_with(2, &[part]);
    }
}
