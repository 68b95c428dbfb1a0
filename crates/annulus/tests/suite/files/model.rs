//! Random calls on a file, each compared with a model of its bytes and its cursor.

use crate::common::rerun::rerun;
use crate::files::cursor::{LIMIT, with_short_files};
use crate::files::drops::begin;
use crate::files::mode::Mode;
use crate::sim::seeds::number;
use annulus::Runtime;
use annulus::fs::{AlignedBuf, File, IoBuf, OpenOptions, Policy, Slice};
use annulus::io::{copy, copy_at_most};
use annulus::sim::{Sim, run_on};
use fastrand::Rng;
use std::io::{self, ErrorKind, SeekFrom};
use std::path::{Path, PathBuf};

const BLOCK: usize = 4096;
/// Number of bytes in the file to copy from.
const SOURCE_LEN: usize = 500_000;
/// Random sequences per mode, unless `ANNULUS_FILE_SEQUENCES` sets another number.
const SEQUENCES: u64 = 6;
/// Calls per sequence.
const STEPS: u32 = 30;

/// How the file is opened.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Append,
    Direct,
}

impl Kind {
    fn of(seed: u64) -> Self {
        [Self::Plain, Self::Append, Self::Direct][(seed % 3) as usize]
    }

    fn options(self) -> OpenOptions {
        let options = OpenOptions::new().read(true).write(true).create(true);
        match self {
            Self::Plain => options.truncate(true),
            Self::Append => options.append(true),
            Self::Direct => options.truncate(true).direct(true),
        }
    }

    /// Direct calls use whole blocks at block boundaries.
    fn rounded(self, count: usize) -> usize {
        if self == Self::Direct { count / BLOCK * BLOCK } else { count }
    }
}

/// The two handles of a file, and the model of it.
struct Sequence {
    kind: Kind,
    rng: Rng,
    file: File,
    clone: File,
    bytes: Vec<u8>,
    cursor: usize,
    /// The file to copy from, and its bytes.
    source: File,
    source_bytes: Vec<u8>,
}

impl Sequence {
    /// Makes random calls, unless the disk is too full for a file or does not support direct I/O.
    async fn run(path: PathBuf, kind: Kind, seed: u64) -> io::Result<()> {
        let file = match kind.options().open(&path).await {
            Err(error) if kind == Kind::Direct || is_full(&error) => return Ok(()),
            opened => opened?,
        };
        let (clone, mut rng) = (file.try_clone()?, Rng::with_seed(seed));
        let Some((source, source_bytes)) = source(&path, &mut rng).await? else { return Ok(()) };
        let bytes = Vec::new();
        let mut this = Self { kind, rng, file, clone, bytes, cursor: 0, source, source_bytes };
        for step in 0..STEPS {
            this.step()
                .await
                .map_err(|error| io::Error::new(error.kind(), format!("step {step}: {error}")))?;
            let cursor = this.position().await?;
            assert_eq!(
                cursor, this.cursor,
                "{kind:?}, seed {seed}, step {step}: the cursor is wrong"
            );
        }
        let len = this.bytes.len().next_multiple_of(BLOCK);
        let (read, got) = this.file.read_exact_at(this.buffer(len)?, 0).await;
        let ends_early = matches!(&read, Err(error) if error.kind() == ErrorKind::UnexpectedEof);
        assert_eq!(ends_early, len > this.bytes.len(), "{kind:?}, seed {seed}");
        let differs =
            got.into_inner().iter().zip(&this.bytes).position(|(got, expected)| got != expected);
        assert_eq!(differs, None, "{kind:?}, seed {seed}: the byte at this offset is wrong");
        let len = this.file.metadata().await?.len();
        assert_eq!(len, this.bytes.len() as u64, "{kind:?}, seed {seed}: the length is wrong");
        Ok(())
    }

    async fn step(&mut self) -> io::Result<()> {
        if self.rng.bool() {
            std::mem::swap(&mut self.file, &mut self.clone);
        }
        let len =
            *self.rng.choice(&[0, 1, 100, 5000, 70_000, 300_000]).expect("nothing to choose from");
        let (len, at) = (self.kind.rounded(len), self.kind.rounded(self.rng.usize(..100_000)));
        match self.rng.u32(..13) {
            0 | 1 => self.write(len).await,
            2 => {
                let (read, got) = self.file.read(self.buffer(len)?).await;
                let count = read?;
                self.compare(self.cursor, &got.into_inner()[..count], len);
                self.cursor += count;
                Ok(())
            }
            3 => {
                self.cursor = self.file.seek(SeekFrom::Start(at as u64)).await? as usize;
                Ok(())
            }
            4 if self.kind != Kind::Append => self.write_at(len, at).await,
            5 => {
                let (read, got) = self.file.read_at(self.buffer(len)?, at as u64).await;
                self.compare(at, &got.into_inner()[..read?], len);
                Ok(())
            }
            6 => {
                match self.file.set_len(at as u64).await {
                    // A file system that writes changes to new blocks needs space even to set a
                    // length.
                    Err(error) if is_full(&error) => {}
                    set => set.map(|()| self.bytes.resize(at, 0))?,
                }
                Ok(())
            }
            7 => self.copy(len).await,
            8 => self.begin_copy(len).await,
            9 => self.copy_file(len).await,
            // Only for appends: in files of other kinds a copy writes at offsets, and a dropped
            // copy may still make one of its calls later.
            10..=12 if self.kind == Kind::Append => self.begin_copy_file(len).await,
            _ => self.begin_write(len).await,
        }
    }

