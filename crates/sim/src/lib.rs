//! A simulated kernel under annulus.
//!
//! [`Sim`] implements [`annulus_kernel::Kernel`], so the real ring, driver and runtime run above it unchanged: it reads
//! their submission entries from the memory it maps for them, takes buffers from their buffer rings, and posts
//! completions. There are no real sockets and no real time. A seed decides everything: one seed, one run, bit for bit.
//!
//! It has TCP, UDP and Unix sockets, and files on a [`Disk`] that a power cut leaves as far as they were synced.
//! What it plays beyond the good weather: latency, bandwidth, windows and back pressure, half-closes and resets; and,
//! where asked, the [`Fault`]s. It watches lent memory: who writes to a buffer that is with the kernel, publishes one
//! twice, or changes bytes that are being sent, is told so by a panic.
//!
//! Where it differs from Linux is written in DIVERGENCES.md, next to this crate's manifest.
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
//! // An hour of waiting takes no time.
//! ring.enter(Wait::For { completions: 1, timeout: Some(Duration::from_secs(3600)) })?;
//! assert!(sim.now() >= Duration::from_secs(3600));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod buffers;
mod builder;
mod counts;
mod descriptors;
mod faults;
mod fs;
mod memory;
mod net;
mod op;
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
pub use net::Link;
pub use profile::Profile;
pub use random::Random;
pub use sim::Sim;
