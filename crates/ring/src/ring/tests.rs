use super::*;
use crate::op::Nop;
use annulus_kernel::Mapping;

/// Both queues in plain memory, with four entries each.
struct FakeQueues {
    ring: Mapping,
    entries: Mapping,
}

const SUBMISSION_OFFSETS: SubmissionOffsets = SubmissionOffsets {
    head: 0,
    tail: 4,
    ring_mask: 8,
    ring_entries: 12,
    flags: 16,
    dropped: 20,
    array: 0,
    reserved: 0,
    user_addr: 0,
};
const COMPLETION_OFFSETS: CompletionOffsets = CompletionOffsets {
    head: 32,
    tail: 36,
    ring_mask: 40,
    ring_entries: 44,
    overflow: 48,
    cqes: 64,
    flags: 52,
    reserved: 0,
    user_addr: 0,
};

impl FakeQueues {
    fn starting_at(start: u32) -> Self {
        let fake = Self {
            ring: Mapping::anonymous(4096).unwrap(),
            entries: Mapping::anonymous(4096).unwrap(),
        };
        for (offset, value) in
            [(0, start), (4, start), (8, 3), (12, 4), (32, start), (36, start), (40, 3), (44, 4)]
        {
            fake.word(offset).store(value, Ordering::Relaxed);
        }
        fake
    }

    fn word(&self, offset: u32) -> SharedWord {
        // SAFETY: the offsets in these tests lie inside the page and are aligned, and the fake
        // outlives the word.
        unsafe { SharedWord::at(MappedArea::of(&self.ring), offset) }
    }

    fn submission_queue(&self) -> SubmissionQueue {
        // SAFETY: the offsets match the layout in `starting_at`, and the fake outlives the queue.
        unsafe {
            SubmissionQueue::new(
                MappedArea::of(&self.ring),
                MappedArea::of(&self.entries),
                &SUBMISSION_OFFSETS,
            )
        }
    }

    fn completion_queue(&self) -> CompletionQueue {
        // SAFETY: the offsets match the layout in `starting_at`, and the fake outlives the queue.
        unsafe { CompletionQueue::new(MappedArea::of(&self.ring), &COMPLETION_OFFSETS) }
    }

    fn post(&self, user_data: u64) {
        let tail = self.word(36).load(Ordering::Relaxed);
        let slot = 64 + (tail & 3) as usize * size_of::<Completion>();
        // SAFETY: the slot lies inside the page.
        unsafe {
            self.ring.as_ptr().add(slot).cast::<Completion>().write(Completion {
                user_data,
                result: 0,
                flags: 0,
            })
        };
        self.word(36).store(tail.wrapping_add(1), Ordering::Release);
    }
}

fn nop(user_data: u64) -> Entry {
    Nop.entry().user_data(user_data).into()
}

#[test]
fn submission_wraps_and_fills_exactly() {
    let fake = FakeQueues::starting_at(u32::MAX - 1);
    let mut queue = fake.submission_queue();
    for data in 0..4 {
        queue.push(nop(data)).unwrap();
    }
    assert_eq!(queue.push(nop(9)), Err(QueueFull));
    queue.publish();
    assert_eq!(fake.word(4).load(Ordering::Relaxed), 2);
    fake.word(0).store(u32::MAX, Ordering::Release);
    assert_eq!(queue.pending(), 3);
    queue.push(nop(4)).unwrap();
    assert_eq!(queue.push(nop(9)), Err(QueueFull));
}

#[test]
fn completions_wrap_in_order_and_free_their_slots() {
    let fake = FakeQueues::starting_at(u32::MAX - 1);
    let mut queue = fake.completion_queue();
    let mut seen = Vec::new();
    for round in 0..3u64 {
        for data in 0..4 {
            fake.post(round * 4 + data);
        }
        assert_eq!(queue.ready(), 4);
        seen.extend(queue.drain().map(|c| c.user_data));
        assert_eq!(fake.word(32).load(Ordering::Relaxed), fake.word(36).load(Ordering::Relaxed));
    }
    assert_eq!(seen, (0..12).collect::<Vec<_>>());
}

#[test]
fn a_dropped_drain_keeps_the_remaining_completions() {
    let fake = FakeQueues::starting_at(u32::MAX);
    let mut queue = fake.completion_queue();
    fake.post(1);
    fake.post(2);
    assert_eq!(queue.drain().next().unwrap().user_data, 1);
    assert_eq!(queue.ready(), 1);
    assert_eq!(queue.drain().next().unwrap().user_data, 2);
}
