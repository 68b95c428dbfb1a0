//! A seccomp filter that denies new rings. A ring's restrictions apply only to that ring; without
//! the filter, code in the process could create another one.
#![allow(unsafe_code)]

use std::io;

/// x32 programs set this bit in system call numbers, which are otherwise the same.
const X32_SYSCALL_BIT: u32 = 0x4000_0000;

/// Denies `io_uring_setup` to every thread of this process and to its children, permanently: it
/// fails with EPERM. Existing rings are not affected. The process can no longer gain privileges by
/// `exec` (`no_new_privs`), which the kernel requires before it accepts a filter.
///
/// # Errors
/// The kernel's error, or an error which says that a thread of the process has a different filter.
pub fn deny_setup() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let mut program = filter_program();
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program outlives the call, during which the kernel copies it.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const filter,
        )
    };
    match answer {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!(
            "thread {thread} has a different seccomp filter, so this one cannot be applied to all threads"
        ))),
    }
}

/// Returns a program that checks only the system call's number, not the architecture:
/// `io_uring_setup` has the same number on all architectures but Alpha.
fn filter_program() -> [libc::sock_filter; 5] {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    [
        // The number is the first word of `struct seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, !X32_SYSCALL_BIT),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::SYS_io_uring_setup as u32,
        ),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, refusal),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}
