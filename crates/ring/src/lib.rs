//! io_uring itself, without policy.
//!
//! This crate does for annulus what liburing does for C: it sets up a ring, maps and drives its two
//! queues, registers buffer rings, and detects the kernel's features. It does not know about tasks,
//! wakers or socket states, which belong to the layers above.
//!
//! All system calls go through one trait, [`annulus_kernel::Kernel`], so that a simulated kernel
//! can replace Linux. Entries, completions and the probe are plain data with integer opcodes,
//! because a newer kernel may report operations that this crate does not know.
//!
//! ```no_run
//! use annulus_ring::{Ring, Wait, op};
//!
//! let mut ring = Ring::builder().build()?;
//! ring.push(op::Nop.entry().user_data(7))?;
//! ring.enter(Wait::For { completions: 1, timeout: None })?;
//! assert_eq!(ring.completions().next().unwrap().user_data, 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod buffer_ring;
mod buffer_table;
mod builder;
mod completion;
mod entry;
mod error;
mod features;
mod filter;
mod memory;
pub mod op;
pub mod opcode;
mod params;
mod probe;
mod query;
mod restrictions;
mod ring;
mod zero_copy_receive;

/// Types of the layer below that appear in the signatures of this crate.
pub use annulus_kernel::{Fd, IoVec, Kernel, file::FileCall};
pub use buffer_ring::BufferRing;
pub use buffer_table::BufferTable;
pub use builder::RingBuilder;
pub use completion::{Completion, CompletionFlags};
pub use entry::{Entry, EntryFlags, SafeEntry};
pub use error::{QueueFull, SetupError};
pub use features::{Feature, Features};
pub use filter::deny_setup;
pub use params::{
    BufferRingSetup, BufferTableSetup, BufferTableUpdate, DeviceQueue, KernelFeatures, RingUpdate,
    SetupFlags, SqPoll,
};
pub use probe::Probe;
pub use ring::{Entered, Ring, Wait};
pub use zero_copy_receive::RefillRing;
