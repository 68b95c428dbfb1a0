//! Common parts of the contenders of `bench reads`, `bench kv` and `bench log`: arguments, jobs, blocks of
//! memory, and the measurement of a job. The contract is in ../../README.md.

pub mod log;

use std::fs::File;
use std::io::{self, BufRead, Error, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub use listen::{BACKLOG, SHORTAGE, announce, must, ring};

/// Bytes per read, and of a reply.
pub const BLOCK: usize = 4096;
/// Bytes of a request: the number of a block in hexadecimal digits.
pub const REQUEST: usize = 8;
/// The number of pieces of a reply that is sent in pieces.
pub const PIECES: usize = 4;

/// Memory of a block, aligned for direct I/O.
#[repr(C, align(4096))]
pub struct Block(pub [u8; BLOCK]);

impl Block {
    pub fn new() -> Box<Block> {
        Box::new(Block([0; BLOCK]))
    }
}

/// Where the bytes of the blocks are before they are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// On the device: reads bypass the page cache.
    Direct,
    /// On the device, and the page cache is empty.
    Cold,
    /// In the page cache.
    Warm,
}

/// The task of a process.
pub enum Task {
    /// Answer the jobs of `bench reads`.
    Reads(Reads),
    /// Serve `bench kv`.
    Kv(Kv),
    /// Serve `bench log`.
    Log(log::Place),
}

pub struct Reads {
    site: PathBuf,
}

pub struct Kv {
    pub address: SocketAddr,
    pub path: PathBuf,
    pub blocks: u64,
    pub direct: bool,
    /// Number of writes per reply.
    pub pieces: usize,
}

const USAGE: &str = "usage: PROGRAM reads SITE [MODE], PROGRAM kv PORT SITE SERVICE [MODE], where SERVICE is \
    direct-1, direct-4, warm-1 or warm-4, or PROGRAM log PORT DIRECTORY";

/// Parses the arguments. The last one may be one of these modes.
pub fn task(modes: &[&str]) -> Result<(Task, Option<String>), ExitCode> {
    parse(modes).map_err(|error| ended("storage", error))
}

