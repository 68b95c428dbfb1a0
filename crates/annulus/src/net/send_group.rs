//! Sending the same bytes to many streams.

use super::split::SendHalf;
use super::stream_handle::StreamHandle;
use crate::bytes::chunk::Chunk;
use crate::bytes::shared::SharedBytes;
use crate::bytes::thread_bound::stays;
use crate::runtime::current;
use crate::runtime::spawn::spawn;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};
use std::{fmt, io, mem};

/// Default limit of a member's unsent bytes.
const DEFAULT_LIMIT_BYTES: usize = 256 * 1024;
/// Maximum size of a message that is copied into one chunk with other messages of the turn.
const MAX_JOINED_BYTES: usize = 4 * 1024;
/// Number of pending bytes at which a send queues them itself instead of waking the group's task.
const MAX_PENDING_BYTES: usize = 64 * 1024;
/// Maximum number of dropped members that are kept for `take_dropped`.
const MAX_REPORTED_DROPS: usize = 1024;

/// Minimum number of members at which `add` drops members whose streams no longer exist.
const MIN_CHECKED_MEMBERS: usize = 64;

/// What happens to a slow member of a [`SendGroup`]. A member is slow if its peer makes no room and
/// a message would raise its unsent bytes above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowMembers {
    /// The group drops the member and discards its unsent messages. The connection is reset once
    /// both halves of the stream have been dropped.
    Disconnect,
    /// The member does not get the message, nor the messages of the turn that were joined with it.
    Skip,
    /// The newest message replaces the queued messages, except those that are in flight or partly
    /// sent.
    KeepLatest,
}

/// Identifies a member of a [`SendGroup`]. A group never uses an ID again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(u64);

/// A member that a [`SendGroup`] has dropped.
#[derive(Debug)]
pub struct Dropped {
    /// The member.
    pub id: MemberId,
    /// Why it was dropped.
    pub reason: DropReason,
}

/// Why a [`SendGroup`] has dropped a member.
#[derive(Debug)]
pub enum DropReason {
    /// The member was slow, and the group uses [`SlowMembers::Disconnect`].
    Slow,
    /// A send failed, for example because the peer has reset the connection.
    Failed(io::Error),
    /// The halves of the stream were dropped or rejoined.
    Gone,
}

/// What a [`SendGroup`] has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupCounts {
    /// Messages that were sent to the group.
    pub messages: u64,
    /// Messages that were queued for a member, counted for each member.
    pub queued: u64,
    /// Messages that were not queued for a slow member, counted for each member. Messages that
    /// [`SlowMembers::KeepLatest`] removes from a queue are not included.
    pub skipped: u64,
    /// Number of times that [`SlowMembers::KeepLatest`] has replaced a member's queue.
    pub replaced: u64,
    /// Members that were dropped by [`SlowMembers::Disconnect`].
    pub disconnected: u64,
    /// Members that were dropped because a send to them has failed, or because their stream no
    /// longer exists.
    pub failed: u64,
}

