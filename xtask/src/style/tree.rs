//! The text files of the workspace, which the style rules read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use fs_err as fs;

use crate::files::{below, joined};
use crate::step::root;

/// Directories that are not read: build output, `.git` and fuzz inputs.
const SKIPPED_DIRECTORIES: [&str; 5] =
    ["target", ".git", "fuzz/corpus", "fuzz/target", "fuzz/artifacts"];

/// The extensions of the files that are read.
const TEXT_EXTENSIONS: [&str; 9] = ["rs", "md", "toml", "py", "c", "h", "cpp", "go", "sh"];
/// The name of a text file without such an extension: rustdoc's links of the guide.
const ITEM_LINKS: &str = "links.txt";

/// A file of the workspace.
pub(super) struct SourceFile {
    /// The path from the workspace's root.
    pub(super) path: String,
    pub(super) text: String,
}

impl SourceFile {
    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(super) fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }
}

/// The text files, and the paths of all files.
#[derive(Default)]
pub(super) struct Tree {
    /// Text files, by path.
    pub(super) files: Vec<SourceFile>,
    /// The paths of all files and their directories; directories end with a slash.
    pub(super) paths: BTreeSet<String>,
    /// Files that are symbolic links, each with the path of the file to which it leads. They are
    /// not among the other files.
    pub(super) symlinks: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the workspace.
    pub(super) fn read() -> Result<Tree> {
        let root = root();
        let left_out = |path: &Path| {
            path.is_symlink() && path.is_dir()
                || SKIPPED_DIRECTORIES.iter().any(|directory| path.ends_with(directory))
        };
        let mut tree = Tree::default();
        for file in below(&root, &left_out)? {
            let path = file.strip_prefix(&root)?.to_string_lossy().into_owned();
            if file.is_symlink() {
                let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
                let target = joined(directory, &fs::read_link(&file)?.to_string_lossy());
                tree.symlinks.insert(path, target);
                continue;
            }
            let is_text = path.ends_with(ITEM_LINKS)
                || file.extension().is_some_and(|end| TEXT_EXTENSIONS.iter().any(|e| end == *e));
            let text = if is_text { Some(fs::read(&file)?) } else { None };
            let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            tree.add(&path, text);
        }
        Ok(tree)
    }

    /// Creates a tree of these files.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        files.iter().for_each(|(path, text)| tree.add(path, Some((*text).to_owned())));
        tree
    }

    fn add(&mut self, path: &str, text: Option<String>) {
        self.paths.extend(path.match_indices('/').map(|(end, _)| path[..=end].to_owned()));
        self.paths.insert(path.to_owned());
        self.files.extend(text.map(|text| SourceFile { path: path.to_owned(), text }));
    }

    pub(super) fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }
}
