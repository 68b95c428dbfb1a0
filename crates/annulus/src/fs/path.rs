//! Paths in the form that the kernel takes.

use crate::errors::with_text;
use std::ffi::{CStr, CString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `AT_FDCWD`: relative paths start from the working directory.
pub(crate) const CWD: i32 = -100;

/// Paths shorter than this are copied to the stack.
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

/// A path as shown in errors: cut if it is long.
struct QuotedPath<'a>(&'a Path);

impl fmt::Display for QuotedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string_lossy();
        match text.char_indices().nth(200) {
            Some((cut, _)) => write!(f, "`{}…`", &text[..cut]),
            None => write!(f, "`{text}`"),
        }
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
