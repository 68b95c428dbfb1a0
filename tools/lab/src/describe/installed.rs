//! Programs and libraries that packages install.

use std::env;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use serde::Deserialize;

use crate::environment::OWN_PROGRAM;

/// Directories of programs that are not in every user's PATH.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Programs whose Debian package has a different name.
const PACKAGES: [(&str, &str); 7] = [
    ("ab", "apache2-utils"),
    ("h2load", "nghttp2-client"),
    ("nginx", "nginx-light"),
    ("node", "nodejs"),
    ("perf", "linux-perf"),
    ("redis-benchmark", "redis-tools"),
    ("redis-cli", "redis-tools"),
];

/// Programs whose Debian package has the same name.
const SAME_NAME_PACKAGES: &str =
    "apache2 caddy haproxy hey lighttpd memcached python3 redis-server socat varnish wrk";

/// A library that a program loads, from a package of its own.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Module {
    /// Possible paths of the library.
    paths: Vec<PathBuf>,
    package: String,
}

/// Returns the path of a program, or how to install it. A name with a slash is used as a path.
pub(crate) fn find(program: &str) -> Result<PathBuf, String> {
    if program.contains('/') {
        let path = PathBuf::from(program);
        let missing =
            || format!("{program} is not an executable file: check the path and its permissions");
        return is_program(&path).then_some(path).ok_or_else(missing);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(SYSTEM_DIRECTORIES.map(PathBuf::from));
    let found = directories.map(|directory| directory.join(program)).find(|path| is_program(path));
    found.ok_or_else(|| match package(program) {
        Some(package) => format!("{program} is not installed: apt-get install {package}"),
        None => format!("{program} is not installed: install it, or write its path"),
    })
}

/// Like [`find`], but `annulus` is this program.
pub(crate) fn find_client(program: &str) -> Result<PathBuf, String> {
    match program {
        OWN_PROGRAM => env::current_exe().map_err(|why| format!("cannot find {program}: {why}")),
        _ => find(program),
    }
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// Returns the Debian package of a program.
fn package(program: &str) -> Option<&str> {
    let other = PACKAGES.iter().find(|(known, _)| *known == program).map(|(_, package)| *package);
    other.or_else(|| SAME_NAME_PACKAGES.split(' ').find(|known| *known == program))
}

impl Module {
    /// Returns the path of the module, or how to install it.
    pub(crate) fn find(&self) -> Result<&Path, String> {
        let Module { paths, package } = self;
        let missing = || {
            let paths = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
            format!("{} does not exist: apt-get install {package}", paths.join(", "))
        };
        paths.iter().find(|path| path.exists()).map(PathBuf::as_path).ok_or_else(missing)
    }
}

#[cfg(test)]
impl Module {
    /// Creates a module with one possible path.
    pub(super) fn at(path: &str) -> Module {
        Module { paths: vec![path.into()], package: "some".into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_or_its_package_named() {
        let shell = find("sh").expect("the shell was not found");
        assert!(shell.ends_with("sh") && shell.is_absolute(), "{shell:?}");
        assert_eq!(find("/bin/sh"), Ok("/bin/sh".into()));
        for (program, part) in [
            ("no-such-program", "no-such-program is not installed: install it, or write its path"),
            ("./no-such-program", "./no-such-program is not an executable file: check the path"),
            ("/etc/passwd", "/etc/passwd is not an executable file"),
        ] {
            let error = find(program).expect_err(program);
            assert!(error.starts_with(part), "{error}");
        }
        assert_eq!((package("h2load"), package("wrk")), (Some("nghttp2-client"), Some("wrk")));
    }

    #[test]
    fn a_module_is_at_one_of_its_paths() {
        let module = |paths: &[&str]| Module {
            paths: paths.iter().map(PathBuf::from).collect(),
            package: "some".into(),
        };
        assert_eq!(module(&["/no/such", "/proc/self/exe"]).find(), Ok(Path::new("/proc/self/exe")));
        let missing =
            module(&["/no/such"]).find().expect_err("a missing module was found").to_owned();
        assert_eq!(missing, "/no/such does not exist: apt-get install some");
    }
}
