//! Paths in the form that the kernel takes, and the calls on paths that only a [`Dir`](super::Dir)
//! makes.
#![allow(unsafe_code)]

use super::call::CallArgs;
use super::open_file::OpenFile;
use crate::errors::with_text;
use annulus_kernel::file::{FileCall, PathAt};
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::{fmt, io};

/// `AT_FDCWD`: relative paths start from the working directory.
pub(crate) const CWD: i32 = -100;

/// Paths shorter than this are copied to the stack instead of the heap.
const MAX_STACK_PATH_BYTES: usize = 256;

/// Returns a path with its terminating zero, on the heap.
///
/// # Errors
/// `InvalidInput` for a zero byte inside.
pub(super) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        let text = format!("the path {path:?} contains a zero byte, which no file name can");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

/// Passes a path with its terminating zero to an inline call.
///
/// # Errors
/// The errors of [`c_path`].
#[inline]
pub(super) fn with_c_path<T>(path: &Path, call: impl FnOnce(&CStr) -> T) -> io::Result<T> {
    let bytes = path.as_os_str().as_bytes();
    let mut short = [0u8; MAX_STACK_PATH_BYTES];
    if let Some(room) = short.get_mut(..bytes.len()) {
        room.copy_from_slice(bytes);
    }
    match CStr::from_bytes_until_nul(&short) {
        Ok(path) if path.count_bytes() == bytes.len() => Ok(call(path)),
        // The path is too long, or has a zero byte inside.
        _ => c_path(path).map(|path| call(&path)),
    }
}

/// Adds the attempted operation and the path to an error.
pub(crate) fn about(doing: &str, path: &Path, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    let text = format!("{doing} {}: {error}", QuotedPath(path));
    with_text(error, text)
}

/// Like [`about`], but with two paths and the words around the first one.
pub(super) fn about_two(words: [&str; 2], from: &Path, to: &Path, error: io::Error) -> io::Error {
    about(&format!("{} {} {}", words[0], QuotedPath(from), words[1]), to, error)
}

/// Shows a path in an error message, cut after 200 characters.
pub(super) struct QuotedPath<'a>(pub(super) &'a Path);

impl fmt::Display for QuotedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string_lossy();
        match text.char_indices().nth(200) {
            Some((cut, _)) => write!(f, "`{}…`", &text[..cut]),
            None => write!(f, "`{text}`"),
        }
    }
}

/// A call that changes the entry at a path.
pub(super) struct Change {
    pub(super) path: CString,
    pub(super) what: PathChange,
}

#[derive(Clone, Copy)]
pub(super) enum PathChange {
    Remove { directory: bool },
    MakeDir { mode: u32 },
    SetMode { mode: u32 },
}

// SAFETY: the path is on the heap, so it does not move with `self`.
unsafe impl CallArgs for Change {
    fn call(&mut self, dir: RawFd) -> FileCall {
        let at = PathAt { dir, path: self.path.as_ptr() };
        match self.what {
            PathChange::Remove { directory } => FileCall::Remove { at, directory },
            PathChange::MakeDir { mode } => FileCall::MakeDir { at, mode },
            PathChange::SetMode { mode } => FileCall::SetMode { at, mode },
        }
    }
}

/// A call with two paths. The second path starts from `dir`.
pub(super) struct ChangeTwo {
    pub(super) from: CString,
    pub(super) dir: Option<Rc<OpenFile>>,
    pub(super) to: CString,
    pub(super) what: TwoPathChange,
}

#[derive(Clone, Copy)]
pub(super) enum TwoPathChange {
    Rename,
    Link,
    Symlink,
}

impl TwoPathChange {
    /// Returns the words of an error message before the first path and between the paths.
    pub(super) fn words(self) -> [&'static str; 2] {
        match self {
            Self::Rename => ["renaming", "to"],
            Self::Link => ["creating a hard link to", "at"],
            Self::Symlink => ["creating a symbolic link to", "at"],
        }
    }
}

// SAFETY: the paths are on the heap, so they do not move with `self`, which keeps the second
// directory open.
unsafe impl CallArgs for ChangeTwo {
    fn call(&mut self, dir: RawFd) -> FileCall {
        let from = PathAt { dir, path: self.from.as_ptr() };
        let to =
            PathAt { dir: self.dir.as_ref().map_or(CWD, |dir| dir.fd()), path: self.to.as_ptr() };
        match self.what {
            TwoPathChange::Rename => FileCall::Rename { from, to, flags: 0 },
            TwoPathChange::Link => FileCall::Link { from, to, flags: 0 },
            TwoPathChange::Symlink => FileCall::Symlink { target: from.path, at: to },
        }
    }
}

/// A call that reads a symbolic link's target into memory.
pub(super) struct ReadLink {
    pub(super) path: CString,
    pub(super) target: Vec<u8>,
}

// SAFETY: the path is on the heap, and the call writes to the vector's memory, within its length.
unsafe impl CallArgs for ReadLink {
    fn call(&mut self, dir: RawFd) -> FileCall {
        let at = PathAt { dir, path: self.path.as_ptr() };
        let (buffer, len) = (self.target.as_mut_ptr(), self.target.len() as u32);
        FileCall::ReadLink { at, buffer, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn a_path_with_a_zero_byte_is_refused() {
        let path = Path::new(OsStr::from_bytes(b"a\0b"));
        let error = c_path(path).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("zero byte"), "{error}");
    }

    #[test]
    fn paths_of_any_length_are_passed_whole() {
        for len in [0, 1, MAX_STACK_PATH_BYTES - 1, MAX_STACK_PATH_BYTES, 5 * MAX_STACK_PATH_BYTES]
        {
            let text = "x".repeat(len);
            let lent = with_c_path(Path::new(&text), |path| path.to_owned()).unwrap();
            assert_eq!(lent.as_bytes(), text.as_bytes());
        }
        let inside = Path::new(OsStr::from_bytes(b"a\0b"));
        let error = with_c_path(inside, |path| path.to_owned()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn errors_contain_the_path_but_cut_a_long_one() {
        let error = about("opening", Path::new("/x"), io::ErrorKind::NotFound);
        assert_eq!(error.to_string(), "opening `/x`: entity not found");
        let long = "é".repeat(5000);
        let error = about("opening", Path::new(&long), io::ErrorKind::NotFound);
        assert!(error.to_string().len() < 500);
    }
}
