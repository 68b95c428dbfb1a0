//! The initramfs that a machine boots from: a shell, modules for its file systems, and the script
//! that mounts them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Result;
use fs_err as fs;

use crate::files::{name, remove};
use crate::step::Step;

/// Modules for the disk, the shared files, their file systems and random numbers. A module that is
/// built into the kernel or missing is skipped.
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

/// Builds the image for a kernel whose files are below `root`.
pub(super) fn build(image: &Path, root: &Path, release: &str, busybox: &Path) -> Result<()> {
    let modules = root.join("lib/modules").join(release);
    let program = busybox.display().to_string();
    if !modules.join("modules.dep").is_file() {
        Step::new(&program, "depmod -b").argument(root).argument(release).run()?;
    }
    let tree = image.with_extension("tree");
    remove(&tree)?;
    for directory in ["bin", "dev", "proc", "modules", "root"] {
        fs::create_dir_all(tree.join(directory))?;
    }
    fs::copy(busybox, tree.join("bin/busybox"))?;
    fs::write(tree.join("init"), include_str!("init.sh"))?;
    fs::set_permissions(tree.join("init"), Permissions::from_mode(0o755))?;
    let mut order = String::new();
    for path in in_order(&fs::read_to_string(modules.join("modules.dep"))?, &MODULES) {
        let module = name(Path::new(path));
        let copy = tree.join("modules").join(&module);
        fs::copy(modules.join(path), &copy)?;
        // busybox's insmod does not decompress modules.
        if module.ends_with(".xz") {
            Step::new(&program, "unxz").argument(copy).run()?;
        }
        order += &format!("{}\n", module.trim_end_matches(".xz"));
    }
    fs::write(tree.join("modules/order"), order)?;
    let pack = "cd \"$1\" && find . | \"$0\" cpio -o -H newc >\"$2\"";
    Step::new("sh", "-c").argument(pack).argument(busybox).argument(tree).argument(image).run()?;
    Ok(())
}

/// Returns the paths of the named modules, each after its dependencies. A line of the table lists
/// all dependencies of a module, in reverse order of loading.
fn in_order<'a>(table: &'a str, names: &[&str]) -> Vec<&'a str> {
    let mut order = Vec::new();
    for wanted in names {
        let mut lines = table.lines().filter_map(|line| line.split_once(':'));
        let Some((path, needed)) = lines.find(|(path, _)| stem(path) == *wanted) else { continue };
        for module in needed.split_whitespace().rev().chain([path]) {
            if !order.contains(&module) {
                order.push(module);
            }
        }
    }
    order
}

/// Returns the name of a module: its file name up to `.ko`, with `-` replaced by `_`.
fn stem(path: &str) -> String {
    let file = name(Path::new(path));
    file.split(".ko").next().unwrap_or(&file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_follow_their_dependencies_and_occur_once() {
        let table = "k/9p.ko: k/9pnet.ko k/netfs.ko\nk/netfs.ko:\nk/9pnet.ko:\nk/crc32c-generic.ko.xz:\n\
                     k/9pnet_virtio.ko: k/9pnet.ko";
        let order = in_order(table, &["9pnet_virtio", "9p", "crc32c_generic", "built_in"]);
        let expected =
            ["k/9pnet.ko", "k/9pnet_virtio.ko", "k/netfs.ko", "k/9p.ko", "k/crc32c-generic.ko.xz"];
        assert_eq!(order, expected);
    }
}
