//! The comparison lab: contenders side by side, measured so that noise affects all equally.
//!
//! A [`bench`](mod@bench) is data: contenders × cells, with metrics. Its engine measures every contender in every cell
//! in turn, in short slices, round after round. The first contender runs a second time as the A/A control. Figures are
//! compared within a round, as ratios with intervals of the sign test ([`stats`](annulus_load::stats)). A winner is named only if its interval
//! to each of the others, which holds together with those of all cells, is beyond 3 % and beyond what the control
//! deviates (ADR 0050).
//!
//! A comparison is [described](describe) as data, a [`Setup`](describe::Setup): contenders, each a process, and the loads on them. Those
//! are our load, as on [`echo`] servers; clients such as wrk, on whole programs; or jobs that a contender reads: of rings ([`nop`]) and
//! of files ([`file`](mod@file)). A [`suite`] is a published table, measured again. Its [`results`] are kept in a file, slice by slice.
//!
//! The primary figure is *CPU time per operation* ([`proc`]): it is valid even if the load is the bottleneck.

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
pub mod lock;
pub mod nop;
pub mod page;
pub mod peer;
pub mod proc;
pub mod process;
pub mod results;
pub mod scratch;
pub mod suite;

mod cpu_clock;
mod guard;
mod jobs;
mod listening;
mod measure;
mod output;
mod process_tree;
mod programs;
mod ready;
mod server;
mod start;
mod tables;
mod usage_error;

pub use usage_error::{UsageError, distinct, one_line};
