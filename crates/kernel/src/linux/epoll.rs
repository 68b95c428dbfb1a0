//! epoll and the timers that end its waits.

use crate::call::named;
use crate::epoll::{Edge, EventData, Registration};
use crate::fd::Fd;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags};
use rustix::fd::IntoRawFd;
use rustix::io::Result;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// The longest time of a timer or a wait. A longer one wakes once a day for nothing.
const LONGEST: Duration = Duration::from_secs(86_400);

pub(super) fn create() -> io::Result<RawFd> {
    let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(named("epoll_create1"))?;
    Ok(epoll.into_raw_fd())
}

pub(super) fn control(instance: Fd, change: Registration, fd: Fd) -> Result<()> {
    let (instance, data) = (instance.borrow(), EventData::new_u64(fd.raw() as u64));
    match change {
        Registration::Add(interest) => epoll::add(instance, fd.borrow(), data, interest),
        Registration::Modify(interest) => epoll::modify(instance, fd.borrow(), data, interest),
        Registration::Delete => epoll::delete(instance, fd.borrow()),
    }
}

#[inline]
pub(super) fn wait(fd: Fd, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> Result<()> {
    let timeout = timeout.map(timespec);
    epoll::wait(fd.borrow(), spare_capacity(edges), timeout.as_ref())?;
    Ok(())
}

pub(super) fn timer() -> io::Result<RawFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags);
    Ok(timer.map_err(named("timerfd_create"))?.into_raw_fd())
}

pub(super) fn set_timer(timer: Fd, after: Duration) -> Result<()> {
    let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(after) };
    timerfd_settime(timer.borrow(), TimerfdTimerFlags::empty(), &once)?;
    Ok(())
}

fn timespec(time: Duration) -> Timespec {
    let time = time.min(LONGEST);
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}
