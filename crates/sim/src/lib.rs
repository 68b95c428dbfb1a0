//! A simulated kernel under annulus.
//!
//! [`Sim`] implements [`annulus_kernel::Kernel`], so that ring, driver and runtime run above it unchanged: it reads their entries
//! from the memory that it maps for them, takes buffers from their buffer rings, and posts completions; for an epoll driver it has
//! epoll, timers, and calls that do not wait. It has no real sockets and
//! no real time. A run depends only on its seed, and repeats exactly.
//!
//! It has TCP, UDP and Unix sockets, and files on a [`Disk`] of which a power cut leaves what was synced. It simulates latency,
//! bandwidth, windows and back pressure, half-closes and resets, and the [`Fault`]s that are asked for. It checks lent memory: a
//! write to a buffer that is with the kernel, a buffer that is published twice, and bytes that change while they are being sent
//! are panics.
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

pub use builder::Builder;
pub use counts::Counts;
pub use faults::{Fault, Faults};
pub use fs::{Device, Disk};
pub use hosts::Hosts;
pub use net::Link;
pub use profile::Profile;
pub use random::Random;
pub use sim::Sim;
