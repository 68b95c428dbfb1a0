//! `IORING_OP_*` as integers, since a newer kernel may report ones that an enum would not have.

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        $($(#[$doc])* pub const $name: u8 = $value;)*

        /// The name in the kernel's header, without the prefix; `None` for an operation that this crate does not know.
        pub fn name(opcode: u8) -> Option<&'static str> {
            Some(match opcode { $($value => stringify!($name),)* _ => return None })
        }
    };
}

opcodes! {
    /// Nothing.
    NOP = 0,
    /// `readv(2)`.
    READV = 1,
    /// `writev(2)`.
    WRITEV = 2,
    /// `fsync(2)`.
    FSYNC = 3,
    /// Readiness, once or many times.
    POLL_ADD = 6,
    /// Ends a poll.
    POLL_REMOVE = 7,
    /// `sendmsg(2)`.
    SENDMSG = 9,
    /// `recvmsg(2)`.
    RECVMSG = 10,
    /// A timer.
    TIMEOUT = 11,
    /// `accept4(2)`.
    ACCEPT = 13,
    /// Cancels an operation.
    ASYNC_CANCEL = 14,
    /// `connect(2)`.
    CONNECT = 16,
    /// `fallocate(2)`.
    FALLOCATE = 17,
    /// `openat(2)`.
    OPENAT = 18,
    /// `close(2)`.
    CLOSE = 19,
    /// `statx(2)`.
    STATX = 21,
    /// `read(2)` or `pread(2)`.
    READ = 22,
    /// `write(2)` or `pwrite(2)`.
    WRITE = 23,
    /// `posix_fadvise(2)`.
    FADVISE = 24,
    /// `send(2)`.
    SEND = 26,
    /// `recv(2)`.
    RECV = 27,
    /// `openat2(2)`.
    OPENAT2 = 28,
    /// `splice(2)`.
    SPLICE = 30,
    /// `shutdown(2)`.
    SHUTDOWN = 34,
    /// `renameat2(2)`.
    RENAMEAT = 35,
    /// `unlinkat(2)`.
    UNLINKAT = 36,
    /// `mkdirat(2)`.
    MKDIRAT = 37,
    /// `symlinkat(2)`.
    SYMLINKAT = 38,
    /// `linkat(2)`.
    LINKAT = 39,
    /// A message to another ring.
    MSG_RING = 40,
    /// `socket(2)`.
    SOCKET = 45,
    /// `send(2)` without copying.
    SEND_ZC = 47,
    /// `sendmsg(2)` without copying.
    SENDMSG_ZC = 48,
    /// `read(2)`, many times into provided buffers.
    READ_MULTISHOT = 49,
    /// `waitid(2)`.
    WAITID = 50,
    /// `futex(2)` wait.
    FUTEX_WAIT = 51,
    /// `ftruncate(2)`.
    FTRUNCATE = 55,
    /// `bind(2)`.
    BIND = 56,
    /// `listen(2)`.
    LISTEN = 57,
    /// Receive straight into user memory.
    RECV_ZC = 58,
    /// `epoll_wait(2)`.
    EPOLL_WAIT = 59,
    /// `pipe2(2)`.
    PIPE = 62,
}
