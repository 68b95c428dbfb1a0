//! What a server says on its standard error: where it listens, and why it fell over.

use std::io::Read;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use annulus_load::Place;

/// How much of the end is kept.
const KEPT: usize = 4096;

/// What comes before the address on the line that announces it.
const ANNOUNCES: &str = "listening on ";

/// What comes before an address of datagrams.
const UDP: &str = "udp://";

/// A server's standard error, read by a thread until its end, so that the server never waits for a
/// reader; the last [`KEPT`] bytes are kept.
#[derive(Debug)]
pub(crate) struct Words {
    tail: Arc<Mutex<Vec<u8>>>,
    address: Receiver<Place>,
}

/// Why no address was heard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unheard {
    /// The server closed its standard error, most likely by ending.
    Ended,
    /// It said nothing of the kind in time.
    Silent,
}

impl Words {
    /// Starts to listen.
    pub(crate) fn of(source: impl Read + Send + 'static) -> Words {
        let tail = Arc::default();
        let (sender, address) = mpsc::channel();
        let ear = Ear { tail: Arc::clone(&tail), address: sender, heard: false };
        // Nobody joins this thread: it ends with the pipe, which a stray grandchild may hold open.
        thread::spawn(move || ear.listen(source));
        Words { tail, address }
    }

    /// The address the server announced; call it once.
    pub(crate) fn address(&self, patience: Duration) -> Result<Place, Unheard> {
        self.address.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Disconnected => Unheard::Ended,
            RecvTimeoutError::Timeout => Unheard::Silent,
        })
    }

    /// The last line of a server that has ended, once the pipe is read to its end.
    pub(crate) fn last_words(&self, patience: Duration) -> Option<String> {
        // An address that nobody asked for may still be in the channel before its end.
        while self.address(patience).is_ok() {}
        self.last_line()
    }

    /// The last line so far that is not empty, if there was one.
    pub(crate) fn last_line(&self) -> Option<String> {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&tail);
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    }
}

/// The thread's side. Its sender lives as long as the pipe, so that its end means the pipe's.
struct Ear {
    tail: Arc<Mutex<Vec<u8>>>,
    address: Sender<Place>,
    heard: bool,
}

impl Ear {
    fn listen(mut self, mut source: impl Read) {
        let mut chunk = [0; 1024];
        while let Ok(length @ 1..) = source.read(&mut chunk) {
            self.hear(&chunk[..length]);
        }
    }

    fn hear(&mut self, chunk: &[u8]) {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(chunk);
        if let Some(address) = announced(&tail).filter(|_| !self.heard) {
            self.heard = true;
            // Nobody receives it where the lab has given up; then nobody needs it either.
            let _ = self.address.send(address);
        }
        let surplus = tail.len().saturating_sub(KEPT);
        tail.drain(..surplus);
    }
}

/// The address on the first *complete* line that announces one: half a port is also a number.
pub(crate) fn announced(said: &[u8]) -> Option<Place> {
    let complete = &said[..said.iter().rposition(|&byte| byte == b'\n')?];
    let text = String::from_utf8_lossy(complete);
    let after = text.lines().find_map(|line| line.split_once(ANNOUNCES).map(|(_, after)| after))?;
    let address = after.split_whitespace().next()?.trim_end_matches([',', ';', '.', ')']);
    address.strip_prefix(UDP).unwrap_or(address).parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{PipeWriter, Write, pipe};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn words() -> (PipeWriter, Words) {
        let (reader, writer) = pipe().expect("pipe");
        (writer, Words::of(reader))
    }

    #[test]
    fn hears_the_address_among_other_lines_and_in_pieces() {
        let (mut writer, words) = words();
        writer.write_all(b"warming up\nannulus echo: listening on 127.0.0.1:70").expect("write");
        writer.write_all(b"12 (uring, 1 thread)\n").expect("write");
        assert_eq!(words.address(PATIENCE), Ok("127.0.0.1:7012".parse().expect("address")));
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
    fn an_end_without_address_is_told_from_silence() {
        let (mut writer, words) = words();
        assert_eq!(words.address(Duration::ZERO), Err(Unheard::Silent));
        writer.write_all(b"bind: address in use\n\n").expect("write");
        drop(writer);
        assert_eq!(words.address(PATIENCE), Err(Unheard::Ended));
        assert_eq!(words.last_line().as_deref(), Some("bind: address in use"));
    }

    #[test]
    fn a_server_that_says_much_is_never_blocked_and_little_is_kept() {
        let (mut writer, words) = words();
        let line = [b'x'; 99].into_iter().chain([b'\n']).collect::<Vec<u8>>();
        (0..5000).for_each(|_| writer.write_all(&line).expect("write"));
        writer.write_all(b"the last one\n").expect("write");
        drop(writer);
        assert_eq!(words.address(PATIENCE), Err(Unheard::Ended));
        assert_eq!(words.last_line().as_deref(), Some("the last one"));
        assert!(words.tail.lock().expect("lock").len() <= KEPT);
    }
}
