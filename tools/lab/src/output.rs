//! The output of a contender: the announcement of its address, the text that shows that it is
//! ready, and its last line.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use annulus_load::ServerAddress;

/// How many bytes at the end of the output are kept by default.
const DEFAULT_TAIL_BYTES: usize = 4096;

const READ_BYTES: usize = 1024;

/// The maximum length of a line that an error quotes.
const MAX_QUOTED_CHARS: usize = 300;

/// The text before an announced address.
const ANNOUNCEMENT_PREFIX: &str = "listening on ";

/// The prefix of an announced UDP address.
const UDP_SCHEME: &str = "udp://";

/// Reads the outputs of a process to their ends, on threads of its own, so that the process never
/// blocks. The last bytes are kept.
#[derive(Debug)]
pub(crate) struct OutputReader {
    shared: Arc<OutputTail>,
    address: Receiver<ServerAddress>,
}

/// State shared with the reading threads: the tail of the output, and the awaited text.
#[derive(Debug)]
struct OutputTail {
    tail: Mutex<Vec<u8>>,
    kept: usize,
    /// A text to wait for.
    awaited_text: Option<String>,
    is_ready: AtomicBool,
    /// Whether the output has more bytes than are kept.
    is_cut: AtomicBool,
}

impl OutputReader {
    /// Starts to read an output, keeping the last [`DEFAULT_TAIL_BYTES`] bytes.
    pub(crate) fn of(source: impl Read + Send + 'static) -> OutputReader {
        OutputReader::reading(vec![Box::new(source)], DEFAULT_TAIL_BYTES, None)
    }

    /// Starts to read these outputs as one, keeping the last `kept` bytes, and looks for a text in
    /// them. The threads are not joined, because they end with the pipes, which a grandchild may
    /// hold open.
    pub(crate) fn reading(
        sources: Vec<Box<dyn Read + Send>>,
        kept: usize,
        awaited_text: Option<String>,
    ) -> OutputReader {
        let (tail, is_ready) = (Mutex::new(Vec::new()), AtomicBool::new(awaited_text.is_none()));
        let is_cut = AtomicBool::new(false);
        let shared = Arc::new(OutputTail { tail, kept, awaited_text, is_ready, is_cut });
        let (sender, address) = mpsc::channel();
        for source in sources {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            thread::spawn(move || shared.read(source, sender));
        }
        OutputReader { shared, address }
    }

    /// Returns true if the awaited text has been printed, or if no text is awaited.
    pub(crate) fn is_ready(&self) -> bool {
        self.shared.is_ready.load(Ordering::Acquire)
    }

    /// Returns true if the start of the output is not kept.
    pub(crate) fn is_cut(&self) -> bool {
        self.shared.is_cut.load(Ordering::Relaxed)
    }

    /// Returns the end of the output that is kept.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(last(&self.shared.lock(), self.shared.kept)).into_owned()
    }

    /// Waits for the announced address, which is returned only once.
    ///
    /// # Errors
    /// `Disconnected` if all outputs have ended, `Timeout` if no address was announced in time.
    pub(crate) fn address(&self, timeout: Duration) -> Result<ServerAddress, RecvTimeoutError> {
        self.address.recv_timeout(timeout)
    }

    /// Waits until the outputs have been read to their ends, for at most `timeout`. Returns true if
    /// they have.
    pub(crate) fn read_to_end(&self, timeout: Duration) -> bool {
        // An announced address may still be in the channel.
        loop {
            match self.address(timeout) {
                Ok(_) => {}
                Err(why) => return why == RecvTimeoutError::Disconnected,
            }
        }
    }

    /// Returns the last non-empty line so far, shortened if it is long.
    pub(crate) fn last_line(&self) -> Option<String> {
        let text = self.text();
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(quoted)
    }
}

