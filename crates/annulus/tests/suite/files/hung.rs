//! A file system whose server no longer answers. Calls on it wait forever, but block neither the
//! loop, nor calls on other files, nor the end of the runtime.

use crate::common::fuse::{self, Mounted};
use crate::common::pair;
use crate::files::mode::{Mode, everywhere};
use crate::files::place::Place;
use annulus::fs::{self, Dir, File, FileCache, OpenOptions};
use annulus::io::copy_range;
use annulus::net::UnixStream;
use annulus::process::Command;
use annulus::task::{JoinHandle, yield_now};
use annulus::time::timeout;
use annulus::{Runtime, spawn};
use annulus_kernel::{Kernel, Linux};
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than calls on local files take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of calls of each kind, which is the number of threads per mount.
const EACH: usize = 8;

/// Starts a task for each kind of call on a path.
fn every_call(path: PathBuf, local: PathBuf) -> Vec<JoinHandle<()>> {
    macro_rules! calls {
        ($($call:expr),* $(,)?) => {
            vec![$({
                let (path, local) = (path.clone(), local.clone());
                _ = &local;
                spawn(async move {
                    let call: fn(PathBuf, PathBuf) -> _ = $call;
                    _ = call(path, local).await;
                })
            }),*]
        };
    }
    calls![
        |path, _| fs::metadata(path),
        |path, _| fs::symlink_metadata(path),
        |path, _| fs::try_exists(path),
        |path, _| fs::canonicalize(path),
        |path, _| fs::read(path),
        |path, _| fs::write(path, "bytes"),
        |path, _| fs::create_dir(path),
        |path, _| fs::create_dir_all(path.join("a/b")),
        |path, _| fs::remove_file(path),
        |path, _| fs::remove_dir(path),
        |path, _| fs::remove_dir_all(path),
        |path, local| fs::rename(path, local),
        |path, local| fs::rename(local, path),
        |path, local| fs::hard_link(local, path),
        |path, _| fs::symlink("target", path),
        |path, _| fs::read_link(path),
        |path, _| fs::read_dir(path),
        |path, local| fs::copy(path, local.join("copy")),
        |path, local| fs::copy(local.join("file"), path),
        |path, _| fs::set_permissions(path, Permissions::from_mode(0o600)),
        |path, _| Dir::open(path),
        |path, _| async move {
            let options = OpenOptions::new().write(true).create_new(true);
            options.open(path).await
        },
        |path, _| UnixStream::connect(path),
        |path, _| async move { Command::new(path).status().await },
        |path, _| async move { Command::new("true").current_dir(path).output().await },
        |path, _| async move { Command::new("no-such-program").env("PATH", path).status().await },
    ]
}

/// Uses local files and directories, in a directory that was not used before.
async fn use_local_files(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir.join("new/dir")).await?;
    let file = dir.join("new/dir/file");
    fs::write(&file, b"written").await?;
    assert_eq!(fs::read(&file).await?, b"written");
    assert_eq!(fs::metadata(&file).await?.len(), 7);
    File::open(&file).await?.sync_all().await?;
    fs::copy(&file, dir.join("copy")).await?;
    fs::rename(dir.join("copy"), dir.join("new/copy")).await?;
    fs::symlink("copy", dir.join("new/link")).await?;
    assert_eq!(fs::read(dir.join("new/link")).await?, b"written");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).await?;
    let mut entries = fs::read_dir(dir.join("new")).await?;
    let mut count = 0;
    while entries.next_entry().await?.is_some() {
        count += 1;
    }
    assert_eq!(count, 3);
    fs::remove_dir_all(dir.join("new")).await
}

