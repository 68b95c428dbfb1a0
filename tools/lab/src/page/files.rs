//! Documents of results files, written beside the files or rendered on request.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};

use super::{Document, Form, IndexEntry, index};
use crate::bench::Report;
use crate::replace::replace;
use crate::results::{Results, run_name};
use crate::suite::SuiteReport;
use crate::usage_error::UsageError;

/// The name of the index, without its extension.
const INDEX_NAME: &str = "index";

/// The results of a file, with everything computed from them.
#[derive(Clone, Debug)]
pub struct LoadedRun {
    name: String,
    report: Report,
    suite: Option<SuiteReport>,
    is_finished: bool,
}

impl LoadedRun {
    /// Reads a results file, finished or not.
    ///
    /// # Errors
    /// The errors of [`Results::read`].
    pub fn read(path: &Path) -> Result<LoadedRun> {
        let results = Results::read(path)?;
        Ok(LoadedRun {
            name: stem(path),
            suite: results.suite(),
            report: results.report(),
            is_finished: results.is_finished(),
        })
    }

    /// Returns the document of these results, with links to these forms of it.
    pub fn document<'a>(&'a self, forms: &'a [Form]) -> Document<'a> {
        let LoadedRun { name, report, suite, is_finished } = self;
        Document { name, report, suite: suite.as_ref(), is_finished: *is_finished, forms }
    }
}

/// The outcome of [`write()`].
#[derive(Clone, Debug)]
pub struct WrittenPages {
    /// A document of each results file, the HTML page unless other forms were chosen; the indexes
    /// last.
    pub pages: Vec<PathBuf>,
    /// A line for each file that cannot be read. The index also lists these files.
    pub unreadable: Vec<String>,
}

/// Returns the results files in a directory, sorted by name.
///
/// # Errors
/// If it cannot be read.
pub fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    // Only regular files are opened, because opening a FIFO would block.
    files.retain(|path| run_name(path).is_some() && path.is_file());
    files.sort();
    Ok(files)
}

/// Writes the documents of these results files in the given forms, and an index, to the directory
/// `out`, which is created if it does not exist. Without `out` they are written beside each results
/// file, and the index also lists other runs in that directory. Each file is replaced as a whole.
///
/// # Errors
/// If a file cannot be written, or two would have the same name. Results files that cannot be read
/// are reported in [`WrittenPages`].
pub fn write(results: &[PathBuf], out: Option<&Path>, forms: &[Form]) -> Result<WrittenPages> {
    check_names(results, out)?;
    let mut written = WrittenPages { pages: Vec::new(), unreadable: Vec::new() };
    let mut listed: Vec<(PathBuf, IndexEntry)> = Vec::new();
    for path in results {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = out.or(parent).unwrap_or(Path::new(".")).to_owned();
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let loaded = LoadedRun::read(path);
        let run = entry(path, loaded.as_ref(), forms);
        match &loaded {
            Ok(loaded) => {
                let document = loaded.document(forms);
                for &form in forms {
                    save(&file(&directory, &loaded.name, form), &document.text(form))?;
                }
                let first = [Form::Html].iter().chain(forms).find(|form| forms.contains(form));
                written.pages.extend(first.map(|form| file(&directory, &loaded.name, *form)));
            }
            Err(error) => written.unreadable.push(error.to_string()),
        }
        listed.push((directory, run));
    }
    while let Some((directory, _)) = listed.first().cloned() {
        let (here, others) = listed.into_iter().partition(|(other, _)| *other == directory);
        listed = others;
        let here = here.into_iter().map(|(_, run)| run).collect();
        written.pages.push(write_index(&directory, here, out.is_none())?);
    }
    Ok(written)
}

/// Writes the index of these runs and, `with_others`, of other runs in the directory.
fn write_index(directory: &Path, mut runs: Vec<IndexEntry>, with_others: bool) -> Result<PathBuf> {
    if with_others {
        let files = files(directory).unwrap_or_default();
        let is_new = |path: &&PathBuf| runs.iter().all(|run| run.name != stem(path));
        let list = |path: &PathBuf| entry(path, LoadedRun::read(path).as_ref(), &Form::ALL);
        let others: Vec<IndexEntry> = files.iter().filter(is_new).map(list).collect();
        // Another run is listed only if it has a page.
        let has_page = |run: &IndexEntry| file(directory, &run.name, Form::Html).exists();
        runs.extend(others.into_iter().filter(has_page));
    }
    runs.sort_by(|a, b| a.name.cmp(&b.name));
    for form in [Form::Markdown, Form::Html] {
        save(&file(directory, INDEX_NAME, form), &index(&title(directory), &runs, form))?;
    }
    Ok(file(directory, INDEX_NAME, Form::Html))
}

/// Returns the entry of a results file, with links to these forms of it, or why it cannot be read.
fn entry(path: &Path, loaded: Result<&LoadedRun, impl Display>, forms: &[Form]) -> IndexEntry {
    match loaded {
        Ok(loaded) => IndexEntry::new(&loaded.document(forms)),
        Err(error) => IndexEntry::unreadable(&stem(path), &error.to_string()),
    }
}

