//! Wait queues compared with simple models, over random sequences of waits, notifications, spurious
//! polls, dropped futures and forgotten futures. The rule (invariant 22): nothing stays available
//! while a live task waits for it.

#[allow(dead_code, reason = "each user of it needs only some")]
#[path = "../src/waiters.rs"]
mod waiters;

#[allow(dead_code, reason = "not everything is modelled")]
#[path = "../src/shards/channel/queue.rs"]
mod queue;

mod sync {
    pub(crate) use std::sync::{Mutex, MutexGuard};
}

/// Stands in for the handling of panics, since no waker panics here.
mod unwind {
    use std::task::Waker;

    pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn dispose_each<T>(values: impl IntoIterator<Item = T>) {
        values.into_iter().for_each(drop);
    }
}

/// Replaces the check of whether a waker's task is done.
mod tasks {
    use std::cell::RefCell;
    use std::collections::HashSet;
    use std::task::Waker;

    thread_local! {
        /// The data of the wakers whose tasks are done. `None` if no waker is one of a task.
        pub(crate) static DONE: RefCell<Option<HashSet<*const ()>>> = const { RefCell::new(None) };
    }

    pub(crate) fn is_done(waker: &Waker) -> Option<bool> {
        DONE.with_borrow(|done| done.as_ref().map(|done| done.contains(&waker.data())))
    }
}

use proptest::collection::vec;
use proptest::prelude::*;
use queue::ChannelQueue;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use waiters::{PermitQueue, Wait, WaiterId, Waiters};

const TASKS: usize = 6;

/// A waker that remembers whether it was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Flag {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A step of the model, which concerns one task or all of them.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Starts to wait, or polls again, whether woken or not.
    Poll(usize),
    /// Polls if it was woken.
    Run(usize),
    Drop(usize),
    Forget(usize),
    /// Something becomes available, or is received.
    Arrive,
    /// The next turn.
    Recheck,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let task = 0..TASKS;
    let step = prop_oneof![
        4 => task.clone().prop_map(Step::Poll),
        4 => task.clone().prop_map(Step::Run),
        1 => task.clone().prop_map(Step::Drop),
        1 => task.prop_map(Step::Forget),
        4 => Just(Step::Arrive),
        2 => Just(Step::Recheck),
    ];
    vec(step, 0..120)
}

/// Something that tasks wait for, and how they wait.
trait Queue {
    /// Polls for a task. Returns true if the task got what it waits for; otherwise it is now in the
    /// line.
    fn poll(&mut self, id: &mut Option<WaiterId>, waker: &Waker) -> bool;
    fn leave(&mut self, id: &mut Option<WaiterId>);
    fn arrive(&mut self);
    fn recheck(&mut self);
    fn available(&self) -> usize;
}

/// A task's future. A new one replaces it once it is dropped or forgotten.
#[derive(Default)]
struct Future {
    id: Option<WaiterId>,
    flag: Arc<Flag>,
    waits: bool,
}

impl Future {
    fn poll(&mut self, queue: &mut impl Queue) {
        let waker = Waker::from(self.flag.clone());
        self.waits = !queue.poll(&mut self.id, &waker);
        if !self.waits {
            assert!(self.id.is_none(), "a task that no longer waits is still in the line");
        }
    }
}

/// Takes the steps, then lets all live tasks run until nothing changes.
fn run(queue: &mut impl Queue, steps: &[Step]) {
    let mut tasks: [Future; TASKS] = Default::default();
    for step in steps {
        match *step {
            Step::Poll(task) => tasks[task].poll(queue),
            Step::Run(task) if tasks[task].flag.take() => tasks[task].poll(queue),
            Step::Run(_) => {}
            Step::Drop(task) => queue.leave(&mut std::mem::take(&mut tasks[task]).id),
            Step::Forget(task) => drop(std::mem::take(&mut tasks[task])),
            Step::Arrive => queue.arrive(),
            Step::Recheck => queue.recheck(),
        }
    }
    // Each round removes at least one forgotten waiter from the line.
    for _ in 0..2 * (steps.len() + TASKS) {
        for task in tasks.iter_mut().filter(|task| task.waits) {
            if task.flag.take() {
                task.poll(queue);
            }
        }
        queue.recheck();
    }
    let waits = tasks.iter().any(|task| task.waits);
    assert!(!waits || queue.available() == 0, "a task waits although something is available");
}

