//! `annulus agent`, and the figures of a server that `annulus load --agent` shows.

use crate::common::{ANNULUS, PATIENCE, Scratch, Server, annulus, denied, finish, noted_echo};
use annulus_load::recording::Recording;
use annulus_skip::skip;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::Duration;

const TOKEN: &str = "0123456789abcdef";

/// A running agent, killed on drop.
struct Agent {
    child: Child,
    stderr: BufReader<ChildStderr>,
    address: SocketAddr,
    fingerprint: String,
    token: String,
    _scratch: Scratch,
}

impl Agent {
    fn start(name: &str, subject: &str) -> Agent {
        Agent::spawn(name, Command::new(ANNULUS).args(["agent", subject]), "127.0.0.1:0")
    }

    fn spawn(name: &str, command: &mut Command, listen: &str) -> Agent {
        let scratch = Scratch::new(&format!("agent-{name}"));
        let token = scratch.path("token");
        fs::write(&token, TOKEN).unwrap();
        command.args(["--listen", listen, "--token-file", &token]);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let rest = line.strip_prefix("annulus agent: listening on ");
        let (address, rest) = rest.and_then(|rest| rest.split_once(' ')).unwrap_or_else(|| {
            panic!("not a ready line: {line:?}");
        });
        let (address, fingerprint) = (address.parse().unwrap(), rest.trim().rsplit(' ').next());
        let fingerprint = fingerprint.unwrap().to_owned();
        Agent { child, stderr, address, fingerprint, token, _scratch: scratch }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }

