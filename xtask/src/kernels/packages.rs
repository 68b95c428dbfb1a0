//! Kernels and the shell of the virtual machine, from Debian's packages: downloaded and unpacked, never installed.
//!
//! apt uses separate directories, so that nothing of this machine changes and no root is needed. The mirror is that of the
//! machine; only the releases are chosen here.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Missing;
use crate::step::root;

/// A version of Linux that Debian has packages of.
struct Known {
    version: &'static str,
    /// The releases of Debian that have this version.
    releases: &'static [&'static str],
    /// The driver that must be chosen there if none is demanded.
    driver: &'static str,
}

const KNOWN: [Known; 3] = [
    Known { version: "5.10", releases: &["bullseye"], driver: "epoll" },
    Known { version: "6.1", releases: &["bookworm"], driver: "uring" },
    Known { version: "6.12", releases: &["bookworm", "trixie"], driver: "uring" },
];

/// The versions that have packages.
pub(super) fn versions() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|known| known.version)
}

fn known(version: &str) -> impl Iterator<Item = &'static Known> {
    KNOWN.iter().filter(move |known| known.version == version)
}

/// apt, with lists and archives in a directory of the build.
pub(super) struct Packages {
    directory: PathBuf,
}

/// A kernel's package, unpacked.
pub(super) struct Kernel {
    /// The output of `uname -r`.
    pub(super) release: String,
    /// The package's files, with `boot` and `lib/modules`.
    pub(super) root: PathBuf,
    /// The driver that must be chosen on this kernel.
    pub(super) driver: &'static str,
}

impl Kernel {
    /// The file that boots.
    pub(super) fn image(&self) -> PathBuf {
        self.root.join(format!("boot/vmlinuz-{}", self.release))
    }
}

impl Packages {
    /// Reads the lists of the releases that have these kernels. Without a network, the last lists are used.
    pub(super) fn open(directory: &Path, versions: &[String]) -> Result<Self, Missing> {
        let packages = Self { directory: directory.to_owned() };
        let sources = sources(versions)?;
        for part in ["lists/partial", "archives/partial", "unpacked"] {
            make_directory(&directory.join(part))?;
        }
        write(&directory.join("sources.list"), &sources)?;
        write(&directory.join("status"), "")?;
        // A release that this mirror does not have is no error: its packages are reported as missing.
        _ = packages.apt("apt-get").args(["-qq", "update"]).status();
        Ok(packages)
    }

    /// The newest kernel of a version, downloaded and unpacked if necessary.
    pub(super) fn kernel(&self, version: &str) -> Result<Kernel, Missing> {
        let prefix = format!("linux-image-{version}.");
        let listed = output(self.apt("apt-cache").args(["pkgnames", &prefix]))?;
        let names = format!("{listed}\n{}", self.names_unpacked());
        let release = newest(&names, &prefix).ok_or_else(|| self.lacking(version, &prefix))?;
        let root = self.unpacked(&format!("linux-image-{release}"))?;
        link_modules(&root)?;
        let known = known(version).next();
        let driver = known.map_or("uring", |known| known.driver);
        Ok(Kernel { release, root, driver })
    }

    /// The packages that are unpacked already, a line each.
    fn names_unpacked(&self) -> String {
        let entries = fs::read_dir(self.directory.join("unpacked")).into_iter().flatten().flatten();
        entries.map(|entry| format!("{}\n", entry.file_name().display())).collect()
    }

    fn lacking(&self, version: &str, prefix: &str) -> Missing {
        let releases: Vec<_> = known(version).flat_map(|known| known.releases).copied().collect();
        let directory = self.directory.join("unpacked");
        Missing(format!(
            "no package {prefix}*-amd64 of Debian {} at apt's mirror; unpack one (`dpkg-deb -x`), such as from \
             snapshot.debian.org, to a directory of its name in {}",
            releases.join(" or "),
            directory.strip_prefix(root()).unwrap_or(&directory).display()
        ))
    }

    /// A shell with all that the machine needs before its files are mounted.
    pub(super) fn busybox(&self) -> Result<PathBuf, Missing> {
        let unpacked = self.unpacked("busybox-static")?;
        // If /bin is a link to /usr/bin, the package has it there.
        let places = ["bin/busybox", "usr/bin/busybox"].map(|place| unpacked.join(place));
        let found = places.into_iter().find(|place| place.is_file());
        found.ok_or_else(|| Missing("the package busybox-static has no busybox".into()))
    }

    /// The directory of a package's files.
    fn unpacked(&self, package: &str) -> Result<PathBuf, Missing> {
        let target = self.directory.join("unpacked").join(package);
        if target.is_dir() {
            return Ok(target);
        }
        let archives = self.directory.join("archives");
        run(self.apt("apt-get").args(["-qq", "download", package]).current_dir(&archives))?;
        let archive = archive_of(&archives, package)?;
        let partial = self.directory.join("unpacked").join(format!("{package}.partial"));
        _ = fs::remove_dir_all(&partial);
        run(Command::new("dpkg-deb").arg("-x").args([&archive, &partial]))?;
        fs::rename(&partial, &target).map_err(|error| about(&target, &error))?;
        // The archive is as large as its content.
        _ = fs::remove_file(archive);
        Ok(target)
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let places = [
            ("Dir::Etc::sourcelist", "sources.list"),
            ("Dir::State::status", "status"),
            ("Dir::State", ""),
            ("Dir::State::lists", "lists"),
            ("Dir::Cache", ""),
            ("Dir::Cache::archives", "archives"),
        ];
        for (option, place) in places {
            command.arg("-o").arg(format!("{option}={}", self.directory.join(place).display()));
        }
        // The user of apt could not write here.
        command.args(["-o", "Dir::Etc::sourceparts=-", "-o", "APT::Sandbox::User=root"]);
        command.stdin(Stdio::null());
        command
    }
}

