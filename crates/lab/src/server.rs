//! A contender that is a server.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use annulus_load::ServerAddress;

use crate::process::{Process, ProcessError, Spec};

/// How long a server may take to announce its address.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// A running server, which ends when dropped. It announces itself on its standard error by a line with `listening on
/// ADDRESS:PORT` or `listening on unix:/path`.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: ServerAddress,
}

impl Server {
    /// Starts a server and waits for its announcement.
    pub(crate) fn start(spec: &Spec) -> Result<Server, ProcessError> {
        Server::start_within(spec, START_TIMEOUT)
    }

    fn start_within(spec: &Spec, timeout: Duration) -> Result<Server, ProcessError> {
        let mut process = Process::start(spec)?;
        match process.stderr.address(timeout) {
            Ok(address) => Ok(Server { process, address }),
            Err(RecvTimeoutError::Timeout) => {
                Err(process.error(format!("no line with `listening on` within {timeout:?}")))
            }
            Err(RecvTimeoutError::Disconnected) => {
                let closed = "it closed its standard error before it printed `listening on`";
                Err(process.error_or_end(closed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::shell;

    #[test]
    fn the_announced_address_is_used() {
        let announce = "echo 'test: listening on 127.0.0.1:9 (nothing)' >&2; exec sleep 1000";
        let server = Server::start(&shell(announce)).expect("start");
        assert_eq!(server.address, "127.0.0.1:9".parse().expect("address"));
    }

    #[test]
    fn a_server_without_an_announcement_is_an_error() {
        for (script, part) in [
            ("echo no >&2; exit 7", "shell: ended (exit status: 7); its last line: no"),
            ("exec 2>&-; exec sleep 1000", "shell: it closed its standard error before"),
        ] {
            let error = Server::start(&shell(script)).expect_err(script).to_string();
            assert!(error.starts_with(part), "{error}");
        }
        let silent = Server::start_within(&shell("exec sleep 1000"), Duration::from_millis(1));
        let error = silent.expect_err("it prints nothing").to_string();
        assert_eq!(error, "shell: no line with `listening on` within 1ms; it printed nothing");
    }
}
