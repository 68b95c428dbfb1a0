//! System servers that tests use, and that end with the test.

use super::common::Failure;
use annulus_skip::skip;
use std::io::{self, BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Finds a program in `PATH` or in one of the directories. If it is missing, prints that the test
/// is skipped, bypassing the output capture.
pub(crate) fn program(name: &str, elsewhere: &[PathBuf], package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&path).chain(elsewhere.iter().cloned());
    let found = all.map(|directory| directory.join(name)).find(|program| program.is_file());
    if found.is_none() {
        skip!("{name} is not installed; on Debian: apt-get install {package}");
    }
    found
}

/// Returns a local port that was free a moment ago.
pub(crate) fn free_port() -> io::Result<u16> {
    TcpListener::bind("127.0.0.1:0")?.local_addr().map(|address| address.port())
}

/// A unique temporary directory, removed with its contents on drop.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        static NEXT_DIRECTORY: AtomicU32 = AtomicU32::new(0);
        let number = NEXT_DIRECTORY.fetch_add(1, Ordering::Relaxed);
        let name = format!("annulus-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server process. Dropping this ends the server and waits for its exit.
pub(crate) struct Server(Child);

impl Server {
    /// Starts the server, and waits until its output or error output contains this text.
    pub(crate) fn start(command: &mut Command, ready: &str) -> Result<Self, Failure> {
        let (output, input) = io::pipe()?;
        command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
        let server = Self(command.spawn()?);
        // The command holds copies of the pipe's write end, which would keep the output from
        // ending.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut output = BufReader::new(output);
        let mut printed = String::new();
        while !printed.contains(ready) {
            if output.read_line(&mut printed)? == 0 {
                return Err(format!("{:?} has ended: {printed}", command.get_program()).into());
            }
        }
        // A full pipe would block the server.
        thread::spawn(move || io::copy(&mut output.by_ref(), &mut io::sink()));
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.0);
        // SIGINT makes PostgreSQL shut down fast, and Redis shut down without saving.
        _ = rustix::process::kill_process(id, rustix::process::Signal::INT);
        _ = self.0.wait();
    }
}
