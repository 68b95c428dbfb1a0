//! Readiness of descriptors that other code reads and writes.

use crate::common::{pair, touch};
use annulus::fs::File;
use annulus::io::{AsyncFd, Interest};
use annulus::sim::Sim;
use annulus::task::yield_now;
use annulus::time::sleep;
use annulus::{handle, pipe, spawn, stats};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;
use rustix::io::{Errno, read, write};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// Returns an event counter that each read lowers by one.
fn counter() -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE)?)
}

fn add(counter: impl AsFd, n: u64) -> io::Result<()> {
    assert_eq!(write(counter, &n.to_ne_bytes())?, 8);
    Ok(())
}

fn take(counter: impl AsFd) -> io::Result<()> {
    read(counter, &mut [0; 8]).map(drop).map_err(io::Error::from)
}

fn real_pair() -> io::Result<(UnixStream, UnixStream)> {
    let (one, other) = UnixStream::pair()?;
    one.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    Ok((one, other))
}

fn would_block<T>(outcome: io::Result<T>) -> bool {
    matches!(outcome, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

pub(crate) async fn inotify_under_a_select_loses_no_event() -> io::Result<()> {
    const FILES: usize = 1000;
    let dir =
        std::env::temp_dir().join(format!("annulus-inotify-{:?}", std::thread::current().id()));
    std::fs::create_dir_all(&dir)?;
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(&watch, &dir, inotify::WatchFlags::CREATE)?;
    let mut events = AsyncFd::new(watch)?;
    let writer = dir.clone();
    let maker = annulus::task::spawn_blocking(move || {
        (0..FILES).try_for_each(|file| std::fs::write(writer.join(file.to_string()), ""))
    });
    let (mut seen, mut dropped) = (0, 0);
    while seen < FILES {
        let read = events.async_io_mut(Interest::READABLE, |watch| {
            let mut buffer = [MaybeUninit::uninit(); 256];
            let mut reader = inotify::Reader::new(watch, &mut buffer);
            let first = reader.next()?.file_name().map(|name| name.to_owned());
            assert!(first.is_some());
            let mut count = 1;
            while !reader.is_buffer_empty() {
                reader.next()?;
                count += 1;
            }
            Ok(count)
        });
        tokio::select! {
            biased;
            () = yield_now() => dropped += 1,
            count = read => seen += count?,
        }
    }
    maker.await.expect("the task panicked")?;
    assert_eq!(seen, FILES);
    assert!(dropped > 0);
    assert!(would_block(events.try_io(Interest::READABLE, |watch| {
        read(watch, &mut [0; 64]).map_err(io::Error::from)
    })));
    std::fs::remove_dir_all(&dir)
}

pub(crate) async fn a_partly_read_descriptor_is_still_ready() -> io::Result<()> {
    let counter = counter()?;
    add(&counter, 3)?;
    for _ in 0..3 {
        let mut guard = counter.readable().await?;
        guard.try_io(take).expect("no count is left")?;
        // The first two times the counter is still above zero, which the next wait must find.
        guard.clear_ready();
    }
    let mut guard = tokio::select! {
        biased;
        _ = counter.readable() => panic!("the counter is readable at zero"),
        () = sleep(Duration::from_millis(1)) => {
            add(&counter, 1)?;
            counter.readable().await?
        }
    };
    guard.try_io(take).expect("the count that arrived while nothing waited is missing")?;
    assert!(guard.try_io(take).is_err(), "the counter is above zero");
    Ok(())
}

pub(crate) async fn the_directions_are_independent() -> io::Result<()> {
    let (one, mut other) = real_pair()?;
    let one = AsyncFd::new(one)?;
    let mut filled = 0;
    while let Ok(count) = one.try_io(Interest::WRITABLE, |mut fd| fd.write(&[7; 4096])) {
        filled += count;
    }
    let read = one.async_io(Interest::READABLE, |mut fd| fd.read(&mut [0; 9]));
    let written = one.async_io(Interest::WRITABLE, |mut fd| fd.write(b"more"));
    let (mut read, mut written) = (std::pin::pin!(read), std::pin::pin!(written));
    tokio::select! {
        biased;
        _ = &mut read => panic!("the read completed without bytes"),
        _ = &mut written => panic!("the write completed without space"),
        () = sleep(Duration::from_millis(1)) => {}
    }
    other.write_all(b"to be read")?;
    assert_eq!(read.await?, 9);
    tokio::select! {
        biased;
        _ = &mut written => panic!("no space"),
        () = sleep(Duration::from_millis(1)) => {}
    }
    let mut left = filled;
    while left > 0 {
        left -= other.read(&mut vec![0; left])?;
    }
    assert_eq!(written.await?, 4);
    drop(other);
    // Reads the remaining byte, then the end. The end is a reset, since the other side has not read
    // everything.
    assert_eq!(one.async_io(Interest::READABLE, |mut fd| fd.read(&mut [0; 9])).await?, 1);
    let end = one.async_io(Interest::READABLE, |mut fd| fd.read(&mut [0; 9])).await;
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    Ok(())
}

pub(crate) async fn a_wait_for_either_direction_returns_what_is_ready() -> io::Result<()> {
    let (one, mut other) = real_pair()?;
    let one = AsyncFd::new(one)?;
    let either = Interest::READABLE | Interest::WRITABLE;
    assert_eq!(one.ready(either).await?.interest(), Interest::WRITABLE);
    let mut filled = 0;
    while let Ok(count) = one.try_io(either, |mut fd| fd.write(&[7; 4096])) {
        filled += count;
    }
    tokio::select! {
        biased;
        _ = one.ready(either) => panic!("ready without bytes and without space"),
        () = sleep(Duration::from_millis(1)) => {}
    }
    other.write_all(b"a")?;
    assert_eq!(one.ready(either).await?.interest(), Interest::READABLE);
    other.read_exact(&mut vec![0; filled])?;
    assert_eq!(one.ready(Interest::WRITABLE).await?.interest(), Interest::WRITABLE);
    let mut guard = one.ready(either).await?;
    assert_eq!(guard.interest(), either);
    guard.clear_ready();
    // Both directions are still ready, so the next wait finds at least one of them.
    assert!(
        [either, Interest::READABLE, Interest::WRITABLE]
            .contains(&one.ready(either).await?.interest())
    );
    Ok(())
}

pub(crate) async fn every_task_that_waits_is_woken() -> io::Result<()> {
    const TASKS: usize = 50;
    let counter = Rc::new(counter()?);
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let counter = counter.clone();
            spawn(async move { counter.async_io(Interest::READABLE, |fd| take(fd)).await })
        })
        .collect();
    let awaits = |text: &String| text.contains("for a descriptor");
    // On a slow machine, a turn ends before every task has been polled.
    while handle()?.tasks().await?.iter().filter(|one| one.waits_for.iter().any(awaits)).count()
        < TASKS
    {
        yield_now().await;
    }
    add(&*counter, 20)?;
    sleep(Duration::from_millis(1)).await;
    add(&*counter, 30)?;
    for task in tasks {
        task.await.expect("the task panicked")?;
    }
    Ok(())
}

