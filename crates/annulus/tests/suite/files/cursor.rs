//! Calls at the cursor: each byte that is acknowledged stands where it was written, whatever becomes of the calls before it.

use crate::common::again::{self, again};
use crate::files::drops::begin;
use crate::files::mode::{Mode, everywhere};
use crate::files::place::Place;
use annulus::fs::{AlignedBuf, File, OpenOptions, Policy};
use annulus::io::{AsyncSend, copy};
use annulus::sim::{Sim, run_on};
use annulus::{Runtime, spawn};
use fastrand::Rng;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, ErrorKind, SeekFrom};
use std::path::PathBuf;

const BLOCK: usize = 4096;
/// Random sequences of each mode, unless `ANNULUS_FILE_SEQUENCES` says how many.
const SEQUENCES: u64 = 12;

fn block(number: u8) -> io::Result<AlignedBuf> {
    let mut block = AlignedBuf::new(BLOCK, BLOCK)?;
    block.fill(number);
    Ok(block)
}

#[test]
fn direct_calls_move_the_cursor() {
    everywhere(|place| async move {
        let path = place.join("file");
        std::fs::write(&path, [0; 4 * BLOCK])?;
        let options = OpenOptions::new().read(true).write(true).direct(true);
        let Ok(mut file) = options.open(&path).await else {
            println!("skipped: no direct I/O here");
            return Ok(());
        };
        for number in 1..=4 {
            file.write_all(block(number)?).await.0?;
        }
        assert_eq!(file.seek(SeekFrom::Current(0)).await?, 4 * BLOCK as u64);
        file.seek(SeekFrom::Start(0)).await?;
        for number in 1..=4 {
            let (read, bytes) = file.read(AlignedBuf::new(BLOCK, BLOCK)?).await;
            assert_eq!((read?, bytes[0]), (BLOCK, number));
        }
        assert_eq!(file.read(AlignedBuf::new(BLOCK, BLOCK)?).await.0?, 0);
        Ok(())
    });
}

#[test]
fn records_of_clones_are_neither_lost_nor_torn() {
    const RECORDS: usize = 50;
    everywhere(|place| async move {
        let path = place.join("file");
        let file = File::create(&path).await?;
        let tasks: Vec<_> = (0..4u8)
            .map(|writer| {
                let mut file = file.try_clone().expect("a clone");
                spawn(async move {
                    for number in 0..RECORDS {
                        // Some are large enough to leave the loop, whatever the policy is.
                        let len = if number % 10 == 0 { 300_000 } else { 100 };
                        file.write_all(vec![b'a' + writer; len]).await.0?;
                    }
                    io::Result::Ok(())
                })
            })
            .collect();
        for _ in 0..5 {
            file.sync_data().await?;
        }
        for task in tasks {
            task.await.expect("no panic")?;
        }
        let written = std::fs::read(&path)?;
        let each = 300_000 * RECORDS / 10 + 100 * (RECORDS - RECORDS / 10);
        for writer in 0..4u8 {
            let count = written.iter().filter(|byte| **byte == b'a' + writer).count();
            assert_eq!(count, each, "of writer {writer}");
        }
        assert_eq!(written.len(), 4 * each);
        Ok(())
    });
}

#[test]
fn a_write_comes_behind_one_that_was_dropped() {
    everywhere(|place| async move {
        let path = place.join("file");
        let mut file = File::create(&path).await?;
        for len in [100, 8 << 20] {
            file.set_len(0).await?;
            file.seek(SeekFrom::Start(0)).await?;
            begin(file.write(vec![b'x'; len])).await;
            let mut clone = file.try_clone()?;
            clone.write_all("tail").await.0?;
            file.sync_all().await?;
            let written = std::fs::read(&path)?;
            assert!(written.ends_with(b"tail") && [4, len + 4].contains(&written.len()));
            assert_eq!(file.seek(SeekFrom::Current(0)).await?, written.len() as u64);
        }
        Ok(())
    });
}

/// The process that runs a test alone may have files of this length.
const LIMIT: u64 = 1 << 20;

