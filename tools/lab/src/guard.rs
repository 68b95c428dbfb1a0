//! Kills the processes that contenders have started if the lab is killed.
//!
//! The kernel kills a contender when the lab has ended ([`child`](crate::child)), but processes
//! that the contender has started would keep running and hold its port. Therefore a shell reads the
//! existing process groups from a pipe. The kernel closes the pipe when the lab ends, in whatever
//! way. The shell then kills the remaining groups, and processes that have left their group, which
//! it finds by the lab's mark in their environment.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::process_tree;

/// The script of the shell, which reads lines `+ GROUP` and `- GROUP`.
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

/// Adds the process group of a started contender.
pub(crate) fn add(group: u32) {
    send('+', group);
}

/// Removes a process group after it has been killed, before its id can be reused.
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
        // Even without the shell, the contenders themselves end with the lab.
        let _ = input.write_all(format!("{sign} {group}\n").as_bytes());
    }
}

/// Starts the shell in a process group of its own, so that Ctrl-C at the terminal does not end it
/// before the lab.
fn start() -> io::Result<Option<ChildStdin>> {
    let mut shell = Command::new("/bin/sh");
    let marked = format!("{}={}", process_tree::MARK_VARIABLE, process_tree::mark(None));
    shell.args(["-c", GUARD_SCRIPT, &marked]).process_group(0).current_dir("/");
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().map(|child| child.stdin)
}
