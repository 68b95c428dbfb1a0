//! Directories.

use crate::common::run_on;
use crate::files::mode::everywhere;
use crate::files::place::Place;
use annulus::fs::{self, Dir, EntryKind, OpenOptions, Policy};
use annulus::task::yield_now;
use annulus::{Runtime, spawn};
use annulus_skip::skip;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

#[test]
fn every_entry_is_returned_once() {
    // More entries than one call returns. All modes share the directory, since creating it takes
    // longest.
    static FULL: OnceLock<PathBuf> = OnceLock::new();
    let full = Place::new();
    for n in 0..1000 {
        let name = format!("a file with quite a long name, number {n}");
        std::fs::write(full.join(name), b"").unwrap();
    }
    std::fs::create_dir(full.join("directory")).unwrap();
    std::os::unix::fs::symlink("nowhere", full.join("link")).unwrap();
    FULL.set(full.path().to_owned()).expect("the directory was set twice");
    everywhere(|_| async {
        let path = FULL.get().expect("the directory was not created");
        let mut entries = fs::read_dir(path).await?;
        let mut seen = BTreeMap::new();
        while let Some(entry) = entries.next_entry().await? {
            assert!(
                seen.insert(entry.file_name(), entry.kind()).is_none(),
                "{entry:?} was returned twice"
            );
            assert_eq!(entry.path(), path.join(entry.file_name()));
            assert_eq!(entry.ino(), entry.metadata().await?.ino());
        }
        assert_eq!(seen.len(), 1002);
        assert_eq!(seen[&*std::ffi::OsString::from("directory")], EntryKind::Dir);
        assert_eq!(seen[&*std::ffi::OsString::from("link")], EntryKind::Symlink);
        Ok(())
    });
}

#[test]
fn trees_are_made_and_removed_and_links_are_not_followed() {
    everywhere(|place| async move {
        let deep: PathBuf = std::iter::repeat_n("d", 60).collect();
        fs::create_dir_all(place.join("tree").join(&deep)).await?;
        fs::create_dir_all(place.join("tree").join(&deep)).await?;
        fs::create_dir(place.join("outside")).await?;
        fs::write(place.join("outside/file"), b"stays").await?;
        fs::symlink(place.join("outside"), place.join("tree/d/link")).await?;
        fs::write(place.join("tree/d/d/file"), b"").await?;
        assert_eq!(
            fs::remove_dir(place.join("tree")).await.unwrap_err().kind(),
            ErrorKind::DirectoryNotEmpty
        );
        fs::remove_dir_all(place.join("tree")).await?;
        assert_eq!(fs::metadata(place.join("tree")).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs::read(place.join("outside/file")).await?, b"stays");
        // Removing a link does not touch its target.
        fs::symlink("outside", place.join("link")).await?;
        fs::remove_dir_all(place.join("link")).await?;
        assert!(fs::symlink_metadata(place.join("link")).await.is_err());
        assert_eq!(fs::read(place.join("outside/file")).await?, b"stays");
        let file = place.join("outside/file");
        assert_eq!(fs::remove_dir_all(file).await.unwrap_err().kind(), ErrorKind::NotADirectory);
        Ok(())
    });
}

