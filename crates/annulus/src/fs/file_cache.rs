//! Files that stay open between uses.

use super::cache_entries::Entries;
use super::dir::Dir;
use super::file::File;
use super::metadata::Metadata;
use super::open::OpenOptions;
use crate::bytes::thread_bound::stays;
use crate::tasks::consume_budget;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const DEFAULT_CAPACITY: usize = 256;
const DEFAULT_VALID_FOR: Duration = Duration::from_secs(1);
const DEFAULT_UNUSED_FOR: Duration = Duration::from_secs(60);

/// A cache of open files in a directory, with their metadata. A server that sends the same files
/// repeatedly need not open, examine and close them each time. The cache holds descriptors. The
/// contents of the files are in the kernel's page cache.
///
/// Paths are resolved [beneath](OpenOptions::beneath) the directory: neither `..` nor a symbolic
/// link leads out of it. A path may also refer to a directory.
///
/// A file stays valid for [`valid_for`](Self::set_valid_for) after a check, by default one second.
/// Its next use after that looks it up again. If the path now leads to another file, or if the
/// length, modification time or change time differs, the cache opens the new file. So while a file
/// is valid:
/// - a path whose file has been replaced or removed still leads to the old file;
/// - a file that has been written in place shows its new content with its old
///   [`metadata`](CachedFile::metadata), and reads and copies end early if it has become shorter.
///   Replace files by renaming, as for any server.
///
/// When a check is due, every task that uses the file looks it up until one lookup succeeds.
///
/// Errors are not cached. Clones share the files and the settings. A returned file stays open while
/// it is in use, even after it has left the cache. If the process is out of descriptors, open and
/// unchanged files are still found, and the cache closes one of its files to open another.
///
/// The cache needs the system call `openat2`: see [`OpenOptions::beneath`].
///
/// ```
/// use annulus::fs::{self, Dir, FileCache};
///
/// # annulus::run(async {
/// # let root = std::env::temp_dir().join(format!("annulus-file-cache-{}", std::process::id()));
/// fs::create_dir_all(&root).await?;
/// fs::write(root.join("page"), "a page").await?;
/// let files = FileCache::new(Dir::open(&root).await?);
/// files.set_capacity(500);
/// for _request in 0..3 {
///     let page = files.open("page").await?;
///     assert_eq!(page.metadata().len(), 6);
///     let mut body = Vec::new();
///     assert_eq!(annulus::io::copy_range(page.file(), 2.., &mut body).await?, 4);
///     assert_eq!(body, b"page");
/// }
/// assert_eq!((files.stats().hits, files.stats().misses), (2, 1));
/// # fs::remove_dir_all(&root).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct FileCache {
    shared: Rc<CacheState>,
}

stays!(Send FileCache Sync FileCache);

struct CacheState {
    dir: Dir,
    options: OpenOptions,
    valid_for: Cell<Duration>,
    entries: RefCell<Entries<KnownFile>>,
    /// The number of lookups that have begun, which is also the number of the last one.
    lookups: Cell<u64>,
    /// The number of the last lookup that had begun when a path was forgotten. Results of that
    /// lookup and of earlier ones are not kept.
    forgotten: Cell<u64>,
    stats: Cell<FileCacheStats>,
}

/// A file and the last lookup that found it.
struct KnownFile {
    file: Rc<CachedFile>,
    lookup: FileLookup,
}

/// A lookup of a path in the file system, with its number and start time. The age of its result
/// counts from that time.
#[derive(Clone, Copy)]
struct FileLookup {
    number: u64,
    at: Duration,
}

/// A file of a [`FileCache`], with its metadata when it was last checked.
///
/// ```
/// use annulus::fs::{CachedFile, FileCache};
///
/// /// The tag that a client compares to learn whether its copy is still good.
/// async fn tag(files: &FileCache, path: &str) -> std::io::Result<String> {
///     let file = files.open(path).await?;
///     let known = file.metadata();
///     Ok(format!("{:x}-{:x}", known.ino(), known.len()))
/// }
/// ```
pub struct CachedFile {
    file: File,
    metadata: Metadata,
}

/// Counters of a [`FileCache`].
///
/// ```
/// use annulus::fs::FileCacheStats;
///
/// fn hit_rate(FileCacheStats { hits, misses, .. }: FileCacheStats) -> f64 {
///     hits as f64 / (hits + misses).max(1) as f64
/// }
/// # assert_eq!(hit_rate(FileCacheStats::default()), 0.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileCacheStats {
    /// Lookups that found an open file, either recently checked or unchanged.
    pub hits: u64,
    /// Lookups that opened a file or failed.
    pub misses: u64,
    /// Lookups that checked whether an open file had changed.
    pub checks: u64,
}