fn parse(modes: &[&str]) -> io::Result<(Task, Option<String>)> {
    let wrong = || Error::new(ErrorKind::InvalidInput, USAGE);
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mode = words.pop_if(|last| modes.contains(&last.as_str()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let task = match words[..] {
        ["reads", site] => Task::Reads(Reads { site: site.into() }),
        ["kv", port, site, service] => {
            let port = port.parse().map_err(|_| wrong())?;
            let (cache, pieces) = service.split_once('-').ok_or_else(wrong)?;
            let direct = match cache {
                "direct" => true,
                "warm" => false,
                _ => return Err(wrong()),
            };
            let pieces = match pieces {
                "1" => 1,
                "4" => PIECES,
                _ => return Err(wrong()),
            };
            let path = Path::new(site).join("warm");
            let file = File::open(&path)?;
            let blocks = file.metadata()?.len() / BLOCK as u64;
            file.sync_data()?;
            // The file is cached for every service, because a service with direct reads may run
            // beside one that uses the cache.
            read_all(file)?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            Task::Kv(Kv { address, path, blocks, direct, pieces })
        }
        ["log", port, dir] => {
            let port = port.parse().map_err(|_| wrong())?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            Task::Log(log::Place { address, dir: dir.into() })
        }
        _ => return Err(wrong()),
    };
    Ok((task, mode))
}

impl Kv {
    /// Returns the offset of the requested block.
    pub fn offset(&self, request: &[u8]) -> io::Result<u64> {
        let text = std::str::from_utf8(request).ok();
        let number = text.and_then(|text| u64::from_str_radix(text, 16).ok());
        let number = number.ok_or_else(|| Error::new(ErrorKind::InvalidData, "not a number"))?;
        Ok(number % self.blocks * BLOCK as u64)
    }

    /// Returns the flags to open the file with.
    pub fn flags(&self) -> i32 {
        if self.direct { libc::O_DIRECT } else { 0 }
    }

    /// Opens the file for plain calls.
    pub fn open(&self) -> io::Result<File> {
        File::options().read(true).custom_flags(self.flags()).open(&self.path)
    }

    /// Returns the bytes of a piece of a reply.
    pub fn piece(&self, index: usize) -> std::ops::Range<usize> {
        let bytes = BLOCK / self.pieces;
        index * bytes..(index + 1) * bytes
    }
}

/// Refuses a task that this program does not have.
pub fn unserved() -> io::Result<()> {
    Err(Error::new(ErrorKind::InvalidInput, "this program has no such server"))
}

/// Prints the error in one line, and returns the exit code.
pub fn ended(name: &str, error: impl Into<Error>) -> ExitCode {
    let error = error.into();
    eprintln!("{name}: {error}");
    ExitCode::from(match error.kind() {
        ErrorKind::InvalidInput => 2,
        ErrorKind::Unsupported | ErrorKind::PermissionDenied => 3,
        _ => 1,
    })
}

impl Reads {
    /// Answers jobs, one per line, until the input ends. `run` makes the reads of a job, with as
    /// many [readers](Job::reader) as its depth.
    pub fn answer(&self, mut run: impl FnMut(&Arc<Job>) -> io::Result<()>) -> io::Result<()> {
        for line in io::stdin().lock().lines() {
            let job = Arc::new(Job::new(&self.site, &line?)?);
            run(&job)?;
            println!("{}", job.answer()?);
        }
        Ok(())
    }
}

/// A job: reads of random blocks of a file, for a time.
pub struct Job {
    pub path: PathBuf,
    pub cache: Cache,
    pub depth: usize,
    blocks: u64,
    next: AtomicU64,
    /// When measuring begins and ends, in nanoseconds of the clock.
    begins: u64,
    ends: u64,
    /// The CPU time of the process when measuring began; zero before that.
    cpu: AtomicU64,
    times: Histogram,
}

/// The share of a job before it is measured.
const WARM_UP: f64 = 0.2;

impl Job {
    /// Parses `direct DEPTH SECONDS`, or the same with `cold` or `warm`, and fills or empties the
    /// page cache.
    fn new(site: &Path, line: &str) -> io::Result<Job> {
        let wrong = || {
            let text = format!("`{line}` is not direct, cold or warm, with DEPTH and SECONDS");
            Error::new(ErrorKind::InvalidInput, text)
        };
        let [cache, depth, seconds] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(wrong());
        };
        let (cache, file) = match cache {
            "direct" => (Cache::Direct, "cold"),
            "cold" => (Cache::Cold, "cold"),
            "warm" => (Cache::Warm, "warm"),
            _ => return Err(wrong()),
        };
        let depth = depth.parse().ok().filter(|&depth| depth > 0).ok_or_else(wrong)?;
        let seconds: f64 = seconds.parse().map_err(|_| wrong())?;
        let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?.as_nanos() as u64;
        let path = site.join(file);
        let blocks = path.metadata()?.len() / BLOCK as u64;
        if !blocks.is_power_of_two() {
            let text = format!("{} has {blocks} blocks: not a power of two", path.display());
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        set_cache(&path, cache)?;
        let now = clock(libc::CLOCK_MONOTONIC)?;
        let begins = now + (time as f64 * WARM_UP) as u64;
        // Each job begins elsewhere in the file.
        let (next, cpu) = (AtomicU64::new(now), AtomicU64::new(0));
        let times = Histogram::new();
        Ok(Job { path, cache, depth, blocks, next, begins, ends: begins + time, cpu, times })
    }

    /// Returns the flags to open the file with.
    pub fn flags(&self) -> i32 {
        if self.cache == Cache::Direct { libc::O_DIRECT } else { 0 }
    }

    /// Opens the file for plain calls.
    pub fn open(&self) -> io::Result<File> {
        File::options().read(true).custom_flags(self.flags()).open(&self.path)
    }

    /// Returns a reader, which chooses and measures one read after another.
    pub fn reader(self: &Arc<Job>) -> Reader {
        Reader { job: self.clone(), began: 0 }
    }

    /// Returns the offset of the next read. No block is read twice before all have been read once,
    /// and blocks that are read one after another are far apart.
    fn offset(&self) -> u64 {
        let number = self.next.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b1);
        (number & (self.blocks - 1)) * BLOCK as u64
    }

    fn answer(&self) -> io::Result<String> {
        let ns = clock(libc::CLOCK_MONOTONIC)? - self.begins;
        let cpu = clock(libc::CLOCK_PROCESS_CPUTIME_ID)? - self.cpu.load(Relaxed);
        let operations = self.times.count();
        let [p50, p99, p99_9] = [0.5, 0.99, 0.999].map(|share| self.times.percentile(share));
        Ok(format!(
            r#"{{"operations":{operations},"ns":{ns},"cpu_ns":{cpu},"p50_us":{p50},"p99_us":{p99},"p99_9_us":{p99_9}}}"#
        ))
    }
}

/// Chooses the offsets of a job's reads, and measures the reads, one after another.
pub struct Reader {
    job: Arc<Job>,
    /// When the read began; zero before the first one.
    began: u64,
}

impl Reader {
    /// Records the end of the previous read, which filled a block, and returns the offset of the
    /// next one, or `None` if the job has ended.
    pub fn next(&mut self) -> io::Result<Option<u64>> {
        let (job, now) = (&*self.job, clock(libc::CLOCK_MONOTONIC)?);
        if now >= job.begins {
            if job.cpu.load(Relaxed) == 0 {
                let cpu = clock(libc::CLOCK_PROCESS_CPUTIME_ID)?;
                _ = job.cpu.compare_exchange(0, cpu, Relaxed, Relaxed);
            }
            if self.began > 0 {
                job.times.record(now - self.began);
            }
            if now >= job.ends {
                return Ok(None);
            }
        }
        self.began = now;
        Ok(Some(job.offset()))
    }
}

/// Refuses a read that did not fill a block.
pub fn whole(bytes: usize) -> io::Result<()> {
    match bytes {
        BLOCK => Ok(()),
        _ => Err(Error::new(ErrorKind::UnexpectedEof, format!("a read of {bytes} bytes"))),
    }
}

/// Times in nanoseconds, exact to about 3 %.
struct Histogram([AtomicU64; BUCKETS]);

/// The binary logarithm of the number of buckets per power of two.
const FINE_BITS: u32 = 5;
const BUCKETS: usize = 64 << FINE_BITS;

impl Histogram {
    fn new() -> Histogram {
        Histogram([const { AtomicU64::new(0) }; BUCKETS])
    }

    fn record(&self, ns: u64) {
        let shift = (63 - (ns | 1).leading_zeros()).saturating_sub(FINE_BITS);
        let bucket = (u64::from(shift) << FINE_BITS) + (ns >> shift);
        self.0[bucket as usize].fetch_add(1, Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// Returns the percentile in microseconds.
    fn percentile(&self, share: f64) -> f64 {
        let mut left = (self.count() as f64 * share) as u64;
        let full = |bucket: &AtomicU64| {
            let count = bucket.load(Relaxed);
            let is_here = count > left;
            left = left.saturating_sub(count);
            is_here
        };
        let bucket = self.0.iter().position(full).unwrap_or_default() as u64;
        let shift = (bucket >> FINE_BITS).saturating_sub(1);
        ((bucket - (shift << FINE_BITS)) << shift) as f64 / 1e3
    }
}

/// Brings the page cache to its state before a job.
fn set_cache(path: &Path, cache: Cache) -> io::Result<()> {
    let file = File::open(path)?;
    if cache == Cache::Warm {
        return read_all(file);
    }
    // Pages that are not on the device yet would stay in the cache.
    file.sync_data()?;
    // SAFETY: the descriptor is open.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => Err(Error::from_raw_os_error(errno)),
    }
}

fn read_all(mut file: File) -> io::Result<()> {
    let mut bytes = vec![0; 1 << 20];
    while file.read(&mut bytes)? > 0 {}
    Ok(())
}

fn clock(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is valid during the call, which only writes to it.
    match unsafe { libc::clock_gettime(clock, &mut time) } {
        0 => Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
        _ => Err(Error::last_os_error()),
    }
}