/// Any poll may take an available item, as with receives and accepts.
#[derive(Default)]
struct Lenient {
    waiters: Waiters,
    available: usize,
    listed: bool,
}

impl Lenient {
    fn notify(&mut self) {
        let mut wakes = Vec::new();
        self.listed |= self.waiters.notify(self.available, &mut wakes);
        wakes.into_iter().for_each(Waker::wake);
    }
}

impl Queue for Lenient {
    fn poll(&mut self, id: &mut Option<WaiterId>, waker: &Waker) -> bool {
        if self.available == 0 {
            self.waiters.wait(Wait::InLine(id), waker, &mut Vec::new(), &mut Vec::new());
            return false;
        }
        self.available -= 1;
        self.leave(id);
        true
    }

    fn leave(&mut self, id: &mut Option<WaiterId>) {
        self.waiters.leave(Wait::InLine(id), &mut Vec::new());
        self.notify();
    }

    fn arrive(&mut self) {
        self.available += 1;
        self.notify();
    }

    /// Like the runtime, rechecks only a queue on the list.
    fn recheck(&mut self) {
        if std::mem::take(&mut self.listed) {
            self.waiters.recheck(self.available);
            self.notify();
        }
    }

    fn available(&self) -> usize {
        self.available
    }
}

/// The cursor of a file, which is granted in order. It becomes available when it is returned.
struct Cursor {
    line: PermitQueue,
    taken: bool,
    listed: bool,
}

impl Cursor {
    fn new() -> Self {
        let mut line = PermitQueue::default();
        assert!(line.poll(&mut None, &mut None));
        Self { line, taken: true, listed: false }
    }

    fn notify(&mut self) {
        self.line.notify_next().into_iter().for_each(Waker::wake);
        assert!(self.line.notify_next().is_none(), "two tasks were notified of one cursor");
        self.listed |= self.line.needs_recheck();
    }
}

impl Queue for Cursor {
    fn poll(&mut self, id: &mut Option<WaiterId>, waker: &Waker) -> bool {
        let taken = self.line.poll(id, &mut Some(waker.clone()));
        assert!(!(taken && self.taken), "two tasks took the cursor");
        self.taken |= taken;
        self.notify();
        taken
    }

    fn leave(&mut self, id: &mut Option<WaiterId>) {
        drop(self.line.leave(id));
        self.notify();
    }

    fn arrive(&mut self) {
        if std::mem::take(&mut self.taken) {
            self.line.give_back();
        }
        self.notify();
    }

    fn recheck(&mut self) {
        if std::mem::take(&mut self.listed) {
            self.line.recheck();
            self.notify();
        }
    }

    fn available(&self) -> usize {
        usize::from(!self.taken)
    }
}

/// A channel. Tasks wait for space to send, which a receive makes available.
struct Channel {
    line: ChannelQueue<()>,
    receiver: Arc<Flag>,
    waits: bool,
    full: usize,
}

impl Channel {
    fn new(capacity: usize) -> Self {
        let line = ChannelQueue::new(capacity);
        while line.push(&mut Some(())) {}
        Self { line, receiver: Arc::default(), waits: false, full: capacity }
    }

    fn receive(&mut self) {
        let waker = Waker::from(self.receiver.clone());
        self.waits = self.line.poll_pop(&Context::from_waker(&waker)).is_pending();
        self.full -= usize::from(!self.waits);
    }
}

impl Queue for Channel {
    fn poll(&mut self, id: &mut Option<WaiterId>, waker: &Waker) -> bool {
        let polled = self.line.poll_push(&mut Some(()), id, &Context::from_waker(waker));
        self.full += usize::from(polled.is_ready());
        polled.is_ready()
    }

    fn leave(&mut self, id: &mut Option<WaiterId>) {
        self.line.leave(id);
    }

    fn arrive(&mut self) {
        self.receive();
    }

    /// Receives, unless the receiver waits and has not been woken.
    fn recheck(&mut self) {
        if self.receiver.take() || !self.waits {
            self.receive();
        }
    }

    fn available(&self) -> usize {
        // Until the channel is empty, the receiver keeps receiving. Once it is empty, no sender may
        // wait.
        usize::from(self.full == 0)
    }
}

