//! The living threads of a process, as `/proc` has them.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

/// The directory of its threads.
pub(crate) fn tasks(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/task"))
}

/// The text of a file of every living thread.
pub(crate) fn of_threads(tasks: &Path, file: &str) -> io::Result<Vec<String>> {
    let read = |task: io::Result<DirEntry>| match fs::read_to_string(task?.path().join(file)) {
        Err(error) if has_ended(&error) => Ok(None),
        text => text.map(Some),
    };
    fs::read_dir(tasks)?.filter_map(|task| read(task).transpose()).collect()
}

/// Whether a thread ended between being listed and being read.
fn has_ended(error: &io::Error) -> bool {
    let ended = [rustix::io::Errno::NOENT, rustix::io::Errno::SRCH];
    ended.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