impl OutputTail {
    /// Reads a source to its end, and sends the first announced address. Dropping the sender
    /// reports the end.
    fn read(&self, mut source: impl Read, sender: mpsc::Sender<ServerAddress>) {
        let (mut chunk, mut was_sent) = ([0; READ_BYTES], false);
        while let Ok(length @ 1..) = source.read(&mut chunk) {
            let mut tail = self.lock();
            tail.extend_from_slice(&chunk[..length]);
            if tail.len() > self.kept {
                self.is_cut.store(true, Ordering::Relaxed);
            }
            let recent = last(&tail, DEFAULT_TAIL_BYTES + READ_BYTES);
            if let Some(address) = (!was_sent).then(|| announced(recent)).flatten() {
                was_sent = true;
                // The receiver is gone if the lab has given up.
                let _ = sender.send(address);
            }
            if !self.is_ready.load(Ordering::Relaxed) && self.is_awaited_text_in(recent) {
                // Pairs with the load of the waiting thread, which then looks for the port.
                self.is_ready.store(true, Ordering::Release);
            }
            // Draining moves the kept bytes, so it does not happen after every read.
            if tail.len() > 2 * self.kept {
                let surplus = tail.len() - self.kept;
                tail.drain(..surplus);
            }
        }
    }

    fn is_awaited_text_in(&self, tail: &[u8]) -> bool {
        let text = String::from_utf8_lossy(tail);
        self.awaited_text.as_ref().is_some_and(|awaited_text| text.contains(awaited_text))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a line for an error, shortened if it is long.
pub(crate) fn quoted(line: &str) -> String {
    match line.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

fn last(bytes: &[u8], count: usize) -> &[u8] {
    &bytes[bytes.len().saturating_sub(count)..]
}

/// Returns the address on the first *complete* line that announces one, since half of a port is
/// also a number.
pub(crate) fn announced(printed: &[u8]) -> Option<ServerAddress> {
    let complete = &printed[..printed.iter().rposition(|&byte| byte == b'\n')?];
    let text = String::from_utf8_lossy(complete);
    let after = text
        .lines()
        .find_map(|line| line.split_once(ANNOUNCEMENT_PREFIX).map(|(_, after)| after))?;
    let address = after.split_whitespace().next()?.trim_end_matches([',', ';', '.', ')']);
    address.strip_prefix(UDP_SCHEME).unwrap_or(address).parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{PipeWriter, Write, pipe};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn stderr() -> (PipeWriter, OutputReader) {
        let (reader, writer) = pipe().expect("cannot create a pipe");
        (writer, OutputReader::of(reader))
    }

    #[test]
    fn the_address_is_found_among_other_lines_and_in_pieces() {
        let (mut writer, stderr) = stderr();
        writer
            .write_all(b"warming up\nannulus echo: listening on 127.0.0.1:70")
            .expect("cannot write to the pipe");
        writer.write_all(b"12 (uring, 1 thread)\n").expect("cannot write to the pipe");
        assert_eq!(
            stderr.address(TIMEOUT),
            Ok("127.0.0.1:7012".parse().expect("the address is invalid"))
        );
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
        writer.write_all(b"bind: address in use\n\n").expect("cannot write to the pipe");
        drop(writer);
        assert_eq!(stderr.address(TIMEOUT), Err(RecvTimeoutError::Disconnected));
        assert_eq!(stderr.last_line().as_deref(), Some("bind: address in use"));
    }

    #[test]
    fn a_process_with_much_output_is_not_blocked_and_its_last_line_is_kept() {
        let (mut writer, stderr) = stderr();
        let line = [b'x'; 99].into_iter().chain([b'\n']).collect::<Vec<u8>>();
        (0..5000).for_each(|_| writer.write_all(&line).expect("cannot write to the pipe"));
        writer.write_all(b"the last one\n").expect("cannot write to the pipe");
        drop(writer);
        stderr.read_to_end(TIMEOUT);
        assert_eq!(stderr.last_line().as_deref(), Some("the last one"));
        assert!(stderr.text().len() <= DEFAULT_TAIL_BYTES);
    }

    #[test]
    fn an_awaited_text_is_found_in_either_output_and_in_pieces() {
        let (pipes, mut writers): (Vec<_>, Vec<_>) =
            [(), ()].map(|()| pipe().expect("cannot create a pipe")).into_iter().unzip();
        let sources =
            pipes.into_iter().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>).collect();
        let stderr = OutputReader::reading(sources, DEFAULT_TAIL_BYTES, Some("is ready".into()));
        writers[1].write_all(b"starting\nit is re").expect("cannot write to the pipe");
        assert!(!stderr.is_ready());
        writers[1].write_all(b"ady now\n").expect("cannot write to the pipe");
        drop(writers);
        assert!(stderr.read_to_end(TIMEOUT) && stderr.is_ready());
    }
}
