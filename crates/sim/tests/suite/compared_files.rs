//! Random programs of file calls, which have the same results on a simulated disk and on Linux. A
//! failure prints the program.
#![allow(unsafe_code)]

use crate::common::disk::*;
use crate::common::*;
use annulus_kernel::file::{FileCall, FileStat, OpenHow, PathAt};
use annulus_sim::Random;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::cell::RefCell;
use std::ffi::CString;
use std::os::fd::RawFd;

const STEPS: u64 = 60;
const PROGRAMS: u64 = 40;
const SLOTS: usize = 4;
/// `AT_EMPTY_PATH`
const EMPTY_PATH: u32 = 0x1000;
const RENAME_NOREPLACE: u32 = 1;

/// Paths from the directory of the program, or from an open file.
const PATHS: [&str; 16] = [
    "a", "b", "d", "e", "d/a", "d/b", "d/e", "e/d", "d/e/a", "a/b", "d/", "a/", ".", "d/..", "d/.",
    "e/..",
];

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(usize, Path, OFlags),
    Close(usize),
    Read(usize, u64, u64),
    Write(usize, u64, u64),
    SetLen(usize, u64),
    Allocate(usize, u32, u64, u64),
    Seek(usize, i64, u32),
    Copy(usize, u64, usize, u64, u32),
    Sync(usize),
    List(usize),
    Stat(Path),
    Remove(Path, bool),
    MakeDir(Path),
    Rename(Path, Path, u32),
    Link(Path, Path),
}

/// A path, and the slot that it starts from if that is open.
#[derive(Clone, Copy)]
struct Path(Option<usize>, &'static str);

impl std::fmt::Debug for Path {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(slot) => write!(out, "{slot}:{}", self.1),
            None => write!(out, "{}", self.1),
        }
    }
}

fn path(random: &mut Random) -> Path {
    let from = random.chance(250).then(|| random.below(SLOTS as u64) as usize);
    Path(from, random.pick(&PATHS))
}

fn offset(random: &mut Random) -> u64 {
    const NEGATIVE: u64 = 1 << 63;
    let small = random.below(40);
    random.pick(&[CURSOR_OFFSET, CURSOR_OFFSET, 0, small, small, 4090, 10_000, NEGATIVE])
}

fn flags(random: &mut Random) -> OFlags {
    let mode = random.pick(&[OFlags::RDONLY, OFlags::RDWR, OFlags::WRONLY, OFlags::RDWR]);
    let more = [
        (OFlags::CREATE, 500),
        (OFlags::EXCL, 100),
        (OFlags::TRUNC, 100),
        (OFlags::APPEND, 150),
        (OFlags::DIRECTORY, 150),
    ];
    more.into_iter().fold(
        mode,
        |flags, (flag, chance)| {
            if random.chance(chance) { flags | flag } else { flags }
        },
    )
}

fn step(random: &mut Random) -> Step {
    let slot = random.below(SLOTS as u64) as usize;
    let other = random.below(SLOTS as u64) as usize;
    let len = random.pick(&[0, 1, 7, 30, 5000]);
    match random.below(26) {
        0..5 => Step::Open(slot, path(random), flags(random)),
        5 => Step::Close(slot),
        6..8 => Step::Read(slot, len, offset(random)),
        8..11 => Step::Write(slot, len, offset(random)),
        11 => Step::SetLen(slot, random.pick(&[0, 3, 20, 4096, 9000, 1 << 63, u64::MAX])),
        12 => {
            let mode = random.pick(&[0, 0, 1, 3, 3]);
            let at = random.pick(&[0, 5, 4096, 8000, 1 << 63, (1 << 63) - 1]);
            Step::Allocate(slot, mode, at, random.pick(&[0, 1, 100, 5000]))
        }
        13 => Step::Seek(slot, random.pick(&[0, 2, 10, -1, -5, 5000]), random.below(3) as u32),
        14 => Step::Copy(slot, offset(random), other, offset(random), len as u32),
        15 => Step::Sync(slot),
        16 => Step::List(slot),
        17 | 18 => Step::Stat(path(random)),
        19 | 20 => Step::Remove(path(random), random.chance(500)),
        21 | 22 => Step::MakeDir(path(random)),
        23 | 24 => {
            let flags = if random.chance(200) { RENAME_NOREPLACE } else { 0 };
            Step::Rename(path(random), path(random), flags)
        }
        _ => Step::Link(path(random), path(random)),
    }
}

