//! The text files of the workspace: what the rules of style read.

use std::fs;
use std::path::Path;

use crate::step::{Failure, root};

/// Directories that are not read: build output, the repository itself, inputs of the fuzz targets, and the lists of this
/// check, which name every word that must not come back.
const LEFT_OUT: [&str; 6] =
    ["target", ".git", "fuzz/corpus", "fuzz/target", "fuzz/artifacts", "xtask/style"];

/// Endings of the files that are read.
const ENDINGS: [&str; 9] = ["rs", "md", "toml", "py", "c", "h", "cpp", "go", "sh"];

/// A file of the workspace.
pub(super) struct SourceFile {
    /// The path from the workspace's root, with slashes.
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
pub(super) struct Tree {
    /// Text files, by path.
    pub(super) files: Vec<SourceFile>,
    /// Files and directories of any kind, by path; directories end with a slash.
    pub(super) paths: Vec<String>,
}

impl Tree {
    /// Reads the workspace.
    pub(super) fn read() -> Result<Tree, Failure> {
        let mut tree = Tree { files: Vec::new(), paths: Vec::new() };
        tree.walk(&root(), "").map_err(|error| Failure::Failed(format!("style: {error}")))?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// A tree of these files alone.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Tree {
        let text = |(path, text): &(&str, &str)| SourceFile {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        let mut paths: Vec<String> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
        let parents = files
            .iter()
            .flat_map(|(path, _)| path.match_indices('/').map(|(end, _)| path[..=end].to_owned()));
        paths.extend(parents);
        Tree { files: files.iter().map(text).collect(), paths }
    }

    pub(super) fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    fn walk(&mut self, directory: &Path, prefix: &str) -> std::io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let left_out = |name: &&str| path == **name || path.ends_with(&format!("/{name}"));
            let kind = entry.file_type()?;
            if LEFT_OUT.iter().any(left_out) || kind.is_symlink() {
                continue;
            }
            if kind.is_dir() {
                self.walk(&entry.path(), &format!("{path}/"))?;
                self.paths.push(path + "/");
                continue;
            }
            let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
            if ENDINGS.contains(&ending) {
                let text = String::from_utf8_lossy(&fs::read(entry.path())?).into_owned();
                self.files.push(SourceFile { path: path.clone(), text });
            }
            self.paths.push(path);
        }
        Ok(())
    }
}
