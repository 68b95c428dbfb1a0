//! Files that stay open between uses.

use crate::common::rerun::{self, rerun};
use crate::common::touch;
use crate::files::mode::{Mode, everywhere};
use crate::files::place::Place;
use annulus::fs::{self, CachedFile, Dir, File, FileCache, Policy};
use annulus::io::copy_range;
use proptest::prelude::*;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(3600);

async fn cache(place: &Place, valid_for: Duration) -> io::Result<FileCache> {
    let files = FileCache::new(Dir::open(place.path()).await?);
    files.set_valid_for(valid_for);
    Ok(files)
}

async fn content(file: &CachedFile) -> io::Result<String> {
    let mut bytes = Vec::new();
    copy_range(file.file(), .., &mut bytes).await?;
    Ok(String::from_utf8(bytes).expect("not UTF-8"))
}

async fn read(files: &FileCache, path: &str) -> io::Result<String> {
    content(&*files.open(path).await?).await
}

#[test]
fn a_file_is_opened_once_within_its_validity() {
    everywhere(|place| async move {
        fs::write(place.join("file"), "old").await?;
        let files = cache(&place, LONG).await?;
        let first = files.open("file").await?;
        fs::write(place.join("new"), "newer").await?;
        fs::rename(place.join("new"), place.join("file")).await?;
        for _ in 0..10 {
            assert!(
                Rc::ptr_eq(&files.clone().open("file").await?, &first),
                "a clone opened another file"
            );
        }
        assert_eq!(files.stats().checks, 0);
        files.set_valid_for(Duration::ZERO);
        assert_eq!(
            (read(&files, "file").await?, content(&first).await?),
            ("newer".into(), "old".into())
        );
        Ok(())
    });
}

#[test]
fn an_unchanged_file_stays_open_and_a_changed_one_is_opened_again() {
    everywhere(|place| async move {
        let (path, at) =
            (place.join("file"), |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let write = |text: &'static str, seconds| {
            std::fs::write(&path, text)?;
            std::fs::File::options().write(true).open(&path)?.set_modified(at(seconds))
        };
        write("one", 10)?;
        let files = cache(&place, Duration::ZERO).await?;
        let first = files.open("file").await?;
        let number = first.file().as_raw_fd();
        assert!(Rc::ptr_eq(&files.open("file").await?, &first));
        assert_eq!(files.open("file").await?.file().as_raw_fd(), number);
        assert_eq!((files.stats().hits, files.stats().misses, files.stats().checks), (2, 1, 2));
        // The file is changed in place, with the same length: the modification time shows the
        // change.
        write("two", 20)?;
        let second = files.open("file").await?;
        assert_eq!((content(&second).await?, second.metadata().modified()), ("two".into(), at(20)));
        // The file is changed in place, to another length, with the same time.
        write("three", 20)?;
        assert_eq!(files.open("file").await?.metadata().len(), 5);
        assert_eq!(files.stats().misses, 3);
        Ok(())
    });
}

#[test]
fn a_file_that_has_shrunk_ends_early() {
    everywhere(|place| async move {
        fs::write(place.join("file"), vec![b'x'; 50_000]).await?;
        let files = cache(&place, LONG).await?;
        assert_eq!(files.open("file").await?.metadata().len(), 50_000);
        for len in [40_000, 100, 0] {
            fs::write(place.join("file"), vec![b'y'; len]).await?;
            let file = files.open("file").await?;
            assert_eq!(file.metadata().len(), 50_000);
            let mut body = Vec::new();
            assert_eq!(copy_range(file.file(), ..50_000, &mut body).await?, len as u64);
            assert_eq!(body, vec![b'y'; len]);
        }
        assert!(files.remove("file") && !files.remove("file"));
        assert_eq!(files.open("file").await?.metadata().len(), 0);
        Ok(())
    });
}

