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
//! A process is started as the standard library does it: the call returns once the program is being executed, or could not be.
//! That holds the loop up for some hundred microseconds; longer if the program lies on a slow device. Nothing else waits on the
//! loop: the end of a child is awaited by a descriptor of the process (Linux 5.3). If the kernel refuses that, as some container
//! profiles do, a thread waits for each child.
//!
//! # Children that are dropped
//!
//! A [`Child`] that is dropped goes on running, unless [`Command::kill_on_drop`] was set. A task of the runtime then waits for its end,
//! so that no zombie stays. If the runtime ends first, the zombie stays until a child is next started or dropped anywhere in this
//! process, or the process ends.

//!
//! # SIGCHLD
//!
//! The kernel discards the exit status of children if SIGCHLD is ignored, which a program may have inherited from whatever started it,
//! or is handled with `SA_NOCLDWAIT`. So each start of a child sets an ignored SIGCHLD to its default, and removes that flag. If the
//! program ignores SIGCHLD again while children run, [`Child::wait`] returns an error that says so.

mod child;
mod command;
mod reason;
mod running;

pub use child::Child;
pub use command::Command;
#[doc(no_inline)]
pub use std::process::{ExitStatus, Output, Stdio};

/// The signal that ends a process, and that a process can neither catch nor ignore.
const SIGKILL: i32 = 9;
