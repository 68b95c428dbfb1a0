//! Functions for whole files, and for paths relative to the working directory.

use super::dir::Dir;
use super::file::File;
use super::metadata::Metadata;
use super::open::OpenOptions;
use super::path::{about, about_two};
use super::read_dir::ReadDir;
use crate::bytes::buf::IoBuf;
use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Maximum number of symbolic links that Linux follows in a path.
const MAX_LINKS: u32 = 40;
/// Extra space beyond the known length of a file, for the read that finds the end.
const SPARE_BYTES: usize = 32;
/// Step size for reading a file without a known length, such as those in `/proc`.
const UNKNOWN_LENGTH_STEP_BYTES: usize = 64 * 1024;

/// Reads a whole file.
///
/// # Errors
/// The errors of [`File::open`] and [`File::read`], and `OutOfMemory` if the file does not fit into
/// memory.
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    let mut file = File::open(path).await?;
    let (read, bytes) = file.read_to_end(Vec::new()).await;
    read.map(|_| bytes).map_err(|error| about("reading", path, error))
}

impl File {
    /// Reads from the file's position to its end, and appends the bytes to `buf`. Returns the
    /// number of bytes, and the buffer. After an error, the buffer holds the bytes that were read
    /// before it.
    ///
    /// Not cancel-safe: if the future is dropped, the position may have moved and the buffer is
    /// lost.
    ///
    /// ```
    /// use annulus::fs::{self, File};
    ///
    /// # annulus::run(async {
    /// # let path = std::env::temp_dir().join(format!("annulus-to-end-{}", std::process::id()));
    /// # fs::write(&path, "header, and the rest").await?;
    /// let mut file = File::open(&path).await?;
    /// let (read, _header) = file.read(vec![0; 8]).await;
    /// assert_eq!(read?, 8);
    /// let (count, rest) = file.read_to_end(Vec::new()).await;
    /// assert_eq!((count?, &*rest), (12, &b"and the rest"[..]));
    /// # fs::remove_file(&path).await?;
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The errors of [`read`](Self::read), and `OutOfMemory` if the rest of the file does not fit
    /// into memory.
    pub async fn read_to_end(&mut self, mut buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let start = buf.len();
        if let Err(error) = self.reserve_rest(&mut buf).await {
            return (Err(error), buf);
        }
        loop {
            // The file may be longer than reported. `try_reserve` grows the memory by a factor,
            // which avoids many copies.
            if buf.len() == buf.capacity() && buf.try_reserve(UNKNOWN_LENGTH_STEP_BYTES).is_err() {
                return (Err(too_large()), buf);
            }
            let end = buf.len();
            let (read, slice) = self.read(buf.slice(end..)).await;
            buf = slice.into_inner();
            match read {
                Ok(0) => return (Ok(buf.len() - start), buf),
                Ok(_) => {}
                Err(error) => return (Err(error), buf),
            }
        }
    }

    /// Like [`read_to_end`](Self::read_to_end), but appends text, and returns the number of bytes.
    /// After an error, the string is as it was before.
    ///
    /// ```
    /// use annulus::fs::{self, File};
    ///
    /// # annulus::run(async {
    /// # let path = std::env::temp_dir().join(format!("annulus-to-string-{}", std::process::id()));
    /// # fs::write(&path, "grüße").await?;
    /// let mut file = File::open(&path).await?;
    /// let (count, text) = file.read_to_string("read: ".to_owned()).await;
    /// assert_eq!((count?, &*text), (7, "read: grüße"));
    /// # fs::remove_file(&path).await?;
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The errors of [`read_to_end`](Self::read_to_end), and `InvalidData` if the bytes are not
    /// UTF-8. The position has moved nevertheless, and the bytes are lost; `read_to_end` returns
    /// them.
    pub async fn read_to_string(&mut self, text: String) -> (io::Result<usize>, String) {
        let start = text.len();
        let (read, mut bytes) = self.read_to_end(text.into_bytes()).await;
        let invalid = read.is_ok().then(|| str::from_utf8(&bytes[start..]).err()).flatten();
        let read = match invalid {
            Some(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            None => read,
        };
        if read.is_err() {
            bytes.truncate(start);
        }
        let text = String::from_utf8(bytes).expect("the text before `start` is UTF-8");
        (read, text)
    }

    /// Reserves space for the part of the file after the cursor.
    async fn reserve_rest(&self, buf: &mut Vec<u8>) -> io::Result<()> {
        let len = self.metadata().await?.len();
        let position = self.position().await?.unwrap_or(0);
        let len = usize::try_from(len.saturating_sub(position)).map_err(|_| too_large())?;
        buf.try_reserve_exact(len.saturating_add(SPARE_BYTES)).map_err(|_| too_large())
    }
}

/// Reads a whole file as text.
///
/// # Errors
/// The errors of [`read`], and `InvalidData` if the file is not UTF-8.
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    String::from_utf8(read(path).await?).map_err(|error| {
        let error = io::Error::new(io::ErrorKind::InvalidData, error.utf8_error());
        about("reading", path, error)
    })
}

/// Writes bytes to a file, creating it or replacing its contents. If the future is dropped, the
/// file may have been created or emptied, or may contain only some of the bytes.
///
/// # Errors
/// The errors of [`File::create`] and [`File::write_all`].
pub async fn write(path: impl AsRef<Path>, bytes: impl IoBuf) -> io::Result<()> {
    let path = path.as_ref();
    let mut file = File::create(path).await?;
    let (written, _) = match file.open.is_ordinary() {
        true => file.write_all_at(bytes, 0).await,
        false => file.write_all(bytes).await,
    };
    written.map_err(|error| about("writing", path, error))
}

