//! Tests the pool against a model of its buffers' owners.

use super::budget::{MIN_KERNEL_BUFFERS, MIN_KERNEL_DATAGRAM_BUFFERS};
use super::*;
use annulus_kernel::Linux;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

const MAX_BUFFERS: u32 = 128;

/// The model: the state that the pool must agree with.
#[derive(Default)]
struct Model {
    /// Buffers with the kernel: first in, first out, like a buffer ring.
    kernel: VecDeque<u16>,
    lent: Vec<u16>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Refill,
    /// The kernel fills this many buffers.
    Take(usize),
    GiveBack(usize),
    GiveBackRemotely(usize),
    Starved,
    Trim(Trim, bool),
    Budget(ReceiveBudget),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Refill),
        4 => (0usize..80).prop_map(Step::Take),
        6 => any::<usize>().prop_map(Step::GiveBack),
        2 => any::<usize>().prop_map(Step::GiveBackRemotely),
        1 => Just(Step::Starved),
        1 => (trims(), any::<bool>()).prop_map(|(trim, all)| Step::Trim(trim, all)),
        1 => budgets().prop_map(Step::Budget),
    ];
    prop::collection::vec(step, 1..400)
}

fn trims() -> impl Strategy<Value = Trim> {
    prop_oneof![Just(Trim::Everything), Just(Trim::Surplus)]
}

fn budgets() -> impl Strategy<Value = ReceiveBudget> {
    let some = (0usize..1 << 20, any::<bool>());
    prop_oneof![
        Just(ReceiveBudget::UNLIMITED),
        some.prop_map(|(bytes, is_tight)| ReceiveBudget { bytes, is_tight }),
    ]
}

/// Returns the resident bytes of the pool's range, as the system reports them.
fn in_memory(pool: &Pool) -> usize {
    let (start, len) = (pool.memory.mapping.as_ptr(), pool.memory.mapping.len());
    let mut pages = vec![0; len / pool.memory.page];
    // SAFETY: the range is the pool's mapping, and the vector has a byte for each of its pages.
    assert_eq!(unsafe { libc::mincore(start.cast(), len, pages.as_mut_ptr()) }, 0);
    pages.iter().filter(|page| **page & 1 == 1).count() * pool.memory.page
}

fn lend(pool: &Pool) -> u16 {
    pool.lend().expect("no buffer is free").0
}

fn small_pool() -> Rc<Pool> {
    Pool::new(PoolSize { buffer: 4096, count: MAX_BUFFERS }, Rc::new(Linux)).unwrap()
}

impl Model {
    fn apply(&mut self, pool: &Pool, step: Step) {
        match step {
            Step::Refill => self.refill(pool),
            Step::Take(count) => (0..count).for_each(|_| self.take(pool)),
            Step::GiveBack(n) => self.returned(n).into_iter().for_each(|id| pool.give_back(id)),
            Step::GiveBackRemotely(n) => {
                self.returned(n).into_iter().for_each(|id| pool.memory().give_back_remotely(id));
            }
            Step::Starved => pool.record_shortage(),
            Step::Trim(trim, all) => pool.trim(trim, all),
            Step::Budget(budget) => pool.set_budget(budget),
        }
    }

    fn refill(&mut self, pool: &Pool) {
        self.refill_with(pool);
        let all: BTreeSet<u16> = self.kernel.iter().chain(&self.lent).copied().collect();
        assert_eq!(all.len(), self.kernel.len() + self.lent.len(), "a buffer has two owners");
    }

    fn refill_with(&mut self, pool: &Pool) {
        pool.refill(|address, len, id| {
            // SAFETY: the pool has handed out the id to this closure.
            assert_eq!(address, unsafe { pool.address(id) });
            assert!((1..=pool.buffer_size()).contains(&len));
            assert!(u32::from(id) < pool.capacity());
            self.kernel.push_back(id);
        });
    }

    fn take(&mut self, pool: &Pool) {
        if let Some(id) = self.kernel.pop_front() {
            pool.mark_lent(id, 1);
            // SAFETY: the buffer is lent to this test, and is at least this long.
            unsafe { pool.address(id).write(1) };
            self.lent.push(id);
        }
    }

    fn returned(&mut self, n: usize) -> Option<u16> {
        (!self.lent.is_empty()).then(|| self.lent.swap_remove(n % self.lent.len()))
    }
}

