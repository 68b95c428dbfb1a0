//! Futures that are dropped at any moment.

use crate::common::rerun::{self, rerun};
use crate::files::mode::{Mode, everywhere};
use crate::files::model::sequences;
use crate::files::place::Place;
use annulus::fs::{self, Advice, File, Lock, OpenOptions, Policy};
use annulus::time::sleep;
use annulus_skip::skip;
use std::future::{Future, poll_fn};
use std::io;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::process::Command;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Polls a future once, and then drops it.
pub(crate) async fn begin<F: Future>(future: F) {
    let mut future = pin!(future);
    poll_fn(|cx| {
        _ = future.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn dropped_writes_leave_whole_bytes_and_dropped_opens_no_descriptor() {
    everywhere(|place| async move {
        let path = place.join("file");
        let file = OpenOptions::new().read(true).write(true).create(true).open(&path).await?;
        for byte in 0..200u8 {
            begin(file.write_at(vec![byte; 5000], 0)).await;
            begin(file.read_at(vec![0; 5000], 0)).await;
            begin(File::open(&path)).await;
            begin(fs::metadata(&path)).await;
            begin(file.sync_data()).await;
        }
        drop(file);
        let bytes = fs::read(&path).await?;
        assert!(bytes.is_empty() || bytes.len() == 5000);
        Ok(())
    });
}

/// A kernel worker may keep a file for a moment after its completion. This was seen in 3 of 24,000
/// rounds; `ANNULUS_FILE_SEQUENCES` runs more. The test runs alone, since a program that another
/// test starts holds all descriptors until it is executed.
#[test]
fn nothing_keeps_a_dropped_file_open() {
    if !rerun::is_alone(rerun!(nothing_keeps_a_dropped_file_open)) {
        return;
    }
    everywhere(|place| async move {
        // The copy must be called `true`, since Busybox chooses the program by its own name.
        let path = place.join("true");
        std::fs::copy("/bin/true", &path)?;
        let bytes = std::fs::read(&path)?;
        for round in 0..10 * sequences() {
            let file = OpenOptions::new().write(true).open(&path).await?;
            file.lock(Lock::Exclusive).await?;
            match round % 4 {
                0 => file.write_all_at(bytes.clone(), 0).await.0?,
                1 => file.sync_data().await?,
                2 => file.set_len(bytes.len() as u64).await?,
                _ => file.advise(0, 0, Advice::Normal).await?,
            }
            drop(file);
            std::fs::File::open(&path)?.try_lock().expect("the file is still locked");
            if round % 16 == 0 {
                assert!(Command::new(&path).status()?.success());
            }
        }
        Ok(())
    });
}

#[test]
fn a_file_stays_open_for_calls_in_flight() {
    everywhere(|place| async move {
        for n in 0..50 {
            let path = place.join(format!("{n}"));
            let file = File::create(&path).await?;
            begin(file.write_at(vec![1; 100_000], 0)).await;
            drop(file);
            // Another file that gets the same descriptor number must not get these bytes.
            let other = place.join(format!("other {n}"));
            let next = File::create(&other).await?;
            annulus::task::yield_now().await;
            drop(next);
            assert_eq!(fs::metadata(&other).await?.len(), 0);
        }
        Ok(())
    });
}

/// The variable with the path of the file whose descriptors are counted.
const COUNTED: &str = "ANNULUS_COUNTS_DESCRIPTORS";

/// Descriptors belong to the whole process, so a process that runs this test alone counts them.
/// Returns the file to open in that process, and `None` in the parent.
fn alone(mut test: Command) -> Option<PathBuf> {
    if let Some(file) = std::env::var_os(COUNTED) {
        return Some(file.into());
    }
    rerun::assert_passes(test.env(COUNTED, "/proc/self/exe"));
    None
}

/// An overlay flushes a file when it is closed, so the ring hands the close to a worker.
#[test]
fn nothing_is_left_open_on_an_overlay() {
    let script = r#"
        mount -t tmpfs none "$1" && cd "$1" && mkdir low up work over && head -c 200000 /dev/zero >low/file &&
        mount -t overlay -o lowerdir=low,upperdir=up,workdir=work none over || exit 77
        export ANNULUS_COUNTS_DESCRIPTORS="$1/over/file"
        shift && exec "$0" "$@""#;
    for test in [
        rerun!(nothing_is_left_open),
        rerun!(futures_that_outlive_their_runtime_leave_nothing_open),
    ] {
        let place = Place::new();
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command.arg(test.get_program()).arg(place.path()).args(test.get_args());
        match command.output() {
            Ok(output) if output.status.code() == Some(77) => {
                skip!("no overlay can be mounted");
            }
            Ok(output) if output.status.code() == Some(1) => {
                skip!("cannot create namespaces");
            }
            Ok(output) => rerun::assert_passed(&output),
            Err(error) => skip!("no unshare: {error}"),
        }
    }
}

#[test]
fn nothing_is_left_open() {
    let Some(path) = alone(rerun!(nothing_is_left_open)) else { return };
    for mode in Mode::all() {
        let before = open_descriptors();
        let mut runtime = mode.runtime().unwrap();
        let done: io::Result<()> = runtime.block_on(async {
            for _ in 0..100 {
                begin(File::open(&path)).await;
                let kept = File::open(&path).await?;
                begin(kept.read_at(vec![0; 100_000], 0)).await;
            }
            Ok(())
        });
        done.unwrap();
        drop(runtime);
        assert_eq!(open_descriptors(), before, "{mode:?}");
    }
}

/// Polls a future once in its runtime, and returns it.
async fn begun<T>(future: impl Future<Output = T> + 'static) -> Pin<Box<dyn Future<Output = T>>> {
    let mut future: Pin<Box<dyn Future<Output = T>>> = Box::pin(future);
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    future
}

#[test]
fn futures_that_outlive_their_runtime_leave_nothing_open() {
    let test = rerun!(futures_that_outlive_their_runtime_leave_nothing_open);
    let Some(path) = alone(test) else { return };
    for mode in Mode::all().into_iter().filter(|mode| mode.policy == Policy::Offload) {
        for polled_after in [false, true] {
            let before = open_descriptors();
            let mut runtime = mode.runtime().unwrap();
            let outliving: io::Result<_> = runtime.block_on(async {
                let (mut opens, mut reads) = (Vec::new(), Vec::new());
                for _ in 0..10 {
                    let file = File::open(&path).await?;
                    opens.push(begun(File::open(path.clone())).await);
                    let read = async move { file.read_at(vec![0; 100_000], 0).await.0 };
                    reads.push(begun(read).await);
                }
                Ok((opens, reads))
            });
            let (mut opens, mut reads) = outliving.unwrap();
            drop(runtime);
            let mut cx = Context::from_waker(Waker::noop());
            for (open, read) in opens.iter_mut().zip(&mut reads).filter(|_| polled_after) {
                // The operations of these futures have ended, and so has their runtime.
                let (open, read) = (open.as_mut().poll(&mut cx), read.as_mut().poll(&mut cx));
                assert!(matches!(open, Poll::Ready(Err(_))), "{mode:?}: {open:?}");
                assert!(matches!(read, Poll::Ready(Err(_))), "{mode:?}: {read:?}");
            }
            drop((opens, reads));
            assert_eq!(open_descriptors(), before, "{mode:?}");
        }
    }
}

#[test]
fn shutdown_waits_for_calls_in_flight() {
    for mode in Mode::all() {
        let mut runtime = mode.runtime().unwrap();
        let place = Place::new();
        let path = place.join("file");
        runtime.block_on(async {
            let file = File::create(&path).await.unwrap();
            for n in 0..20u64 {
                let clone = file.try_clone().unwrap();
                annulus::spawn(async move {
                    loop {
                        _ = clone.write_at(vec![n as u8; 200_000], n * 200_000).await;
                        annulus::task::yield_now().await;
                    }
                });
            }
            annulus::task::yield_now().await;
        });
        drop(runtime);
    }
}

/// A loop of calls that run on the loop does not keep other tasks from running.
#[test]
fn quick_calls_let_other_tasks_run() {
    let mode = Mode { driver: annulus::DriverChoice::Auto, policy: Policy::Inline };
    let mut runtime = mode.runtime().unwrap();
    let woken = runtime.block_on(async {
        let reader = annulus::spawn(async {
            let file = File::open("/proc/self/exe").await?;
            let mut buf = vec![0; 16];
            loop {
                let (read, back) = file.read_at(buf, 0).await;
                read?;
                buf = back;
            }
            #[expect(unreachable_code, reason = "says the type")]
            Ok::<(), io::Error>(())
        });
        sleep(Duration::from_millis(5)).await;
        drop(reader);
        true
    });
    assert!(woken);
}
