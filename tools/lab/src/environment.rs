//! The environment of a run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use annulus_load::{affinity, counted};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The name of this program.
pub(crate) const OWN_PROGRAM: &str = "annulus";

/// The machine, the program and the environment of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Environment {
    /// The release of the kernel.
    pub kernel: String,
    /// The architecture of the processor.
    pub architecture: String,
    /// The name of the processor; empty if `/proc/cpuinfo` has none.
    pub cpu: String,
    /// The cores that this process may use.
    pub cores: Vec<usize>,
    /// The kernel's mitigation of each vulnerability of this processor.
    pub mitigations: BTreeMap<String, String>,
    /// The version of annulus.
    pub version: String,
    /// The commit that annulus was built from, if known.
    pub commit: Option<String>,
    /// The Cargo profile with which annulus was built, if known.
    pub profile: Option<String>,
    /// Whether annulus is a debug build. Its servers and its load take several times the CPU time
    /// of a release build, so results of the two are not mixed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debug_build: bool,
    /// The command line, with the name of the program instead of its path.
    pub command_line: Vec<String>,
    /// Variables that can affect a run, such as `RUSTFLAGS`, `ANNULUS_*` and `CARGO_PROFILE_*`.
    pub variables: BTreeMap<String, String>,
    /// The load average at the start of the run. A value well above 0 suggests that the machine had
    /// other work.
    pub load_average: String,
    /// The start of the run, in UTC.
    pub time: String,
}

impl Environment {
    /// Reads the environment from the system. Values that cannot be read are empty.
    pub fn read() -> Environment {
        let line = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        Environment {
            kernel: line("/proc/sys/kernel/osrelease"),
            architecture: std::env::consts::ARCH.into(),
            cpu: cpu(&line("/proc/cpuinfo")).unwrap_or_default(),
            cores: affinity::allowed().unwrap_or_default(),
            mitigations: mitigations(Path::new("/sys/devices/system/cpu/vulnerabilities")),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: option_env!("ANNULUS_COMMIT").map(str::to_owned),
            profile: option_env!("ANNULUS_PROFILE").map(str::to_owned),
            debug_build: cfg!(debug_assertions),
            command_line: command_line(std::env::args()),
            variables: std::env::vars().filter(|(name, _)| matters(name)).collect(),
            load_average: line("/proc/loadavg"),
            time: now(),
        }
    }

    /// Returns the processor, the number of cores and the kernel.
    pub fn machine(&self) -> String {
        let cpu = if self.cpu.is_empty() { "unknown processor" } else { &self.cpu };
        format!("{cpu}, {}, Linux {}", counted(self.cores.len(), "core"), self.kernel)
    }
}

/// Returns the time in UTC.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%FT%TZ").to_string()
}

fn cpu(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns the mitigation of each vulnerability that affects the processor.
fn mitigations(directory: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(directory) else { return BTreeMap::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let says = fs::read_to_string(entry.path()).ok()?.trim().to_owned();
            Some((entry.file_name().into_string().ok()?, says))
        })
        .filter(|(_, says)| says != "Not affected")
        .collect()
}

fn command_line(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut arguments: Vec<String> = arguments.collect();
    if let Some(program) = arguments.first_mut() {
        let name = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
        *program = name.unwrap_or_default();
    }
    arguments
}

/// Returns true if a variable can change the build or the measurement. Results are published, so
/// variables that hold secrets, such as `ANNULUS_MEET_TOKEN`, or paths of this machine, such as
/// `CARGO_HOME` and `ANNULUS_ORIGINALS`, are not kept.
fn matters(variable: &str) -> bool {
    let exact = ["RUSTFLAGS", "RUST_LOG", "RUST_BACKTRACE", "RUST_MIN_STACK"];
    let begins = ["ANNULUS_", "CARGO_PROFILE_"];
    let is_private = variable == "ANNULUS_ORIGINALS" || variable.ends_with("_TOKEN");
    exact.contains(&variable)
        || !is_private && begins.iter().any(|start| variable.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_describes_this_machine() {
        let here = Environment::read();
        assert!(here.kernel.starts_with(|c: char| c.is_ascii_digit()), "{here:?}");
        assert!(here.time.ends_with('Z') && !here.load_average.is_empty(), "{here:?}");
        assert!(!here.cores.is_empty(), "{here:?}");
        assert!(!here.command_line[0].contains('/'), "{here:?}");
    }

    #[test]
    fn the_name_of_the_processor_follows_the_colon() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n";
        assert_eq!(cpu(text).as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(cpu("processor : 0"), None);
    }

    #[test]
    fn vulnerabilities_that_do_not_affect_the_processor_are_omitted() {
        let directory =
            std::env::temp_dir().join(format!("annulus-lab-flaws-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("cannot create a directory");
        fs::write(directory.join("meltdown"), "Not affected\n").expect("cannot write a file");
        fs::write(directory.join("spectre_v2"), "Mitigation: Retpolines\n")
            .expect("cannot write a file");
        let found = mitigations(&directory);
        fs::remove_dir_all(&directory).expect("cannot clean up");
        assert_eq!(found, [("spectre_v2".into(), "Mitigation: Retpolines".into())].into());
        assert!(mitigations(&directory).is_empty());
    }

    #[test]
    fn only_relevant_variables_are_kept() {
        assert!(
            matters("RUSTFLAGS") && matters("ANNULUS_X") && matters("CARGO_PROFILE_RELEASE_LTO")
        );
        assert!(!matters("RUSTUP_HOME") && !matters("RUSTUP_TOOLCHAIN"));
        assert!(!matters("ANNULUS_MEET_TOKEN"), "a secret would be kept in published results");
        assert!(
            !matters("ANNULUS_ORIGINALS")
                && !matters("HOME")
                && !matters("CARGO_HOME")
                && !matters("PATH")
        );
    }
}