#[test]
fn errors_are_reported_each_time_and_forget_the_file() {
    everywhere(|place| async move {
        let files = cache(&place, LONG).await?;
        let error = files.open("file").await.unwrap_err();
        assert!(
            error.kind() == ErrorKind::NotFound && error.to_string().contains("`file`"),
            "{error}"
        );
        fs::write(place.join("file"), "text").await?;
        let file = files.open("file").await?;
        files.set_valid_for(Duration::ZERO);
        fs::remove_file(place.join("file")).await?;
        assert_eq!(files.open("file").await.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(files.is_empty());
        assert_eq!(content(&file).await?, "text", "a file in use was closed");
        for wrong in ["", "a\0b"] {
            assert!(files.open(wrong).await.is_err(), "{wrong:?}");
        }
        Ok(())
    });
}

#[test]
fn no_path_leads_out_of_the_directory() {
    everywhere(|place| async move {
        fs::create_dir_all(place.join("public/sub")).await?;
        fs::write(place.join("secret"), "secret").await?;
        fs::write(place.join("public/page"), "page").await?;
        symlink("../secret", place.join("public/out"))?;
        symlink("../page", place.join("public/sub/in"))?;
        let files = FileCache::new(Dir::open(place.join("public")).await?);
        for inside in ["page", "./page", "sub/../page", "sub/in", "sub/./../sub/in"] {
            assert_eq!(read(&files, inside).await?, "page", "{inside}");
        }
        assert!(files.open("sub").await?.metadata().is_dir() && files.open(".").await.is_ok());
        let absolute = place.join("public/page");
        let absolute = absolute.to_str().expect("not UTF-8");
        for outside in
            ["../secret", "sub/../../secret", "out", "..", "/", "/proc/self/exe", absolute]
        {
            let error = files.open(outside).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{outside}: {error}");
            assert!(error.to_string().contains("leads out"), "{error}");
        }
        // The target of a link changes between two uses.
        files.set_valid_for(Duration::ZERO);
        std::fs::remove_file(place.join("public/sub/in"))?;
        symlink("../../secret", place.join("public/sub/in"))?;
        assert_eq!(files.open("sub/in").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
        Ok(())
    });
}

#[test]
fn the_number_of_open_files_is_bounded() {
    everywhere(|place| async move {
        for number in 0..20 {
            fs::write(place.join(number.to_string()), number.to_string()).await?;
        }
        let files = cache(&place, LONG).await?;
        files.set_capacity(5);
        for round in 0..3 {
            for number in 0..20 {
                assert_eq!(read(&files, &number.to_string()).await?, number.to_string());
                assert!(files.len() <= 5, "round {round}");
            }
        }
        files.set_capacity(1);
        assert_eq!(files.len(), 1);
        files.clear();
        assert!(files.is_empty());
        files.set_capacity(0);
        assert_eq!((read(&files, "7").await?, files.len()), ("7".into(), 0));
        Ok(())
    });
}

/// Runs a body on each driver with file calls offloaded, so that the first poll of an open leaves
/// it in flight.
fn off_the_loop<F: Future<Output = io::Result<()>>>(
    body: impl Fn(Place) -> F + Copy + Send + 'static,
) {
    let modes = Mode::all().into_iter().filter(|mode| mode.policy == Policy::Offload);
    modes.for_each(|mode| mode.run(body));
}

/// Polls an open that does not finish at once, and then lets it run for some turns.
async fn begin(
    open: Pin<&mut impl Future<Output = io::Result<Rc<CachedFile>>>>,
    turns: usize,
) -> io::Result<()> {
    assert!(touch(open).transpose()?.is_none(), "the open ended at once");
    for _ in 0..turns {
        annulus::task::yield_now().await;
    }
    Ok(())
}

fn replace(place: &Place) -> io::Result<()> {
    std::fs::write(place.join("new"), "newer")?;
    std::fs::rename(place.join("new"), place.join("file"))
}

#[test]
fn a_dropped_open_leaves_the_cache_as_it_was() {
    off_the_loop(|place| async move {
        fs::write(place.join("file"), "text").await?;
        let files = cache(&place, Duration::ZERO).await?;
        for turns in 0..5 {
            begin(pin!(files.open("file")), turns).await?;
            assert_eq!((files.len(), files.stats().misses), (0, 0));
        }
        let first = files.open("file").await?;
        for turns in 0..5 {
            begin(pin!(files.open("file")), turns).await?;
        }
        assert!(Rc::ptr_eq(&files.open("file").await?, &first));
        assert!(files.len() == 1 && files.stats().misses == 1, "{:?}", files.stats());
        Ok(())
    });
}

/// Replaces a file while it is being opened, after each number of turns up to 20, and calls
/// `meanwhile` before the open ends. The cache must then not hold the file that the open found.
async fn replace_while_opening(
    place: Place,
    meanwhile: impl AsyncFn(&FileCache, usize) -> io::Result<()>,
) -> io::Result<()> {
    for turns in 0..20 {
        std::fs::write(place.join("file"), "old")?;
        let files = cache(&place, LONG).await?;
        let mut opening = pin!(files.open("file"));
        begin(opening.as_mut(), turns).await?;
        replace(&place)?;
        meanwhile(&files, turns).await?;
        opening.await?;
        assert_eq!(read(&files, "file").await?, "newer", "{turns}");
    }
    Ok(())
}

#[test]
fn a_file_forgotten_while_being_opened_is_not_kept() {
    off_the_loop(|place| {
        replace_while_opening(place, async |files, turns| {
            if turns % 2 == 0 {
                assert!(!files.remove("file"));
            } else {
                files.clear();
            }
            Ok(())
        })
    });
}

#[test]
fn a_late_open_does_not_replace_a_newer_result() {
    off_the_loop(|place| {
        replace_while_opening(place, async |files, _| {
            assert_eq!(read(files, "file").await?, "newer");
            Ok(())
        })
    });
}

/// Takes all free descriptors.
fn take_descriptors() -> Vec<std::fs::File> {
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

/// Without a free descriptor, a cache finds open files, and closes an unused file to open another.
async fn without_descriptors(place: Place) -> io::Result<()> {
    for name in ["file", "other", "third"] {
        std::fs::write(place.join(name), name)?;
    }
    let files = cache(&place, Duration::ZERO).await?;
    let (first, _) = (files.open("file").await?, files.open("other").await?);
    let mut taken = take_descriptors();
    assert!(
        Rc::ptr_eq(&files.open("file").await?, &first),
        "an open and unchanged file was opened again"
    );
    assert_eq!((files.len(), files.stats().hits), (2, 1));
    // To open another file, the cache closes an unused one.
    let third = files.open("third").await?;
    assert!(third.metadata().len() == 5 && files.len() <= 2, "{}", files.len());
    files.clear();
    drop((first, third));
    taken.extend(take_descriptors());
    let error = files.open("other").await.unwrap_err();
    assert!(error.to_string().contains("`other`"), "{error}");
    drop(taken);
    assert_eq!(read(&files, "other").await?, "other");
    Ok(())
}

#[test]
fn open_files_are_found_without_a_free_descriptor() {
    // The test needs a process of its own, since descriptors belong to the whole process.
    if rerun::is_alone(rerun!(open_files_are_found_without_a_free_descriptor)) {
        with_few_descriptors(without_descriptors);
    }
}

#[test]
fn open_files_are_read_without_a_free_descriptor() {
    if rerun::is_alone(rerun!(open_files_are_read_without_a_free_descriptor)) {
        with_few_descriptors(read_without_descriptors);
    }
}

/// Runs a body in every mode, in a process that may have few descriptors.
fn with_few_descriptors<F: Future<Output = io::Result<()>>>(
    body: impl Fn(Place) -> F + Copy + Send + 'static,
) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(128), maximum })
        .expect("the limit could not be lowered");
    everywhere(body);
}