proptest! {
    #[test]
    fn every_buffer_has_one_owner(steps in steps()) {
        let pool = small_pool();
        let mut model = Model::default();
        for step in steps {
            model.apply(&pool, step);
            prop_assert_eq!(pool.with_kernel() as usize, model.kernel.len());
            prop_assert_eq!(pool.resident_bytes(), in_memory(&pool));
        }
        // A refill takes back the buffers that other threads have returned.
        model.refill(&pool);
        prop_assert_eq!(pool.lent() as usize, model.lent.len());
        let free = MAX_BUFFERS as usize - model.lent.len();
        prop_assert!(model.kernel.len() >= free.min(16), "the kernel has too few buffers");
    }
}

#[test]
fn the_kernel_has_the_buffers_that_turns_need_and_no_more() {
    let pool = Pool::new(PoolSize { buffer: 4096, count: 1024 }, Rc::new(Linux)).unwrap();
    let mut model = Model::default();
    let mut turn = |count: usize| {
        model.refill(&pool);
        (0..count).for_each(|_| model.take(&pool));
        std::mem::take(&mut model.lent).into_iter().for_each(|id| pool.give_back(id));
    };
    (0..2 * REFILLS_PER_PERIOD).for_each(|_| turn(3));
    let little = pool.with_kernel();
    assert!(little < 30, "the kernel keeps {little} buffers for turns of 3");
    (0..10).for_each(|_| turn(60));
    (0..REFILLS_PER_PERIOD).for_each(|_| turn(3));
    assert_eq!(
        pool.buffers.borrow().depth.buffers(),
        120,
        "the depth is not twice the largest number taken in a turn"
    );
}

#[test]
fn starvation_increases_the_depth_up_to_the_limit() {
    let pool = small_pool();
    let mut model = Model::default();
    for _ in 0..10 {
        pool.record_shortage();
        model.refill(&pool);
        (0..MAX_BUFFERS).for_each(|_| model.take(&pool));
    }
    assert!(pool.buffers.borrow().depth.is_at_its_limit());
    assert_eq!(pool.lent(), MAX_BUFFERS);
    assert!(pool.is_short());
}

#[test]
#[should_panic(expected = "returned twice")]
fn returning_a_buffer_twice_panics() {
    let pool = small_pool();
    let mut model = Model::default();
    model.refill(&pool);
    model.take(&pool);
    pool.give_back(model.lent[0]);
    pool.give_back(model.lent[0]);
}

#[test]
fn errors_give_the_size_that_is_out_of_range() {
    for (buffer, most) in [(100, 8), (4096, 9), (4096, 65_536), (0, 8), (4096, 0)] {
        let error = Pool::new(PoolSize { buffer, count: most }, Rc::new(Linux)).unwrap_err();
        assert!(
            error.to_string().contains(&format!("{most} buffers of {buffer} bytes")),
            "{error}"
        );
    }
}

/// The steps of a driver that chooses buffers itself.
fn lending_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => Just(Step::Refill),
        4 => (0usize..80).prop_map(Step::Take),
        6 => any::<usize>().prop_map(Step::GiveBack),
        2 => any::<usize>().prop_map(Step::GiveBackRemotely),
        1 => trims().prop_map(|trim| Step::Trim(trim, false)),
        1 => budgets().prop_map(Step::Budget),
    ];
    prop::collection::vec(step, 1..400)
}

impl Model {
    fn apply_lending(&mut self, pool: &Pool, step: Step) {
        match step {
            Step::Refill => self.reclaim_returned(pool),
            Step::Take(count) => (0..count).for_each(|_| self.borrow(pool)),
            other => self.apply(pool, other),
        }
    }

    fn reclaim_returned(&self, pool: &Pool) {
        pool.reclaim_returned();
        assert_eq!(pool.with_kernel() as usize, MAX_BUFFERS as usize - self.lent.len());
    }

    fn borrow(&mut self, pool: &Pool) {
        if let Some((id, address)) = pool.lend() {
            assert!(!self.lent.contains(&id), "buffer {id} has two owners");
            // SAFETY: the buffer is lent to this test, and holds at least a byte.
            unsafe { address.write(1) };
            pool.record_written(id, 1);
            self.lent.push(id);
        }
    }
}

proptest! {
    #[test]
    fn every_lent_buffer_has_one_owner(steps in lending_steps()) {
        let pool = small_pool();
        let mut model = Model::default();
        for step in steps {
            model.apply_lending(&pool, step);
            prop_assert_eq!(pool.resident_bytes(), in_memory(&pool));
        }
        model.reclaim_returned(&pool);
        prop_assert_eq!(pool.lent() as usize, model.lent.len());
        (0..MAX_BUFFERS).for_each(|_| model.borrow(&pool));
        prop_assert_eq!(model.lent.len(), MAX_BUFFERS as usize, "a buffer was lost");
        prop_assert_eq!(pool.lend(), None);
    }
}