/// Whether this is the process that runs a test alone, with short files; if not, it has run.
fn with_short_files(test: std::process::Command) -> bool {
    if !again::is_alone(test) {
        return false;
    }
    // Without a handler the signal would end the process, and the call would not fail.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Default::default()).expect("known");
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: Some(LIMIT), maximum }).expect("it is lower");
    true
}

fn new_options() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

#[test]
fn a_write_that_fits_in_part_is_no_success_and_overwrites_nothing() {
    if !with_short_files(again!(a_write_that_fits_in_part_is_no_success_and_overwrites_nothing)) {
        return;
    }
    everywhere(|place| async move {
        let path = place.join("file");
        let bytes: Vec<u8> = (0..LIMIT as usize + 5000).map(|at| (at / 256) as u8).collect();
        let mut file = new_options().open(&path).await?;
        let error = file.write_all(bytes.clone()).await.0.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
        assert_eq!(std::fs::read(&path)?, bytes[..LIMIT as usize]);
        assert_eq!(file.seek(SeekFrom::Current(0)).await?, LIMIT);

        assert!(annulus::fs::write(&path, bytes.clone()).await.is_err());
        assert_eq!(std::fs::read(&path)?, bytes[..LIMIT as usize]);

        let mut stream = File::create(&path).await?.into_stream();
        let sent = async {
            stream.send(bytes.clone()).await?;
            stream.flush().await
        };
        assert!(sent.await.is_err());
        assert_eq!(std::fs::read(&path)?, bytes[..LIMIT as usize]);
        Ok(())
    });
}

#[test]
fn a_copy_that_fails_tells_a_later_call_and_leaves_the_cursors_where_it_ended() {
    let test = again!(a_copy_that_fails_tells_a_later_call_and_leaves_the_cursors_where_it_ended);
    if !with_short_files(test) {
        return;
    }
    everywhere(|place| async move {
        let mut to = new_options().open(place.join("to")).await?;
        let long = vec![b'x'; LIMIT as usize + 5000];
        let mut source = &long[..];
        begin(copy(&mut source, &mut to)).await;
        let told = match to.sync_all().await {
            Ok(()) if !source.is_empty() => copy(&mut source, &mut to).await.map(drop),
            told => told,
        };
        assert_eq!(told.expect_err("the rest did not fit").kind(), ErrorKind::FileTooLarge);
        let written = std::fs::read(place.join("to"))?;
        assert!(written.iter().all(|byte| *byte == b'x'), "no gap");
        assert_eq!(to.seek(SeekFrom::Current(0)).await?, written.len() as u64);

        let mut from = new_options().open(place.join("from")).await?;
        from.write_all(vec![b'y'; LIMIT as usize]).await.0?;
        from.seek(SeekFrom::Start(0)).await?;
        to.set_len(0).await?;
        to.seek(SeekFrom::Start(5000)).await?;
        assert!(copy(&mut from, &mut to).await.is_err());
        assert_eq!(from.seek(SeekFrom::Current(0)).await?, LIMIT - 5000);
        assert_eq!(to.seek(SeekFrom::Current(0)).await?, LIMIT);
        Ok(())
    });
}

/// What a file should be: its bytes, and its cursor.
#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    cursor: usize,
}

impl Model {
    fn write(&mut self, at: usize, written: &[u8]) {
        let end = at + written.len();
        if written.is_empty() {
            return;
        }
        self.bytes.resize(self.bytes.len().max(end), 0);
        self.bytes[at..end].copy_from_slice(written);
    }

    fn from(&self, at: usize, len: usize) -> &[u8] {
        let start = at.min(self.bytes.len());
        &self.bytes[start..(at.saturating_add(len)).min(self.bytes.len())]
    }
}

