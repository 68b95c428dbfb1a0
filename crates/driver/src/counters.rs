//! What a driver counts.

/// Counts since the driver was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Turns through the kernel: system calls that submit and wait.
    pub enters: u64,
    /// Looks for work before a sleep, where busy polling is on.
    pub looks: u64,
    /// Of these, the ones that found some.
    pub finds: u64,
    /// Operations submitted.
    pub sqes: u64,
    /// Completions taken.
    pub cqes: u64,
    /// Turns that found completions waiting for room in the completion queue.
    pub overflows: u64,
    /// Receives that found no buffer.
    pub enobufs: u64,
    /// Completions whose slot had moved on: recognised and dropped.
    pub late: u64,
    /// Operations that found the submission queue full and waited for the next turn.
    pub queue_full: u64,
    /// Receives served from the heap because the pool had nothing left, and leases copied out of a short pool.
    pub heap_receives: u64,
    /// Sends for which the kernel was lent the memory instead of copying it.
    pub zero_copy_sends: u64,
    /// Of these, the ones that it has told to have copied all the same, as on the loopback it always does. Told from 6.2.
    pub zero_copy_copied: u64,
    /// Times that a listener paused for want of descriptors.
    pub accept_pauses: u64,
    /// Connections that were reset, or failed, before they were accepted. Listeners pass over them. Counted above the driver.
    pub aborted_accepts: u64,
    /// Calls on files made on the loop.
    pub file_inline: u64,
    /// Calls on files tried on the loop that found their data not in memory.
    pub file_misses: u64,
    /// Calls on files made by the ring.
    pub file_ring: u64,
    /// Of these, the ones whose memory was registered.
    pub file_registered: u64,
    /// Calls on files made by worker threads.
    pub file_worker: u64,
    /// Datagrams that the kernel dropped because a socket's reader was slow.
    pub dropped_datagrams: u64,
    /// Times that the memory limit held a stream back. Counted above the driver.
    pub memory_pauses: u64,
    /// Bytes that count against the memory limit now. Told above the driver.
    pub memory_held: u64,
    /// Times that other threads woke or spawned something on the runtime. Counted above the driver.
    pub remote_wakes: u64,
    /// System calls those threads made for it, because the loop slept. Counted above the driver.
    pub alarms: u64,
}
