//! A virtual machine: QEMU with a kernel, two CPUs, the files of this machine (read only), and an
//! empty disk.

use std::path::Path;

use anyhow::Result;
use fs_err as fs;

use crate::step::Step;

pub(super) const QEMU: &str = "qemu-system-x86_64";
/// The size of the disk, a sparse file.
const DISK_SIZE: &str = "4G";
/// How long to wait for the first process of a machine with hardware support, with a margin for a
/// busy host.
const PROBE_SECONDS: u64 = 20;

/// QEMU options for running the machine's instructions on the processor itself.
const KVM_OPTIONS: &str = "-accel kvm -cpu host";
/// QEMU options for translating instructions, which is about ten times slower.
const TCG_OPTIONS: &str = "-accel tcg,thread=multi -cpu max,la57=off";

/// The images that a machine boots from, and its results directory. Its disk and its console log
/// are placed beside the initramfs.
pub(super) struct Machine<'a> {
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// The directory with its plan, for its results. `None` only tests whether it boots.
    pub(super) results: Option<&'a Path>,
}

/// Returns the options that work here, found by booting a machine: /dev/kvm may exist without
/// working.
pub(super) fn accelerator(kernel: &Path, initramfs: &Path) -> &'static str {
    if !Path::new("/dev/kvm").exists() {
        return TCG_OPTIONS;
    }
    let machine = Machine { kernel, initramfs, results: None };
    match machine.boot(KVM_OPTIONS, PROBE_SECONDS) {
        Ok(console) if console.contains("annulus: alive") => KVM_OPTIONS,
        _ => TCG_OPTIONS,
    }
}

impl Machine<'_> {
    /// Runs the machine until it ends, for at most `most` seconds, and returns its console output.
    pub(super) fn boot(&self, accelerator: &str, most: u64) -> Result<String> {
        let console = self.initramfs.with_extension("console");
        let line = format!(
            "--kill-after=5 {most} {QEMU} {accelerator} -smp 2 -m 2048 -nodefaults -no-user-config -no-reboot -display none"
        );
        let step = Step::new("timeout", &line).argument("-serial");
        let step = step.argument(format!("file:{}", console.display()));
        let step = step.argument("-kernel").argument(self.kernel);
        let step = step.argument("-initrd").argument(self.initramfs);
        // no_timer_check: on a busy host, the timer test at boot can fail.
        let words = "console=ttyS0 panic=-1 quiet mitigations=off no_timer_check";
        let step = step.argument("-append");
        match self.results {
            None => step.argument(format!("{words} annulus.probe")).status()?,
            Some(results) => self.share(step.argument(words), results)?.status()?,
        };
        _ = fs::remove_file(self.initramfs.with_extension("disk"));
        Ok(String::from_utf8_lossy(&fs::read(&console)?).into_owned())
    }

    /// Adds the files of this machine, the results directory, and an empty disk.
    fn share(&self, step: Step, results: &Path) -> Result<Step> {
        let disk = self.initramfs.with_extension("disk");
        // `mke2fs` does not erase an existing file, so a fresh disk must be a new file.
        if disk.exists() {
            fs::remove_file(&disk)?;
        }
        Step::new("mke2fs", "-q -t ext4 -F").argument(&disk).argument(DISK_SIZE).run()?;
        let local = "local,security_model=none,multidevs=remap";
        let share = |step: Step, path: &Path, tag: &str| {
            let path = path.display();
            let step = step.argument("-virtfs");
            step.argument(format!("{local},path={path},mount_tag={tag}"))
        };
        let step = share(step, results, "results");
        let step = share(step, Path::new("/"), "files,readonly=on").argument("-drive");
        Ok(step.argument(format!("file={},if=virtio,format=raw,cache=unsafe", disk.display())))
    }
}
