//! Pools of registered memory on the simulated kernel, on which the time at which a buffer is free is exact.

use crate::sim::files::{on, policies};
use annulus::fs::{DirectPool, File, OpenOptions, Policy};
use annulus::sim::{Device, Disk, Profile, Sim};
use annulus::spawn;
use annulus::time::{Instant, sleep};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

const SIZE: usize = 4096;

/// A device on which a read takes 10 ms.
fn slow(profile: Profile) -> Rc<Sim> {
    let device = Device { read: Duration::from_millis(10), ..Device::default() };
    Sim::builder(1).profile(profile).disk(Disk::new(device)).build()
}

async fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).direct(true).open("/file").await
}

/// Writes a block and reads it back. Returns how many calls used registered memory.
async fn there_and_back(pool: &DirectPool) -> io::Result<u64> {
    let file = open().await?;
    let mut buf = pool.take().await;
    buf.fill(7);
    file.write_all_at(buf, 0).await.0?;
    let (read, buf) = file.read_exact_at(pool.take().await, 0).await;
    read?;
    assert!(buf.iter().all(|byte| *byte == 7));
    Ok(annulus::counters().unwrap().file_registered)
}

#[test]
fn every_policy_but_inline_uses_registered_memory() {
    for policy in policies() {
        let sim = slow(Profile::current());
        let calls = on(&sim, policy, async { there_and_back(&DirectPool::new(2, SIZE)?).await });
        assert_eq!(calls.unwrap(), if policy == Policy::Inline { 0 } else { 2 }, "{policy:?}");
        assert_eq!(sim.leftovers(), [""; 0]);
    }
}

#[test]
fn memory_above_the_lock_limit_is_used_unregistered() {
    let sim = slow(Profile { lockable: SIZE as u64, ..Profile::current() });
    let calls = on(&sim, Policy::Adaptive, async {
        let pool = DirectPool::new(2, SIZE)?;
        assert_eq!(pool.registered().unwrap_err().kind(), ErrorKind::OutOfMemory);
        there_and_back(&pool).await
    });
    assert_eq!(calls.unwrap(), 0);
}

#[test]
fn a_dropped_pool_makes_space_for_another() {
    let sim = slow(Profile { lockable: SIZE as u64, ..Profile::current() });
    let ran = on(&sim, Policy::Adaptive, async {
        for _ in 0..3 {
            let pool = DirectPool::new(1, SIZE)?;
            assert!(pool.registered().is_ok());
            there_and_back(&pool).await?;
            let last = pool.take().await;
            drop(pool);
            assert!(DirectPool::new(1, SIZE)?.registered().is_err(), "a buffer is still there");
            drop(last);
        }
        Ok(())
    });
    ran.unwrap();
}

#[test]
fn a_dropped_read_keeps_its_buffer_as_long_as_the_device_takes() {
    let sim = slow(Profile::current());
    let ran = on(&sim, Policy::Adaptive, async {
        let pool = DirectPool::new(1, SIZE)?;
        there_and_back(&pool).await?;
        let file = open().await?;
        let began = Instant::now();
        {
            let mut read = pin!(file.read_at(pool.take().await, 0));
            let polled = poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_pending()));
            assert!(polled.await, "the device takes 10 ms");
        }
        let next = {
            let pool = pool.clone();
            spawn(async move {
                drop(pool.take().await);
                Instant::now()
            })
        };
        sleep(Duration::from_millis(9)).await;
        assert!(pool.available() == 0 && !next.is_finished());
        let waited = next.await.unwrap().duration_since(began);
        assert!(waited >= Duration::from_millis(10) && waited < Duration::from_millis(11));
        Ok(())
    });
    ran.unwrap();
}
