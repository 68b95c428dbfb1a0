//! A simulated kernel for annulus.
//!
//! [`Sim`] implements [`annulus_kernel::Kernel`], so the ring, the drivers and the runtime run on
//! it unchanged. For io_uring it reads entries from the memory it maps, takes buffers from
//! registered buffer rings and posts completions. For the epoll driver it has epoll, timers and
//! non-blocking calls. It uses no real sockets and no real time. A run depends only on its seed and
//! repeats exactly.
//!
//! It has TCP, UDP and Unix sockets, and files on a [`Disk`] that keeps synced data across a power
//! cut. It simulates latency, bandwidth, windows, back pressure, half-closes and resets, and
//! injects the configured [`Fault`]s. It also checks memory that the kernel owns: it panics when
//! that memory is written to, when a buffer is published twice, and when bytes change while they
//! are being sent.
//!
//! DIVERGENCES.md, next to the manifest of this crate, lists the differences from Linux.
//!
//! ```
//! use annulus_kernel::Kernel;
//! use annulus_ring::{Ring, Wait, op};
//! use annulus_sim::Sim;
//! use std::time::Duration;
//!
//! let sim = Sim::builder(7).build();
//! let mut ring = Ring::builder().kernel(sim.clone()).build()?;
//! ring.push(op::Nop.entry().user_data(7))?;
//! ring.enter(Wait::For { completions: 1, timeout: None })?;
//! assert_eq!(ring.completions().next().unwrap().user_data, 7);
//!
//! // Waiting for an hour takes no real time.
//! ring.enter(Wait::For { completions: 1, timeout: Some(Duration::from_secs(3600)) })?;
//! assert!(sim.now() >= Duration::from_secs(3600));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod buffers;
mod builder;
mod counts;
mod descriptors;
mod faults;
mod fs;
mod hosts;
mod memory;
mod memory_range;
mod net;
mod op;
mod op_id;
mod profile;
mod random;
mod sim;
mod slab;
mod timeline;
mod trace;
mod world;

pub use builder::SimBuilder;
pub use counts::Counts;
pub use faults::{Fault, Faults};
pub use fs::{Device, Disk};
pub use hosts::Hosts;
pub use net::Link;
pub use profile::Profile;
pub use random::Random;
pub use sim::Sim;
