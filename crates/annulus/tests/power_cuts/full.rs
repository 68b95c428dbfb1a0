//! A full disk: the simulated one behaves like a small file system of Linux.

use crate::rerun::{assert_passed, command};
use annulus::Runtime;
use annulus::fs::{self, File};
use annulus::sim::{Device, Disk, Sim, run_on};
use annulus_skip::skip;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::Command;

/// Size of the file system, in bytes, and of a page of it.
const SIZE: u64 = 64 << 10;
const PAGE: u64 = 4096;
/// The environment variable with the directory of the small file system.
const DIRECTORY: &str = "ANNULUS_SMALL_DISK";

/// Fills the file system, and then continues as a program would after the error: truncates the
/// file, writes again, and frees space.
async fn fill(directory: PathBuf) -> io::Result<()> {
    let path = directory.join("file");
    let file = File::create(&path).await?;
    let (mut len, all) = (0, vec![1; 3 * PAGE as usize]);
    let error = loop {
        match file.write_at(all.clone(), len).await.0 {
            Ok(count) => len += count as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    assert_eq!(file.metadata().await?.len(), len, "the length includes bytes that were refused");
    assert!(len % PAGE == 0 && len > SIZE / 2 && len <= SIZE, "{len} bytes were written");
    // Bytes that are there can be overwritten, and are durable.
    file.write_all_at(vec![2; PAGE as usize], 0).await.0?;
    file.sync_all().await?;
    // Truncating a file needs no free space, and makes exactly as much space as it removes.
    file.set_len(len - PAGE - 100).await?;
    file.write_all_at(vec![3; PAGE as usize + 100], len - PAGE - 100).await.0?;
    let refused = file.write_all_at(vec![4], len).await.0.expect_err("the disk is full again");
    assert_eq!(refused.kind(), ErrorKind::StorageFull);
    file.sync_all().await?;
    let bytes = fs::read(&path).await?;
    let expected = [(2, PAGE), (1, len - 2 * PAGE - 100), (3, PAGE + 100)];
    let expected = expected.map(|(byte, count)| vec![byte; count as usize]).concat();
    assert!(bytes == expected, "a refused write has changed other bytes");
    drop(file);
    fs::remove_file(&path).await?;
    fs::write(&path, vec![5; SIZE as usize / 2]).await
}

#[test]
fn a_full_simulated_disk_refuses_bytes_until_there_is_space() {
    let disk = Disk::new(Device { capacity: SIZE, ..Device::default() });
    let sim = Sim::builder(1).disk(disk).build();
    run_on(&sim, Runtime::builder(), fill("/".into())).unwrap();
}

/// Mounts a small tmpfs in a mount namespace of its own, and runs this test there.
#[test]
fn a_full_tmpfs_does_the_same() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return annulus::run(fill(directory.into())).unwrap();
    }
    let directory = std::env::temp_dir().join(format!("annulus-small-disk-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let mount = format!("mount -t tmpfs -o size={SIZE} none \"${DIRECTORY}\"");
    let in_namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", script, "sh"]).env(DIRECTORY, &directory);
        command
    };
    let mounts = in_namespace(&mount).output();
    if mounts.is_ok_and(|output| output.status.success()) {
        let test = command(concat!(module_path!(), "::a_full_tmpfs_does_the_same"));
        let mut there = in_namespace(&format!("{mount} && exec \"$@\""));
        there.arg(test.get_program()).args(test.get_args());
        assert_passed(&there.output().unwrap());
    } else {
        skip!("`unshare -rm` cannot mount a tmpfs: allow user namespaces, or run the test as root");
    }
    std::fs::remove_dir(&directory).unwrap();
}