/// Returns the mount and tasks that each make a call that hangs on it.
async fn hung_calls(place: &Place) -> Option<(Mounted, Vec<JoinHandle<()>>)> {
    let mounted = Mounted::at(place.join("mount"))?;
    mounted.hang();
    std::fs::write(place.join("file"), "local").unwrap();
    std::os::unix::fs::symlink(mounted.path(), place.join("link")).unwrap();
    std::fs::create_dir(place.join("dir")).unwrap();
    std::os::unix::fs::symlink(mounted.join("file"), place.join("dir/link")).unwrap();
    let mut hung = Vec::new();
    for path in [
        mounted.join("file"),
        mounted.path().to_owned(),
        mounted.join("."),
        place.join("link"),
        place.join("link/file"),
        mounted.join("deep/down/file"),
    ] {
        hung.extend(every_call(path, place.path().to_owned()));
    }
    for _ in 0..EACH {
        let link = place.join("dir/link");
        hung.push(spawn(async move { _ = fs::read(link).await }));
        let cache = FileCache::new(Dir::working().unwrap());
        let path = mounted.join("cached");
        hung.push(spawn(async move { _ = cache.open(path).await }));
    }
    for _ in 0..20 {
        yield_now().await;
    }
    Some((mounted, hung))
}

#[test]
fn a_hung_mount_blocks_neither_the_loop_nor_other_files() {
    everywhere(|place| async move {
        // The runtime has looked the directory up before anything is mounted in it.
        assert!(!fs::try_exists(place.join("mount/file")).await?);
        let Some((_mounted, _hung)) = hung_calls(&place).await else { return Ok(()) };
        let elsewhere = Place::new();
        let used = timeout(PATIENCE, use_local_files(elsewhere.path())).await;
        used.expect("local files hang")?;
        let used = timeout(PATIENCE, use_local_files(place.path())).await;
        used.expect("files next to the mount hang")
    });
}

#[test]
fn a_file_whose_server_stops_answering_blocks_nothing_else() {
    everywhere(|place| async move {
        let Some(mounted) = Mounted::at(place.join("mount")) else { return Ok(()) };
        assert_eq!(
            fs::metadata(mounted.join("missing")).await.unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        let open = || async { File::open(mounted.join("file")).await };
        let (read, by_offset, kept, by_pages) =
            (open().await?, open().await?, open().await?, open().await?);
        let by_std = File::from_std(std::fs::File::open(mounted.join("file"))?)?;
        let (count, bytes) = kept.read_at(vec![0; 10], 0).await;
        assert_eq!((count?, &bytes[..]), (10, &[7; 10][..]));
        mounted.hang();
        let mut read = read;
        let mut hung = vec![
            spawn(async move { _ = read.read(vec![0; 10]).await }),
            spawn(async move { _ = by_offset.read_vectored_at(vec![vec![0; 10]], 0).await }),
            spawn(async move { _ = by_std.metadata().await }),
        ];
        let (mut client, server) = pair().await?;
        hung.push(spawn(async move {
            _ = copy_range(&by_pages, ..fuse::LEN as u64, &mut client).await;
        }));
        yield_now().await;
        // The kernel reports the close to the server, which does not answer.
        drop(kept);
        let used = timeout(PATIENCE, use_local_files(place.path())).await;
        used.expect("local files hang")?;
        assert!(hung.iter().all(|task| !task.is_finished()));
        drop(server);
        Ok(())
    });
}

#[test]
fn shutdown_does_not_wait_for_a_call_that_hangs() {
    for mode in Mode::all() {
        let place = Place::new();
        let builder = Runtime::builder().driver(mode.driver).file_policy(mode.policy);
        let mut runtime = builder.shutdown_timeout(Duration::from_millis(10)).build().unwrap();
        let Some((mounted, hung)) = runtime.block_on(hung_calls(&place)) else { return };
        let began = Linux.now();
        drop((hung, runtime));
        // The end waits at most two seconds for cancelled operations that must complete.
        let took = Linux.now() - began;
        assert!(took < Duration::from_secs(2), "{mode:?}: {took:?}");
        drop(mounted);
    }
}