    /// Returns a load that asks the agent.
    fn load(&self, server: &str, args: &[&str]) -> Command {
        let mut command = Command::new(ANNULUS);
        command.args(["load", server, "-c", "2", "-l", "64", "--warm-up", "0"]).args(args);
        command.args(["--agent", &self.address.to_string(), "--agent-token-file", &self.token]);
        command.args(["--agent-fingerprint", &self.fingerprint]);
        command
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn report_has_what_the_server_used() {
    let server = Server::start(&["--driver", "epoll"]);
    let address = server.address.to_string();
    let agent = Agent::start("used", &format!("port:{}", server.address.port()));
    let text = finish(&mut agent.load(&address, &["-d", "0.5"]));
    assert_eq!((text.code, &*text.stderr), (Some(0), ""), "{text:?}");
    for part in ["server CPU", "per request", "server mem", "server calls", "annulus ("] {
        assert!(text.stdout.contains(part), "'{part}' is not in: {}", text.stdout);
    }
    let recorded = finish(&mut agent.load(&address, &["-d", "0.5", "--json", "-"])).recording();
    let used = recorded.server.as_ref().expect("the recording has no figures of the server");
    assert!(used.cpu_seconds > 0.0 && used.seconds >= recorded.seconds, "{used:?}");
    assert!(used.cpu_us_per_request.is_some_and(|cpu| cpu > 0.1), "{used:?}");
    assert!(used.peak_resident_bytes >= used.resident_bytes && used.resident_bytes > 1 << 20);
    assert!(used.switches > 0 && used.processes == 1, "{used:?}");
    assert!(used.read_calls.is_some() && used.unavailable.is_empty(), "{used:?}");
    assert!(!serde_json::to_string(&recorded).unwrap().contains(TOKEN));
    agent.signal(Signal::TERM);
    let mut agent = agent;
    assert_eq!((agent.child.wait().unwrap().code(), &*agent.next_line()), (Some(0), ""));
}

/// Without descriptors, the connection keeps waiting and `poll` returns at once.
#[test]
fn failed_accept_does_not_keep_the_agent_busy() {
    let subject = format!("pid:{}", std::process::id());
    let mut command = denied(&["agent", &subject], libc::SYS_accept4, libc::EMFILE);
    let mut agent = Agent::spawn("accept", &mut command, "127.0.0.1:0");
    let _waiting = TcpStream::connect(agent.address).unwrap();
    assert!(agent.next_line().contains("cannot accept a connection"));
    let pid = agent.child.id();
    let before = cpu_ticks(pid);
    thread::sleep(Duration::from_secs(1));
    let used = cpu_ticks(pid) - before;
    assert!(used < 20, "the agent used {used} of 100 ticks");
}

#[cfg(target_env = "gnu")]
#[test]
fn lack_of_threads_does_not_end_the_agent() {
    let subject = format!("pid:{}", std::process::id());
    let mut command = denied(&["agent", &subject], libc::SYS_clone3, libc::EAGAIN);
    let mut agent = Agent::spawn("threads", &mut command, "127.0.0.1:0");
    for _ in 0..2 {
        let _client = TcpStream::connect(agent.address).unwrap();
        assert!(agent.next_line().contains("cannot start a thread"));
    }
    agent.signal(Signal::TERM);
    assert_eq!(agent.child.wait().unwrap().code(), Some(0));
}

/// Returns the CPU time of a process in hundredths of a second.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, after_name) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn wrong_token_and_wrong_fingerprint_are_refused_before_the_run() {
    let (server, began) = noted_echo();
    let server = server.to_string();
    let mut agent = Agent::start("wrong", &format!("pid:{}", std::process::id()));
    let scratch = Scratch::new("agent-wrong-token");
    let wrong = scratch.path("token");
    fs::write(&wrong, "0123456789abcdeX").unwrap();
    let refused = finish(&mut replace(&agent, &server, &wrong, &agent.fingerprint));
    refused.fails_with(1, &["the agent at", "it refuses: the token is wrong"]);
    assert!(agent.next_line().contains("the token is wrong"));
    let other = format!("sha256:{}", "0".repeat(64));
    let refused = finish(&mut replace(&agent, &server, &agent.token, &other));
    refused.fails_with(1, &["has the fingerprint", &agent.fingerprint, "instead of sha256:000"]);
    let mut unpinned = Command::new(ANNULUS);
    unpinned.args(["load", &server, "--agent", &agent.address.to_string()]);
    let refused = finish(unpinned.args(["--agent-token-file", &agent.token]));
    refused.fails_with(1, &["--agent-fingerprint"]);
    assert!(began.try_recv().is_err(), "the load has started");
}

/// Returns a load with this token and fingerprint.
fn replace(agent: &Agent, server: &str, token: &str, fingerprint: &str) -> Command {
    let mut command = Command::new(ANNULUS);
    command.args(["load", server, "-d", "1", "--agent", &agent.address.to_string()]);
    command.args(["--agent-token-file", token, "--agent-fingerprint", fingerprint]);
    command
}

#[test]
fn agent_that_dies_during_the_run_is_a_warning() {
    let (server, began) = noted_echo();
    let server = server.to_string();
    let agent = Agent::start("dies", &format!("pid:{}", std::process::id()));
    let mut load = agent.load(&server, &["-n", "100M", "-d", "1", "--json", "-"]);
    let load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    began.recv_timeout(PATIENCE).expect("the load has not started");
    drop(agent);
    let output = load.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let recorded = Recording::read(&output.stdout[..]).unwrap();
    assert_eq!(recorded.server, None);
    let warning = recorded.warnings.iter().find(|text| text.contains("the server used is unknown"));
    assert!(warning.is_some_and(|text| text.contains("failed during the run")), "{recorded:?}");
}

#[test]
fn process_that_ends_is_named() {
    let (server, began) = noted_echo();
    let server = server.to_string();
    let mut observed = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let agent = Agent::start("ended", &format!("pid:{}", observed.id()));
    let mut load = agent.load(&server, &["-n", "100M", "-d", "1", "--json", "-"]);
    let load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    began.recv_timeout(PATIENCE).expect("the load has not started");
    observed.kill().unwrap();
    observed.wait().unwrap();
    let output = load.wait_with_output().unwrap();
    let recorded = Recording::read(&output.stdout[..]).unwrap();
    let warning = recorded.warnings.iter().find(|text| text.contains("the server used is unknown"));
    assert!(warning.is_some_and(|text| text.contains("(cat) has ended")), "{recorded:?}");
    let refused = finish(&mut agent.load(&server, &["-d", "1"]));
    refused.fails_with(1, &["finds no process", "there is no process"]);
}

#[test]
fn garbage_is_reported_and_does_not_stop_the_agent() {
    let (server, _began) = noted_echo();
    let server = server.to_string();
    let mut agent = Agent::start("garbage", &format!("pid:{}", std::process::id()));
    let mut stream = TcpStream::connect(agent.address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let said = agent.next_line();
    assert!(said.contains("does not speak TLS"), "{said}");
    assert_eq!(finish(&mut agent.load(&server, &["-d", "0.2"])).code, Some(0));
}

#[test]
fn options_of_agents_are_checked() {
    annulus(["agent", "nginx", "--token-file", "x"]).fails_with(2, &["'nginx' is not a process"]);
    annulus(["agent", "port:1", "--token-file", "/no/such"]).fails_with(1, &["/no/such"]);
    annulus(["agent", "port:1"]).fails_with(2, &["--token-file"]);
    annulus(["agent", "port:1", "--token-file", "x", "--tls-cert", "y"])
        .fails_with(2, &["--tls-key"]);
    annulus(["load", "--agent-token-file", "x"])
        .fails_with(2, &["--agent-token-file does nothing without --agent"]);
    annulus(["load", "--agent", "127.0.0.1:1"]).fails_with(2, &["--agent-token-file"]);
    annulus(["load", "--agent-fingerprint", "12"]).fails_with(2, &["64 hexadecimal digits"]);
}

/// Runs a command line. The error contains the command and its output.
fn run(line: &str) -> Result<(), String> {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output();
    let output = output.map_err(|error| format!("`{line}`: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    if output.status.success() { Ok(()) } else { Err(format!("`{line}`: {said}")) }
}

/// Two network namespaces with a pair of virtual interfaces between them, removed on drop.
struct Network([String; 2]);

impl Network {
    fn new() -> Result<Network, String> {
        let name = |end| format!("annulus-agent-{}-{end}", std::process::id());
        let network = Network([name("s"), name("c")]);
        let [server, client] = &network.0;
        run(&format!("ip netns add {server}"))?;
        run(&format!("ip netns add {client}"))?;
        run(&format!("ip link add veth0 netns {server} type veth peer name veth0 netns {client}"))?;
        for (name, address) in [(server, "10.71.0.1"), (client, "10.71.0.2")] {
            // A process reaches the addresses of its own namespace through the loopback interface.
            run(&format!("ip -n {name} link set lo up"))?;
            run(&format!("ip -n {name} link set veth0 up"))?;
            run(&format!("ip -n {name} address add {address}/24 dev veth0"))?;
        }
        Ok(network)
    }

    /// Returns a command in the namespace of the server (0) or of the client (1).
    fn command(&self, place: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[place], ANNULUS]);
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Fails if the namespace was never created.
        self.0.iter().for_each(|name| _ = run(&format!("ip netns delete {name}")));
    }
}

/// The client's namespace reaches the server only through the virtual interfaces, like another
/// machine.
#[test]
fn server_in_another_network_namespace_is_observed() {
    let network = match Network::new() {
        Ok(network) => network,
        Err(error) => return skip!("cannot create a network namespace: {error}"),
    };
    let mut server = network.command(0);
    let _server = Server::spawn(server.args(["echo", "--listen", "10.71.0.1:7000"]));
    let mut agent = network.command(0);
    let agent = Agent::spawn("netns", agent.args(["agent", "port:7000"]), "10.71.0.1:7200");
    let mut load = network.command(1);
    load.args(["load", "10.71.0.1:7000", "-d", "0.5", "-c", "2", "--json", "-"]);
    load.args(["--agent", "10.71.0.1:7200", "--agent-token-file", &agent.token]);
    let finished = finish(load.args(["--agent-fingerprint", &agent.fingerprint]));
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let recorded = finished.recording();
    let used = recorded.server.as_ref().expect("the recording has no figures of the server");
    assert!(used.process.starts_with("port:7000: annulus (") && used.cpu_seconds > 0.0, "{used:?}");
    // The parts of a run also meet over the virtual interfaces.
    let part = |place: usize, part: &str| {
        let mut command = network.command(place);
        command.args([
            "load",
            "10.71.0.1:7000",
            "-n",
            "300",
            "-c",
            "4",
            "--meet",
            "10.71.0.2:7100",
        ]);
        command.args(["--part", part]).env("ANNULUS_MEET_TOKEN", TOKEN);
        command
    };
    let mut other = part(0, "2/2").spawn().unwrap();
    let first = finish(&mut part(1, "1/2"));
    assert_eq!((first.code, other.wait().unwrap().code()), (Some(0), Some(0)), "{first:?}");
    assert!(first.stdout.contains("300 in "), "{first:?}");
}