/// Sends the same messages to many streams, without waking a task for any of them.
///
/// [`send`](Self::send) never waits. The small messages of a turn are joined once, in memory that
/// all members share. They are queued as one chunk on each member's stream, and leave in one send
/// per member. Sending a member many small messages costs about as much as one. A slow member holds
/// no copies.
///
/// A member is slow if its peer makes no room and its unsent bytes would exceed the
/// [limit](Self::limit). [`SlowMembers`] says what happens to it. Other members are not affected.
/// A member whose connection has failed is dropped. [`take_dropped`](Self::take_dropped) returns
/// the dropped members.
///
/// A member's halves stay with the program, which can send to that member alone, and add it to
/// several groups. Bytes that the program sends to one member may leave before the pending messages
/// of a group, unless the program calls [`flush`](Self::flush) first.
///
/// A group belongs to one runtime, and its clones are handles to the same group. With several
/// [`shards`](mod@crate::shards), give each shard a group, and pass messages to the shard through a
/// [`channel`](crate::shards::channel):
///
/// ```
/// use annulus::SharedBytes;
/// use annulus::net::{SendGroup, SlowMembers, UnixStream};
/// use annulus::shards::channel;
///
/// # annulus::run(async {
/// let group = SendGroup::new(SlowMembers::Disconnect);
/// let (stream, mut peer) = UnixStream::pair()?;
/// let (_receiving, sending) = stream.into_split();
/// group.add(&sending);
///
/// // Any shard can send on this channel. A task of this shard passes the messages on to its group.
/// let (sender, mut receiver) = channel::<SharedBytes>(64);
/// let local = group.clone();
/// annulus::spawn(async move {
///     while let Some(message) = receiver.recv().await {
///         local.send(message);
///     }
/// });
/// sender.send(SharedBytes::copy_of(b"to all")).await.unwrap();
/// assert_eq!(&*peer.recv().await?.unwrap(), b"to all");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct SendGroup {
    shared: Rc<Shared>,
}

stays!(Send SendGroup Sync SendGroup);

struct Shared(RefCell<Group>);

struct Group {
    slow: SlowMembers,
    limit: usize,
    members: Vec<Member>,
    /// The index of each member in `members`.
    places: HashMap<MemberId, usize>,
    next_id: u64,
    /// Number of members at which `add` drops members whose streams no longer exist.
    next_check: usize,
    /// Messages that have not been queued, each with the member that does not get it, if any.
    pending: Vec<(SharedBytes, Option<MemberId>)>,
    pending_bytes: usize,
    /// Whether the task that queues pending messages has been spawned. `waker` is set while that
    /// task waits.
    has_task: bool,
    waker: Option<Waker>,
    counts: GroupCounts,
    dropped: VecDeque<Dropped>,
}

struct Member {
    id: MemberId,
    stream: Weak<StreamHandle>,
}

/// Messages that are queued as one chunk.
struct Batch {
    bytes: SharedBytes,
    messages: u64,
    /// The last of these messages.
    latest: SharedBytes,
}

impl SendGroup {
    /// Creates a group without members.
    pub fn new(slow: SlowMembers) -> Self {
        let group = Group {
            slow,
            limit: DEFAULT_LIMIT_BYTES,
            members: Vec::new(),
            places: HashMap::new(),
            next_id: 0,
            next_check: MIN_CHECKED_MEMBERS,
            pending: Vec::new(),
            pending_bytes: 0,
            has_task: false,
            waker: None,
            counts: GroupCounts::default(),
            dropped: VecDeque::new(),
        };
        Self { shared: Rc::new(Shared(RefCell::new(group))) }
    }

    /// Sets the limit of each member's unsent bytes: 256 KiB by default. A message above the limit
    /// is still queued for a member without unsent bytes. The runtime's
    /// [unsent limit](crate::Builder::unsent_limit) does not apply, but its
    /// [memory limit](crate::Builder::memory_limit) may allow fewer bytes.
    #[must_use]
    pub fn limit(self, bytes: usize) -> Self {
        self.shared.0.borrow_mut().limit = bytes;
        self
    }

    /// Adds a member, which gets the messages that are sent from now on. If the group disconnects
    /// the member, its receiving half ends, sends by its sending half fail, and the connection is
    /// reset once both halves have been dropped.
    pub fn add(&self, half: &SendHalf) -> MemberId {
        // The pending messages are not for the new member.
        self.flush();
        let group = &mut *self.shared.0.borrow_mut();
        group.remove_gone_at_times();
        let id = MemberId(group.next_id);
        group.next_id += 1;
        group.places.insert(id, group.members.len());
        group.members.push(Member { id, stream: half.downgrade() });
        id
    }

