//! Groups of streams that are sent the same messages.

use crate::common::{pair, pattern, receive};
use annulus::net::{DropReason, MemberId, RecvHalf, SendGroup, SendHalf, SlowMembers, TcpStream};
use annulus::task::yield_now;
use annulus::{SharedBytes, spawn};
use std::io;

/// Bytes of a message that fills sockets quickly.
const LARGE: usize = 16 * 1024;
/// More messages than sockets can hold.
const MANY: usize = 4096;

/// A member: its receiving half, its peer, and its id.
struct Joined {
    receiving: RecvHalf,
    sending: SendHalf,
    peer: TcpStream,
    id: MemberId,
}

async fn join(group: &SendGroup) -> io::Result<Joined> {
    let (stream, peer) = pair().await?;
    let (receiving, sending) = stream.into_split();
    let id = group.add(&sending);
    Ok(Joined { receiving, sending, peer, id })
}

async fn join_many(group: &SendGroup, number: usize) -> io::Result<Vec<Joined>> {
    let mut all = Vec::new();
    for _ in 0..number {
        all.push(join(group).await?);
    }
    Ok(all)
}

/// Returns a message of this many bytes, which begins with its number.
fn message(number: usize, len: usize) -> SharedBytes {
    let mut bytes = pattern(len);
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    bytes.into()
}

async fn next_number(peer: &mut TcpStream, len: usize) -> io::Result<usize> {
    let lease = peer.recv_exact(len).await?;
    let number = u64::from_le_bytes(lease[..8].try_into().expect("eight bytes")) as usize;
    assert!(*lease == *message(number, len), "message {number} has other bytes");
    Ok(number)
}

pub(crate) async fn every_member_gets_every_message_in_order() -> io::Result<()> {
    // The limit is above the size of all messages: on a simulated network, even peers that read are
    // behind.
    let group = SendGroup::new(SlowMembers::Disconnect).limit(64 << 20);
    let joined = join_many(&group, 12).await?;
    let messages: Vec<_> = (0..300).map(|number| message(number, 8 + number * 37 % 9000)).collect();
    let expected: Vec<u8> = messages.iter().flat_map(|message| message.to_vec()).collect();
    let readers = joined.into_iter().map(|mut one| {
        let len = expected.len();
        spawn(async move { receive(&mut one.peer, len).await.map(|bytes| (bytes, one)) })
    });
    let readers: Vec<_> = readers.collect();
    for (number, message) in messages.into_iter().enumerate() {
        group.send(message);
        if number % 7 == 0 {
            yield_now().await;
        }
    }
    for reader in readers {
        let (bytes, _one) = reader.await.expect("no panic")?;
        assert!(bytes == expected);
    }
    let counts = group.counts();
    assert_eq!((counts.messages, counts.queued, counts.skipped), (300, 300 * 12, 0));
    assert_eq!(group.len(), 12);
    Ok(())
}

pub(crate) async fn a_member_gets_what_is_sent_while_it_is_one() -> io::Result<()> {
    let group = SendGroup::new(SlowMembers::Skip);
    group.send(message(0, 8));
    let mut one = join(&group).await?;
    group.send(message(1, 8));
    let mut other = join(&group).await?;
    group.send_except(message(2, 8), one.id);
    group.send(message(3, 8));
    assert!(group.remove(one.id) && !group.remove(one.id));
    group.send(message(4, 8));
    assert!(!group.is_empty());
    group.flush();
    one.sending.send(vec![5; 8]).await?;
    // Messages that are pending when the group is dropped are still sent.
    group.send(message(6, 8));
    drop((group, one.sending, other.sending));
    let mut seen = Vec::new();
    for peer in [&mut one.peer, &mut other.peer] {
        let bytes = receive(peer, usize::MAX).await?;
        seen.push(bytes.chunks(8).map(|number| number[0]).collect::<Vec<_>>());
    }
    assert_eq!(seen, [vec![1, 3, 5], vec![2, 3, 4, 6]]);
    Ok(())
}

/// The first member never reads; the other two get everything.
pub(crate) async fn a_slow_member_is_disconnected() -> io::Result<()> {
    let group = SendGroup::new(SlowMembers::Disconnect).limit(4 * LARGE);
    let mut joined = join_many(&group, 3).await?;
    let mut sent = 0;
    while group.len() == 3 {
        assert!(sent < MANY, "a member that does not read is still a member");
        group.send(message(sent, LARGE));
        for one in &mut joined[1..] {
            assert_eq!(next_number(&mut one.peer, LARGE).await?, sent);
        }
        sent += 1;
    }
    let dropped = group.take_dropped();
    assert!(matches!(dropped[..], [ref one] if one.id == joined[0].id), "{dropped:?}");
    assert!(matches!(dropped[0].reason, DropReason::Slow), "{dropped:?}");
    let counts = group.counts();
    assert_eq!((counts.disconnected, counts.failed), (1, 0));
    let mut slow = joined.remove(0);
    // The next receive and send of the slow member fail.
    assert!(!matches!(slow.receiving.recv().await, Ok(Some(_))));
    assert!(slow.sending.send("late").await.is_err());
    drop((slow.receiving, slow.sending));
    let received = receive_until_failed(&mut slow.peer).await;
    assert!(received < sent * LARGE, "all of {sent} messages arrived at a member that was reset");
    Ok(())
}

