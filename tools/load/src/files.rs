//! Reading files that a user names. They may be devices or pipes without an end, so each has a
//! limit.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The maximum size of a file of requests, bodies, values or options: 256 MiB.
pub const MAX_INPUT_BYTES: u64 = 256 << 20;
/// The maximum size of a file of certificates or keys: 16 MiB.
pub const MAX_PEM_BYTES: u64 = 16 << 20;

/// Reads a file.
///
/// # Errors
/// Fails with [`ErrorKind::FileTooLarge`] if it has more than `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_all(File::open(path)?, limit)
}

/// Reads everything from a source.
///
/// # Errors
/// Fails with [`ErrorKind::FileTooLarge`] if it has more than `limit` bytes.
pub fn read_all(source: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let text =
            format!("it has more than {limit} bytes, which is the limit: use a smaller file");
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// Reads a file of text.
///
/// # Errors
/// Fails like [`read`], or with [`ErrorKind::InvalidData`] and the number of the line if it is not
/// UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(read(path, limit)?).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + memchr::memchr_iter(b'\n', valid).count();
        io::Error::new(ErrorKind::InvalidData, format!("line {line} is not UTF-8 text"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_file_is_refused_with_the_limit() {
        let error = read(Path::new("/dev/zero"), 1000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("more than 1000 bytes"), "{error}");
        assert_eq!(read_all(&[7; 1000][..], 1000).unwrap(), [7; 1000]);
    }

    #[test]
    fn line_that_is_not_utf8_is_named() {
        let path = std::env::temp_dir().join(format!("annulus-text-{}", std::process::id()));
        std::fs::write(&path, b"one\ntwo \xff\nthree").unwrap();
        let error = read_text(&path, 1000).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.to_string(), "line 2 is not UTF-8 text");
    }
}
