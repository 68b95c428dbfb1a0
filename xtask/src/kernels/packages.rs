//! The kernels and the shell for virtual machines, from Debian's packages. They are downloaded and
//! unpacked, never installed. apt uses its own directories, so nothing on this machine changes and
//! root is not required. It uses the machine's mirror; only the releases are chosen here.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use fs_err as fs;

use super::{initramfs, machine};
use crate::files::{entries, name, remove};
use crate::step::{Step, root};

/// A version of Linux with Debian packages.
struct DebianKernel {
    version: &'static str,
    /// The releases of Debian that have this version.
    releases: &'static [&'static str],
    /// The driver that `auto` must choose on this kernel.
    driver: &'static str,
}

const DEBIAN_KERNELS: [DebianKernel; 8] = [
    DebianKernel { version: "5.10", releases: &["bullseye"], driver: "epoll" },
    DebianKernel { version: "6.1", releases: &["bookworm"], driver: "uring" },
    DebianKernel { version: "6.12", releases: &["bookworm", "trixie"], driver: "uring" },
    DebianKernel { version: "6.19", releases: &["trixie-backports"], driver: "uring" },
    DebianKernel { version: "7.0", releases: &["trixie-backports"], driver: "uring" },
    DebianKernel { version: "7.1", releases: &["trixie-backports"], driver: "uring" },
    DebianKernel { version: "7.2", releases: &["trixie-backports", "sid"], driver: "uring" },
    DebianKernel { version: "7.3", releases: &["trixie-backports", "sid"], driver: "uring" },
];

/// Returns the versions that have packages.
pub(super) fn versions() -> impl Iterator<Item = &'static str> {
    DEBIAN_KERNELS.iter().map(|known| known.version)
}

fn known(version: &str) -> impl Iterator<Item = &'static DebianKernel> {
    DEBIAN_KERNELS.iter().filter(move |known| known.version == version)
}

/// apt with its lists, archives and unpacked packages in one directory.
pub(super) struct Packages {
    directory: PathBuf,
}

/// An unpacked kernel package.
pub(super) struct Kernel {
    pub(super) version: String,
    /// The output of `uname -r`.
    pub(super) release: String,
    /// The package's files, with `boot` and `lib/modules`.
    pub(super) root: PathBuf,
    pub(super) initramfs: PathBuf,
    /// The driver that `auto` must choose on this kernel.
    pub(super) driver: &'static str,
}

impl Kernel {
    pub(super) fn image(&self) -> PathBuf {
        let plain = self.root.join(format!("boot/vmlinuz-{}", self.release));
        // Since Debian's 7.2, the image is with the modules.
        if plain.exists() {
            plain
        } else {
            self.root.join(format!("lib/modules/{}/vmlinuz", self.release))
        }
    }
}

impl Packages {
    /// Updates the lists of the releases that have these kernels. Without a network, the previous
    /// lists are used.
    pub(super) fn open(directory: &Path, versions: &[&str]) -> Result<Self> {
        ensure!(
            cfg!(target_arch = "x86_64"),
            "the packages are for x86-64, but this machine has another architecture"
        );
        ensure!(
            Step::new(machine::QEMU, "--version").probe().is_some(),
            "{} is not installed",
            machine::QEMU
        );
        let packages = Self { directory: directory.to_owned() };
        let sources = sources(versions)?;
        for part in ["lists/partial", "archives/partial", "unpacked"] {
            fs::create_dir_all(directory.join(part))?;
        }
        let place = directory.display();
        // apt's own user could not write here.
        let settings = format!(
            "Dir::State \"{place}\"; Dir::State::status \"{place}/status\"; Dir::Cache \"{place}\"; \
             Dir::Etc::sourcelist \"{place}/sources.list\"; Dir::Etc::sourceparts \"-\"; APT::Sandbox::User \"root\";\n"
        );
        fs::write(directory.join("apt.conf"), settings)?;
        fs::write(directory.join("sources.list"), sources)?;
        fs::write(directory.join("status"), "")?;
        // A release that this mirror lacks is not an error here: its packages are reported as
        // missing later.
        packages.apt("apt-get", "-qq update").status()?;
        Ok(packages)
    }

    /// Returns the newest kernel of a version, downloaded and unpacked if necessary, with its
    /// initramfs.
    pub(super) fn kernel(&self, version: &str) -> Result<Kernel> {
        let prefix = format!("linux-image-{version}.");
        let (_, listed) = self.apt("apt-cache", "pkgnames").argument(&prefix).capture()?;
        let unpacked = entries(&self.unpack_directory())?;
        let names = unpacked.iter().map(|path| name(path)).chain(listed.lines().map(str::to_owned));
        let release = newest(names, &prefix).with_context(|| self.lacking(version, &prefix))?;
        let root = self.unpacked(&format!("linux-image-{release}"), &self.parts(&release))?;
        link_modules(&root)?;
        let initramfs = self.directory.join(format!("{version}.cpio"));
        initramfs::build(&initramfs, &root, &release, &self.busybox()?)?;
        let driver = known(version).next().map_or("uring", |known| known.driver);
        Ok(Kernel { version: version.to_owned(), release, root, initramfs, driver })
    }

    fn lacking(&self, version: &str, prefix: &str) -> String {
        let releases: Vec<_> = known(version).flat_map(|known| known.releases).copied().collect();
        let directory = self.unpack_directory();
        format!(
            "apt's mirror has no package {prefix}*-amd64 of Debian {}; unpack one (`dpkg-deb -x`), for example from \
             snapshot.debian.org, to a directory with its name in {}",
            releases.join(" or "),
            directory.strip_prefix(root()).unwrap_or(&directory).display()
        )
    }

