//! Buffers of a pool: registered where the driver can, plain memory elsewhere, and bounded everywhere.

use crate::common::again::{self, again};
use crate::files::drops::begin;
use crate::files::mode::{Mode, everywhere};
use crate::files::place::Place;
use annulus::fs::{DirectBuf, DirectPool, File, IoBuf, OpenOptions, Policy};
use annulus::{DriverChoice, Runtime, spawn};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::rc::Rc;

const SIZE: usize = 4096;

async fn open(place: &Place) -> io::Result<File> {
    let options = OpenOptions::new().read(true).write(true).create(true).direct(true);
    options.open(place.join("file")).await
}

/// How many calls have used registered memory so far.
fn registered_calls() -> u64 {
    annulus::counters().unwrap().file_registered
}

async fn filled(pool: &DirectPool, byte: u8) -> DirectBuf {
    let mut buf = pool.take().await;
    buf.fill(byte);
    buf
}

#[test]
fn buffers_of_a_pool_are_written_and_read_as_registered() {
    for mode in Mode::all() {
        mode.run(move |place| async move {
            let (file, pool) = (open(&place).await?, DirectPool::new(4, 2 * SIZE)?);
            for byte in 0..4 {
                let at = u64::from(byte) * 2 * SIZE as u64;
                file.write_all_at(filled(&pool, byte).await, at).await.0?;
            }
            for byte in 0..4 {
                let at = u64::from(byte) * 2 * SIZE as u64;
                let (read, buf) = file.read_at(pool.take().await, at).await;
                assert_eq!(read?, 2 * SIZE);
                assert!(buf.iter().all(|found| *found == byte), "{mode:?}");
            }
            let part = filled(&pool, 9).await.slice(SIZE..);
            file.write_all_at(part, 0).await.0?;
            let (read, part) = file.read_at(pool.take().await.slice(..SIZE), 0).await;
            assert_eq!(read?, SIZE);
            assert!(part.into_inner()[..SIZE].iter().all(|byte| *byte == 9));
            let all = pool.registered().is_ok() && mode.policy != Policy::Inline;
            assert_eq!(registered_calls(), if all { 10 } else { 0 }, "{mode:?}");
            assert_eq!(pool.registered().is_ok(), mode.driver == DriverChoice::Uring);
            Ok(())
        });
    }
}

#[test]
fn tasks_wait_for_buffers_in_order() {
    everywhere(|_place| async move {
        let pool = DirectPool::new(2, SIZE)?;
        let (one, two) = (pool.take().await, pool.take().await);
        assert!(pool.try_take().is_none() && pool.available() == 0);
        // A future that was polled and dropped.
        begin(pool.take()).await;
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = (0..4)
            .map(|number| {
                let (pool, order) = (pool.clone(), order.clone());
                spawn(async move {
                    for _ in 0..3 {
                        let buf = pool.take().await;
                        order.borrow_mut().push(number);
                        drop(buf);
                    }
                })
            })
            .collect();
        annulus::yield_now().await;
        assert!(order.borrow().is_empty());
        drop(one);
        assert!(pool.try_take().is_none(), "it goes to the first that waits");
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(order.borrow()[..4], [0, 1, 2, 3]);
        drop(two);
        assert_eq!(pool.available(), 2);
        Ok(())
    });
}

#[test]
fn a_buffer_of_a_dropped_call_comes_back_when_the_call_is_done() {
    everywhere(|place| async move {
        let (file, pool) = (open(&place).await?, DirectPool::new(3, SIZE)?);
        file.set_len(1 << 20).await?;
        for byte in 0..100u8 {
            begin(file.write_at(filled(&pool, byte).await, 0)).await;
            begin(file.read_at(pool.take().await, 0)).await;
        }
        // All buffers come back once the last call is done.
        let all = [pool.take().await, pool.take().await, pool.take().await];
        drop((file, all));
        assert_eq!(pool.available(), 3);
        Ok(())
    });
}

#[test]
fn another_runtime_takes_it_for_plain_memory() {
    for mode in Mode::all() {
        let place = Place::new();
        let mut here = mode.runtime().unwrap();
        let mut there = Runtime::builder().build().unwrap();
        let pool = there.block_on(async { DirectPool::new(1, SIZE) }).unwrap();
        let done = here.block_on(async {
            let file = open(&place).await?;
            let (written, buf) = file.write_at(filled(&pool, 7).await, 0).await;
            assert_eq!((written?, registered_calls()), (SIZE, 0));
            drop(buf);
            let (read, buf) = file.read_exact_at(pool.take().await, 0).await;
            read?;
            assert!(buf.iter().all(|byte| *byte == 7));
            io::Result::Ok(buf)
        });
        drop((there, here));
        // The last buffer, after both ends.
        assert_eq!(done.unwrap()[0], 7, "{mode:?}");
    }
}

#[test]
fn one_pool_too_many_is_as_good_and_registered_once_another_has_gone() {
    everywhere(|place| async move {
        let file = open(&place).await?;
        let mut pools = Vec::new();
        let mut rings = 0;
        for _ in 0..65 {
            let pool = DirectPool::new(1, SIZE)?;
            rings += usize::from(pool.registered().is_ok());
            file.write_at(filled(&pool, 1).await, 0).await.0?;
            pools.push(pool);
        }
        if rings == 0 {
            return Ok(());
        }
        let last = pools.pop().unwrap();
        assert_eq!((rings, last.registered().unwrap_err().kind()), (64, ErrorKind::QuotaExceeded));
        pools.remove(13);
        assert!(DirectPool::new(1, SIZE)?.registered().is_ok());
        Ok(())
    });
}

#[test]
fn a_pool_that_cannot_be_says_why() {
    everywhere(|_place| async move {
        for (count, size, part) in [
            (0, SIZE, "0 direct buffers of 4096 bytes: take at least one"),
            (4, 0, "a multiple of 4096 bytes"),
            (SIZE, 32, "4096 direct buffers of 32 bytes: take"),
            (2, 1 << 30, "at most 1073741824 bytes; make several"),
            (usize::MAX, SIZE, "at most 1073741824 bytes"),
        ] {
            let error = DirectPool::new(count, size).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(part), "{error}");
        }
        Ok(())
    });
    let outside = DirectPool::new(1, SIZE).unwrap_err();
    assert!(outside.to_string().contains("no runtime is running"), "{outside}");
}

/// In a process of its own, which then may lock no more than so much.
#[test]
fn more_than_may_be_locked_is_used_without() {
    if !again::is_alone(again!(more_than_may_be_locked_is_used_without)) {
        return;
    }
    // A ring asks for the privilege when it is made.
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, sets).unwrap();
    let maximum = getrlimit(Resource::Memlock).maximum;
    setrlimit(Resource::Memlock, Rlimit { current: Some(1 << 16), maximum }).unwrap();
    for mode in Mode::all() {
        let place = Place::new();
        let ran = mode.runtime().unwrap().block_on(async {
            let (small, large) = (DirectPool::new(1, SIZE)?, DirectPool::new(32, SIZE)?);
            if small.registered().is_ok() {
                let refused = large.registered().unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::OutOfMemory, "{refused}");
            }
            let file = open(&place).await?;
            file.write_all_at(filled(&large, 3).await, 0).await.0?;
            let (read, buf) = file.read_at(large.take().await, 0).await;
            assert_eq!((read?, buf[SIZE - 1]), (SIZE, 3));
            io::Result::Ok(())
        });
        ran.unwrap();
    }
}