/// A runtime's first call on a worker, at a cursor or not, needs no descriptor.
async fn read_without_descriptors(place: Place) -> io::Result<()> {
    std::fs::write(place.join("file"), "its bytes")?;
    let mut file = File::from_std(std::fs::File::open(place.join("file"))?)?;
    let taken = take_descriptors();
    let (read, bytes) = file.read(Vec::with_capacity(100)).await;
    assert_eq!((read?, &bytes[..]), (9, &b"its bytes"[..]));
    let (read, _) = file.read_at(bytes, 4).await;
    assert_eq!(read?, 5);
    drop(taken);
    Ok(())
}

/// A change of one of three files.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Replaced by a rename.
    Replace(u8),
    /// Written in place, each time to another length.
    Write,
    Remove,
    Open,
}

fn changes() -> impl Strategy<Value = Vec<(u8, Change)>> {
    let change = prop_oneof![
        2 => any::<u8>().prop_map(Change::Replace),
        1 => Just(Change::Write),
        1 => Just(Change::Remove),
        4 => Just(Change::Open),
    ];
    prop::collection::vec((0..3_u8, change), 1..60)
}

/// Makes changes. A cache that always checks must show the current file, and one that never checks
/// must show the file as it was when opened.
async fn check(place: Place, changes: Vec<(u8, Change)>) -> io::Result<()> {
    let (strict, lazy) = (cache(&place, Duration::ZERO).await?, cache(&place, LONG).await?);
    lazy.set_capacity(2);
    let mut length = 0;
    for (name, change) in changes {
        let path = place.join(name.to_string());
        length += 1;
        match change {
            Change::Replace(byte) => {
                std::fs::write(place.join("new"), vec![b'a' + byte % 26; 4])?;
                std::fs::rename(place.join("new"), path)?;
            }
            Change::Write => std::fs::write(path, "x".repeat(length))?,
            Change::Remove => drop(std::fs::remove_file(path)),
            Change::Open => {
                let there = std::fs::read_to_string(path);
                let name = name.to_string();
                match (read(&strict, &name).await, there) {
                    (Ok(seen), Ok(there)) => assert_eq!(seen, there),
                    (Err(seen), Err(there)) => assert_eq!(seen.kind(), there.kind()),
                    (seen, there) => panic!("{seen:?} instead of {there:?}"),
                }
                // Whichever file the lazy cache has, it can be read.
                if let Ok(seen) = lazy.open(&name).await {
                    content(&seen).await?;
                }
            }
        }
        assert!(strict.len() <= 3 && lazy.len() <= 2);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn opened_files_match_the_directory(changes in changes()) {
        let runtime = crate::files::mode::Mode::all().into_iter().next().expect("no driver works").runtime();
        runtime?.block_on(check(Place::new(), changes))?;
    }
}
