//! An echo over a bad network: two network namespaces joined by a veth pair with 20 ms of delay, 1
//! % loss and short queues. Needs root, `ip` and `tc`. If one of them is missing, the test is
//! skipped and prints which.
//!
//! On a kernel without netem, a token bucket limits the rate. Its short queue delays packets by up
//! to 20 ms and drops any excess.

mod common;

use annulus::net::{TcpListener, TcpStream};
use annulus::{DriverChoice, Runtime, spawn};
use annulus_skip::skip;
use common::rerun::{self, rerun};
use common::{echo, pattern};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const SERVER: &str = "10.251.77.1";
const CLIENT: &str = "10.251.77.2";
const PORT: u16 = 7000;
const CONNECTIONS: usize = 8;
const BYTES: usize = 192 * 1024;
/// Far longer than the test takes. A stall thus fails the test instead of hanging it.
const LIMIT: Duration = Duration::from_secs(60);

/// Queueing disciplines that make the network bad, best first.
const QDISCS: [&str; 2] =
    ["netem delay 20ms loss 1% limit 100", "tbf rate 10mbit burst 3000 limit 25000"];

/// Runs a command line. The error contains the command and its output.
fn run(line: &str) -> Result<String, String> {
    let mut words = line.split_whitespace();
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .output()
        .map_err(|error| format!("`{line}`: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    Err(format!("`{line}`: {said}"))
}

/// Two namespaces joined by a bad line. They are deleted on drop.
struct Network {
    names: [String; 2],
}

impl Network {
    fn new(driver: DriverChoice) -> Result<Self, String> {
        let name = |end| format!("annulus-{}-{driver}-{end}", std::process::id());
        let network = Self { names: [name("s"), name("c")] };
        let [server, client] = &network.names;
        run(&format!("ip netns add {server}"))?;
        run(&format!("ip netns add {client}"))?;
        run(&format!("ip link add veth0 netns {server} type veth peer name veth0 netns {client}"))?;
        for (name, address) in network.names.iter().zip([SERVER, CLIENT]) {
            // Keeps packets as small as on a wire, so that a loss is one packet and not 64 KiB.
            run(&format!("ip -n {name} link set veth0 gso_max_segs 1 up"))?;
            run(&format!("ip -n {name} address add {address}/24 dev veth0"))?;
            spoil(name)?;
        }
        Ok(network)
    }

    /// Returns the number of packets that the line has lost, in both directions.
    fn dropped(&self) -> u64 {
        let of = |name| run(&format!("tc -n {name} -s qdisc show dev veth0")).unwrap();
        self.names.iter().map(|name| dropped_in(&of(name))).sum()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            // Fails if the namespace was never created.
            _ = run(&format!("ip netns delete {name}"));
        }
    }
}

/// Installs the first of `QDISCS` that this kernel supports, on one end.
fn spoil(name: &str) -> Result<(), String> {
    let add = |queue: &str| run(&format!("tc -n {name} qdisc add dev veth0 root {queue}"));
    let mut last = String::new();
    for queue in QDISCS {
        match add(queue) {
            Ok(_) => {
                // Reports which queue replaces the preferred one.
                if !last.is_empty() {
                    eprintln!("{last}; instead: {queue}");
                }
                return Ok(());
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the count after `dropped` in the output of `tc -s`.
fn dropped_in(text: &str) -> u64 {
    let (_, after) = text.split_once("dropped ").unwrap_or(("", "0"));
    after.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// A child process in a namespace, killed on drop.
struct Inside(Child);

impl Inside {
    fn start(name: &str, test: Command, driver: DriverChoice) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", name]).arg(test.get_program()).args(test.get_args());
        command.env("ANNULUS_DRIVER", driver.to_string()).stdin(Stdio::null());
        Self(command.stdout(Stdio::piped()).spawn().unwrap())
    }

    /// Waits for the program to end and returns its output and exit status.
    fn ended(mut self) -> Output {
        let mut stdout = Vec::new();
        self.0.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        Output { status: self.0.wait().unwrap(), stdout, stderr: Vec::new() }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn echo_over_a_bad_line(driver: DriverChoice) {
    let network = match Network::new(driver) {
        Ok(network) => network,
        Err(missing) => return skip!("{missing}"),
    };
    let [ours, other] = &network.names;
    let _server = Inside::start(ours, rerun!(server), driver);
    rerun::assert_passed(&Inside::start(other, rerun!(client), driver).ended());
    assert!(network.dropped() > 0, "the line lost no packets");
}

#[test]
fn every_byte_arrives_over_a_bad_line_on_uring() {
    if let Err(blocked) = annulus_ring::Features::detect() {
        return skip!("{blocked}");
    }
    echo_over_a_bad_line(DriverChoice::Uring);
}

#[test]
fn every_byte_arrives_over_a_bad_line_on_epoll() {
    echo_over_a_bad_line(DriverChoice::Epoll);
}

#[test]
#[ignore = "run by its parent, in a namespace"]
fn server() {
    common::run::<()>(async {
        let listener = TcpListener::bind((SERVER, PORT))?;
        loop {
            let (stream, _) = listener.accept().await?;
            spawn(echo(stream));
        }
    });
}

#[test]
#[ignore = "run by its parent, in a namespace"]
fn client() {
    let mut runtime = Runtime::new().unwrap();
    let all = async {
        let clients: Vec<_> = (0..CONNECTIONS).map(|n| spawn(one_client(n))).collect();
        for client in clients {
            client.await.expect("the task panicked")?;
        }
        io::Result::Ok(())
    };
    let in_time = runtime.block_on(async { annulus::time::timeout(LIMIT, all).await });
    in_time.expect("the transfers stalled").expect("a transfer failed");
}

/// Sends bytes that differ between clients and half-closes, while it reads them back to the end.
async fn one_client(number: usize) -> io::Result<()> {
    let stream = connect().await?;
    let sent = pattern(BYTES + number);
    let (mut receiving, mut sending) = stream.into_split();
    let outgoing = sent.clone();
    let sender = spawn(async move {
        for piece in outgoing.chunks(10_000 + number) {
            sending.send(piece.to_vec()).await?;
        }
        sending.shutdown().await
    });
    let mut got = Vec::new();
    while let Some(lease) = receiving.recv().await? {
        got.extend_from_slice(&lease);
    }
    sender.await.expect("the task panicked")?;
    assert!(
        got == sent,
        "connection {number}: {} of {} bytes, or different ones",
        got.len(),
        sent.len()
    );
    Ok(())
}

/// Connects, and tries again while the server does not listen yet.
async fn connect() -> io::Result<TcpStream> {
    let address: SocketAddr = (SERVER.parse::<std::net::IpAddr>().unwrap(), PORT).into();
    loop {
        match TcpStream::connect(address).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                annulus::time::sleep(Duration::from_millis(10)).await;
            }
            outcome => return outcome,
        }
    }
}
