//! What the servers of a comparison find when they start: files to serve, a server behind them, a directory.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result};

use super::client::Client;
use super::load::Load;
use crate::process::Spec;
use crate::server::Server;

/// A name, and what takes its place.
pub(super) type Word = (&'static str, String);

/// The directory of the files to serve, in that of the fixture.
const SITE: &str = "site";

/// What servers find.
#[derive(Debug)]
pub(super) struct Fixture {
    /// The directory of all files.
    directory: String,
    /// What proxies lead to.
    target: Option<Server>,
    /// Directories that were made for processes.
    made: usize,
}

impl Fixture {
    /// Writes the files that loads ask for, and starts what proxies lead to, on that core, if there are proxies: servers under our load.
    ///
    /// # Errors
    /// If that cannot be done.
    pub(super) fn new(directory: &Path, loads: &[&Load], core: Option<usize>) -> Result<Fixture> {
        let text = directory.to_str().context("the path of TMPDIR is no text: set it elsewhere")?;
        let site = directory.join(SITE);
        fs::create_dir(&site).with_context(|| format!("cannot make {}", site.display()))?;
        for load in loads.iter().filter(|load| load.client == Client::Wrk && load.bytes > 0) {
            let path = site.join(load.request.trim_start_matches('/'));
            write_noise(&path, load.bytes)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let has_proxies = loads.iter().any(|load| matches!(load.client, Client::Own(_)));
        let target = has_proxies.then(|| target(core)).transpose()?;
        Ok(Fixture { directory: text.into(), target, made: 0 })
    }

    /// `{SERVICE}`: what a server is to speak. `{SITE}`: the directory of the files. `{TARGET}`: the address of an echo server, for
    /// proxies.
    pub(super) fn words(&self, service: &str) -> Vec<Word> {
        let target = self.target.as_ref().map(|target| ("TARGET", target.address.to_string()));
        let site = format!("{}/{SITE}", self.directory);
        [("SERVICE", service.into()), ("SITE", site)].into_iter().chain(target).collect()
    }

    /// A new directory, for one process.
    pub(super) fn directory(&mut self) -> io::Result<String> {
        let path = format!("{}/{}", self.directory, self.made);
        fs::create_dir(&path)?;
        self.made += 1;
        Ok(path)
    }
}

/// The text with every `{NAME}` replaced by its value.
pub(super) fn filled(text: &str, words: &[Word]) -> String {
    let fill = |text: String, (name, value): &Word| text.replace(&format!("{{{name}}}"), value);
    words.iter().fold(text.into(), fill)
}

/// Our echo server on a free port.
fn target(core: Option<usize>) -> Result<Server> {
    let program = env::current_exe().context("cannot find this program to start it")?;
    let arguments = ["echo", "--listen", "127.0.0.1:0"].map(Into::into).into();
    Ok(Server::start(&Spec { arguments, pin: core, ..Spec::of("target", program) })?)
}

/// A file of random bytes.
fn write_noise(path: &Path, bytes: u64) -> io::Result<()> {
    let mut noise = File::open("/dev/urandom")?.take(bytes);
    io::copy(&mut noise, &mut File::create(path)?).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use crate::server_bench::Comparison;

    #[test]
    fn files_are_as_long_as_the_loads_say() {
        let loads = Comparison::find("files").expect("it exists").loads;
        let scratch = Scratch::within(&env::temp_dir()).expect("a directory");
        let all: Vec<_> = loads.iter().collect();
        let mut fixture = Fixture::new(scratch.path(), &all, None).expect("files");
        let words = fixture.words("");
        let site = filled("{SITE}{SERVICE}{OTHER}", &words);
        assert_eq!(site, format!("{}/site{{OTHER}}", scratch.path().display()));
        for load in loads {
            let path = format!("{}{}", filled("{SITE}", &words), load.request);
            assert_eq!(fs::metadata(path).expect("a file").len(), load.bytes);
        }
        let directories = [0, 1].map(|_| fixture.directory().expect("a directory"));
        assert_ne!(directories[0], directories[1]);
    }
}