    async fn write(&mut self, len: usize) -> io::Result<()> {
        let (bytes, expected) = self.filled(len)?;
        let written = self.file.write_all(bytes).await.0;
        self.written(&expected, written.map(|()| len)).await
    }

    async fn write_at(&mut self, len: usize, at: usize) -> io::Result<()> {
        let (bytes, expected) = self.filled(len)?;
        match self.file.write_all_at(bytes, at as u64).await.0 {
            Err(error) if is_full(&error) => {
                // Only the file itself shows how much of the write fitted.
                let (read, got) = self.file.read_at(self.buffer(len)?, at as u64).await;
                let got = &got.into_inner()[..read?];
                let fitted = got.iter().zip(&expected).take_while(|(got, it)| got == it).count();
                self.put(at, &expected[..fitted]);
                Ok(())
            }
            written => {
                self.put(at, &expected);
                written
            }
        }
    }

    async fn copy(&mut self, len: usize) -> io::Result<()> {
        let (_, expected) = self.filled(len)?;
        let copied = copy(&mut &expected[..], &mut self.file).await;
        self.written(&expected, copied.map(|count| count as usize)).await
    }

    /// Drops a copy, and finishes it with another one.
    async fn begin_copy(&mut self, len: usize) -> io::Result<()> {
        let (_, expected) = self.filled(len)?;
        let mut source = &expected[..];
        begin(copy(&mut source, &mut self.file)).await;
        let begun = self.clone.sync_data().await;
        let copied = match begun {
            Ok(()) => copy(&mut source, &mut self.file).await.map(|_| len),
            Err(error) => Err(error),
        };
        self.written(&expected, copied).await
    }

    /// Copies a part of another file.
    async fn copy_file(&mut self, len: usize) -> io::Result<()> {
        let at = self.rng.usize(..SOURCE_LEN - len);
        self.source.seek(SeekFrom::Start(at as u64)).await?;
        self.finish_copy_file(at, at + len).await
    }

    /// Copies a part of another file, drops the copy, and finishes it with another one. The
    /// source's cursor shows how much the first copy took.
    async fn begin_copy_file(&mut self, len: usize) -> io::Result<()> {
        let at = self.rng.usize(..SOURCE_LEN - len);
        self.source.seek(SeekFrom::Start(at as u64)).await?;
        begin(copy_at_most(&mut self.source, &mut self.file, len as u64)).await;
        let begun = self.clone.sync_data().await;
        let taken = self.source_position().await?;
        let expected = self.source_bytes[at..taken].to_vec();
        self.written(&expected, begun.map(|()| expected.len())).await?;
        let position = self.position().await?;
        assert_eq!(
            position, self.cursor,
            "the cursor is not after the bytes taken by the dropped copy"
        );
        self.source.seek(SeekFrom::Start(taken as u64)).await?;
        self.finish_copy_file(taken, at + len).await
    }

    /// Copies from the source's cursor to the file. Afterwards, both cursors are after the copied
    /// bytes.
    async fn finish_copy_file(&mut self, from: usize, to: usize) -> io::Result<()> {
        let expected = self.source_bytes[from..to].to_vec();
        let copied = copy_at_most(&mut self.source, &mut self.file, expected.len() as u64).await;
        let before = self.end();
        self.written(&expected, copied.map(|count| count as usize)).await?;
        let count = if expected.is_empty() { 0 } else { self.end().saturating_sub(before) };
        assert_eq!(self.source_position().await?, from + count, "the source's cursor is wrong");
        Ok(())
    }

    async fn source_position(&mut self) -> io::Result<usize> {
        Ok(self.source.seek(SeekFrom::Current(0)).await? as usize)
    }

    /// Drops a write, which may or may not take place. The simulated disk may take part of it, as
    /// with any write.
    async fn begin_write(&mut self, len: usize) -> io::Result<()> {
        let (bytes, expected) = self.filled(len)?;
        begin(self.file.write(bytes)).await;
        let count = match self.clone.sync_data().await {
            Err(error) if !is_full(&error) => return Err(error),
            _ => self.position().await?.checked_sub(self.end()),
        };
        match count {
            // The cursor of an append moves to the end only with the write.
            Some(count) if self.kind != Kind::Append || self.position().await? != self.cursor => {
                self.written(&expected, Ok(count)).await
            }
            _ => Ok(()),
        }
    }

    /// Records bytes that were written at the cursor. If not all of them fitted, the cursor shows
    /// how many did.
    async fn written(&mut self, expected: &[u8], written: io::Result<usize>) -> io::Result<()> {
        let end = self.end();
        let count = match written {
            Err(error) if is_full(&error) => match self.position().await? {
                position if position == self.cursor => 0,
                position => position.checked_sub(end).expect("the cursor is too low"),
            },
            written => written?,
        };
        self.put(end, expected.get(..count).expect("more bytes were written than given"));
        self.cursor = if count == 0 { self.cursor } else { end + count };
        Ok(())
    }

