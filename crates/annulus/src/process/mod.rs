//! Child processes, whose standard streams are [pipes](crate::pipe) and whose end is awaited.
//!
//! ```
//! use annulus::process::Command;
//!
//! # annulus::run(async {
//! let output = Command::new("echo").arg("hello").output().await?;
//! assert!(output.status.success());
//! assert_eq!(output.stdout, b"hello\n");
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```
//!
//! A pipe of the standard library connects two children:
//!
//! ```
//! use annulus::process::Command;
//!
//! # annulus::run(async {
//! let (reading, writing) = std::io::pipe()?;
//! let mut numbers = Command::new("seq").arg("3").stdout(writing).spawn()?;
//! let sorted = Command::new("sort").arg("-r").stdin(reading).output().await?;
//! assert!(numbers.wait().await?.success());
//! assert_eq!(sorted.stdout, b"3\n2\n1\n");
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```
//!
//! # Cost
//!
//! The standard library starts the process: the call returns once the program is being executed or
//! cannot be executed. This blocks the loop for a few hundred microseconds, or longer if the
//! program is on a slow device. [`Command::status`] and [`Command::output`] start it on a thread if
//! the program or its working directory is on a file system whose server may no longer answer, such
//! as NFS or FUSE. If their future is dropped during such a start, the command cannot be used
//! again. A signal that the child requests for the death of its parent (`PR_SET_PDEATHSIG`) then
//! arrives when that thread ends, so request it only with `spawn`. [`Command::spawn`] always blocks
//! the loop. Awaiting the end of a child never does: it uses a descriptor of the process (Linux
//! 5.3). If that is refused, as in some container profiles, a thread waits for each child.
//!
//! # Children that are dropped
//!
//! A dropped [`Child`] continues to run unless [`Command::kill_on_drop`] was set. A task of the
//! runtime then waits for its end, so that no zombie remains. If the runtime ends first, a zombie
//! remains until another child is started or dropped anywhere in this process, or until this
//! process ends. In a forked copy of this process, dropping a `Child` has no effect on the child.
//!
//! # SIGCHLD
//!
//! The kernel discards the exit status of children if SIGCHLD is ignored, which a program may
//! inherit from its parent, or if it is handled with `SA_NOCLDWAIT`. So each start of a child
//! resets an ignored SIGCHLD to its default and removes that flag. If the program ignores SIGCHLD
//! again while children run, [`Child::wait`] returns an error that says so.

mod child;
mod command;
mod reason;
mod running;
mod start;

pub use child::Child;
pub use command::Command;
#[doc(no_inline)]
pub use std::process::{ExitStatus, Output, Stdio};

/// The signal that ends a process, and that a process can neither catch nor ignore.
const SIGKILL: i32 = 9;
