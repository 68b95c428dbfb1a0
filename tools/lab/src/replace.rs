//! Replacing a file as a whole.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Writes a file so that readers see either its old or its new contents: writes a temporary file
/// beside it, and renames that. Symbolic links to the file are kept. Anything else at this path,
/// such as a device or a FIFO, is written in place, because a rename would remove it.
///
/// # Errors
/// If the file cannot be written. The temporary file is removed.
pub fn replace(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let Some(path) = replaceable(path)? else { return fs::write(path, contents) };
    let (mut file, temporary) = create_beside(&path)?;
    let written = file.write_all(contents.as_ref()).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Returns the path of the regular file that `path` refers to, or will refer to once it exists.
/// Returns `None` if the file must be written in place.
fn replaceable(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(fs::canonicalize(path).ok()),
        Ok(_) => Ok(None),
        // Writing through a dangling link creates its target.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok((!path.is_symlink()).then(|| path.to_owned()))
        }
        Err(error) => Err(error),
    }
}

/// Creates a file with a new name in the directory of `path`.
fn create_beside(path: &Path) -> io::Result<(File, PathBuf)> {
    static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}-{number}", std::process::id()));
        let temporary = path.with_file_name(name);
        match File::options().write(true).create_new(true).open(&temporary) {
            // A killed process may have left a file with this name.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (file, temporary)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::thread;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::scratch::Scratch;

    fn scratch() -> Scratch {
        Scratch::within(&std::env::temp_dir()).expect("cannot create a directory")
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("cannot read the directory");
        let name = |entry: io::Result<fs::DirEntry>| {
            entry.expect("cannot read an entry").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn file_is_created_and_replaced() {
        let scratch = scratch();
        let file = scratch.path().join("a");
        for contents in ["one", "another"] {
            replace(&file, contents).expect("cannot write the file");
            assert_eq!(fs::read_to_string(&file).expect("cannot read the file"), contents);
        }
        assert_eq!(names(scratch.path()), ["a"]);
    }

    #[test]
    fn symbolic_links_are_kept() {
        let scratch = scratch();
        let [file, link] = ["file", "link"].map(|name| scratch.path().join(name));
        symlink("file", &link).expect("cannot create a link");
        for contents in ["created through the link", "replaced through the link"] {
            replace(&link, contents).expect("cannot write through the link");
            assert!(link.is_symlink());
            assert_eq!(fs::read_to_string(&file).expect("cannot read the file"), contents);
        }
        assert_eq!(names(scratch.path()), ["file", "link"]);
    }

    #[test]
    fn fifo_is_written_in_place() {
        let scratch = scratch();
        let fifo = scratch.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("no FIFO");
        let reader = thread::spawn({
            let fifo = fifo.clone();
            move || fs::read_to_string(fifo)
        });
        replace(&fifo, "through a pipe").expect("cannot write to the FIFO");
        let read = reader.join().expect("the reader panicked").expect("cannot read the FIFO");
        assert_eq!(read, "through a pipe");
        let metadata = fs::symlink_metadata(&fifo).expect("the FIFO is gone");
        assert!(metadata.file_type().is_fifo());
    }

    #[test]
    fn failure_leaves_no_temporary_file() {
        let scratch = scratch();
        let directory = scratch.path().join("directory");
        fs::create_dir(&directory).expect("cannot create a directory");
        assert!(replace(&directory, "x").is_err());
        assert!(replace(&scratch.path().join("missing/file"), "x").is_err());
        assert_eq!(names(scratch.path()), ["directory"]);
    }
}
