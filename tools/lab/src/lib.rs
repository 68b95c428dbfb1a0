//! The comparison lab: contenders side by side, measured so that noise affects all equally.
//!
//! A [`bench`](mod@bench) is data: contenders × cells, with metrics. Its engine measures every contender in every cell
//! in turn, in short slices, round after round. The first contender runs a second time as the A/A control. Figures are
//! compared within a round, as ratios with intervals of the sign test ([`stats`](annulus_load::stats)). A winner is named only if its interval
//! to each of the others, which holds together with those of all cells, is beyond 3 % and beyond what the control
//! deviates (ADR 0050).
//!
//! Contenders are [`echo`] servers under our load, each a process pinned to one core, with the load on another; and
//! programs that read [`jobs`]: rings ([`nop`]), files ([`file`](mod@file)); and whole programs
//! under clients such as wrk ([`server_bench`]). A [`suite`] is a published table, measured again by one of these
//! benches.
//!
//! A [`setup`] is any of these, ready to be measured; its [`results`] are kept in a file, slice by slice.
//!
//! The primary figure is *CPU time per operation* ([`proc`]): it is valid even if the load is the bottleneck.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod bench;
pub mod child;
pub mod compare;
pub mod cores;
pub mod echo;
pub mod environment;
pub mod file;
#[doc(hidden)]
pub mod fuzzing;
pub mod interrupt;
pub mod jobs;
pub mod lock;
pub mod nop;
pub mod page;
pub mod peer;
pub mod proc;
pub mod process;
pub mod programs;
pub mod results;
pub mod scratch;
pub mod server_bench;
pub mod setup;
pub mod suite;
mod tasks;

mod clock;
mod cpu_clock;
mod guard;
mod listening;
mod own_load;
mod process_tree;
mod ready;
mod server;
mod stderr;
mod usage;
mod watch;

pub use usage::{UsageError, distinct, one_line};