/// Random calls on two handles of one file, each compared with the model.
async fn sequence(path: PathBuf, append: bool, seed: u64) -> io::Result<()> {
    let mut rng = Rng::with_seed(seed);
    let mut model = Model::default();
    let mut file = new_options().truncate(!append).append(append).open(&path).await?;
    let mut clone = file.try_clone()?;
    for step in 0..30 {
        if rng.bool() {
            std::mem::swap(&mut file, &mut clone);
        }
        let len = *rng.choice(&[0, 1, 100, 5000, 70_000, 300_000]).expect("some");
        let bytes = vec![rng.u8(1..); len];
        let at = rng.usize(..100_000);
        match rng.u32(..8) {
            0 | 1 => {
                file.write_all(bytes.clone()).await.0?;
                let at = if append { model.bytes.len() } else { model.cursor };
                model.write(at, &bytes);
                model.cursor = if len == 0 { model.cursor } else { at + len };
            }
            2 => {
                let (read, got) = file.read(Vec::with_capacity(len)).await;
                let expected = model.from(model.cursor, len);
                assert!(is_read_of(&got, expected) && read? == got.len(), "seed {seed}, {step}");
                model.cursor += got.len();
            }
            3 => model.cursor = file.seek(SeekFrom::Start(at as u64)).await? as usize,
            4 if !append => {
                file.write_all_at(bytes.clone(), at as u64).await.0?;
                if len > 0 {
                    model.write(at, &bytes);
                }
            }
            5 => {
                let (read, got) = file.read_at(Vec::with_capacity(len), at as u64).await;
                let expected = model.from(at, len);
                assert!(is_read_of(&got, expected) && read? == got.len(), "seed {seed}, {step}");
            }
            6 => {
                file.set_len(at as u64).await?;
                model.bytes.resize(at, 0);
            }
            _ => {
                // Dropped, it is made or not; the simulated disk may take a part, as any write may. The cursor tells.
                begin(file.write(bytes.clone())).await;
                let at = if append { model.bytes.len() } else { model.cursor };
                let cursor = clone.seek(SeekFrom::Current(0)).await? as usize;
                if cursor != model.cursor {
                    let written = cursor.checked_sub(at).and_then(|count| bytes.get(..count));
                    model.write(at, written.unwrap_or_else(|| panic!("seed {seed}, step {step}")));
                }
                model.cursor = cursor;
            }
        }
        let cursor = file.seek(SeekFrom::Current(0)).await? as usize;
        assert_eq!(cursor, model.cursor, "seed {seed}, step {step}");
    }
    let (read, got) = file.read_exact_at(Vec::with_capacity(model.bytes.len()), 0).await;
    let differs = got.iter().zip(&model.bytes).position(|(got, expected)| got != expected);
    let at = differs.or((got.len() < model.bytes.len()).then_some(got.len()));
    assert!(read.is_ok() && at.is_none(), "seed {seed}: {read:?}, other bytes from {at:?} on");
    assert_eq!(file.metadata().await?.len(), model.bytes.len() as u64, "seed {seed}");
    Ok(())
}

/// A read may be short, but empty only at the end.
fn is_read_of(got: &[u8], expected: &[u8]) -> bool {
    expected.starts_with(got) && got.is_empty() == expected.is_empty()
}

pub(crate) fn sequences() -> u64 {
    let chosen = std::env::var("ANNULUS_FILE_SEQUENCES").ok();
    chosen.map_or(SEQUENCES, |count| count.parse().expect("a number of sequences"))
}

#[test]
fn random_calls_do_what_a_model_does() {
    for mode in Mode::all() {
        // Where file systems differ: in what waits, in what the ring leaves to its workers.
        for directory in
            [std::env::temp_dir(), "/dev/shm".into()].into_iter().filter(|it| it.is_dir())
        {
            let place = Place::new();
            let path =
                directory.join(format!("{}-model", place.path().file_name().unwrap().display()));
            let mut runtime = mode.runtime().unwrap();
            for seed in 0..sequences() {
                let ran = runtime.block_on(sequence(path.clone(), seed % 3 == 0, seed));
                _ = std::fs::remove_file(&path);
                ran.unwrap_or_else(|error| panic!("{mode:?}, seed {seed}: {error}"));
            }
        }
    }
}

#[test]
fn random_calls_do_what_a_model_does_under_simulation() {
    for seed in 0..sequences() {
        for (_, policy) in Policy::ALL {
            let builder = Runtime::builder().file_policy(policy);
            let ran = run_on(
                &Sim::builder(seed).build(),
                builder,
                sequence("file".into(), seed % 3 == 0, seed),
            );
            ran.unwrap_or_else(|error| panic!("{policy:?}, seed {seed}: {error}"));
        }
    }
}
