//! The files to serve, the target of proxies and the directories, which must exist before the
//! servers of a comparison start.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result};

use crate::describe::Placeholder;
use crate::file_system;
use crate::interrupt;
use crate::process::Spec;
use crate::server::Server;

/// The directory of the files to serve, within the fixture's directory.
const SITE_DIRECTORY: &str = "site";

/// How many bytes of noise are written between two checks for a signal.
const NOISE_PART_BYTES: u64 = 1 << 20;

/// The files, directories and target that servers use.
#[derive(Debug)]
pub(crate) struct Fixture {
    /// The directory of all files.
    directory: String,
    /// The server behind proxies.
    target: Option<Server>,
    /// How many directories were created for processes.
    created_directories: usize,
}

impl Fixture {
    /// Writes the files to serve with these sizes, and starts the target of proxies on a core, if
    /// there are proxies.
    ///
    /// # Errors
    /// If the files do not fit or cannot be written, a signal arrives meanwhile, or the target
    /// cannot be started.
    pub(crate) fn new(
        directory: &Path,
        files: &BTreeMap<String, u64>,
        (has_proxies, core): (bool, Option<usize>),
    ) -> Result<Fixture> {
        let text = directory
            .to_str()
            .context("the path in TMPDIR is not UTF-8: set it to another directory")?;
        let site = directory.join(SITE_DIRECTORY);
        fs::create_dir(&site).with_context(|| format!("cannot create {}", site.display()))?;
        let total = files.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        file_system::check_space(&site, total)?;
        for (name, bytes) in files {
            let path = site.join(name);
            write_noise(&path, *bytes)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let target = has_proxies.then(|| target(core)).transpose()?;
        Ok(Fixture { directory: text.into(), target, created_directories: 0 })
    }

    /// Returns the placeholders `{service}`, the protocol of a server; `{site}`, the directory of
    /// the files; and `{target}`, the address of an echo server for proxies.
    pub(crate) fn words(&self, service: &str) -> Vec<Placeholder> {
        let target = self.target.as_ref().map(|target| ("target", target.address.to_string()));
        let site = format!("{}/{SITE_DIRECTORY}", self.directory);
        [("service", service.into()), ("site", site)].into_iter().chain(target).collect()
    }

    /// Creates a directory for one process.
    pub(crate) fn directory(&mut self) -> io::Result<String> {
        let path = format!("{}/{}", self.directory, self.created_directories);
        fs::create_dir(&path)?;
        self.created_directories += 1;
        Ok(path)
    }
}

/// Starts annulus's echo server on a free port.
fn target(core: Option<usize>) -> Result<Server> {
    let program = env::current_exe().context("cannot find this program to start it")?;
    let arguments = ["echo", "--listen", "127.0.0.1:0"].map(Into::into).into();
    Ok(Server::start(&Spec { arguments, pin: core, ..Spec::of("target", program) })?)
}

/// Writes a file of random bytes, unless a signal arrives meanwhile.
fn write_noise(path: &Path, bytes: u64) -> Result<()> {
    let (mut noise, mut file) = (File::open("/dev/urandom")?, File::create(path)?);
    let mut left = bytes;
    while left > 0 {
        interrupt::check()?;
        let part = left.min(NOISE_PART_BYTES);
        io::copy(&mut (&mut noise).take(part), &mut file)?;
        left -= part;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::{Description, filled};
    use crate::scratch::tests::directory;

    #[test]
    fn site_files_have_the_described_lengths() {
        let files = Description::find("files")
            .and_then(Description::comparison)
            .expect("the catalogue lacks the name")
            .site;
        let scratch = directory();
        let mut fixture = Fixture::new(scratch.path(), &files, (false, None))
            .expect("the fixture was not created");
        let words = fixture.words("");
        let site = filled("{SITE}{service}{other}", &words);
        assert_eq!(site, format!("{}/site{{other}}", scratch.path().display()));
        assert_eq!(files.len(), 3);
        for (name, bytes) in files {
            let path = format!("{}/{name}", filled("{site}", &words));
            assert_eq!(fs::metadata(path).expect("the file does not exist").len(), bytes);
        }
        let directories = [0, 1].map(|_| fixture.directory().expect("cannot create a directory"));
        assert_ne!(directories[0], directories[1]);
    }
}