pub(crate) async fn several_waiters_may_share_one_descriptor() -> io::Result<()> {
    let (mut one, other) = pair().await?;
    // Watches a stream's descriptor alongside the stream's own receive.
    let watch = AsyncFd::new(other.as_fd())?;
    let again = AsyncFd::new(&watch)?;
    let mut other =
        std::pin::pin!(async { tokio::try_join!(watch.readable(), again.readable()).map(drop) });
    tokio::select! {
        biased;
        _ = &mut other => panic!("the descriptor is readable without bytes"),
        () = sleep(Duration::from_millis(1)) => {}
    }
    one.send("bytes").await?;
    other.await
}

pub(crate) async fn a_stream_receives_while_its_descriptor_is_polled() -> io::Result<()> {
    let (mut one, mut other) = pair().await?;
    let watch = AsyncFd::new(other.as_fd().try_clone_to_owned()?)?;
    one.send("first").await?;
    watch.readable().await?.clear_ready();
    assert_eq!(&*other.recv_exact(5).await?, b"first");
    drop(watch);
    one.send("second").await?;
    assert_eq!(&*other.recv_exact(6).await?, b"second");
    Ok(())
}

pub(crate) async fn a_replaced_descriptor_is_closed_and_affects_no_other() -> io::Result<()> {
    let (one, other) = real_pair()?;
    let mut watch = AsyncFd::new(one)?;
    tokio::select! {
        biased;
        _ = watch.readable() => panic!("the descriptor is readable without bytes"),
        () = yield_now() => {}
    }
    // The number of the replaced descriptor is free, and another descriptor gets it.
    *watch.get_mut() = real_pair()?.0;
    let (mut stream, mut peer) = pair().await?;
    peer.send("to the stream").await?;
    assert_eq!(&*stream.recv_exact(13).await?, b"to the stream");
    drop(other);
    // The first stream has ended.
    watch.readable().await?.clear_ready();
    drop(watch.into_inner());
    peer.send("and again").await?;
    assert_eq!(&*stream.recv_exact(9).await?, b"and again");
    Ok(())
}

