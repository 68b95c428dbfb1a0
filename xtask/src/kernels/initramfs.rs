//! The image that a machine boots from: a shell, the modules for its files, and the script that mounts them, as an archive of the
//! format "newc".

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::Missing;
use super::packages::{Kernel, about, bytes, run};
use std::process::Command;

/// Modules for the disk, the shared files and the file systems over them. A module that is built into the kernel, or that it does not have, is
/// skipped.
const MODULES: [&str; 8] = [
    "virtio_pci",
    "virtio_blk",
    "9pnet_virtio",
    "9p",
    "crc32c_generic",
    "ext4",
    "overlay",
    "virtio_rng",
];

const INIT: &str = include_str!("init.sh");

/// The archive for a kernel.
pub(super) fn build(kernel: &Kernel, busybox: &Path) -> Result<Vec<u8>, Missing> {
    let directory = kernel.root.join("lib/modules").join(&kernel.release);
    if !directory.join("modules.dep").is_file() {
        let mut depmod = Command::new(busybox);
        run(depmod.args(["depmod", "-b"]).arg(&kernel.root).arg(&kernel.release))?;
    }
    let table = directory.join("modules.dep");
    let table = fs::read_to_string(&table).map_err(|error| about(&table, &error))?;
    let read = |path: &Path| fs::read(path).map_err(|error| about(path, &error));
    let mut archive = Archive::default();
    for name in ["bin", "dev", "proc", "modules", "root"] {
        archive.directory(name);
    }
    archive.program("bin/busybox", &read(busybox)?);
    archive.program("init", INIT.as_bytes());
    let mut order = String::new();
    for path in in_order(&table, &MODULES) {
        let name = path.rsplit('/').next().unwrap_or(path);
        let name = name.strip_suffix(".xz").unwrap_or(name);
        archive.program(&format!("modules/{name}"), &module(&directory.join(path), busybox)?);
        order += &format!("{name}\n");
    }
    archive.program("modules/order", order.as_bytes());
    Ok(archive.finish())
}

/// A module, decompressed: the loader of the shell does not decompress.
fn module(path: &Path, busybox: &Path) -> Result<Vec<u8>, Missing> {
    if path.extension().is_some_and(|ending| ending == "xz") {
        return bytes(Command::new(busybox).arg("xzcat").arg(path));
    }
    fs::read(path).map_err(|error| about(path, &error))
}

/// The paths of the modules of these names, each after those that it needs.
fn in_order<'a>(table: &'a str, names: &[&str]) -> Vec<&'a str> {
    let needs: BTreeMap<&str, &str> =
        table.lines().filter_map(|line| line.split_once(':')).collect();
    let named = |name: &&str| {
        let file = |path: &&&str| stem(path) == stem(name);
        needs.keys().find(file).copied()
    };
    let mut order = Vec::new();
    for path in names.iter().filter_map(named) {
        add(path, &needs, &mut order);
    }
    order
}

/// Adds a module after what it needs, unless it was added before.
fn add<'a>(path: &'a str, needs: &BTreeMap<&'a str, &'a str>, order: &mut Vec<&'a str>) {
    if order.contains(&path) {
        return;
    }
    for needed in needs.get(path).into_iter().flat_map(|needed| needed.split_whitespace()) {
        add(needed, needs, order);
    }
    order.push(path);
}

/// The name of a module: that of its file without `.ko` and what may follow, with `_` for `-`.
fn stem(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

/// A cpio archive in memory.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    const DIRECTORY: u32 = 0o040_755;
    const PROGRAM: u32 = 0o100_755;

    fn directory(&mut self, name: &str) {
        self.entry(name, Self::DIRECTORY, &[]);
    }

    fn program(&mut self, name: &str, bytes: &[u8]) {
        self.entry(name, Self::PROGRAM, bytes);
    }

    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        self.entries += 1;
        let links = 1;
        let size = u32::try_from(bytes.len()).expect("a module is no 4 GiB");
        let name_size = name.len() as u32 + 1;
        // Number, mode, owner, group, links, time, size, device and its node's, the name's size, and a sum that is not read.
        let fields = [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        fields.iter().for_each(|field| self.bytes.extend(format!("{field:08x}").bytes()));
        self.bytes.extend(name.bytes().chain([0]));
        self.align();
        self.bytes.extend(bytes);
        self.align();
    }

    /// Every header and every file begins at a multiple of four.
    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_behind_what_they_need_and_once() {
        let table = "k/9p.ko: k/9pnet.ko k/netfs.ko\nk/netfs.ko:\nk/9pnet.ko:\nk/crc32c-generic.ko.xz:\n\
                     k/9pnet_virtio.ko: k/9pnet.ko";
        let order = in_order(table, &["9pnet_virtio", "9p", "crc32c_generic", "built_in"]);
        let expected =
            ["k/9pnet.ko", "k/9pnet_virtio.ko", "k/netfs.ko", "k/9p.ko", "k/crc32c-generic.ko.xz"];
        assert_eq!(order, expected);
    }

    #[test]
    fn an_archive_has_headers_at_multiples_of_four() {
        let mut archive = Archive::default();
        archive.program("init", b"#!/bin/sh\n");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("07070100000001000081ed"));
        assert_eq!(text.match_indices("070701").map(|(at, _)| at % 4).sum::<usize>(), 0);
        assert!(text.contains("TRAILER!!!\0"));
    }
}
