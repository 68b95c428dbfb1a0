//! Helpers that run the binary to its end or as a server.

use annulus_load::recording::Recording;
use annulus_skip::skip;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

pub(crate) const ANNULUS: &str = env!("CARGO_BIN_EXE_annulus");
/// The time limit of every wait in a test, far above the expected time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The output and the exit status of a program.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Returns the recording that `annulus load --json -` has printed.
    #[track_caller]
    pub(crate) fn recording(&self) -> Recording {
        let recording = Recording::read(self.stdout.as_bytes());
        recording.unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts this exit status, and a single line on standard error that contains all parts.
    #[track_caller]
    pub(crate) fn fails_with(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "not one line: {self:?}");
        assert!(self.stderr.starts_with("annulus: "), "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "'{part}' is not in: {}", self.stderr);
        }
    }
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command) -> Finished {
    try_finish(command).unwrap()
}

/// Like [`finish`], but returns an error if the command cannot be started.
pub(crate) fn try_finish(command: &mut Command) -> io::Result<Finished> {
    command.stdin(Stdio::null()).output().map(finished)
}

pub(crate) fn finished(output: Output) -> Finished {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Finished {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Returns a loopback address that no other test uses, with a port that was free a moment ago.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT_ADDRESS: AtomicU8 = AtomicU8::new(0);
    let number = NEXT_ADDRESS.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = std::process::id().to_be_bytes();
    let own: SocketAddr = ([127, 64 + number % 128, high, low], 0).into();
    TcpListener::bind(own).unwrap().local_addr().unwrap()
}

/// Returns true if a signal is in a mask of a process in `/proc`: `SigCgt` for handled signals,
/// `SigIgn` for ignored ones. Shells without job control ignore SIGQUIT in background processes,
/// `nohup` ignores SIGHUP, and children inherit that.
pub(crate) fn is_in_mask(mask: &str, process: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix(mask)?.strip_prefix(':')).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    mask & (1 << (signal.as_raw() - 1)) != 0
}

/// Returns true if Python is available. Otherwise reports the test as skipped.
pub(crate) fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        skip!("no python3: apt-get install python3");
    }
    found
}

/// Runs annulus to its end.
pub(crate) fn annulus<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Finished {
    finish(Command::new(ANNULUS).args(args))
}

/// Returns a command for annulus in which a seccomp filter denies one system call with this errno.
#[allow(unsafe_code)]
pub(crate) fn denied(args: &[&str], call: libc::c_long, errno: i32) -> Command {
    let mut command = Command::new(ANNULUS);
    command.args(args);
    // SAFETY: between fork and exec, `deny` only makes system calls through prctl, and allocates
    // nothing.
    unsafe { command.pre_exec(move || deny(call, errno)) };
    command
}

/// Installs a filter that returns the errno for one call number and allows the rest.
#[allow(unsafe_code)]
fn deny(call: libc::c_long, errno: i32) -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        op(LOAD, 0, 0, 0),
        op(JUMP_EQUAL, 0, 1, call as u32),
        op(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        op(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let check = |result| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: PR_SET_NO_NEW_PRIVS takes numbers only, and accesses no memory.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    // SAFETY: the kernel copies the program during the call; program and filter outlive it.
    check(unsafe {
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    })
}

/// Returns the drivers that an echo server can run on here, and `threads`.
pub(crate) fn drivers() -> Vec<&'static str> {
    [runtime_drivers(), vec!["threads"]].concat()
}

/// Returns `auto` and every driver of the runtime that works on this machine.
pub(crate) fn runtime_drivers() -> Vec<&'static str> {
    let mut drivers = vec!["auto", "epoll"];
    match annulus(["doctor", "--require", "uring"]).code {
        Some(0) => drivers.push("uring"),
        _ => skip!("the uring driver does not work here"),
    }
    drivers
}

/// Gives a command its own bench lock, independent of other measurements on the machine.
pub(crate) trait OwnLock {
    fn own_lock(&mut self) -> &mut Self;
}

