//! Files in a directory of the test.

use super::*;
use annulus_kernel::file::{FileCall, FileStat, OpenHow, PathAt};
use rustix::fs::OFlags;
use std::ffi::CString;
use std::path::PathBuf;

/// The offset that selects the cursor of a file.
pub const CURSOR_OFFSET: u64 = u64::MAX;

/// A host with a directory for the files of one test.
pub struct Fixture {
    pub host: Host,
    directory: PathBuf,
}

/// Runs a body on the simulated disk and on Linux.
pub fn on_sim_and_linux_disks(body: impl Fn(Fixture)) {
    body(Fixture::simulated(Sim::builder(1)).0);
    static NEXT_DIRECTORY: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let next = NEXT_DIRECTORY.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let directory =
        std::env::temp_dir().join(format!("annulus-files-{}-{next}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    body(Fixture { host: Host::over(Rc::new(Linux), 8, 64), directory: directory.clone() });
    std::fs::remove_dir_all(directory).unwrap();
}

impl Fixture {
    pub fn simulated(builder: SimBuilder) -> (Self, Rc<Sim>) {
        let (host, sim) = Host::simulated(builder);
        (Self { host, directory: "/".into() }, sim)
    }

    /// Makes a call on the ring, or directly if it has no ring operation.
    pub fn call(&mut self, call: FileCall) -> Result<u32, Errno> {
        let result = match op::file_entry(&call) {
            Some(entry) => self.host.submit_and_wait(entry),
            None => return self.now(call),
        };
        u32::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
    }

    /// Makes a call directly.
    pub fn now(&self, call: FileCall) -> Result<u32, Errno> {
        // SAFETY: the memory outlives the call, and the descriptors are open.
        let answer = unsafe { self.host.kernel.file(&call) };
        answer.map_err(|error| errno_of(&error).unwrap())
    }

    fn path(&self, name: &str) -> CString {
        CString::new(self.directory.join(name).into_os_string().into_encoded_bytes()).unwrap()
    }

    pub fn open(&mut self, name: &str, flags: OFlags) -> Result<RawFd, Errno> {
        let path = self.path(name);
        let mode = if flags.contains(OFlags::CREATE) { 0o600 } else { 0 };
        let how = OpenHow { flags: u64::from(flags.bits()), mode, resolve: 0 };
        self.call(FileCall::Open { at: at(&path), how: &raw const how }).map(|fd| fd as RawFd)
    }

    pub fn close(&mut self, fd: RawFd) {
        self.host.kernel.close(owned(fd));
    }

    pub fn write(&mut self, fd: RawFd, bytes: &[u8], offset: u64) -> Result<u32, Errno> {
        let (buffer, len) = (bytes.as_ptr(), bytes.len() as u32);
        self.call(FileCall::Write { fd, buffer, len, offset })
    }

    pub fn read(&mut self, fd: RawFd, len: usize, offset: u64) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; len];
        let (half, rest) = bytes.split_at_mut(len / 2);
        let vectors = [half, rest].map(|part| IoVec { base: part.as_ptr(), len: part.len() });
        let (vectors, count) = (vectors.as_ptr(), 2);
        let read = self.call(FileCall::ReadVector { fd, vectors, count, offset, nowait: false })?;
        bytes.truncate(read as usize);
        Ok(bytes)
    }

    pub fn sync(&mut self, fd: RawFd) -> Result<(), Errno> {
        self.call(FileCall::Sync { fd, data_only: false }).map(drop)
    }

    /// Makes the names in a directory durable.
    pub fn sync_directory(&mut self, name: &str) {
        let directory = self.open(name, OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
        self.sync(directory).unwrap();
        self.close(directory);
    }

    pub fn stat(&mut self, name: &str) -> Result<FileStat, Errno> {
        let (path, mut stat) = (self.path(name), FileStat::default());
        self.call(FileCall::Stat { at: at(&path), flags: 0, stat: &raw mut stat })?;
        Ok(stat)
    }

    pub fn size(&mut self, name: &str) -> Result<u64, Errno> {
        self.stat(name).map(|stat| stat.size)
    }

    pub fn make_dir(&mut self, name: &str) -> Result<(), Errno> {
        let path = self.path(name);
        self.call(FileCall::MakeDir { at: at(&path), mode: 0o700 }).map(drop)
    }

    pub fn remove(&mut self, name: &str, directory: bool) -> Result<(), Errno> {
        let path = self.path(name);
        self.call(FileCall::Remove { at: at(&path), directory }).map(drop)
    }

    pub fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let (from, to) = (self.path(from), self.path(to));
        self.call(FileCall::Rename { from: at(&from), to: at(&to), flags: 0 }).map(drop)
    }

    pub fn link(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let (from, to) = (self.path(from), self.path(to));
        self.call(FileCall::Link { from: at(&from), to: at(&to), flags: 0 }).map(drop)
    }

    /// Returns the names in a directory from its cursor on, sorted.
    pub fn names(&mut self, fd: RawFd) -> Vec<String> {
        let mut buffer = [0u8; 4096];
        let read = FileCall::ReadDir { fd, buffer: buffer.as_mut_ptr(), len: 4096 };
        let mut rest = &buffer[..self.call(read).unwrap() as usize];
        let mut names = Vec::new();
        while !rest.is_empty() {
            let len = usize::from(u16::from_ne_bytes([rest[16], rest[17]]));
            let name = rest[19..len].split(|byte| *byte == 0).next().unwrap();
            names.push(String::from_utf8(name.to_vec()).unwrap());
            rest = &rest[len..];
        }
        names.sort();
        names
    }
}

fn at(path: &CString) -> PathAt {
    PathAt { dir: -100, path: path.as_ptr() }
}
