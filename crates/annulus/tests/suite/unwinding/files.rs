//! Buffers whose drop panics, in file calls whose futures have been dropped. The runtime drops the
//! buffers when the calls return.

use crate::common::touch;
use crate::unwinding::foreign::{Count, PanicsOnDrop, poll_with, waker_of};
use crate::unwinding::mode::everywhere;
use annulus::fs::{File, IoBuf, IoBufMut, OpenOptions, Policy};
use annulus::task::yield_now;
use std::io;
use std::pin::pin;
use std::task::Waker;

struct PanickingBuf(Vec<u8>, #[expect(dead_code, reason = "held for its drop")] PanicsOnDrop);

// SAFETY: the vector owns the bytes, which stay in place when it moves.
unsafe impl IoBuf for PanickingBuf {
    fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.0.len()
    }
}

// SAFETY: the vector owns the bytes, which stay in place when it moves.
unsafe impl IoBufMut for PanickingBuf {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    fn bytes_total(&mut self) -> usize {
        self.0.len()
    }

    unsafe fn set_init(&mut self, _: usize) {}
}

/// Opens a file whose calls all leave the loop.
async fn file(name: &str) -> io::Result<File> {
    let options = OpenOptions::new().read(true).write(true).create(true).policy(Policy::Offload);
    let path = std::env::temp_dir().join(format!("annulus-{name}-{}", std::process::id()));
    annulus::fs::create_dir_all(std::env::temp_dir()).await?;
    let mut file = options.open(&path).await?;
    annulus::fs::remove_file(path).await?;
    file.write(vec![7; 4096]).await.0?;
    Ok(file)
}

#[test]
fn buffers_of_dropped_calls_are_dropped_one_by_one() {
    everywhere(|mut stage| {
        let count = Count::default();
        stage.play(async {
            let file = file("dropped-calls").await?;
            for _ in 0..3 {
                let buf = PanickingBuf(vec![0; 1000], PanicsOnDrop(count.clone()));
                assert!(touch(file.read_at(buf, 0)).is_none(), "the call ended at once");
            }
            while count.get() < 3 {
                yield_now().await;
            }
            Ok(())
        });
        stage.end();
    });
}

#[test]
fn buffers_of_calls_in_flight_at_shutdown_are_dropped_one_by_one() {
    everywhere(|mut stage| {
        let count = Count::default();
        stage.play(async {
            let file = file("calls-at-the-end").await?;
            for _ in 0..3 {
                let buf = PanickingBuf(vec![0; 1000], PanicsOnDrop(count.clone()));
                assert!(touch(file.read_at(buf, 0)).is_none(), "the call ended at once");
            }
            Ok(())
        });
        stage.end();
        assert_eq!(count.get(), 3);
    });
}

#[test]
fn cursors_contain_panics_of_wakers() {
    everywhere(|mut stage| {
        let count = Count::default();
        stage.play(async {
            let mut one = file("cursor").await?;
            let mut other = one.try_clone()?;
            let mut first = pin!(one.write(vec![1; 10]));
            assert!(poll_with(first.as_mut(), Waker::noop()).is_pending());
            let mut next = pin!(other.write(vec![2; 10]));
            assert!(poll_with(next.as_mut(), &waker_of(PanicsOnDrop(count.clone()))).is_pending());
            assert_eq!(first.await.0?, 10);
            assert_eq!(count.get(), 1, "the next waiter was not woken");
            assert_eq!(next.await.0?, 10);
            Ok(())
        });
        stage.end();
    });
}