pub(crate) async fn dropped_waits_leave_nothing() -> io::Result<()> {
    let before = stats().expect("not in a runtime").resources.polls;
    let (one, mut other) = real_pair()?;
    let watch = AsyncFd::new(one)?;
    for interest in [Interest::READABLE, Interest::WRITABLE] {
        let wait =
            watch.async_io(interest, |_| io::Result::<()>::Err(ErrorKind::WouldBlock.into()));
        tokio::select! {
            biased;
            _ = wait => panic!("never ready"),
            () = sleep(Duration::from_millis(1)) => {}
        }
    }
    let mut one = watch.into_inner();
    other.write_all(b"still open")?;
    let mut got = [0; 10];
    one.read_exact(&mut got)?;
    assert_eq!(&got, b"still open");
    drop(one);
    // The poll operation keeps the descriptor open until the operation has ended.
    let end = async {
        while other.read(&mut [0; 9]).is_err() {
            yield_now().await;
        }
        while stats().expect("not in a runtime").resources.polls > before {
            yield_now().await;
        }
    };
    annulus::time::timeout(Duration::from_secs(20), end)
        .await
        .expect("the descriptor was not closed");
    Ok(())
}

pub(crate) async fn an_always_ready_descriptor_lets_other_tasks_run() -> io::Result<()> {
    let counter = counter()?;
    add(&counter, 1)?;
    let ran = Rc::new(Cell::new(0));
    let other = spawn({
        let ran = ran.clone();
        async move {
            loop {
                ran.set(ran.get() + 1);
                yield_now().await;
            }
        }
    });
    while ran.get() < 3 {
        _ = counter.readable().await?;
    }
    other.abort();
    Ok(())
}

pub(crate) async fn a_regular_file_is_refused_and_a_device_is_always_ready() -> io::Result<()> {
    let file = std::fs::File::open("/proc/self/exe")?;
    let error = AsyncFd::new(file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("is a regular file"), "{error}");
    let error = AsyncFd::new(std::fs::File::open("/")?).unwrap_err();
    assert!(error.to_string().contains("is a directory"), "{error}");
    let error = AsyncFd::new(File::open("/proc/self/exe").await?).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let null = AsyncFd::new(std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?)?;
    for _ in 0..3 {
        null.writable().await?.clear_ready();
        assert_eq!(null.async_io(Interest::READABLE, |mut fd| fd.read(&mut [0; 9])).await?, 0);
        null.readable().await?.clear_ready();
    }
    Ok(())
}

/// Its type is that of a regular file, but epoll can wait for it.
pub(crate) async fn a_file_of_the_system_is_polled() -> io::Result<()> {
    let mounts = AsyncFd::new(std::fs::File::open("/proc/self/mountinfo")?)?;
    mounts.readable().await?.clear_ready();
    let read = mounts.async_io(Interest::READABLE, |mut file| file.read(&mut [0; 9]));
    assert_eq!(read.await?, 9);
    Ok(())
}