async fn receive_until_failed(peer: &mut TcpStream) -> usize {
    let mut received = 0;
    while let Ok(Some(lease)) = peer.recv().await {
        received += lease.len();
    }
    received
}

pub(crate) async fn a_slow_member_misses_whole_messages() -> io::Result<()> {
    let group = SendGroup::new(SlowMembers::Skip).limit(4 * LARGE);
    let mut one = join(&group).await?;
    let mut sent = 0;
    while group.counts().skipped < 10 {
        assert!(sent < MANY, "a member that does not read misses nothing");
        group.send(message(sent, LARGE));
        group.flush();
        sent += 1;
        yield_now().await;
    }
    let counts = group.counts();
    assert_eq!(counts.queued + counts.skipped, sent as u64);
    let mut last = None;
    for _ in 0..counts.queued {
        let number = next_number(&mut one.peer, LARGE).await?;
        assert!(last < Some(number), "message {number} came after {last:?}");
        last = Some(number);
    }
    group.send(message(sent, LARGE));
    assert_eq!(next_number(&mut one.peer, LARGE).await?, sent);
    assert_eq!(group.len(), 1);
    Ok(())
}

pub(crate) async fn a_slow_member_gets_the_latest_message() -> io::Result<()> {
    let group = SendGroup::new(SlowMembers::KeepLatest).limit(4 * LARGE);
    let mut one = join(&group).await?;
    let mut sent = 0;
    while group.counts().replaced < 10 {
        assert!(sent < MANY, "a member that does not read keeps all messages");
        // Of two messages that are sent in one turn, only the second remains.
        group.send(message(sent, LARGE));
        group.send(message(sent + 1, LARGE));
        group.flush();
        sent += 2;
        yield_now().await;
    }
    let mut last = None;
    while last != Some(sent - 1) {
        let number = next_number(&mut one.peer, LARGE).await?;
        assert!(last < Some(number), "message {number} came after {last:?}");
        last = Some(number);
    }
    group.send(message(sent, LARGE));
    assert_eq!(next_number(&mut one.peer, LARGE).await?, sent);
    Ok(())
}

pub(crate) async fn members_that_reset_together_are_reported() -> io::Result<()> {
    let group = SendGroup::new(SlowMembers::Disconnect);
    let mut joined = join_many(&group, 40).await?;
    let (mut gone, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let Joined { receiving, sending, peer, id } = joined.remove(0);
        peer.abort();
        ids.push(id);
        gone.push((receiving, sending));
    }
    let mut sent = 0;
    while group.len() > 20 {
        assert!(sent < MANY, "members whose connections were reset are still members");
        group.send(message(sent, 64));
        for one in &mut joined {
            assert_eq!(next_number(&mut one.peer, 64).await?, sent);
        }
        sent += 1;
    }
    let mut dropped = group.take_dropped();
    dropped.sort_by_key(|one| one.id);
    assert!(dropped.iter().map(|one| one.id).eq(ids), "{dropped:?}");
    assert!(dropped.iter().all(|one| matches!(one.reason, DropReason::Failed(_))));
    assert_eq!(group.counts().failed, 20);
    Ok(())
}

pub(crate) async fn a_stream_that_no_longer_exists_is_no_member() -> io::Result<()> {
    let group = SendGroup::new(SlowMembers::Skip);
    let (one, other) = (join(&group).await?, join(&group).await?);
    // The group keeps neither a dropped stream nor a reunited stream open.
    drop((one.receiving, one.sending));
    let stream = TcpStream::reunite(other.receiving, other.sending).expect("halves of one stream");
    group.send("to none".to_owned().into_bytes());
    group.flush();
    let mut dropped = group.take_dropped();
    dropped.sort_by_key(|one| one.id);
    assert!(dropped.iter().map(|one| one.id).eq([one.id, other.id]), "{dropped:?}");
    assert!(dropped.iter().all(|one| matches!(one.reason, DropReason::Gone)), "{dropped:?}");
    drop(stream);
    for mut peer in [one.peer, other.peer] {
        assert!(peer.recv().await?.is_none());
    }
    Ok(())
}

/// No member reads: each is disconnected at its limit, and the memory of all is free again.
pub(crate) async fn members_that_never_read_hold_no_more_than_the_limit() -> io::Result<()> {
    let group = SendGroup::new(SlowMembers::Disconnect).limit(4 * LARGE);
    let joined = join_many(&group, 60).await?;
    let mut sent = 0;
    while !group.is_empty() {
        assert!(sent < MANY, "members that do not read are still members");
        group.send(message(sent, LARGE));
        group.flush();
        sent += 1;
        yield_now().await;
    }
    assert_eq!(group.counts().disconnected, 60);
    drop(joined);
    Ok(())
}