    /// Returns busybox, the shell with everything the machine needs before its files are mounted.
    fn busybox(&self) -> Result<PathBuf> {
        let unpacked = self.unpacked("busybox-static", &["busybox-static".into()])?;
        // In releases where /bin is a link to /usr/bin, the package has usr/bin/busybox.
        let places = ["bin/busybox", "usr/bin/busybox"].map(|place| unpacked.join(place));
        let found = places.into_iter().find(|place| place.is_file());
        found.context("the package busybox-static has no busybox")
    }

    fn unpack_directory(&self) -> PathBuf {
        self.directory.join("unpacked")
    }

    /// Returns the packages with the files of a kernel. Since Debian's 6.19, `linux-image` is empty
    /// and depends on two packages with the image and the modules.
    fn parts(&self, release: &str) -> Vec<String> {
        let parts = ["binary", "modules"].map(|part| format!("linux-{part}-{release}"));
        let is_listed = |package: &String| {
            let listed = self.apt("apt-cache", "pkgnames").argument(package).capture();
            listed.is_ok_and(|(_, listed)| listed.lines().any(|name| name == package))
        };
        if parts.iter().all(is_listed) {
            parts.into()
        } else {
            vec![format!("linux-image-{release}")]
        }
    }

    /// Returns the directory `name` with the files of packages, downloading and unpacking them if
    /// necessary.
    fn unpacked(&self, name: &str, packages: &[String]) -> Result<PathBuf> {
        let target = self.unpack_directory().join(name);
        if target.is_dir() {
            return Ok(target);
        }
        let partial = self.directory.join("archives").join(format!("{name}.partial"));
        remove(&partial)?;
        // apt downloads to the current directory; the archive's name has the package, version and
        // architecture.
        let unpack = "cd \"$0\" && apt-get -qq download \"$1\" && dpkg-deb -x \"$1\"_*.deb \"$2\" && rm \"$1\"_*.deb";
        for package in packages {
            let step =
                self.apt("sh", "-c").argument(unpack).argument(self.directory.join("archives"));
            step.argument(package).argument(&partial).run()?;
        }
        fs::rename(&partial, &target)?;
        Ok(target)
    }

    /// Returns a step that runs a program with this apt's settings.
    fn apt(&self, program: &str, arguments: &str) -> Step {
        let settings = self.directory.join("apt.conf");
        Step::new(program, arguments).env("APT_CONFIG", &settings.display().to_string())
    }
}

/// Creates the link `lib`: since Debian 13, packages have their modules below `usr/lib` only,
/// because `/lib` is a link to it.
fn link_modules(root: &Path) -> Result<()> {
    let link = root.join("lib");
    if !link.exists() {
        symlink("usr/lib", &link).with_context(|| link.display().to_string())?;
    }
    Ok(())
}

/// Returns the lines of a `sources.list` for the releases that have these versions, at the mirrors
/// of this machine.
fn sources(versions: &[&str]) -> Result<String> {
    let apt = Step::new("apt-get", "indextargets --no-release-info --format");
    let (_, listed) = apt.argument("$(SITE) $(RELEASE)").capture()?;
    let site = |is_security: bool| {
        let mut sources = listed.lines().filter_map(|line| line.split_once(' '));
        let suits = |suite: &str| suite.ends_with("-security") == is_security;
        sources.find(|(site, suite)| site.contains("debian") && suits(suite)).map(|(site, _)| site)
    };
    let main = site(false).context("apt has no mirror of Debian")?;
    let mut lines = String::new();
    for release in
        versions.iter().flat_map(|version| known(version)).flat_map(|known| known.releases)
    {
        lines += &format!("deb {main} {release} main\n");
        if let Some(security) = site(true) {
            lines += &format!("deb {security} {release}-security main\n");
        }
    }
    Ok(lines)
}

/// Returns the release of the newest kernel among package names, excluding variants such as cloud,
/// real-time and debug kernels.
fn newest(names: impl Iterator<Item = String>, prefix: &str) -> Option<String> {
    let plain = |name: &String| {
        let variant = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix("-amd64"));
        variant.is_some_and(|rest| !rest.contains("cloud") && !rest.contains("-rt"))
    };
    let newest = names.filter(plain).max_by_key(|name| numbers(name))?;
    newest.strip_prefix("linux-image-").map(str::to_owned)
}

/// Returns the numbers in a name in order, for comparing versions.
pub(super) fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    fn newest(names: &str, prefix: &str) -> Option<String> {
        super::newest(names.lines().map(str::to_owned), prefix)
    }

    #[test]
    fn newest_plain_kernel_is_chosen() {
        let names = "linux-image-6.1.0-9-amd64\nlinux-image-6.1.0-56-amd64\nlinux-image-6.1.0-57-cloud-amd64\n\
                     linux-image-6.1.0-58-amd64-dbg\nlinux-image-6.1.0-59-rt-amd64\nlinux-image-6.1.0-60-amd64-unsigned";
        assert_eq!(newest(names, "linux-image-6.1."), Some("6.1.0-56-amd64".into()));
        let names = "linux-image-6.12.100+deb12-amd64\nlinux-image-6.12.117+deb13-amd64\nlinux-image-6.12.99+deb12-amd64";
        assert_eq!(newest(names, "linux-image-6.12."), Some("6.12.117+deb13-amd64".into()));
        assert_eq!(newest("linux-image-6.12-amd64", "linux-image-6.12."), None);
    }
}