    /// Removes a member, which still gets the messages that were sent before. Returns false if the
    /// member is no longer in the group.
    pub fn remove(&self, id: MemberId) -> bool {
        self.flush();
        let group = &mut *self.shared.0.borrow_mut();
        let place = group.places.get(&id).copied();
        place.map(|place| group.remove_at(place)).is_some()
    }

    /// Sends a message to all members. A task of the group queues it together with the other
    /// messages of the turn. They are queued at once if 64 KiB or more are pending, or if the group
    /// has no task yet and no runtime to spawn it on. Empty messages are ignored.
    pub fn send(&self, message: impl Into<SharedBytes>) {
        self.push(message.into(), None);
    }

    /// Sends a message to all members except one, such as the member that has sent it.
    pub fn send_except(&self, message: impl Into<SharedBytes>, except: MemberId) {
        self.push(message.into(), Some(except));
    }

    fn push(&self, message: SharedBytes, except: Option<MemberId>) {
        if message.is_empty() {
            return;
        }
        let mut group = self.shared.0.borrow_mut();
        group.counts.messages += 1;
        group.pending_bytes += message.len();
        group.pending.push((message, except));
        let can_wait = group.has_task || current::with(|_| ()).is_some();
        if group.pending_bytes >= MAX_PENDING_BYTES || !can_wait {
            drop(group);
            return self.flush();
        }
        let (waker, has_task) = (group.waker.take(), mem::replace(&mut group.has_task, true));
        drop(group);
        match waker {
            Some(waker) => waker.wake(),
            None if !has_task => drop(spawn(flush_when_woken(Rc::downgrade(&self.shared)))),
            None => {}
        }
    }

    /// Queues the pending messages on the members' streams, before the group's task does so. They
    /// leave at the end of the turn, or once the loop runs.
    pub fn flush(&self) {
        self.shared.flush();
    }

    /// Returns the number of members. A member whose connection has failed counts until the next
    /// message is queued.
    pub fn len(&self) -> usize {
        self.shared.0.borrow().members.len()
    }

    /// Returns true if the group has no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns what the group has done so far. Pending messages are not included, except in
    /// [`GroupCounts::messages`].
    pub fn counts(&self) -> GroupCounts {
        self.shared.0.borrow().counts
    }

    /// Returns the members that have been dropped since the last call: at most the last 1,024.
    pub fn take_dropped(&self) -> Vec<Dropped> {
        self.shared.0.borrow_mut().dropped.drain(..).collect()
    }
}

