//! Ends the processes that contenders have started, if the lab is killed.
//!
//! The kernel kills a contender once the lab has ended ([`child`](crate::child)); processes that the contender has started would go on,
//! and hold its port. So a shell reads from a pipe which process groups there are. The kernel closes the pipe with the lab, however the lab
//! ends, and the shell kills the groups that are left, and processes that have left their group, by the lab's mark in their environment.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::process_tree;

/// Reads lines: `+ GROUP` and `- GROUP`.
const GUARD_SCRIPT: &str = "groups=' '
while read -r sign group; do
  case $sign in
    +) groups=\"$groups$group \" ;;
    -) groups=\"${groups%% $group *} ${groups#* $group }\" ;;
  esac
done
for group in $groups; do kill -KILL \"-$group\"; done
for look in 1 2 3; do
  for file in $(grep -lF \"$0\" /proc/[0-9]*/environ); do
    pid=${file#/proc/}
    kill -KILL \"${pid%/environ}\"
  done
done";

/// Adds the process group of a contender that was started.
pub(crate) fn add(group: u32) {
    send('+', group);
}

/// Removes a process group, once it was killed, and before its id can be used again.
pub(crate) fn remove(group: u32) {
    send('-', group);
}

fn send(sign: char, group: u32) {
    static GUARD_INPUT: Mutex<Option<ChildStdin>> = Mutex::new(None);
    let mut input = GUARD_INPUT.lock().unwrap_or_else(PoisonError::into_inner);
    if input.is_none() {
        *input = start().unwrap_or_default();
    }
    if let Some(input) = &mut *input {
        // Without the shell, contenders end with the lab nevertheless.
        let _ = input.write_all(format!("{sign} {group}\n").as_bytes());
    }
}

/// Starts the shell in a process group of its own, so that ctrl-C at the terminal does not end it before the lab.
fn start() -> io::Result<Option<ChildStdin>> {
    let mut shell = Command::new("/bin/sh");
    let marked = format!("{}={}", process_tree::MARK_VARIABLE, process_tree::mark(None));
    shell.args(["-c", GUARD_SCRIPT, &marked]).process_group(0).current_dir("/");
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().map(|child| child.stdin)
}