    /// Returns the position of the next write at the cursor.
    fn end(&self) -> usize {
        if self.kind == Kind::Append { self.bytes.len() } else { self.cursor }
    }

    fn put(&mut self, at: usize, written: &[u8]) {
        let end = at + written.len();
        if !written.is_empty() {
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[at..end].copy_from_slice(written);
        }
    }

    /// A read may be short, but it is empty only at the end.
    fn compare(&self, at: usize, got: &[u8], len: usize) {
        let expected = self.bytes.get(at..).unwrap_or_default();
        let expected = &expected[..len.min(expected.len())];
        assert!(expected.starts_with(got), "wrong bytes at {at}");
        assert_eq!(
            got.is_empty(),
            expected.is_empty(),
            "a read at {at} is empty before the end, or not empty at the end"
        );
    }

    async fn position(&mut self) -> io::Result<usize> {
        Ok(self.file.seek(SeekFrom::Current(0)).await? as usize)
    }

    fn buffer(&self, len: usize) -> io::Result<Slice<AlignedBuf>> {
        Ok(AlignedBuf::new(len.max(1), BLOCK)?.slice(..len))
    }

    /// Returns bytes to write and a copy of them.
    fn filled(&mut self, len: usize) -> io::Result<(Slice<AlignedBuf>, Vec<u8>)> {
        let mut buffer = AlignedBuf::new(len.max(1), BLOCK)?;
        buffer.fill(self.rng.u8(1..));
        let copy = buffer[..len].to_vec();
        Ok((buffer.slice(..len), copy))
    }
}

/// Returns a file with a hole in its middle, and its bytes, or `None` if the disk is too full. The
/// file has no name, so nothing is left of it.
async fn source(path: &Path, rng: &mut Rng) -> io::Result<Option<(File, Vec<u8>)>> {
    let path = path.with_extension("source");
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(true);
    let file = match options.open(&path).await {
        Err(error) if is_full(&error) => return Ok(None),
        opened => opened?,
    };
    annulus::fs::remove_file(&path).await?;
    let mut bytes = vec![0; SOURCE_LEN];
    for at in [0, SOURCE_LEN - 100_000] {
        bytes[at..at + 100_000].fill_with(|| rng.u8(1..));
        match file.write_all_at(bytes[at..at + 100_000].to_vec(), at as u64).await.0 {
            Err(error) if is_full(&error) => return Ok(None),
            written => written?,
        }
    }
    Ok(Some((file, bytes)))
}

/// Returns true if a write failed because it did not fit.
fn is_full(error: &io::Error) -> bool {
    use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), FileTooLarge | StorageFull | QuotaExceeded)
}

pub(crate) fn sequences() -> u64 {
    number("ANNULUS_FILE_SEQUENCES", SEQUENCES)
}

/// File systems differ in which calls wait and which the ring leaves to its workers.
/// `ANNULUS_FILE_DIRECTORIES` adds directories, separated by colons; they may be full.
fn directories() -> Vec<PathBuf> {
    let more = std::env::var("ANNULUS_FILE_DIRECTORIES").unwrap_or_default();
    let more = more.split(':').filter(|it| !it.is_empty()).map(PathBuf::from);
    let usual = [std::env::temp_dir(), "/dev/shm".into()].into_iter().filter(|it| it.is_dir());
    usual.chain(more).collect()
}

fn run_everywhere(name: &str) {
    for (mode, directory) in
        Mode::all().into_iter().flat_map(|mode| directories().into_iter().map(move |it| (mode, it)))
    {
        run_in(mode, &directory.join(format!("annulus-{name}-{}", std::process::id())));
    }
}

fn run_in(mode: Mode, path: &Path) {
    let mut runtime = mode.runtime().unwrap();
    for seed in 0..sequences() {
        let kind = Kind::of(seed);
        let ran = runtime.block_on(Sequence::run(path.to_owned(), kind, seed));
        _ = std::fs::remove_file(path);
        ran.unwrap_or_else(|error| panic!("{mode:?}, {kind:?}, seed {seed}: {error}"));
    }
}

#[test]
fn random_calls_match_a_model() {
    run_everywhere("model");
}

#[test]
fn random_calls_on_short_files_lose_nothing() {
    if with_short_files(rerun!(random_calls_on_short_files_lose_nothing)) {
        const { assert!(LIMIT < 30 * 300_000, "no sequence can reach the limit") };
        run_everywhere("short");
    }
}

#[test]
fn random_calls_match_a_model_under_simulation() {
    for seed in 0..sequences() {
        for (_, policy) in Policy::ALL {
            let builder = Runtime::builder().file_policy(policy);
            let kind = Kind::of(seed);
            let sequence = Sequence::run("file".into(), kind, seed);
            let ran = run_on(&Sim::builder(seed).build(), builder, sequence);
            ran.unwrap_or_else(|error| panic!("{policy:?}, {kind:?}, seed {seed}: {error}"));
        }
    }
}
