//! The standard error of a contender: the announcement of its address, and its last line.

use std::io::Read;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use annulus_load::ServerAddress;

/// Bytes kept of the end of the output.
const KEPT: usize = 4096;

/// The text before the address in an announcement.
const ANNOUNCES: &str = "listening on ";

/// The prefix of an address of datagrams.
const UDP: &str = "udp://";

/// A standard error, read by a thread until its end, so that its process is never blocked. The last [`KEPT`] bytes are
/// kept.
#[derive(Debug)]
pub(crate) struct Stderr {
    tail: Arc<Mutex<Vec<u8>>>,
    address: Receiver<ServerAddress>,
}

impl Stderr {
    /// Starts to read. The thread ends with the pipe, which a grandchild may hold open; so it is not joined.
    pub(crate) fn of(mut source: impl Read + Send + 'static) -> Stderr {
        let tail = Arc::new(Mutex::new(Vec::new()));
        let (sender, address) = mpsc::channel();
        let shared = Arc::clone(&tail);
        thread::spawn(move || {
            let (mut chunk, mut was_sent) = ([0; 1024], false);
            while let Ok(length @ 1..) = source.read(&mut chunk) {
                let mut tail = shared.lock().unwrap_or_else(PoisonError::into_inner);
                tail.extend_from_slice(&chunk[..length]);
                if let Some(address) = announced(&tail).filter(|_| !was_sent) {
                    was_sent = true;
                    // The receiver is dropped if the lab has given up.
                    let _ = sender.send(address);
                }
                let surplus = tail.len().saturating_sub(KEPT);
                tail.drain(..surplus);
            }
        });
        Stderr { tail, address }
    }

    /// The announced address; call it once.
    ///
    /// # Errors
    /// `Disconnected` if the pipe has ended, `Timeout` if no address was announced in time.
    pub(crate) fn address(&self, timeout: Duration) -> Result<ServerAddress, RecvTimeoutError> {
        self.address.recv_timeout(timeout)
    }

    /// Waits until the pipe has been read to its end, at most for `timeout`.
    pub(crate) fn read_to_end(&self, timeout: Duration) {
        // An address that was not taken may still be in the channel.
        while self.address(timeout).is_ok() {}
    }

    /// The last non-empty line so far.
    pub(crate) fn last_line(&self) -> Option<String> {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&tail);
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    }
}

/// The address on the first *complete* line that announces one: half of a port would be a number, too.
pub(crate) fn announced(printed: &[u8]) -> Option<ServerAddress> {
    let complete = &printed[..printed.iter().rposition(|&byte| byte == b'\n')?];
    let text = String::from_utf8_lossy(complete);
    let after = text.lines().find_map(|line| line.split_once(ANNOUNCES).map(|(_, after)| after))?;
    let address = after.split_whitespace().next()?.trim_end_matches([',', ';', '.', ')']);
    address.strip_prefix(UDP).unwrap_or(address).parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{PipeWriter, Write, pipe};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn stderr() -> (PipeWriter, Stderr) {
        let (reader, writer) = pipe().expect("pipe");
        (writer, Stderr::of(reader))
    }

    #[test]
    fn the_address_is_found_among_other_lines_and_in_pieces() {
        let (mut writer, stderr) = stderr();
        writer.write_all(b"warming up\nannulus echo: listening on 127.0.0.1:70").expect("write");
        writer.write_all(b"12 (uring, 1 thread)\n").expect("write");
        assert_eq!(stderr.address(TIMEOUT), Ok("127.0.0.1:7012".parse().expect("address")));
    }

    #[test]
    fn half_a_line_announces_nothing() {
        assert_eq!(announced(b"listening on 127.0.0.1:70"), None);
        assert_eq!(announced(b"x\nlistening on 127.0.0.1:70"), None);
        assert_eq!(announced(b"listening on [::1]:7000.\n"), "[::1]:7000".parse().ok());
        assert_eq!(announced(b"listening on udp://[::1]:7 (x)\n"), "[::1]:7".parse().ok());
        assert_eq!(announced(b"listening on unix:/run/x (y)\n"), "unix:/run/x".parse().ok());
        assert_eq!(announced(b"listening on somewhere\n"), None);
    }

    #[test]
    fn an_end_without_address_differs_from_a_timeout() {
        let (mut writer, stderr) = stderr();
        assert_eq!(stderr.address(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        writer.write_all(b"bind: address in use\n\n").expect("write");
        drop(writer);
        assert_eq!(stderr.address(TIMEOUT), Err(RecvTimeoutError::Disconnected));
        assert_eq!(stderr.last_line().as_deref(), Some("bind: address in use"));
    }

    #[test]
    fn a_process_with_much_output_is_not_blocked_and_its_last_line_is_kept() {
        let (mut writer, stderr) = stderr();
        let line = [b'x'; 99].into_iter().chain([b'\n']).collect::<Vec<u8>>();
        (0..5000).for_each(|_| writer.write_all(&line).expect("write"));
        writer.write_all(b"the last one\n").expect("write");
        drop(writer);
        stderr.read_to_end(TIMEOUT);
        assert_eq!(stderr.last_line().as_deref(), Some("the last one"));
        assert!(stderr.tail.lock().expect("lock").len() <= KEPT);
    }
}
