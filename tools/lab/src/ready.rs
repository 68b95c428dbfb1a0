//! Waits for servers that do not announce their address. A server is ready once it has printed the
//! awaited text, if there is one, and listens.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use annulus_load::clock;

use crate::listening;
use crate::process::{Process, ProcessError, Spec};
use crate::server::Server;

/// How often to check whether a server is ready.
const READY_CHECK_PERIOD: Duration = Duration::from_millis(10);

/// How long the ports of a server must stay the same, since a server may open several sockets one
/// after the other.
const PORTS_STABLE_TIME: Duration = Duration::from_millis(100);

/// How many bytes of the outputs are kept if a text is awaited.
const READY_TAIL_BYTES: usize = 4096;

/// The conditions under which a server is ready.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    /// The port on which the server must listen; if `None`, the sockets of its processes are looked
    /// up.
    pub(crate) port: Option<u16>,
    /// A text that the server prints on either output before it is ready.
    pub(crate) line: Option<String>,
    /// How long the start may take.
    pub(crate) timeout: Duration,
}

impl Ready {
    /// Starts a server, and waits until it is ready.
    ///
    /// # Errors
    /// If it cannot be started, ends, or is not ready in time. The error says what was found
    /// instead.
    pub(crate) fn start(&self, spec: &Spec) -> Result<Server, ProcessError> {
        let mut process = match &self.line {
            Some(line) => Process::start_read(spec, READY_TAIL_BYTES, Some(line.clone()))?,
            None => Process::start(spec)?,
        };
        let began = clock::now();
        let mut seen = (Vec::new(), began);
        loop {
            if let Some(status) = process.ended(READY_CHECK_PERIOD) {
                let error = process.check(Duration::ZERO).err();
                return Err(explained(
                    error.unwrap_or_else(|| process.error("ended".into())),
                    status.success(),
                ));
            }
            let now = clock::now();
            if process.output.is_ready() {
                let ports = self.open_ports(process.pid());
                if ports != seen.0 {
                    seen = (ports, now);
                }
                let is_settled = self.port.is_some() || now - seen.1 >= PORTS_STABLE_TIME;
                if let ([address], true) = (&seen.0[..], is_settled) {
                    let address = (*address).into();
                    return Ok(Server { process, address });
                }
            }
            if now - began > self.timeout {
                return Err(process.error(self.why_not(&process, &seen.0)));
            }
        }
    }

    /// Returns the addresses at which the server accepts connections, one for each port.
    fn open_ports(&self, pid: u32) -> Vec<SocketAddr> {
        match self.port {
            Some(port) => loopback(port).into_iter().collect(),
            None => {
                let mut ports: Vec<u16> =
                    listening::of_tree(pid).iter().map(SocketAddr::port).collect();
                ports.sort_unstable();
                ports.dedup();
                ports.into_iter().filter_map(loopback).collect()
            }
        }
    }

    fn why_not(&self, process: &Process, seen: &[SocketAddr]) -> String {
        let timeout = self.timeout;
        if !process.output.is_ready() {
            let line = self.line.as_deref().unwrap_or_default();
            return format!("it did not print '{line}' within {timeout:?}");
        }
        let list = |all: &[SocketAddr]| {
            all.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" and ")
        };
        match (self.port, &listening::of_tree(process.pid())[..]) {
            (Some(port), []) => format!("it does not listen on port {port} within {timeout:?}"),
            (Some(port), others) => format!(
                "it does not listen on port {port} within {timeout:?}, but on {}: pass it the port as {{port}} in its \
                 command, and make it listen on 127.0.0.1",
                list(others)
            ),
            (None, []) => format!("it does not listen for TCP within {timeout:?}"),
            (None, _) if seen.len() > 1 => {
                format!(
                    "it listens on {}: choose the port to measure (--port, or the key port in a file)",
                    list(seen)
                )
            }
            (None, others) => format!(
                "it listens on {}, which does not accept connections over 127.0.0.1 or ::1 within {timeout:?}",
                list(others)
            ),
        }
    }
}

/// Checks that a port is free before a server that uses it is started.
///
/// # Errors
/// If the port is in use; the error contains the process, if it is visible.
pub(crate) fn check_free(port: u16) -> Result<(), String> {
    let Some(address) = loopback(port) else { return Ok(()) };
    let owner = listening::owner_of(&address.into());
    let owner = owner.map_or("another process".into(), |pid| format!("process {pid}"));
    Err(format!(
        "its port {port} is taken by {owner}: stop that process, or measure it by its address, {address}"
    ))
}

/// Returns the loopback address that accepts connections on this port, if there is one. A socket
/// that happens to get this port as its own local port connects to itself, which does not count.
fn loopback(port: u16) -> Option<SocketAddr> {
    let is_open = |address: &SocketAddr| {
        TcpStream::connect(address)
            .and_then(|stream| stream.local_addr())
            .is_ok_and(|own| own != *address)
    };
    let all: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    all.into_iter().map(|ip| SocketAddr::new(ip, port)).find(is_open)
}

/// Adds a hint to the error for a server that ended with success.
fn explained(error: ProcessError, succeeded: bool) -> ProcessError {
    let hint =
        "; a server that moves to the background cannot be measured: keep it in the foreground";
    let why = if succeeded { error.why + hint } else { error.why };
    ProcessError { why, ..error }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::process::tests::shell;

    const LONG_TIMEOUT: Duration = Duration::from_secs(20);
    const SHORT_TIMEOUT: Duration = Duration::from_millis(30);

    fn ready(port: Option<u16>, line: Option<&str>, timeout: Duration) -> Ready {
        Ready { port, line: line.map(str::to_owned), timeout }
    }

    fn refused(script: &str, ready: &Ready) -> String {
        ready.start(&shell(script)).expect_err(script).to_string()
    }

    #[test]
    fn a_server_is_ready_once_its_port_is_open_and_its_line_is_printed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("no port is free");
        let address = listener.local_addr().expect("the listener has no address");
        for (line, script) in
            [(None, "exec sleep 1000"), (Some("up"), "echo it is up; exec sleep 1000")]
        {
            let server = ready(Some(address.port()), line, LONG_TIMEOUT)
                .start(&shell(script))
                .expect("the server is not ready");
            assert_eq!(server.address, address.into());
        }
        let error = refused(
            "echo starting; exec sleep 1000",
            &ready(Some(address.port()), Some("up"), SHORT_TIMEOUT),
        );
        assert_eq!(error, "shell: it did not print 'up' within 30ms; its last line: starting");
        let taken = check_free(address.port()).expect_err("an open port counts as free");
        assert!(taken.contains(" is taken by ") && taken.contains(&address.to_string()), "{taken}");
    }

    #[test]
    fn a_server_that_ends_or_does_not_listen_is_explained() {
        for (script, port, timeout, part) in [
            (
                "echo in use >&2; exit 1",
                Some(1),
                LONG_TIMEOUT,
                "shell: ended (exit status: 1); its last line: in use",
            ),
            ("exit 0", None, LONG_TIMEOUT, "keep it in the foreground"),
            (
                "exec sleep 1000",
                Some(1),
                SHORT_TIMEOUT,
                "shell: it does not listen on port 1 within 30ms",
            ),
            (
                "exec sleep 1000",
                None,
                SHORT_TIMEOUT,
                "shell: it does not listen for TCP within 30ms",
            ),
        ] {
            let error = refused(script, &ready(port, None, timeout));
            assert!(error.contains(part), "{error}");
        }
    }
}
