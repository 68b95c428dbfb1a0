//! Finds out which part of a command made its start fail. The system's error is only a number,
//! which is the same for a missing program, a missing interpreter and a missing working directory.

use crate::io::raw_os_error;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum number of pages that one argument or environment variable takes, including its
/// terminator (`MAX_ARG_STRLEN`).
const MAX_STRING_PAGES: usize = 32;
/// Lower and upper bound of the limit on the total size of arguments and environment. Between them,
/// the limit is a quarter of the stack limit.
const STRINGS_BYTES: [u64; 2] = [128 << 10, 6 << 20];
/// The standard library's replacement for a string that contains a NUL byte.
const WITH_NUL: &str = "<string-with-nul>";

/// Returns the cause, if it can be found from the command and the system.
#[cold]
pub(super) fn reason(
    command: &Command,
    group: Option<i32>,
    is_cleared: bool,
    error: &io::Error,
) -> Option<String> {
    let Some(errno) = raw_os_error(error).map(Errno::from_raw_os_error) else {
        return has_nul(command);
    };
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG => {
            directory(command).or_else(|| program(command, errno))
        }
        Errno::NOEXEC => Some(
            "the file is neither a program for this machine nor a script whose first line begins with '#!'"
                .into(),
        ),
        Errno::TXTBSY => Some("the program's file is open for writing".into()),
        Errno::TOOBIG => too_big(command, is_cleared),
        Errno::MFILE => limit(Resource::Nofile, "descriptors per process", "-n"),
        Errno::NFILE => Some("the system is out of descriptors (sysctl fs.file-max)".into()),
        Errno::AGAIN => {
            let text = limit(Resource::Nproc, "processes and threads per user", "-u")?;
            Some(format!("{text}; the control group may have a lower one (pids.max)"))
        }
        Errno::PERM | Errno::SRCH | Errno::INVAL => group.filter(|group| *group != 0).map(|group| {
            format!("the process group {group} must belong to this session; 0 creates a new group")
        }),
        _ => None,
    }
}

/// Reports which string contains a NUL byte.
fn has_nul(command: &Command) -> Option<String> {
    let is_it = |text: &OsStr| text == WITH_NUL || text.as_bytes().contains(&0);
    let text = "contains a NUL byte, which no program can receive";
    if is_it(command.get_program()) {
        return Some(format!("the program's name {text}"));
    }
    if command.get_current_dir().is_some_and(|directory| is_it(directory.as_os_str())) {
        return Some(format!("the working directory {text}"));
    }
    if let Some(place) = command.get_args().position(is_it) {
        return Some(format!("argument {} {text}", place + 1));
    }
    let mut variables = command.get_envs();
    let (name, _) = variables.find(|(name, value)| is_it(name) || value.is_some_and(is_it))?;
    Some(format!("the environment variable '{}' {text}", name.display()))
}

/// Reports what is wrong with the working directory.
fn directory(command: &Command) -> Option<String> {
    let directory = command.get_current_dir()?;
    let why = match fs::metadata(directory) {
        Err(error) => error.to_string(),
        Ok(found) if !found.is_dir() => "it is not a directory".into(),
        Ok(_) => accessat(CWD, directory, Access::EXEC_OK, AtFlags::EACCESS).err()?.to_string(),
    };
    Some(format!("the working directory '{}' cannot be entered: {why}", directory.display()))
}

/// Reports what is wrong with the program.
fn program(command: &Command, errno: Errno) -> Option<String> {
    let name = command.get_program();
    if name.is_empty() {
        return Some("the program's name is empty".into());
    }
    let paths = program_paths(command);
    if has_path(command) {
        let path = paths.first()?;
        // The system's error says all that is known about a path as the program gave it.
        let found = fs::metadata(path).err().and_then(|error| raw_os_error(&error));
        let is_known = path.as_os_str() == name && found == Some(errno.raw_os_error());
        return if is_known { None } else { file(path, errno) };
    }
    match paths.iter().find(|path| path.is_file()) {
        Some(found) => file(found, errno),
        None => Some(format!("it is not in any directory of PATH: {}", search(command)?.display())),
    }
}

