//! Paths as the kernel takes them.

use std::ffi::{CString, c_char};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Relative paths start from the working directory.
pub(crate) const CWD: i32 = -100;

/// Paths up to this are not worth an allocation.
const SHORT: usize = 256;

/// A path with its zero, where it stays.
pub(crate) struct CPath(CString);

impl CPath {
    /// # Errors
    /// `InvalidInput` for a zero byte inside.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        CString::new(path.as_os_str().as_bytes()).map(Self).map_err(|_| {
            let text = format!("the path {path:?} has a zero byte in it; no file can have one");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
    }

    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr()
    }
}

/// Lends a path, with its zero, to a call that is made at once: short ones from the stack.
#[inline]
pub(crate) fn with_c_path<T>(path: &Path, call: impl FnOnce(*const c_char) -> T) -> io::Result<T> {
    let bytes = path.as_os_str().as_bytes();
    // Looks at many bytes at once, which a search for the first zero does not.
    let least = bytes.iter().fold(u8::MAX, |least, byte| least.min(*byte));
    if bytes.len() >= SHORT || least == 0 {
        return CPath::new(path).map(|path| call(path.as_ptr()));
    }
    let mut room = [0u8; SHORT];
    room[..bytes.len()].copy_from_slice(bytes);
    Ok(call(room.as_ptr().cast()))
}

/// An error that says what was being done, and to what.
pub(crate) fn about(doing: &str, path: &Path, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{doing} {}: {error}", Shown(path)))
}

/// A path as it is shown in errors: long ones in part.
struct Shown<'a>(&'a Path);

impl fmt::Display for Shown<'_> {
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
    fn a_zero_byte_is_refused_by_name() {
        let path = Path::new(OsStr::from_bytes(b"a\0b"));
        let error = CPath::new(path).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("zero byte"), "{error}");
    }

    #[test]
    fn errors_name_the_path_but_not_all_of_a_long_one() {
        let error = about("opening", Path::new("/x"), io::ErrorKind::NotFound);
        assert_eq!(error.to_string(), "opening `/x`: entity not found");
        let long = "é".repeat(5000);
        let error = about("opening", Path::new(&long), io::ErrorKind::NotFound);
        assert!(error.to_string().len() < 500);
    }
}