impl OwnLock for Command {
    fn own_lock(&mut self) -> &mut Command {
        // Unix sockets are created in this directory, and their paths may have at most 107 bytes,
        // so its name is short.
        let mut hasher = DefaultHasher::new();
        std::thread::current().name().hash(&mut hasher);
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let directory = directory.join(format!("{:08x}", hasher.finish() as u32));
        std::fs::create_dir_all(&directory).unwrap();
        self.env("TMPDIR", directory)
    }
}

/// Returns every way to serve that works on this machine, as arguments: each driver, and several
/// workers.
pub(crate) fn serving_modes() -> Vec<Vec<&'static str>> {
    let drivers = drivers();
    let alone = drivers.iter().map(|driver| vec!["--driver", driver]);
    let cpus = annulus_load::affinity::allowed().unwrap().len();
    if cpus < 2 {
        skip!("several workers, on one CPU");
        return alone.collect();
    }
    let together =
        [("epoll", "hash"), ("epoll", "least-connections"), ("uring", "least-connections")];
    let together = together.into_iter().filter(|(driver, _)| drivers.contains(driver));
    let together = together
        .map(|(driver, spread)| vec!["--driver", driver, "--workers", "2", "--spread", spread]);
    alone.chain(together).collect()
}

/// A running `annulus echo`.
pub(crate) struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    pub(crate) address: SocketAddr,
    /// The line that announced the address.
    pub(crate) ready: String,
}

impl Server {
    /// Starts the server on a free port and waits for its announcement.
    pub(crate) fn start(args: &[&str]) -> Server {
        Server::spawn(Command::new(ANNULUS).args(["echo", "--listen", "127.0.0.1:0"]).args(args))
    }

    pub(crate) fn spawn(command: &mut Command) -> Server {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut ready = String::new();
        stderr.read_line(&mut ready).unwrap();
        let address = ready
            .strip_prefix("annulus echo: listening on ")
            .and_then(|rest| rest.split(' ').next());
        let address = address.and_then(|text| text.trim_end_matches(',').parse().ok());
        let address = address.unwrap_or_else(|| panic!("not a ready line: {ready:?}"));
        Server { child, stderr, address, ready }
    }

    /// Returns the UDP address that the server has announced after its TCP address.
    pub(crate) fn udp_address(&self) -> SocketAddr {
        let announced =
            self.ready.split_once(", udp://").and_then(|(_, rest)| rest.split_once(' '));
        let address = announced.and_then(|(address, _)| address.parse().ok());
        address.unwrap_or_else(|| panic!("no UDP address: {}", self.ready))
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Returns the next line on the server's standard error.
    pub(crate) fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn wait(mut self) -> Finished {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut stderr).unwrap();
        Finished { code: self.child.wait().unwrap().code(), stdout, stderr }
    }

    /// Sends SIGTERM and waits until the server ends.
    pub(crate) fn stop(self) -> Finished {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails after `wait`, when no process is left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends bytes and asserts that they are echoed.
#[track_caller]
pub(crate) fn round_trip(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == bytes, "the echo of {} bytes differs", bytes.len());
}

/// Returns bytes without a short period.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    (0..count as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A directory for the files of a test, removed when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR")), name)
    }

    /// Like [`new`](Self::new), but with a short path, because the path of a Unix socket has at
    /// most 107 bytes.
    pub(crate) fn short(name: &str) -> Scratch {
        Scratch::within(&std::env::temp_dir(), &format!("annulus-{name}"))
    }

    fn within(parent: &Path, name: &str) -> Scratch {
        let path = parent.join(format!("{name}-{}", std::process::id()));
        // A killed test may have left files.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    /// Returns the path of a file as an argument for a command.
    pub(crate) fn path(&self, name: &str) -> String {
        self.join(name).to_str().unwrap().to_owned()
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed is not a failure of the tested code.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Starts a server with a thread per connection in this process, until the process ends.
pub(crate) fn serve(talk: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, talk) = (stream.unwrap(), talk.clone());
            thread::spawn(move || talk(stream));
        }
    });
    address
}

/// Starts an echo server in this process. Returns its address, and a message for each echo.
pub(crate) fn noted_echo() -> (SocketAddr, Receiver<()>) {
    let (sender, echoed) = mpsc::channel();
    let address = serve(move |mut stream| {
        let mut bytes = [0; 64];
        while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {
            _ = sender.send(());
        }
    });
    (address, echoed)
}
