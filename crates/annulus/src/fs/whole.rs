//! Whole files, and paths from the working directory.

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

/// Symbolic links that Linux follows in a path.
const MAX_LINKS: u32 = 40;
/// Bytes to read into beyond the length of a file.
const SPARE: usize = 32;
/// A file without a known length, as those of `/proc`, is read in steps of this size.
const STEP: usize = 64 * 1024;

/// The bytes of a file.
///
/// # Errors
/// As [`File::open`] and [`File::read`]; `OutOfMemory` if it does not fit memory.
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    let file = File::open(path).await?;
    read_all(file).await.map_err(|error| about("reading", path, error))
}

async fn read_all(mut file: File) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.metadata().await?.len()).map_err(|_| too_large())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len.saturating_add(SPARE)).map_err(|_| too_large())?;
    loop {
        if bytes.len() == bytes.capacity() {
            // It grows by a factor, whatever the file's length was said to be.
            bytes.try_reserve(STEP).map_err(|_| too_large())?;
        }
        let end = bytes.len();
        let (read, slice) = file.read(bytes.slice(end..)).await;
        bytes = slice.into_inner();
        if read? == 0 {
            return Ok(bytes);
        }
    }
}

/// The text of a file.
///
/// # Errors
/// As [`read`]; `InvalidData` if it is not UTF-8.
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref();
    String::from_utf8(read(path).await?).map_err(|error| {
        let error = io::Error::new(io::ErrorKind::InvalidData, error.utf8_error());
        about("reading", path, error)
    })
}

/// Writes a file with these bytes, which replace its contents. If the future is dropped, the file may be made, emptied, or have a part
/// of them.
///
/// # Errors
/// As [`File::create`] and [`File::write_all`].
pub async fn write(path: impl AsRef<Path>, bytes: impl IoBuf) -> io::Result<()> {
    let path = path.as_ref();
    let mut file = File::create(path).await?;
    let (written, _) = match file.open.is_ordinary() {
        true => file.write_all_at(bytes, 0).await,
        false => file.write_all(bytes).await,
    };
    written.map_err(|error| about("writing", path, error))
}

/// The path without links, `.` and `..`, from the root.
///
/// # Errors
/// `NotFound`, `NotADirectory`; `FilesystemLoop` for more than 40 links; or outside a runtime.
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

/// The parts of a path, in reverse order.
fn parts(path: &Path) -> Vec<OsString> {
    let named = |part: &Component<'_>| *part != Component::CurDir;
    path.components().rev().filter(named).map(|part| part.as_os_str().to_owned()).collect()
}

/// The target of a symbolic link; `None` if the path is none.
async fn link_at(dir: &Dir, path: &Path) -> io::Result<Option<PathBuf>> {
    if dir.symlink_metadata(path).await?.is_symlink() {
        return dir.read_link(path).await.map(Some);
    }
    Ok(None)
}

/// As [`Dir::metadata`], from the working directory.
///
/// # Errors
/// As [`Dir::metadata`]; or outside a runtime.
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    Dir::working()?.metadata(path).await
}

/// As [`Dir::try_exists`], from the working directory.
///
/// # Errors
/// As [`Dir::try_exists`]; or outside a runtime.
pub async fn try_exists(path: impl AsRef<Path>) -> io::Result<bool> {
    Dir::working()?.try_exists(path).await
}

/// As [`Dir::symlink_metadata`], from the working directory.
///
/// # Errors
/// As [`Dir::symlink_metadata`]; or outside a runtime.
pub async fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    Dir::working()?.symlink_metadata(path).await
}

/// As [`Dir::remove_file`], from the working directory.
///
/// # Errors
/// As [`Dir::remove_file`]; or outside a runtime.
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.remove_file(path).await
}

/// As [`Dir::create_dir`], from the working directory.
///
/// # Errors
/// As [`Dir::create_dir`]; or outside a runtime.
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.create_dir(path).await
}

/// As [`Dir::create_dir_all`], from the working directory.
///
/// # Errors
/// As [`Dir::create_dir_all`]; or outside a runtime.
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.create_dir_all(path).await
}

/// As [`Dir::remove_dir`], from the working directory.
///
/// # Errors
/// As [`Dir::remove_dir`]; or outside a runtime.
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.remove_dir(path).await
}

/// As [`Dir::remove_dir_all`], from the working directory.
///
/// # Errors
/// As [`Dir::remove_dir_all`]; or outside a runtime.
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.remove_dir_all(path).await
}

/// As [`Dir::rename`], from the working directory.
///
/// # Errors
/// As [`Dir::rename`]; or outside a runtime.
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.rename(from, to).await
}

/// As [`Dir::hard_link`], from the working directory.
///
/// # Errors
/// As [`Dir::hard_link`]; or outside a runtime.
pub async fn hard_link(file: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.hard_link(file, link).await
}

/// As [`Dir::symlink`], from the working directory.
///
/// # Errors
/// As [`Dir::symlink`]; or outside a runtime.
pub async fn symlink(target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    Dir::working()?.symlink(target, link).await
}

/// As [`Dir::read_link`], from the working directory.
///
/// # Errors
/// As [`Dir::read_link`]; or outside a runtime.
pub async fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    Dir::working()?.read_link(path).await
}

/// As [`Dir::read_dir`], from the working directory.
///
/// # Errors
/// As [`Dir::read_dir`]; or outside a runtime.
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    Dir::working()?.read_dir(path).await
}

/// As [`Dir::set_permissions`], from the working directory.
///
/// # Errors
/// As [`Dir::set_permissions`]; or outside a runtime.
pub async fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    Dir::working()?.set_permissions(path, permissions).await
}

/// Copies a file's bytes and permissions, which replace those of the other path, and returns the number of bytes.
///
/// Within a device the kernel copies, or lets both files share their blocks. Holes stay holes, as with `cp`. If the future is
/// dropped, a part may be copied.
///
/// # Errors
/// As [`File::open`], [`File::create`], [`File::write_at`]; `InvalidInput` if both paths are the same file.
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let failed = |error| about_two(["copying", "to"], from, to, error);
    let invalid = |text| Err(failed(io::Error::new(io::ErrorKind::InvalidInput, text)));
    let source = File::open(from).await?;
    let known = source.metadata().await.map_err(failed)?;
    if !known.is_file() {
        return invalid("only files can be copied");
    }
    let options = OpenOptions::new().write(true).create(true).mode(known.mode());
    let into = options.open(to).await?;
    let there = into.metadata().await.map_err(failed)?;
    if (there.dev(), there.ino()) == (known.dev(), known.ino()) {
        return invalid("both paths are the same file");
    }
    if there.is_file() {
        into.set_len(0).await.map_err(failed)?;
        into.set_permissions(known.permissions()).await.map_err(failed)?;
    }
    source.copy_to(&into).await.map_err(failed)
}

fn too_large() -> io::Error {
    io::Error::new(
        io::ErrorKind::OutOfMemory,
        "the file does not fit memory; read it in parts with File::read_at",
    )
}