/// From Debian 13 on, packages have their modules below `usr/lib` only, as `/lib` is a link to it.
fn link_modules(root: &Path) -> Result<(), Missing> {
    let link = root.join("lib");
    if link.exists() {
        return Ok(());
    }
    symlink("usr/lib", &link).map_err(|error| about(&link, &error))
}

/// The lines of a `sources.list`: of the mirrors that this machine uses, the releases that these versions need.
fn sources(versions: &[String]) -> Result<String, Missing> {
    let listed = output(Command::new("apt-get").args([
        "indextargets",
        "--no-release-info",
        "--format",
        "$(SITE) $(RELEASE)",
    ]))?;
    let site = |is_security: bool| {
        let mut sources = listed.lines().filter_map(|line| line.split_once(' '));
        let suits = |suite: &str| suite.ends_with("-security") == is_security;
        sources.find(|(site, suite)| site.contains("debian") && suits(suite)).map(|(site, _)| site)
    };
    let main = site(false).ok_or_else(|| Missing("apt knows no mirror of Debian".into()))?;
    let known = versions.iter().flat_map(|version| known(version));
    let mut releases: Vec<_> = known.flat_map(|known| known.releases).collect();
    releases.sort_unstable();
    releases.dedup();
    let mut lines = String::new();
    for release in releases {
        lines += &format!("deb {main} {release} main\n");
        if let Some(security) = site(true) {
            lines += &format!("deb {security} {release}-security main\n");
        }
    }
    Ok(lines)
}

/// The kernel of the highest version among the names of packages: not those for clouds, real time, or debugging.
fn newest(names: &str, prefix: &str) -> Option<String> {
    let plain = |name: &&str| {
        let variant = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix("-amd64"));
        variant.is_some_and(|rest| !rest.contains("cloud") && !rest.contains("-rt"))
    };
    let newest = names.lines().filter(plain).max_by_key(|name| numbers(name))?;
    newest.strip_prefix("linux-image-").map(str::to_owned)
}

/// The numbers in a name, in order, to compare versions.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// apt names an archive by package, version and architecture.
fn archive_of(archives: &Path, package: &str) -> Result<PathBuf, Missing> {
    let entries = fs::read_dir(archives).map_err(|error| about(archives, &error))?;
    let prefix = format!("{package}_");
    let found = entries.flatten().map(|entry| entry.path()).find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
    });
    found.ok_or_else(|| Missing(format!("apt-get download left no archive of {package}")))
}

/// The output of a program; an error if it is missing, or fails.
fn output(command: &mut Command) -> Result<String, Missing> {
    Ok(String::from_utf8_lossy(&bytes(command)?).into_owned())
}

/// As `output`, but not text.
pub(super) fn bytes(command: &mut Command) -> Result<Vec<u8>, Missing> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| Missing(format!("{name}: {error}")))?;
    if !output.status.success() {
        return Err(Missing(format!("{name} ended with {}", output.status)));
    }
    Ok(output.stdout)
}

/// Runs a program and ignores its output.
pub(super) fn run(command: &mut Command) -> Result<(), Missing> {
    let line = format!("{command:?}");
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.map_err(|error| Missing(format!("`{line}` did not start: {error}")))?;
    if status.success() { Ok(()) } else { Err(Missing(format!("`{line}` ended with {status}"))) }
}

pub(super) fn make_directory(path: &Path) -> Result<(), Missing> {
    fs::create_dir_all(path).map_err(|error| about(path, &error))
}

pub(super) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Missing> {
    fs::write(path, bytes).map_err(|error| about(path, &error))
}

pub(super) fn about(path: &Path, error: &std::io::Error) -> Missing {
    Missing(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_plain_kernel_is_taken() {
        let names = "linux-image-6.1.0-9-amd64\nlinux-image-6.1.0-56-amd64\nlinux-image-6.1.0-57-cloud-amd64\n\
                     linux-image-6.1.0-58-amd64-dbg\nlinux-image-6.1.0-59-rt-amd64\nlinux-image-6.1.0-60-amd64-unsigned";
        assert_eq!(newest(names, "linux-image-6.1."), Some("6.1.0-56-amd64".into()));
        let names = "linux-image-6.12.100+deb12-amd64\nlinux-image-6.12.117+deb13-amd64\nlinux-image-6.12.99+deb12-amd64";
        assert_eq!(newest(names, "linux-image-6.12."), Some("6.12.117+deb13-amd64".into()));
        assert_eq!(newest("linux-image-6.12-amd64", "linux-image-6.12."), None);
    }
}
