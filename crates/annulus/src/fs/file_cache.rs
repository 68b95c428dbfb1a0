//! Files that stay open between uses.

use super::cache_entries::Entries;
use super::dir::Dir;
use super::file::File;
use super::metadata::Metadata;
use super::open::OpenOptions;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const CAPACITY: usize = 256;
const VALID_FOR: Duration = Duration::from_secs(1);
const UNUSED_FOR: Duration = Duration::from_secs(60);

/// Files of a directory that stay open between uses, with what is known about them, so that a server that sends the same files again
/// and again neither opens nor examines nor closes them each time. It holds descriptors, not contents: those are in the page cache.
///
/// Paths are resolved [beneath](OpenOptions::beneath) the directory: neither `..` nor a symbolic link leads out of it. A path can name a
/// directory, too.
///
/// An open file is looked for again once it was not checked for [`valid_for`](Self::valid_for), a second by default: if its path now
/// leads to another file, or its length or the time of its last change differ, that is opened. So within this time
/// - a file that was replaced or removed is the old one;
/// - a file that was written in place shows its new content with its old [`metadata`](CachedFile::metadata), and reads and copies end
///   early if it has become shorter. Replace files by renaming, as for every server.
///
/// Errors are not cached. Clones share the files and the settings. A file that was returned stays open as long as it is used, also if it has left the
/// cache.
///
/// ```
/// use annulus::fs::{self, Dir, FileCache};
///
/// # annulus::run(async {
/// # let root = std::env::temp_dir().join(format!("annulus-file-cache-{}", std::process::id()));
/// fs::create_dir_all(&root).await?;
/// fs::write(root.join("page"), "a page").await?;
/// let files = FileCache::new(Dir::open(&root).await?).capacity(500);
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
    shared: Rc<Shared>,
}

struct Shared {
    dir: Dir,
    options: OpenOptions,
    valid_for: Cell<Duration>,
    unused_for: Cell<Duration>,
    entries: RefCell<Entries<Rc<CachedFile>>>,
    stats: Cell<FileCacheStats>,
}

/// A file of a [`FileCache`], with what was known about it when it was last checked.
///
/// ```
/// use annulus::fs::{CachedFile, FileCache};
///
/// /// What a client compares to learn whether its copy is still good.
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

/// What a [`FileCache`] has done.
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
    /// Files that were open, and were checked lately or found unchanged.
    pub hits: u64,
    /// Files that were opened, and paths that could not be.
    pub misses: u64,
    /// Open files that were looked for again.
    pub checks: u64,
}

impl FileCache {
    /// An empty cache of the files below a directory: of at most 256, checked after a second, and closed after a minute without use.
    pub fn new(dir: Dir) -> Self {
        let shared = Shared {
            dir,
            options: OpenOptions::new().read(true).beneath(true),
            valid_for: Cell::new(VALID_FOR),
            unused_for: Cell::new(UNUSED_FOR),
            entries: RefCell::new(Entries::new(CAPACITY)),
            stats: Cell::default(),
        };
        Self { shared: Rc::new(shared) }
    }

    /// The most files that it keeps open. Each takes a descriptor, of which connections need some, too: see `ulimit -n`. With 0 it keeps
    /// none.
    pub fn capacity(self, files: usize) -> Self {
        self.shared.entries.borrow_mut().set_capacity(files);
        self
    }

    /// For how long a file is used without a check. With zero each use checks.
    pub fn valid_for(self, time: Duration) -> Self {
        self.shared.valid_for.set(time);
        self
    }

    /// After how long without use a file is closed. That happens as others are opened; until then the disk space of a removed file
    /// stays taken.
    pub fn unused_for(self, time: Duration) -> Self {
        self.shared.unused_for.set(time);
        self
    }

