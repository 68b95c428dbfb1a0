//! The comparison lab: contenders side by side, measured so that noise affects all equally.
//!
//! A [`bench`](mod@bench) is data: contenders × cells, with metrics. Its engine measures every
//! contender in every cell in short slices, round after round. The first contender runs a second
//! time as the A/A control. Figures are compared within a round, as ratios with intervals of the
//! sign test ([`stats`](annulus_load::stats)). A difference counts only if its whole interval,
//! corrected for the number of cells, lies beyond 3 % and beyond the deviation of the control (ADR
//! 0050).
//!
//! A comparison is [described](describe) as data, a [`Setup`](describe::Setup): contenders, each a
//! process, and the loads on them. A load is annulus's own load generator, as for [`echo`] servers;
//! a client such as wrk, for whole programs; or jobs that a contender reads, for rings ([`nop`])
//! and files ([`file`](mod@file)). A [`suite`] measures a published table again. The [`results`]
//! are written to a file slice by slice.
//!
//! The primary figure is *CPU time per operation* ([`proc`]), which is valid even if the load is
//! the bottleneck.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod bench;
pub mod child;
mod clients;
pub mod compare;
pub mod cores;
pub mod describe;
pub mod echo;
pub mod environment;
pub mod file;
#[doc(hidden)]
pub mod fuzzing;
pub mod interrupt;
pub mod listening;
pub mod lock;
pub mod map;
pub mod nop;
pub mod page;
pub mod peer;
pub mod proc;
pub mod process;
pub mod process_tree;
pub mod replace;
pub mod results;
pub mod scratch;
pub mod suite;

mod cpu_clock;
mod distance;
mod file_system;
mod guard;
mod jobs;
mod measure;
mod output;
mod programs;
mod ready;
mod server;
mod start;
mod tables;
mod turns;
mod usage_error;

pub use usage_error::{UsageError, distinct, one_line};