/// A waiter of the model. Waiters are ordered by `number`, which a task keeps until it is removed.
struct Modelled {
    task: usize,
    number: usize,
    notified: bool,
}

/// A model of `Waiters`, as simple as possible.
#[derive(Default)]
struct Model {
    line: Vec<Modelled>,
    numbers: [Option<usize>; TASKS],
    next: usize,
}

impl Model {
    fn register(&mut self, task: usize) {
        self.line.retain(|one| one.task != task);
        let number = *self.numbers[task].get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        self.line.push(Modelled { task, number, notified: false });
        self.line.sort_by_key(|one| one.number);
    }

    fn remove(&mut self, task: usize) {
        self.line.retain(|one| one.task != task);
        self.numbers[task] = None;
    }

    fn notify(&mut self, count: usize) -> Vec<usize> {
        let first = self.line.iter_mut().take(count).filter(|one| !one.notified);
        first.map(|one| (one.notified = true, one.task).1).collect()
    }

    fn skip_notified(&mut self) {
        let keep = self.line.iter().position(|one| !one.notified).unwrap_or(self.line.len());
        self.line.drain(..keep);
    }
}

/// Returns true if a task waits, judged by its waker.
fn waits_in(waiters: &Waiters, task: &Waker) -> bool {
    waiters.wakers().any(|waker| waker.will_wake(task))
}

/// Returns the tasks whose wakers were returned, in order.
fn woken(wakes: Vec<Waker>, wakers: &[Waker; TASKS]) -> Vec<usize> {
    let task = |waker: Waker| wakers.iter().position(|one| one.will_wake(&waker)).unwrap();
    wakes.into_iter().map(task).collect()
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Register(usize),
    Remove(usize),
    Notify(usize),
    NotifyAll,
    Skip,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        5 => (0..TASKS).prop_map(Act::Register),
        2 => (0..TASKS).prop_map(Act::Remove),
        3 => (0..TASKS).prop_map(Act::Notify),
        1 => Just(Act::NotifyAll),
        2 => Just(Act::Skip),
    ];
    vec(act, 0..100)
}

proptest! {
    #[test]
    fn waiters_match_the_model(acts in acts()) {
        let wakers: [Waker; TASKS] = std::array::from_fn(|_| Waker::from(Arc::<Flag>::default()));
        let mut ids = [None; TASKS];
        let (mut waiters, mut model) = (Waiters::default(), Model::default());
        for act in acts {
            let mut wakes = Vec::new();
            let mut expected = Vec::new();
            match act {
                Act::Register(task) => {
                    drop(waiters.register(&mut ids[task], &wakers[task]));
                    model.register(task);
                }
                Act::Remove(task) => {
                    drop(waiters.remove(&mut ids[task]));
                    model.remove(task);
                }
                Act::Notify(count) => {
                    waiters.notify(count, &mut wakes);
                    expected = model.notify(count);
                }
                Act::NotifyAll => {
                    waiters.notify_all(&mut wakes);
                    model.skip_notified();
                    expected = model.notify(TASKS);
                }
                Act::Skip => {
                    waiters.skip_notified();
                    model.skip_notified();
                }
            }
            prop_assert_eq!(woken(wakes, &wakers), expected);
            prop_assert_eq!(waiters.is_empty(), model.line.is_empty());
            let unnotified = model.line.iter().any(|one| !one.notified);
            prop_assert_eq!(waiters.has_unnotified(), unnotified);
            for (task, waker) in wakers.iter().enumerate() {
                let waits = model.line.iter().any(|one| one.task == task && !one.notified);
                prop_assert_eq!(waits_in(&waiters, waker), waits);
                let ahead = model.numbers[task].map_or(model.line.len(), |number| {
                    model.line.iter().filter(|one| one.number < number).count()
                });
                prop_assert_eq!(waiters.ahead(ids[task]), ahead);
            }
        }
    }

    #[test]
    fn nothing_stays_available_while_a_live_task_waits(steps in steps()) {
        run(&mut Lenient::default(), &steps);
    }

    #[test]
    fn no_cursor_stays_free_while_a_live_task_waits(steps in steps()) {
        run(&mut Cursor::new(), &steps);
    }

    #[test]
    fn no_live_sender_waits_while_the_receiver_does(capacity in 1usize..4, steps in steps()) {
        run(&mut Channel::new(capacity), &steps);
    }

    /// The tasks run as soon as they are woken.
    #[test]
    fn senders_are_served_in_order_of_arrival(
        capacity in 1usize..4,
        sends in vec(any::<bool>(), 1..60),
    ) {
        let line = ChannelQueue::new(capacity);
        let mut waiting = VecDeque::new();
        let take = || match line.try_pop() {
            Poll::Ready(value) => value,
            Poll::Pending => None,
        };
        let (mut sent, mut got) = (0, Vec::new());
        for send in sends {
            if send {
                waiting.push_back((Some(sent), None, Arc::<Flag>::default()));
                waiting.back().unwrap().2.0.store(true, Ordering::Relaxed);
                sent += 1;
            } else {
                got.extend(take());
            }
            waiting.retain_mut(|(value, id, flag)| {
                let waker = Waker::from(flag.clone());
                let cx = Context::from_waker(&waker);
                !flag.take() || line.poll_push(value, id, &cx) == Poll::Pending
            });
        }
        got.extend(std::iter::from_fn(take));
        prop_assert!(got.iter().copied().eq(0..got.len()), "the senders were served out of order: {:?}", got);
        prop_assert!(got.len() == sent - waiting.len());
    }
}

