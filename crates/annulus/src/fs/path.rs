//! Paths as the kernel takes them.

use super::file::OpenFile;
use super::habits::DeviceId;
use crate::core::Core;
use std::ffi::{CString, c_char};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Relative paths start from the working directory.
pub(crate) const CWD: i32 = -100;

/// Paths up to this are not worth an allocation.
const SHORT: usize = 256;
/// 2^64 divided by the golden ratio, odd: it spreads each bit over those above it.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

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
    let mut room = [0u8; SHORT];
    if bytes.len() >= SHORT || bytes.contains(&0) {
        return CPath::new(path).map(|path| call(path.as_ptr()));
    }
    room[..bytes.len()].copy_from_slice(bytes);
    Ok(call(room.as_ptr().cast()))
}

/// The folder a path is in, by hash: what is known of its device is a guess, and only speed depends on it.
#[derive(Clone, Copy)]
pub(crate) struct Folder(u64);

impl Folder {
    pub(crate) fn of(dir: i32, path: &Path) -> Self {
        let bytes = path.as_os_str().as_bytes();
        let parent = &bytes[..bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
        let (words, rest) = parent.as_chunks::<8>();
        let mut hash = dir as u64;
        let mut add = |word: u64| hash = (hash.rotate_left(5) ^ word).wrapping_mul(MIX);
        words.iter().for_each(|word| add(u64::from_ne_bytes(*word)));
        rest.iter().for_each(|byte| add(u64::from(*byte)));
        Self(hash)
    }

    /// The device it was last seen on.
    pub(crate) fn device(self, core: &Core) -> Option<DeviceId> {
        core.files.habits.borrow().of_folder(self.0)
    }

    /// Notes the device of a file in it.
    pub(crate) fn learn(self, core: &Core, file: &OpenFile) -> DeviceId {
        let mut habits = core.files.habits.borrow_mut();
        let device = habits.device(file.device_number());
        habits.note_folder(self.0, device);
        device
    }
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