/// The state of a program on one kernel.
struct Run {
    fixture: Fixture,
    base: RawFd,
    slots: [Option<RawFd>; SLOTS],
    written: u8,
}

fn shown<T: std::fmt::Debug>(result: Result<T, Errno>) -> String {
    result.map_or_else(|errno| format!("E{}", errno.raw_os_error()), |value| format!("{value:?}"))
}

fn brief(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|one, other| one == other);
    let runs: Vec<String> = runs.map(|run| format!("{}×{}", run[0], run.len())).collect();
    format!("{} bytes: {}", bytes.len(), runs.join(" "))
}

impl Run {
    fn new(mut fixture: Fixture) -> Self {
        let base = fixture.open(".", OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
        Self { fixture, base, slots: [None; SLOTS], written: 0 }
    }

    fn at(&self, path: Path, text: &CString) -> PathAt {
        let start = path.0.and_then(|slot| self.slots[slot]);
        PathAt { dir: start.unwrap_or(self.base), path: text.as_ptr() }
    }

    fn perform(&mut self, step: Step) -> Option<String> {
        let slots = self.slots;
        let fd = |slot: usize| slots[slot];
        let call = match step {
            Step::Open(slot, path, flags) => return Some(self.open(slot, path, flags)),
            Step::Close(slot) => {
                self.fixture.close(self.slots[slot].take()?);
                return Some(String::new());
            }
            // `DIVERGENCES.md` says that the positions in a directory differ.
            Step::Seek(slot, ..) | Step::Read(slot, _, CURSOR_OFFSET)
                if self.is_directory(slot) =>
            {
                return None;
            }
            Step::Read(slot, len, offset) => {
                let read = self.fixture.read(fd(slot)?, len as usize, offset);
                return Some(shown(read.map(|bytes| brief(&bytes))));
            }
            Step::Write(slot, len, offset) => {
                let fd = fd(slot)?;
                self.written += 1;
                let bytes = vec![self.written; len as usize];
                return Some(shown(self.fixture.write(fd, &bytes, offset)));
            }
            Step::SetLen(slot, len) => FileCall::SetLen { fd: fd(slot)?, len },
            Step::Allocate(slot, mode, offset, len) => {
                FileCall::Allocate { fd: fd(slot)?, mode, offset, len }
            }
            Step::Seek(slot, offset, origin) => {
                let mut position = 0;
                let seek =
                    FileCall::Seek { fd: fd(slot)?, offset, origin, position: &raw mut position };
                return Some(shown(self.fixture.call(seek).map(|_| position)));
            }
            Step::Copy(slot, from_offset, other, to_offset, len) => {
                FileCall::Copy { from: fd(slot)?, from_offset, to: fd(other)?, to_offset, len }
            }
            Step::Sync(slot) => FileCall::Sync { fd: fd(slot)?, data_only: false },
            Step::List(slot) => return Some(self.list(fd(slot)?)),
            Step::Stat(path) => return Some(self.stat(path)),
            _ => return Some(self.change_names(step)),
        };
        Some(shown(self.fixture.call(call)))
    }

    fn is_directory(&mut self, slot: usize) -> bool {
        let Some(fd) = self.slots[slot] else { return false };
        let empty = CString::default();
        let at = PathAt { dir: fd, path: empty.as_ptr() };
        self.stat_at(at, EMPTY_PATH).starts_with("directory")
    }

    fn open(&mut self, slot: usize, path: Path, flags: OFlags) -> String {
        let text = CString::new(path.1).unwrap();
        let mode = if flags.contains(OFlags::CREATE) { 0o600 } else { 0 };
        let how = OpenHow { flags: u64::from(flags.bits()), mode, resolve: 0 };
        let at = self.at(path, &text);
        match self.fixture.call(FileCall::Open { at, how: &raw const how }) {
            Ok(number) => {
                if let Some(old) = self.slots[slot].replace(number as RawFd) {
                    self.fixture.close(old);
                }
                "open".to_string()
            }
            Err(errno) => shown::<()>(Err(errno)),
        }
    }

    fn list(&mut self, fd: RawFd) -> String {
        let mut probe = [0u8; 4096];
        let (buffer, len) = (probe.as_mut_ptr(), 4096);
        match self.fixture.call(FileCall::ReadDir { fd, buffer, len }) {
            Ok(0) => "end".to_string(),
            Ok(_) => "names".to_string(),
            Err(errno) => shown::<()>(Err(errno)),
        }
    }

    fn stat(&mut self, path: Path) -> String {
        let text = CString::new(path.1).unwrap();
        let at = self.at(path, &text);
        self.stat_at(at, 0)
    }

    fn stat_at(&mut self, at: PathAt, flags: u32) -> String {
        let mut stat = FileStat::default();
        if let Err(errno) = self.fixture.call(FileCall::Stat { at, flags, stat: &raw mut stat }) {
            return shown::<()>(Err(errno));
        }
        if stat.mode & 0o170_000 == 0o040_000 {
            // File systems count the size and the links of directories in different ways.
            return format!("directory, links: {}", stat.links > 0);
        }
        format!("{:o}, {} links, {} bytes", stat.mode, stat.links, stat.size)
    }

    fn change_names(&mut self, step: Step) -> String {
        let text = |path: Path| CString::new(path.1).unwrap();
        let result = match step {
            Step::Remove(path, directory) => {
                let text = text(path);
                self.fixture.call(FileCall::Remove { at: self.at(path, &text), directory })
            }
            Step::MakeDir(path) => {
                let text = text(path);
                self.fixture.call(FileCall::MakeDir { at: self.at(path, &text), mode: 0o700 })
            }
            Step::Rename(from, to, flags) => {
                let (old, new) = (text(from), text(to));
                let (from, to) = (self.at(from, &old), self.at(to, &new));
                self.fixture.call(FileCall::Rename { from, to, flags })
            }
            Step::Link(from, to) => {
                let (old, new) = (text(from), text(to));
                let (from, to) = (self.at(from, &old), self.at(to, &new));
                self.fixture.call(FileCall::Link { from, to, flags: 0 })
            }
            _ => unreachable!("not a change of names"),
        };
        shown(result)
    }

    fn line(&mut self, step: Step) -> String {
        let Some(result) = self.perform(step) else { return format!("{step:?}: not open") };
        let empty = CString::default();
        let mut line = format!("{step:?} = {result};");
        for fd in self.slots.into_iter().flatten() {
            let stat = self.stat_at(PathAt { dir: fd, path: empty.as_ptr() }, EMPTY_PATH);
            line += &format!(" [{stat}]");
        }
        line
    }
}

fn compare(seed: u64) {
    let mut random = Random::new(seed);
    let program: Vec<Step> = (0..STEPS).map(|_| step(&mut random)).collect();
    let runs = RefCell::new(Vec::new());
    let body = |fixture: Fixture| {
        let mut run = Run::new(fixture);
        runs.borrow_mut().push(program.iter().map(|step| run.line(*step)).collect::<Vec<_>>());
        let Run { base, slots, mut fixture, .. } = run;
        slots.into_iter().flatten().chain([base]).for_each(|fd| fixture.close(fd));
    };
    on_sim_and_linux_disks(body);
    let runs = runs.into_inner();
    let (simulated, linux) = (&runs[0], &runs[1]);
    if let Some(at) = simulated.iter().zip(linux).position(|(one, other)| one != other) {
        let before = linux[..at].join("\n");
        panic!("{before}\nsimulated: {}\nLinux:     {}", simulated[at], linux[at]);
    }
}

#[test]
fn file_calls_have_the_results_of_linux() {
    each_seed(PROGRAMS, "cargo test -p annulus-sim --test suite file_calls", compare);
}