#[test]
fn every_poller_is_woken_and_stale_pollers_do_not_accumulate() {
    let mut waiters = Waiters::default();
    let flags: Vec<Arc<Flag>> = (0..1000).map(|_| Arc::default()).collect();
    let mut wakes = Vec::new();
    let mut polls = 0;
    // Each task polls after each of its wakes, until no wakes are left.
    let mut eager: Vec<&Arc<Flag>> = flags.iter().collect();
    while !eager.is_empty() {
        for flag in eager {
            polls += 1;
            waiters.wait(Wait::Polling, &Waker::from(flag.clone()), &mut wakes, &mut Vec::new());
        }
        wakes.drain(..).for_each(Waker::wake);
        eager = flags.iter().filter(|flag| flag.take()).collect();
    }
    assert!(polls <= 4 * flags.len(), "{polls} polls of {} tasks", flags.len());
    waiters.notify(1, &mut wakes);
    assert_eq!(wakes.len(), flags.len(), "a task was not woken exactly once");
    assert!(waiters.is_empty());
    wakes.clear();
    let kept = |waiters: &Waiters| {
        flags.iter().filter(|flag| waits_in(waiters, &Waker::from((*flag).clone()))).count()
    };
    // A task that polls repeatedly is stored once.
    for _ in 0..10 {
        waiters.wait(Wait::Polling, &Waker::from(flags[0].clone()), &mut wakes, &mut Vec::new());
    }
    assert!(wakes.is_empty());
    // Other tasks poll once and never return.
    for flag in &flags[..100] {
        waiters.wait(Wait::Polling, &Waker::from(flag.clone()), &mut wakes, &mut Vec::new());
    }
    assert!(kept(&waiters) <= 64 && kept(&waiters) + wakes.len() == 100);
}

#[test]
fn wakers_of_tasks_that_are_done_do_not_accumulate() {
    let mut waiters = Waiters::default();
    let lasting: Vec<Arc<Flag>> = (0..100).map(|_| Arc::default()).collect();
    let (mut wakes, mut drops) = (Vec::new(), Vec::new());
    tasks::DONE.set(Some(HashSet::new()));
    let change_done = |change: &dyn Fn(&mut HashSet<*const ()>)| {
        tasks::DONE.with_borrow_mut(|done| change(done.as_mut().expect("not set")));
    };
    for lasting in lasting.iter().cycle().take(10_000) {
        let waker = Waker::from(Arc::<Flag>::default());
        // Its memory may have been that of an earlier waker.
        change_done(&|done| _ = done.remove(&waker.data()));
        for waker in [&waker, &Waker::from(lasting.clone())] {
            waiters.wait(Wait::Polling, waker, &mut wakes, &mut drops);
        }
        change_done(&|done| _ = done.insert(waker.data()));
        drops.clear();
        assert!(waiters.len() <= 2 * (100 + 1), "{} wakers", waiters.len());
    }
    assert!(wakes.is_empty(), "a task was woken without a notification");
    waiters.notify(1, &mut wakes);
    wakes.drain(..).for_each(Waker::wake);
    assert!(lasting.iter().all(|flag| flag.take()), "a task was not woken");
}