/// Returns the paths that are tried for the program, in order.
pub(super) fn program_paths(command: &Command) -> Vec<PathBuf> {
    let name = command.get_program();
    let start = command.get_current_dir().unwrap_or(Path::new(""));
    if has_path(command) {
        return vec![start.join(name)];
    }
    let search = search(command).unwrap_or_default();
    env::split_paths(&search).map(|directory| start.join(directory).join(name)).collect()
}

/// Returns true if the program is given by its path, not by its name.
fn has_path(command: &Command) -> bool {
    command.get_program().as_bytes().contains(&b'/')
}

/// Returns the value of `PATH` that is searched for the program.
fn search(command: &Command) -> Option<OsString> {
    let own = command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value);
    own.map(OsString::from).or_else(|| env::var_os("PATH"))
}

/// Reports what is wrong with a program's file.
fn file(path: &Path, errno: Errno) -> Option<String> {
    let shown = path.display();
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) => return Some(format!("'{shown}': {error}")),
    };
    if found.is_dir() {
        return Some(format!("'{shown}' is a directory"));
    }
    if found.permissions().mode() & 0o111 == 0 {
        return Some(format!("'{shown}' is not executable (chmod +x)"));
    }
    let is_missing = errno == Errno::NOENT;
    match interpreter(path) {
        Some(interpreter) if is_missing => {
            Some(format!("'{shown}' needs the interpreter '{interpreter}', which does not exist"))
        }
        Some(interpreter) => Some(format!(
            "'{shown}' or its interpreter '{interpreter}' may not be executed by this user"
        )),
        None if is_missing => Some(format!(
            "'{shown}' exists, but its dynamic loader does not (see `file '{shown}'`)"
        )),
        None => Some(format!(
            "'{shown}' may not be executed by this user, or its file system is mounted with noexec"
        )),
    }
}

/// Returns the interpreter in the first line of a script.
fn interpreter(path: &Path) -> Option<String> {
    let mut start = Vec::new();
    let file = fs::metadata(path).is_ok_and(|found| found.is_file()).then(|| File::open(path))?;
    file.ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    String::from_utf8_lossy(line).split_whitespace().next().map(String::from)
}

/// Reports the string that is too long, or the total length of all strings.
fn too_big(command: &Command, is_cleared: bool) -> Option<String> {
    let mut strings = vec![("the program's name".into(), command.get_program().len() + 1)];
    let arguments = command.get_args().enumerate();
    strings.extend(arguments.map(|(i, text)| (format!("argument {}", i + 1), text.len() + 1)));
    let set: Vec<_> = command.get_envs().collect();
    let inherited = env::vars_os().filter(|(name, _)| {
        !is_cleared && !set.iter().any(|(other, _)| *other == name.as_os_str())
    });
    let variable = |name: &OsStr, value: &OsStr| {
        (format!("the environment variable '{}'", name.display()), name.len() + value.len() + 2)
    };
    strings.extend(inherited.map(|(name, value)| variable(&name, &value)));
    strings.extend(set.iter().filter_map(|(name, value)| Some(variable(name, (*value)?))));
    let (name, longest) = strings.iter().max_by_key(|(_, len)| *len)?;
    let max_string_bytes = MAX_STRING_PAGES * page_size();
    if *longest > max_string_bytes {
        return Some(format!(
            "{name} takes {longest} bytes; at most {max_string_bytes} are allowed for each argument and variable"
        ));
    }
    // The kernel also counts a pointer for each string.
    let total: usize = strings.iter().map(|(_, len)| len + size_of::<usize>()).sum();
    let [least, most] = STRINGS_BYTES;
    let quarter = getrlimit(Resource::Stack).current.map_or(most, |stack| stack / 4);
    let allowed = quarter.clamp(least, most);
    Some(format!(
        "arguments and environment take {total} bytes, {name} alone {longest}; {allowed} are allowed, a quarter of the stack limit \
         (ulimit -s); pass large data through standard input or a file"
    ))
}

/// Reports that this process has reached a limit.
fn limit(resource: Resource, what: &str, option: &str) -> Option<String> {
    let limit = getrlimit(resource).current?;
    Some(format!("the limit of {limit} {what} is reached (ulimit {option})"))
}
