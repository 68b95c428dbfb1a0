//! Directories and paths. Errors contain the path.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;

/// Returns the entries of a directory, sorted.
pub(crate) fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?.map(|entry| Ok(entry?.path()));
    let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Returns the files below a directory, sorted, without the files and directories for which
/// `left_out` is true.
pub(crate) fn below(
    directory: &Path,
    left_out: &dyn Fn(&Path) -> bool,
) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in entries(directory)?.into_iter().filter(|path| !left_out(path)) {
        match path.is_dir() {
            true => files.extend(below(&path, left_out)?),
            false => files.push(path),
        }
    }
    Ok(files)
}

/// Removes a directory if it exists.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    if directory.exists() { fs::remove_dir_all(directory) } else { Ok(()) }
}

/// Resolves a path relative to a directory. A result outside of the root begins with `../`.
pub(crate) fn joined(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match (part, parts.last()) {
            (".", _) => {}
            ("..", Some(last)) if *last != ".." => _ = parts.pop(),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the last component of a path as text.
pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