/// Refuses results files whose documents would overwrite each other or the index.
fn check_names(results: &[PathBuf], out: Option<&Path>) -> Result<(), UsageError> {
    for (place, path) in results.iter().enumerate() {
        let name = stem(path);
        if name == INDEX_NAME {
            let path = path.display();
            let text = format!("{path}: its page would overwrite the index: rename the file");
            return Err(UsageError(text));
        }
        let same = results[..place].iter().find(|other| {
            stem(other) == name && (out.is_some() || other.parent() == path.parent())
        });
        if let Some(other) = same {
            let [a, b] = [other, path].map(|path| path.display());
            return Err(UsageError(format!(
                "{a} and {b} would have one page, {name}.html: use a separate --out for each"
            )));
        }
    }
    Ok(())
}

fn file(directory: &Path, name: &str, form: Form) -> PathBuf {
    directory.join(format!("{name}.{}", form.extension()))
}

/// Returns the name of the run, or of the file without its extension if it is not named like a
/// results file.
fn stem(path: &Path) -> String {
    let name = run_name(path).map(Into::into);
    name.unwrap_or_else(|| path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
}

/// Returns the last part of the directory's absolute path, or `Results` for the root.
fn title(directory: &Path) -> String {
    let path = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    path.file_name().map_or("Results".into(), |name| name.to_string_lossy().into_owned())
}

/// Replaces a file as a whole.
fn save(path: &Path, text: &str) -> Result<()> {
    replace(path, text).with_context(|| {
        format!(
            "cannot write {}: free space, or choose another directory with --out",
            path.display()
        )
    })
}

/// The documents of all results files in a directory, rendered on request. The loaded results are
/// cached until their file changes.
#[derive(Debug)]
pub struct ResultsDirectory {
    path: PathBuf,
    kept: Mutex<HashMap<String, CachedRun>>,
}

#[derive(Debug)]
struct CachedRun {
    /// The length and the modification time of the file that was read.
    stamp: Option<FileStamp>,
    loaded: Result<Arc<LoadedRun>, String>,
}

type FileStamp = (u64, std::time::SystemTime);

/// A rendered document.
#[derive(Clone, Debug)]
pub struct RenderedPage {
    /// The media type of the text.
    pub media_type: &'static str,
    /// The text of the document.
    pub text: String,
    /// Whether the document may change soon, because a run is not finished.
    pub is_unfinished: bool,
}

impl ResultsDirectory {
    /// Opens the directory at this path.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(path: &Path) -> io::Result<ResultsDirectory> {
        files(path)?;
        Ok(ResultsDirectory { path: path.to_owned(), kept: Mutex::default() })
    }

    /// Returns the document at a URL path such as `/nop.html`, or the index at `/`; `None` if it
    /// does not exist. Only names of results files in this directory are known, so no path can lead
    /// elsewhere.
    ///
    /// # Errors
    /// If the directory or the file cannot be read.
    pub fn show(&self, path: &str) -> Result<Option<RenderedPage>> {
        let files =
            files(&self.path).with_context(|| format!("cannot read {}", self.path.display()))?;
        if ["/", "/index.html"].contains(&path) {
            return Ok(Some(self.index(&files)));
        }
        for file in &files {
            for form in Form::ALL {
                // Links escape characters such as `+`, but people type them as they are.
                let typed = format!("{}.{}", stem(file), form.extension());
                let names = [super::address(&stem(file), form), typed];
                if path.strip_prefix('/').is_some_and(|asked| names.iter().any(|it| it == asked)) {
                    return self.document(file, form).map(Some);
                }
            }
        }
        Ok(None)
    }

    fn index(&self, files: &[PathBuf]) -> RenderedPage {
        let list = |path: &PathBuf| entry(path, self.load(path).as_deref(), &Form::ALL);
        let runs: Vec<IndexEntry> = files.iter().map(list).collect();
        RenderedPage {
            media_type: Form::Html.media_type(),
            text: index(&title(&self.path), &runs, Form::Html),
            is_unfinished: files.is_empty() || runs.iter().any(|run| !run.is_finished()),
        }
    }

    fn document(&self, file: &Path, form: Form) -> Result<RenderedPage> {
        let loaded = self.load(file).map_err(anyhow::Error::msg)?;
        let document = loaded.document(&Form::ALL);
        Ok(RenderedPage {
            media_type: form.media_type(),
            text: document.text(form),
            is_unfinished: !document.is_finished,
        })
    }

    /// Returns the contents of the file, read again if it has changed. The lock is not held while
    /// reading, so several requests may read the same file.
    fn load(&self, path: &Path) -> Result<Arc<LoadedRun>, String> {
        let name = stem(path);
        let now = fs::metadata(path).ok().and_then(|metadata| stamp(&metadata));
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let same = kept()
            .get(&name)
            .filter(|kept| now.is_some() && kept.stamp == now)
            .map(|kept| kept.loaded.clone());
        if let Some(loaded) = same {
            return loaded;
        }
        let loaded = LoadedRun::read(path).map(Arc::new).map_err(|error| error.to_string());
        kept().insert(name, CachedRun { stamp: now, loaded: loaded.clone() });
        loaded
    }
}

fn stamp(metadata: &Metadata) -> Option<FileStamp> {
    Some((metadata.len(), metadata.modified().ok()?))
}
