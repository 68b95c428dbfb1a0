//! Denies system calls with seccomp filters.
#![allow(dead_code, unsafe_code, reason = "each test uses only some of it")]

use std::io;

/// Makes a system call fail, permanently, on this thread and on threads that it starts. With errno
/// 0, the call does nothing and returns 0. If several calls of this function deny the same system
/// call, the last one decides.
pub(crate) fn deny(call: libc::c_long, errno: i32) {
    deny_if(call, errno, |_| Vec::new());
}

/// Like [`deny`], but only for calls whose argument at this index has these low 32 bits.
pub(crate) fn deny_with(call: libc::c_long, errno: i32, argument: u32, value: u32) {
    deny_if(call, errno, |allow| check(argument, value, 0, allow));
}

/// Like [`deny`], but only for calls whose argument at this index has different low 32 bits.
pub(crate) fn deny_without(call: libc::c_long, errno: i32, argument: u32, value: u32) {
    deny_if(call, errno, |allow| check(argument, value, allow, 0));
}

fn statement(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Compares an argument, and skips `equal` statements if it is equal and `other` statements if not.
fn check(argument: u32, value: u32, equal: u8, other: u8) -> Vec<libc::sock_filter> {
    // The arguments are 64-bit words after the number, the architecture and the instruction
    // pointer.
    let low = 16 + 8 * argument + if cfg!(target_endian = "big") { 4 } else { 0 };
    vec![
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, low),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, equal, other, value),
    ]
}

/// `further` creates more statements, given the number of statements between them and the one that
/// allows the call.
fn deny_if(call: libc::c_long, errno: i32, further: impl Fn(u8) -> Vec<libc::sock_filter>) {
    let further = further(1);
    let over = further.len() as u8 + 1;
    let mut program = vec![
        // The number of the system call is the first word of the filter's input.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, over, call as u32),
    ];
    program.extend(further);
    program.extend([
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the first call only takes numbers. The program outlives the second call, which copies
    // it.
    let answers = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter),
        ]
    };
    assert_eq!(answers, [0, 0], "{}", io::Error::last_os_error());
}
