//! Creating directories with options.

use super::dir::Dir;
use std::io;
use std::path::Path;

/// Options for creating directories.
///
/// ```
/// use annulus::fs::{self, DirBuilder};
///
/// # annulus::run(async {
/// # let root = std::env::temp_dir().join(format!("annulus-builder-{}", std::process::id()));
/// DirBuilder::new().recursive(true).mode(0o700).create(root.join("a/b")).await?;
/// assert!(fs::try_exists(root.join("a/b")).await?);
/// # fs::remove_dir_all(&root).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct DirBuilder {
    mode: u32,
    recursive: bool,
}

impl Default for DirBuilder {
    fn default() -> Self {
        Self { mode: 0o777, recursive: false }
    }
}

impl DirBuilder {
    /// Returns options for a single directory with permissions 0o777.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also creates missing parents, and accepts an existing directory. Off by default.
    pub fn recursive(mut self, on: bool) -> Self {
        self.recursive = on;
        self
    }

    /// Sets the permissions of created directories, before the process's umask is applied.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Creates the directory. A relative path starts from the working directory.
    ///
    /// # Errors
    /// The errors of [`Dir::create_dir`] and [`Dir::create_dir_all`]; or outside a runtime.
    pub async fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let (dir, path) = (Dir::working()?, path.as_ref());
        if self.recursive {
            dir.make_dirs(path, self.mode).await
        } else {
            dir.make_dir(path, self.mode).await
        }
    }
}
