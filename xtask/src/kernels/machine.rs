//! A virtual machine: QEMU with a kernel, two CPUs, the files of this machine read only, and a fresh disk.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::Missing;
use super::packages::{about, run};

const QEMU: &str = "qemu-system-x86_64";
/// The size of the disk, which takes no space here until it is written to.
const DISK: &str = "4G";
/// More than the time that a machine with hardware support takes to start its first process on a busy host.
const PROBE: Duration = Duration::from_secs(20);
/// How often the machine is polled for its end.
const LOOK: Duration = Duration::from_millis(100);

/// How the instructions of a machine are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accelerator {
    /// The processor itself runs them.
    Kvm,
    /// Translated: some ten times slower.
    Tcg,
}

impl Accelerator {
    fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"],
        }
    }
}

/// The images that a machine boots from, and the files it shares.
pub(super) struct Machine<'a> {
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// The directory of its plan and its results; the disk and the console are put beside it. `None` to test whether it
    /// boots.
    pub(super) results: Option<&'a Path>,
}

/// Whether QEMU is installed.
pub(super) fn check() -> Result<(), Missing> {
    let version = Command::new(QEMU).arg("--version").stdout(Stdio::null()).status();
    version.map(|_| ()).map_err(|error| Missing(format!("{QEMU}: {error}")))
}

/// The accelerator that works, by booting: a device for KVM may exist and not work.
pub(super) fn accelerator(kernel: &Path, initramfs: &Path) -> Accelerator {
    if !Path::new("/dev/kvm").exists() {
        return Accelerator::Tcg;
    }
    let machine = Machine { kernel, initramfs, results: None };
    match machine.boot(Accelerator::Kvm, PROBE) {
        Ok(console) if console.contains("annulus: alive") => Accelerator::Kvm,
        _ => Accelerator::Tcg,
    }
}

impl Machine<'_> {
    /// Runs the machine to its end, and returns its console output. It is stopped after `most`.
    #[allow(clippy::disallowed_methods)] // A time-out for another process.
    pub(super) fn boot(&self, accelerator: Accelerator, most: Duration) -> Result<String, Missing> {
        let console = self.beside(".console");
        let output = File::create(&console).map_err(|error| about(&console, &error))?;
        let errors = output.try_clone().map_err(|error| about(&console, &error))?;
        let mut command = Command::new(QEMU);
        command.args(accelerator.arguments()).args(["-smp", "2", "-m", "2048", "-nodefaults"]);
        command.args(["-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"]);
        command.arg("-kernel").arg(self.kernel).arg("-initrd").arg(self.initramfs);
        // On a busy host, the boot-time test of the timer can fail.
        let words = "console=ttyS0 panic=-1 quiet mitigations=off no_timer_check";
        match self.results {
            None => _ = command.arg("-append").arg(format!("{words} annulus.probe")),
            Some(results) => {
                self.share(command.arg("-append").arg(words), results)?;
            }
        }
        let child = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
        let mut child = child.map_err(|error| Missing(format!("{QEMU}: {error}")))?;
        let began = Instant::now();
        while began.elapsed() < most && child.try_wait().is_ok_and(|status| status.is_none()) {
            thread::sleep(LOOK);
        }
        _ = child.kill();
        _ = child.wait();
        _ = fs::remove_file(self.beside(".disk"));
        let bytes = fs::read(&console).map_err(|error| about(&console, &error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn beside(&self, name: &str) -> PathBuf {
        // Not `with_extension`, which would replace the last part of a version.
        let mut place = self.results.unwrap_or(self.initramfs).as_os_str().to_owned();
        place.push(name);
        place.into()
    }

    /// The files of this machine, a directory for results, and an empty disk.
    fn share(&self, command: &mut Command, results: &Path) -> Result<(), Missing> {
        let disk = self.beside(".disk");
        // `mke2fs` does not erase a file: a fresh disk is a new file.
        _ = fs::remove_file(&disk);
        run(Command::new("mke2fs").args(["-q", "-t", "ext4", "-F"]).arg(&disk).arg(DISK))?;
        let local = "local,security_model=none,multidevs=remap";
        command.arg("-virtfs").arg(format!("{local},path=/,mount_tag=files,readonly=on"));
        command.arg("-virtfs");
        command.arg(format!("{local},path={},mount_tag=results", results.display()));
        command.arg("-drive");
        command.arg(format!("file={},if=virtio,format=raw,cache=unsafe", disk.display()));
        Ok(())
    }
}