/// Queues the pending messages whenever it is woken, until the group is gone.
async fn flush_when_woken(group: Weak<Shared>) {
    poll_fn(|cx| {
        let Some(shared) = group.upgrade() else { return Poll::Ready(()) };
        shared.flush();
        shared.0.borrow_mut().waker = Some(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

impl Shared {
    fn flush(&self) {
        let group = &mut *self.0.borrow_mut();
        if !group.pending.is_empty() {
            group.flush();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.flush();
        if let Some(waker) = self.0.get_mut().waker.take() {
            waker.wake();
        }
    }
}

impl Group {
    fn flush(&mut self) {
        let pending = mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let batches = batches(pending.iter().map(|(message, _)| message));
        let mut place = 0;
        let has_exceptions = pending.iter().any(|(_, except)| except.is_some());
        while let Some(member) = self.members.get(place) {
            let (counts, id) = (&mut self.counts, member.id);
            let is_except = |(_, except): &(SharedBytes, Option<MemberId>)| *except == Some(id);
            let delivered = if has_exceptions && pending.iter().any(is_except) {
                let others =
                    pending.iter().filter(|one| !is_except(one)).map(|(message, _)| message);
                member.deliver(&self::batches(others), self.slow, self.limit, counts)
            } else {
                member.deliver(&batches, self.slow, self.limit, counts)
            };
            match delivered {
                Ok(()) => place += 1,
                Err(reason) => self.drop_at(place, reason),
            }
        }
    }

    /// Drops members whose streams no longer exist, each time the number of members has doubled.
    /// Otherwise they would stay in a group that sends no messages.
    fn remove_gone_at_times(&mut self) {
        if self.members.len() < self.next_check {
            return;
        }
        let mut place = 0;
        while let Some(member) = self.members.get(place) {
            if member.stream.strong_count() == 0 {
                self.drop_at(place, DropReason::Gone);
            } else {
                place += 1;
            }
        }
        self.next_check = (2 * self.members.len()).max(MIN_CHECKED_MEMBERS);
    }

    fn drop_at(&mut self, place: usize, reason: DropReason) {
        match reason {
            DropReason::Slow => self.counts.disconnected += 1,
            DropReason::Failed(_) | DropReason::Gone => self.counts.failed += 1,
        }
        if self.dropped.len() == MAX_REPORTED_DROPS {
            self.dropped.pop_front();
        }
        self.dropped.push_back(Dropped { id: self.members[place].id, reason });
        self.remove_at(place);
    }

    fn remove_at(&mut self, place: usize) {
        let member = self.members.swap_remove(place);
        self.places.remove(&member.id);
        if let Some(moved) = self.members.get(place) {
            self.places.insert(moved.id, place);
        }
    }
}

impl Member {
    /// Queues batches on the member's stream. An error is the reason to drop the member.
    fn deliver(
        &self,
        batches: &[Batch],
        slow: SlowMembers,
        limit: usize,
        counts: &mut GroupCounts,
    ) -> Result<(), DropReason> {
        let handle = self.stream.upgrade().ok_or(DropReason::Gone)?;
        for batch in batches {
            let chunk = Chunk::from(batch.bytes.clone());
            let is_queued = handle.with_idle_stream(|stream, shared, state| {
                stream.enqueue_within(shared, state, chunk, limit)
            });
            if is_queued.map_err(DropReason::Failed)? {
                counts.queued += batch.messages;
                continue;
            }
            match slow {
                SlowMembers::Disconnect => {
                    _ = handle.with_idle_stream(|stream, shared, state| {
                        stream.give_up_half(shared, state);
                        Ok(())
                    });
                    return Err(DropReason::Slow);
                }
                SlowMembers::Skip => counts.skipped += batch.messages,
                SlowMembers::KeepLatest => {
                    let chunk = Chunk::from(batch.latest.clone());
                    let replaced = handle.with_idle_stream(|stream, shared, state| {
                        stream.replace_queued(shared, state, chunk)
                    });
                    replaced.map_err(DropReason::Failed)?;
                    counts.replaced += 1;
                    counts.queued += 1;
                    counts.skipped += batch.messages - 1;
                }
            }
        }
        Ok(())
    }
}

/// Joins consecutive small messages. Each large message is a batch of its own.
fn batches<'a>(messages: impl Iterator<Item = &'a SharedBytes>) -> Vec<Batch> {
    let mut all: Vec<Batch> = Vec::new();
    let mut joined: Vec<&SharedBytes> = Vec::new();
    for message in messages {
        if message.len() <= MAX_JOINED_BYTES {
            joined.push(message);
            continue;
        }
        all.extend(join(&mem::take(&mut joined)));
        all.extend(join(&[message]));
    }
    all.extend(join(&joined));
    all
}

fn join(messages: &[&SharedBytes]) -> Option<Batch> {
    let (messages_len, last) = (messages.len() as u64, *messages.last()?);
    if let [only] = messages {
        let (bytes, latest) = ((*only).clone(), (*only).clone());
        return Some(Batch { bytes, messages: 1, latest });
    }
    let mut bytes = Vec::with_capacity(messages.iter().map(|message| message.len()).sum());
    messages.iter().for_each(|message| bytes.extend_from_slice(message));
    let start = bytes.len() - last.len();
    let bytes = SharedBytes::from(bytes);
    Some(Batch { latest: bytes.slice(start..), messages: messages_len, bytes })
}

impl fmt::Debug for SendGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendGroup({} members)", self.len())
    }
}