    /// The file or directory of a path, open for reading.
    ///
    /// If the future is dropped, a file that was being opened is closed, and the cache is as before.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; `PermissionDenied` for a path that leads out of the directory. The path then leaves the cache.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<Rc<CachedFile>> {
        let path = path.as_ref();
        match self.find(path) {
            Found::Valid(file) => Ok(file),
            Found::Stale(known) => self.check(path, known).await,
            Found::Nothing => self.open_new(path).await,
        }
    }

    /// Forgets a path, so that its next use opens what is there then; whether it was known.
    pub fn remove(&self, path: impl AsRef<Path>) -> bool {
        let gone = self.shared.entries.borrow_mut().remove(bytes(path.as_ref()));
        gone.is_some()
    }

    /// Forgets all paths.
    pub fn clear(&self) {
        self.shared.entries.borrow_mut().clear();
    }

    /// How many files it keeps open.
    pub fn len(&self) -> usize {
        self.shared.entries.borrow().len()
    }

    /// Whether it keeps none open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it has done.
    pub fn stats(&self) -> FileCacheStats {
        self.shared.stats.get()
    }

    fn find(&self, path: &Path) -> Found {
        let (shared, now) = (&*self.shared, self.now());
        let entries = shared.entries.borrow();
        match entries.find(bytes(path), now) {
            Some((file, checked)) if now.saturating_sub(checked) < shared.valid_for.get() => {
                self.count(|stats| stats.hits += 1);
                Found::Valid(file.clone())
            }
            Some((file, _)) => Found::Stale(file.clone()),
            None => Found::Nothing,
        }
    }

    /// Looks for a file again that is open.
    async fn check(&self, path: &Path, known: Rc<CachedFile>) -> io::Result<Rc<CachedFile>> {
        self.count(|stats| stats.checks += 1);
        // Before the look, so that no change is missed that comes behind it.
        let now = self.now();
        let found = self.open_uncached(path).await?;
        if found.is_as(&known) {
            self.count(|stats| stats.hits += 1);
            self.shared.entries.borrow_mut().set_checked(bytes(path), now);
            return Ok(known);
        }
        Ok(self.keep(path, found, now))
    }

    async fn open_new(&self, path: &Path) -> io::Result<Rc<CachedFile>> {
        let now = self.now();
        let found = self.open_uncached(path).await?;
        Ok(self.keep(path, found, now))
    }

    async fn open_uncached(&self, path: &Path) -> io::Result<CachedFile> {
        let Shared { dir, options, .. } = &*self.shared;
        let opened = async {
            let file = options.open_in(dir, path).await?;
            let metadata = file.metadata().await?;
            Ok(CachedFile { file, metadata })
        };
        opened.await.inspect_err(|_| {
            self.count(|stats| stats.misses += 1);
            self.remove(path);
        })
    }

    /// Keeps what was opened. A pipe or a device is opened each time: opening it may mean something.
    fn keep(&self, path: &Path, found: CachedFile, now: Duration) -> Rc<CachedFile> {
        self.count(|stats| stats.misses += 1);
        let found = Rc::new(found);
        if found.metadata.is_file() || found.metadata.is_dir() {
            let unused_since = now.saturating_sub(self.shared.unused_for.get());
            let mut entries = self.shared.entries.borrow_mut();
            entries.insert(bytes(path), found.clone(), now, unused_since);
        } else {
            self.remove(path);
        }
        found
    }

    fn now(&self) -> Duration {
        self.shared.dir.core().kernel.tick()
    }

    fn count(&self, add: impl FnOnce(&mut FileCacheStats)) {
        let mut stats = self.shared.stats.get();
        add(&mut stats);
        self.shared.stats.set(stats);
    }
}

/// What a cache has of a path.
enum Found {
    Valid(Rc<CachedFile>),
    Stale(Rc<CachedFile>),
    Nothing,
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

impl CachedFile {
    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What was known about it when it was last checked.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Whether this is the same file, and unchanged.
    fn is_as(&self, other: &Self) -> bool {
        let key = |it: &Metadata| (it.dev(), it.ino(), it.len(), it.modified(), it.changed());
        key(&self.metadata) == key(&other.metadata)
    }
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