#[test]
fn the_buffer_that_was_returned_last_is_lent_first() {
    let pool = small_pool();
    pool.reclaim_returned();
    let ids: Vec<u16> = (0..3).map(|_| lend(&pool)).collect();
    ids.iter().for_each(|id| pool.give_back(*id));
    assert_eq!(lend(&pool), ids[2]);
    pool.reclaim_returned();
    assert_eq!((lend(&pool), lend(&pool)), (ids[1], ids[0]));
}

#[test]
fn buffers_unused_for_a_period_lose_their_memory() {
    let pool = small_pool();
    let turn = |count: usize| {
        pool.reclaim_returned();
        let ids: Vec<u16> = (0..count).map(|_| lend(&pool)).collect();
        ids.into_iter().for_each(|id| pool.give_back(id));
    };
    turn(100);
    (0..2 * REFILLS_PER_PERIOD).for_each(|_| turn(3));
    assert_eq!(pool.buffers.borrow().cold.len(), 97);
}

/// When small receives follow large ones, memory that the small ones do not fill goes back to the
/// system, even after a few turns.
#[test]
fn small_receives_do_not_keep_the_memory_of_large_ones() {
    const LARGE_RECEIVE_BYTES: u32 = 64 * 1024;
    let pool =
        Pool::new(PoolSize { buffer: LARGE_RECEIVE_BYTES, count: 64 }, Rc::new(Linux)).unwrap();
    let mut model = Model::default();
    let mut turn = |count: usize, bytes: u32| {
        model.refill_with(&pool);
        for _ in 0..count {
            let Some(id) = model.kernel.pop_front() else { break };
            pool.mark_lent(id, bytes);
            // SAFETY: the buffer is lent to this test, and is at least this long.
            unsafe { pool.address(id).write_bytes(1, bytes as usize) };
            pool.give_back(id);
        }
    };
    (0..40).for_each(|_| turn(4, LARGE_RECEIVE_BYTES));
    assert!(pool.resident_bytes() >= 4 * LARGE_RECEIVE_BYTES as usize);
    pool.trim(Trim::Surplus, true);
    (0..10).for_each(|_| turn(1, 100));
    pool.trim(Trim::Surplus, true);
    (0..10).for_each(|_| turn(1, 100));
    assert_eq!(pool.resident_bytes(), in_memory(&pool));
    assert!(pool.resident_bytes() <= 20 * pool.memory.page, "{} bytes", pool.resident_bytes());
    pool.trim(Trim::Everything, true);
    assert_eq!((pool.resident_bytes(), in_memory(&pool)), (0, 0));
}

#[test]
fn a_budget_shortens_buffers_before_it_reduces_their_number() {
    const POOL_SIZE: PoolSize = PoolSize { buffer: 64 * 1024, count: 64 };
    let page = rustix::param::page_size() as u32;
    let published = |pool: &Pool, bytes: usize| {
        pool.set_budget(ReceiveBudget { bytes, is_tight: true });
        let mut lens = Vec::new();
        (0..20).for_each(|_| {
            pool.record_shortage();
            pool.refill(|_, len, id| lens.push((len, id)));
        });
        lens.iter().for_each(|(_, id)| pool.mark_lent(*id, 1));
        lens.iter().for_each(|(_, id)| pool.give_back(*id));
        lens.into_iter().map(|(len, _)| len).collect::<Vec<_>>()
    };
    let streams = Pool::new(POOL_SIZE, Rc::new(Linux)).unwrap();
    let lens = published(&streams, 1 << 20);
    assert_eq!(lens.len(), 64, "the kernel did not get 64 buffers");
    assert_eq!(lens.last(), Some(&(16 * 1024).max(page)));
    assert!(lens.iter().sum::<u32>() <= 2 << 20, "{lens:?}");
    let lens = published(&streams, 0);
    assert_eq!((lens.len() as u32, lens[0]), (MIN_KERNEL_BUFFERS, page));
    let datagrams = Pool::of_datagrams(POOL_SIZE, Rc::new(Linux)).unwrap();
    assert_eq!(published(&datagrams, 1 << 20), [POOL_SIZE.buffer; 16]);
    assert_eq!(published(&datagrams, 0).len() as u32, MIN_KERNEL_DATAGRAM_BUFFERS);
}