/// Returns the absolute path without symbolic links, `.` and `..`.
///
/// # Errors
/// `NotFound`, `NotADirectory`, `FilesystemLoop` for more than 40 symbolic links, and an error
/// outside a runtime.
pub async fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let (path, dir) = (path.as_ref(), Dir::working()?);
    let mut left = parts(path);
    let mut real = if path.is_absolute() { PathBuf::new() } else { std::env::current_dir()? };
    let mut links = 0;
    // A path that does not exist fails here.
    dir.metadata(path).await?;
    while let Some(part) = left.pop() {
        if part == "/" {
            real = PathBuf::from("/");
        } else if part == ".." {
            real.pop();
        } else if let Some(target) = link_at(&dir, &real.join(&part)).await? {
            links += 1;
            if links > MAX_LINKS {
                return Err(about("resolving", path, rustix::io::Errno::LOOP));
            }
            left.extend(parts(&target));
        } else {
            real.push(part);
        }
    }
    Ok(real)
}

/// Returns the components of a path in reverse order.
fn parts(path: &Path) -> Vec<OsString> {
    let named = |part: &Component<'_>| *part != Component::CurDir;
    path.components().rev().filter(named).map(|part| part.as_os_str().to_owned()).collect()
}

/// Returns the target of a symbolic link, or `None` if the path is not one.
async fn link_at(dir: &Dir, path: &Path) -> io::Result<Option<PathBuf>> {
    if dir.symlink_metadata(path).await?.is_symlink() {
        return dir.read_link(path).await.map(Some);
    }
    Ok(None)
}

/// Like [`Dir::metadata`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::metadata`], and an error outside a runtime.
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    Dir::working()?.metadata(path).await
}

/// Like [`Dir::try_exists`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::try_exists`], and an error outside a runtime.
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    Dir::working()?.try_exists(path).await
}

/// Like [`Dir::symlink_metadata`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::symlink_metadata`], and an error outside a runtime.
pub async fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    Dir::working()?.symlink_metadata(path).await
}

/// Like [`Dir::remove_file`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::remove_file`], and an error outside a runtime.
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.remove_file(path).await
}

/// Like [`Dir::create_dir`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::create_dir`], and an error outside a runtime.
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.create_dir(path).await
}

/// Like [`Dir::create_dir_all`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::create_dir_all`], and an error outside a runtime.
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.create_dir_all(path).await
}

/// Like [`Dir::remove_dir`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::remove_dir`], and an error outside a runtime.
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.remove_dir(path).await
}

/// Like [`Dir::remove_dir_all`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::remove_dir_all`], and an error outside a runtime.
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.remove_dir_all(path).await
}

/// Like [`Dir::rename`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::rename`], and an error outside a runtime.
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.rename(from, to).await
}

/// Like [`Dir::hard_link`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::hard_link`], and an error outside a runtime.
pub async fn hard_link(file: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.hard_link(file, link).await
}

/// Like [`Dir::symlink`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::symlink`], and an error outside a runtime.
pub async fn symlink(target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.symlink(target, link).await
}

/// Like [`Dir::read_link`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::read_link`], and an error outside a runtime.
pub async fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    Dir::working()?.read_link(path).await
}

/// Like [`Dir::read_dir`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::read_dir`], and an error outside a runtime.
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    Dir::working()?.read_dir(path).await
}

/// Like [`Dir::set_permissions`], but relative to the working directory.
///
/// # Errors
/// The errors of [`Dir::set_permissions`], and an error outside a runtime.
pub async fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    Dir::working()?.set_permissions(path, permissions).await
}

/// Copies a file's bytes and permissions to another file, whose content is replaced, and returns
/// the number of bytes.
///
/// If possible, the kernel copies the bytes or makes both files share their blocks. Holes stay
/// holes, as with `cp`. If the future is dropped, some of the bytes may have been copied. If the
/// permissions of an existing file differ and may not be changed, its content stays.
///
/// # Errors
/// The errors of [`File::open`], [`File::create`] and [`File::write_at`], and `InvalidInput` if the
/// source is not a regular file or both paths are the same file.
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let failed = |error| about_two(["copying", "to"], from, to, error);
    let invalid = |text| Err(failed(io::Error::new(io::ErrorKind::InvalidInput, text)));
    let source = File::open(from).await?;
    let known = source.metadata().await.map_err(failed)?;
    if !known.is_file() {
        return invalid("only regular files can be copied");
    }
    let options = OpenOptions::new().write(true).create(true).mode(known.mode());
    let into = options.open(to).await?;
    let there = into.metadata().await.map_err(failed)?;
    if (there.dev(), there.ino()) == (known.dev(), known.ino()) {
        return invalid("both paths are the same file");
    }
    if there.is_file() {
        // Only the owner may change the permissions, so do that before the content is lost.
        if there.permissions() != known.permissions() {
            into.set_permissions(known.permissions()).await.map_err(failed)?;
        }
        into.set_len(0).await.map_err(failed)?;
    }
    source.copy_to(&into).await.map_err(failed)
}

fn too_large() -> io::Error {
    io::Error::new(
        io::ErrorKind::OutOfMemory,
        "the file does not fit into memory; read it in parts with File::read_at",
    )
}