/// With a slash at the end of the path, the system follows a link even if it is told not to.
#[test]
fn links_are_not_followed_whatever_ends_the_path() {
    everywhere(|place| async move {
        fs::create_dir(place.join("outside")).await?;
        fs::write(place.join("outside/file"), b"stays").await?;
        for end in ["", "/", "//", "/.", "/./"] {
            fs::symlink("outside", place.join("link")).await?;
            fs::remove_dir_all(place.join(format!("link{end}"))).await?;
            assert!(fs::symlink_metadata(place.join("link")).await.is_err(), "{end} left the link");
            assert_eq!(fs::read(place.join("outside/file")).await?, b"stays", "{end}");
            fs::create_dir_all(place.join("tree/below")).await?;
            fs::remove_dir_all(place.join(format!("tree{end}"))).await?;
            assert!(!fs::try_exists(place.join("tree")).await?, "{end} left the tree");
        }
        let file = place.join("outside/file/");
        assert_eq!(fs::remove_dir_all(file).await.unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(fs::remove_dir_all("").await.unwrap_err().kind(), ErrorKind::NotFound);
        Ok(())
    });
}

#[test]
fn a_directory_removed_while_being_read_ends() {
    const NAMES: usize = 800;
    everywhere(|place| async move {
        for (names, read_before) in [(0, 0), (NAMES, 0), (NAMES, 1), (NAMES, NAMES / 2)] {
            let path = place.join("listed");
            std::fs::create_dir(&path)?;
            for name in 0..names {
                std::fs::write(path.join(format!("a name that is longer, number {name}")), "")?;
            }
            let mut entries = fs::read_dir(&path).await?;
            for _ in 0..read_before {
                assert!(entries.next_entry().await?.is_some());
            }
            std::fs::remove_dir_all(&path)?;
            let mut seen = read_before;
            while entries.next_entry().await?.is_some() {
                seen += 1;
            }
            assert!(seen < NAMES, "one call returned everything, so the removal had no effect");
            assert!(entries.next_entry().await?.is_none(), "an entry was returned after the end");
        }
        Ok(())
    });
}

/// Creates a tree of directories, with four files in each of the 27 deepest ones.
fn make_tree(root: &Path) {
    for n in 0..27 {
        let deep = root.join(format!("{}/{}/{}/d/e", n / 9, n / 3 % 3, n % 3));
        std::fs::create_dir_all(&deep).unwrap();
        (0..4).for_each(|file| std::fs::write(deep.join(format!("{file}")), "").unwrap());
    }
}

#[test]
fn removers_of_the_same_tree_all_succeed() {
    everywhere(|place| async move {
        for round in 0..2 {
            let root = place.join("tree");
            make_tree(&root);
            let in_std = root.clone();
            let thread = (round % 2 == 0)
                .then(|| std::thread::spawn(move || std::fs::remove_dir_all(in_std)));
            let removers: Vec<_> = (0..3)
                .map(|_| {
                    let root = root.clone();
                    annulus::spawn(async move { fs::remove_dir_all(root).await })
                })
                .collect();
            let mut removed = 0;
            for remover in removers {
                match remover.await.unwrap() {
                    Ok(()) => removed += 1,
                    // This removal started after the others had finished.
                    Err(error) => assert!(is_missing(&error, &root), "{error}"),
                }
            }
            let removed_by_std = thread.map(|thread| thread.join().unwrap().is_ok());
            assert!(removed > 0 || removed_by_std == Some(true));
            assert!(!root.exists());
        }
        Ok(())
    });
}

#[test]
fn entries_added_during_a_removal_are_removed() {
    // Both tasks run in turns: one operation of the removal, one new entry.
    let builder = Runtime::builder().task_budget(1).file_policy(Policy::Inline);
    run_on(builder, async {
        let root = std::env::temp_dir().join(format!("annulus-added-{}", std::process::id()));
        std::fs::create_dir_all(root.join("deep"))?;
        std::fs::write(root.join("deep/early"), "")?;
        let place = root.clone();
        let adding = spawn(async move {
            let mut added = 0;
            while added < 3 {
                let is_emptied = !place.join("deep/early").exists();
                if is_emptied && std::fs::write(place.join(format!("deep/{added}")), "").is_ok() {
                    added += 1;
                }
                yield_now().await;
            }
        });
        fs::remove_dir_all(&root).await?;
        assert!(!root.exists());
        adding.abort();
        Ok(())
    });
}

#[test]
fn an_entry_that_cannot_be_removed_is_named_with_its_path() {
    everywhere(|place| async move {
        let deep = place.join("tree/deep/deeper");
        std::fs::create_dir_all(&deep)?;
        std::fs::write(deep.join("file"), "")?;
        // Root may remove entries of a read-only directory, but no immutable ones.
        let opened = std::fs::File::open(deep.join("file"))?;
        let flags = ioctl_getflags(&opened).unwrap_or(IFlags::empty());
        if ioctl_setflags(&opened, flags | IFlags::IMMUTABLE).is_err() {
            skip!("no file can be made immutable here");
            return Ok(());
        }
        let error = fs::remove_dir_all(place.join("tree")).await.unwrap_err();
        ioctl_setflags(&opened, flags)?;
        let shown = format!("removing `{}`", deep.join("file").display());
        assert!(error.to_string().contains(&shown), "{error}");
        fs::remove_dir_all(place.join("tree")).await
    });
}

/// Returns true if the error says that the root itself did not exist.
fn is_missing(error: &std::io::Error, root: &Path) -> bool {
    error.kind() == ErrorKind::NotFound
        && error.to_string().contains(&format!("`{}`", root.display()))
}

#[test]
fn an_open_directory_is_used_after_it_is_renamed() {
    everywhere(|place| async move {
        fs::create_dir(place.join("before")).await?;
        let dir = Dir::open(place.join("before")).await?;
        fs::rename(place.join("before"), place.join("after")).await?;
        let options = OpenOptions::new().write(true).create_new(true);
        let file = dir.open_file("file", &options).await?;
        file.write_all_at(b"here", 0).await.0?;
        dir.create_dir("inner").await?;
        dir.rename("file", "inner/file").await?;
        assert_eq!(fs::read(place.join("after/inner/file")).await?, b"here");
        let inner = dir.open_dir("inner").await?;
        inner.rename_to("file", &dir, "back").await?;
        assert_eq!(dir.metadata("back").await?.len(), 4);
        Ok(())
    });
}

#[test]
fn creating_a_directory_over_a_file_fails() {
    everywhere(|place| async move {
        fs::write(place.join("file"), b"").await?;
        let error = fs::create_dir_all(place.join("file")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        let error = fs::create_dir_all(place.join("file/below")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotADirectory);
        Ok(())
    });
}

#[test]
fn directories_have_the_requested_mode() {
    use std::os::unix::fs::PermissionsExt;
    everywhere(|place| async move {
        let private = fs::DirBuilder::new().mode(0o700);
        let mode = |path: &str| std::fs::metadata(place.join(path)).unwrap().permissions().mode();
        assert!(!fs::try_exists(place.join("a")).await?);
        private.create(place.join("a")).await?;
        assert!(fs::try_exists(place.join("a")).await?);
        let again = private.create(place.join("a")).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        let missing = private.create(place.join("b/c")).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let private = private.recursive(true);
        private.create(place.join("b/c")).await?;
        private.create(place.join("b/c")).await?;
        assert_eq!([mode("a"), mode("b"), mode("b/c")].map(|mode| mode & 0o777), [0o700; 3]);
        // A dangling link does not exist.
        fs::symlink("nowhere", place.join("link")).await?;
        assert!(!fs::try_exists(place.join("link")).await?);
        std::fs::write(place.join("file"), "")?;
        let unknown = fs::try_exists(place.join("file/below")).await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::NotADirectory);
        Ok(())
    });
}