impl FileCache {
    /// Creates an empty cache for the files below a directory. It holds at most 256 files and
    /// checks them after a second. Files that have not been used for a minute are closed as other
    /// files are opened.
    pub fn new(dir: Dir) -> Self {
        let shared = CacheState {
            dir,
            options: OpenOptions::new().read(true).beneath(true),
            valid_for: Cell::new(DEFAULT_VALID_FOR),
            entries: RefCell::new(Entries::new(DEFAULT_CAPACITY)),
            lookups: Cell::default(),
            forgotten: Cell::default(),
            stats: Cell::default(),
        };
        Self { shared: Rc::new(shared) }
    }

    /// Sets the maximum number of files that the cache keeps open. The default is 256. Each takes a
    /// descriptor, and connections need descriptors too: see `ulimit -n`. With 0, the cache keeps
    /// none.
    pub fn set_capacity(&self, files: usize) {
        self.shared.entries.borrow_mut().set_capacity(files);
    }

    /// Sets how long a file is used without a check. The default is one second. With zero, every
    /// use checks.
    pub fn set_valid_for(&self, time: Duration) {
        self.shared.valid_for.set(time);
    }

    /// Returns the file or directory at a path, open for reading.
    ///
    /// If the future is dropped, a file that was being opened is closed. The cache does not change,
    /// except that it may have closed one of its files because the process was out of descriptors.
    ///
    /// # Errors
    /// The errors of [`OpenOptions::open`]; `PermissionDenied` for a path that leads out of the
    /// directory. The path then leaves the cache, unless the error is temporary, such as running
    /// out of descriptors or memory.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<Rc<CachedFile>> {
        consume_budget().await;
        let path = path.as_ref();
        match self.find(path) {
            CacheAnswer::Valid(file) => Ok(file),
            CacheAnswer::Stale(known) => self.check(path, known).await,
            CacheAnswer::Nothing => {
                let lookup = self.begin();
                Ok(self.keep(path, self.open_new(path, lookup).await?, lookup))
            }
        }
    }

    /// Forgets a path, even while it is being opened, so that its next use opens it again. Returns
    /// true if the path was cached.
    pub fn remove(&self, path: impl AsRef<Path>) -> bool {
        self.shared.forgotten.set(self.shared.lookups.get());
        let gone = self.shared.entries.borrow_mut().remove(bytes(path.as_ref()));
        gone.is_some()
    }

    /// Forgets all paths, like [`remove`](Self::remove) for each.
    pub fn clear(&self) {
        self.shared.forgotten.set(self.shared.lookups.get());
        self.shared.entries.borrow_mut().clear();
    }

    /// Returns the number of files that the cache keeps open.
    pub fn len(&self) -> usize {
        self.shared.entries.borrow().len()
    }

    /// Returns true if the cache keeps no files open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the counters of the cache.
    pub fn stats(&self) -> FileCacheStats {
        self.shared.stats.get()
    }

    fn find(&self, path: &Path) -> CacheAnswer {
        let (shared, now) = (&*self.shared, self.now());
        let entries = shared.entries.borrow();
        match entries.find(bytes(path), now) {
            Some(KnownFile { file, lookup })
                if now.saturating_sub(lookup.at) < shared.valid_for.get() =>
            {
                self.count(|stats| stats.hits += 1);
                CacheAnswer::Valid(file.clone())
            }
            Some(KnownFile { file, .. }) => CacheAnswer::Stale(file.clone()),
            None => CacheAnswer::Nothing,
        }
    }

    /// Looks up an open file again.
    async fn check(&self, path: &Path, known: Rc<CachedFile>) -> io::Result<Rc<CachedFile>> {
        self.count(|stats| stats.checks += 1);
        let lookup = self.begin();
        let changed = match self.try_open(path).await {
            Ok(found) => (!found.metadata.is_as(&known.metadata)).then_some(found),
            Err(error) if is_passing(&error) && self.is_unchanged(path, &known).await => None,
            Err(error) if is_passing(&error) => Some(self.open_new(path, lookup).await?),
            Err(error) => return Err(self.failed(path, error, lookup)),
        };
        if let Some(found) = changed {
            return Ok(self.keep(path, found, lookup));
        }
        self.count(|stats| stats.hits += 1);
        self.confirm(path, &known, lookup);
        Ok(known)
    }

    /// Returns true if the path still leads to the same unchanged file. This needs no descriptor,
    /// and it does not check whether the path stays beneath the directory. The open of the file has
    /// checked that.
    async fn is_unchanged(&self, path: &Path, known: &CachedFile) -> bool {
        let found = self.shared.dir.metadata(path).await;
        found.is_ok_and(|found| found.is_as(&known.metadata))
    }

    /// Opens a path. If the first attempt fails, makes a second one if that may succeed.
    async fn open_new(&self, path: &Path, lookup: FileLookup) -> io::Result<CachedFile> {
        let opened = match self.try_open(path).await {
            Err(error) if self.may_succeed_next(&error) => self.try_open(path).await,
            opened => opened,
        };
        opened.map_err(|error| self.failed(path, error, lookup))
    }

    async fn try_open(&self, path: &Path) -> io::Result<CachedFile> {
        let CacheState { dir, options, .. } = &*self.shared;
        let file = options.try_open_in(dir, path).await?;
        let metadata = file.metadata().await?;
        Ok(CachedFile { file, metadata })
    }

    /// Returns true if a second attempt may succeed. Closes a cached file if the attempt needs a
    /// descriptor.
    fn may_succeed_next(&self, error: &io::Error) -> bool {
        match Errno::from_io_error(error) {
            // A directory on the path may have been renamed.
            Some(Errno::AGAIN) => true,
            Some(Errno::MFILE | Errno::NFILE) => self.shared.entries.borrow_mut().evict(),
            _ => false,
        }
    }

    /// Adds the path to an error, and forgets the path unless the error is temporary.
    fn failed(&self, path: &Path, error: io::Error, lookup: FileLookup) -> io::Error {
        self.count(|stats| stats.misses += 1);
        if !is_passing(&error) {
            self.forget(path, lookup);
        }
        self.shared.options.wrong(path, error)
    }

    fn begin(&self) -> FileLookup {
        let number = self.shared.lookups.get() + 1;
        self.shared.lookups.set(number);
        FileLookup { number, at: self.now() }
    }

    /// Returns true if a lookup's result is the latest: no later lookup has found the path, and no
    /// path has been forgotten since.
    fn is_latest(&self, path: &Path, lookup: FileLookup) -> bool {
        let mut entries = self.shared.entries.borrow_mut();
        let is_later = |entry: &mut KnownFile| entry.lookup.number > lookup.number;
        lookup.number > self.shared.forgotten.get()
            && !entries.get_mut(bytes(path)).is_some_and(is_later)
    }

    /// Keeps an opened file. Pipes and devices are opened each time, because opening one may have
    /// an effect.
    fn keep(&self, path: &Path, found: CachedFile, lookup: FileLookup) -> Rc<CachedFile> {
        self.count(|stats| stats.misses += 1);
        let file = Rc::new(found);
        if !(file.metadata.is_file() || file.metadata.is_dir()) {
            self.forget(path, lookup);
        } else if self.is_latest(path, lookup) {
            let unused_since = lookup.at.saturating_sub(DEFAULT_UNUSED_FOR);
            let entry = KnownFile { file: file.clone(), lookup };
            self.shared.entries.borrow_mut().insert(bytes(path), entry, lookup.at, unused_since);
        }
        file
    }

    /// Records that a file was found unchanged.
    fn confirm(&self, path: &Path, known: &Rc<CachedFile>, lookup: FileLookup) {
        let mut entries = self.shared.entries.borrow_mut();
        if let Some(entry) = entries.get_mut(bytes(path))
            && Rc::ptr_eq(&entry.file, known)
            && entry.lookup.number < lookup.number
        {
            entry.lookup = lookup;
        }
    }

    fn forget(&self, path: &Path, lookup: FileLookup) {
        if self.is_latest(path, lookup) {
            self.shared.entries.borrow_mut().remove(bytes(path));
        }
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.dir.core().kernel.tick())
    }

    fn count(&self, add: impl FnOnce(&mut FileCacheStats)) {
        let mut stats = self.shared.stats.get();
        add(&mut stats);
        self.shared.stats.set(stats);
    }
}

/// The result of looking up a path in the cache.
enum CacheAnswer {
    Valid(Rc<CachedFile>),
    Stale(Rc<CachedFile>),
    Nothing,
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

impl CachedFile {
    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the metadata of the file when it was last checked.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }
}

/// Returns true if an error may be temporary, and says nothing about the file.
fn is_passing(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR | Errno::IO)
    )
}

impl fmt::Debug for FileCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileCache")
            .field("dir", &self.shared.dir)
            .field("len", &self.len())
            .finish()
    }
}

impl fmt::Debug for CachedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedFile")
            .field("file", &self.file)
            .field("len", &self.metadata.len())
            .finish()
    }
}
