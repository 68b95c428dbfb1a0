//! Programs and libraries that packages install.

use std::env;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Where programs lie that are not in every user's path.
const SYSTEM: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A program of a Debian package.
#[derive(Clone, Copy, Debug)]
pub(super) struct Installed {
    /// Its name.
    pub(super) program: &'static str,
    /// The package.
    pub(super) package: &'static str,
}

/// A library that a program loads, of a package of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Module {
    /// Where it may lie.
    pub(super) paths: &'static [&'static str],
    /// The package.
    pub(super) package: &'static str,
}

impl Installed {
    /// Its path, or how to install it.
    pub(super) fn find(&self) -> Result<PathBuf, String> {
        let Installed { program, package } = self;
        let path = env::var_os("PATH").unwrap_or_default();
        let directories = env::split_paths(&path).chain(SYSTEM.map(PathBuf::from));
        let mut candidates = directories.map(|directory| directory.join(program));
        let found = candidates.find(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok());
        found.ok_or_else(|| format!("{program} is not installed: apt-get install {package}"))
    }
}

impl Module {
    /// Its path, or how to install it.
    pub(super) fn find(&self) -> Result<&'static str, String> {
        let Module { paths, package } = self;
        let found = paths.iter().find(|path| Path::new(path).exists());
        let missing = || format!("{} does not exist: apt-get install {package}", paths.join(", "));
        found.copied().ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_or_its_package_named() {
        let shell = Installed { program: "sh", package: "dash" }.find().expect("a shell");
        assert!(shell.ends_with("sh") && shell.is_absolute(), "{shell:?}");
        let missing = Installed { program: "no-such-program", package: "some" }.find();
        let expected = "no-such-program is not installed: apt-get install some";
        assert_eq!(missing.expect_err("none"), expected);
    }

    #[test]
    fn a_module_is_at_one_of_its_paths() {
        let module = Module { paths: &["/no/such", "/proc/self/exe"], package: "some" };
        assert_eq!(module.find(), Ok("/proc/self/exe"));
        let missing = Module { paths: &["/no/such"], package: "some" }.find();
        assert_eq!(missing.expect_err("none"), "/no/such does not exist: apt-get install some");
    }
}