pub(crate) async fn timers_and_pipes_are_awaited() -> io::Result<()> {
    let flags = TimerfdFlags::NONBLOCK;
    let timer = AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?;
    let millisecond = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let every = Itimerspec { it_interval: millisecond, it_value: millisecond };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
    for _ in 0..5 {
        timer.async_io(Interest::READABLE, |fd| take(fd)).await?;
    }
    let (reading, writing) = io::pipe()?;
    let watch = AsyncFd::new(reading)?;
    AsyncFd::new(writing.as_fd())?.writable().await?.clear_ready();
    drop(writing);
    // The pipe has ended, so it is readable although there is nothing to read.
    watch.readable().await?.clear_ready();
    let (_sender, receiver) = pipe::pipe()?;
    let watch = AsyncFd::new(receiver.as_fd())?;
    tokio::select! {
        biased;
        _ = watch.readable() => panic!("the pipe is open and empty"),
        () = sleep(Duration::from_millis(1)) => {}
    }
    Ok(())
}

/// `SOCK_SEQPACKET`, for which this crate has no type.
pub(crate) async fn packets_of_a_connection_keep_their_ends() -> io::Result<()> {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
    use rustix::net::{recv, send, socketpair};
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let (one, other) = (AsyncFd::new(one)?, AsyncFd::new(other)?);
    let receiver = spawn(async move {
        let (mut lens, mut packet) = (Vec::new(), [0; 4096]);
        loop {
            let receive = |fd: &OwnedFd| Ok(recv(fd, &mut packet, RecvFlags::empty())?.1);
            match other.async_io(Interest::READABLE, receive).await? {
                0 => return io::Result::Ok(lens),
                len => lens.push(len),
            }
        }
    });
    // Sends more packets than the socket can hold.
    for len in 1..1500 {
        let packet = vec![7; len];
        let send = |fd: &OwnedFd| Ok(send(fd, &packet, SendFlags::NOSIGNAL)?);
        assert_eq!(one.async_io(Interest::WRITABLE, send).await?, len);
    }
    drop(one);
    assert_eq!(receiver.await.expect("the task panicked")?, (1..1500).collect::<Vec<_>>());
    Ok(())
}

pub(crate) async fn the_end_of_a_runtime_ends_a_wait() -> io::Result<()> {
    // A runtime polls this future, so the other runtime ends on a thread of its own.
    let ended = annulus::task::spawn_blocking(|| {
        let (one, _other) = real_pair()?;
        let mut runtime = annulus::Runtime::new()?;
        let watch = runtime.block_on(async {
            let watch = Rc::new(AsyncFd::new(one)?);
            let waits = watch.clone();
            spawn(async move { waits.readable().await.map(drop) });
            yield_now().await;
            io::Result::Ok(watch)
        })?;
        drop(runtime);
        let wait = crate::common::touch(watch.readable()).expect("the wait is pending");
        let text = wait.map(drop).unwrap_err().to_string();
        assert!(text.contains("has ended"), "{text}");
        assert!(would_block(watch.try_io(Interest::READABLE, |fd| take(fd))));
        // The descriptor is still open.
        let mut polled = [PollFd::new(watch.get_ref(), PollFlags::OUT)];
        assert_eq!(poll(&mut polled, None)?, 1);
        assert_ne!(read(&*watch, &mut [0; 1]), Err(Errno::BADF));
        io::Result::Ok(())
    });
    ended.await.expect("the task panicked")
}

#[test]
fn a_simulation_waits_for_no_real_descriptor() {
    let mut runtime = annulus::Runtime::builder().kernel(Sim::builder(1).build()).build().unwrap();
    let error = runtime.block_on(async { counter().unwrap_err() });
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

pub(crate) async fn a_dropped_wait_keeps_no_waker() -> io::Result<()> {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let (one, mut other) = real_pair()?;
    let one = AsyncFd::new(one)?;
    let task = Arc::new(Task);
    for interest in [Interest::READABLE, Interest::READABLE | Interest::WRITABLE] {
        if interest.is_writable() {
            // Fills the socket.
            while one.get_ref().write(&[0; 4096]).is_ok() {}
        }
        let mut wait = Box::pin(one.ready(interest));
        let waker = Waker::from(task.clone());
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop((wait, waker));
        yield_now().await;
        assert_eq!(Arc::strong_count(&task), 1, "{interest:?}");
    }
    // The other waits are still woken.
    let (early, late) = (one.readable(), one.readable());
    let (mut early, mut late) = (Box::pin(early), Box::pin(late));
    assert!(touch(early.as_mut()).is_none() && touch(late.as_mut()).is_none());
    drop(early);
    other.write_all(b"x")?;
    late.await.map(drop)
}
