//! The comparison lab: servers side by side, measured so that the machine's moods fall on all alike.
//!
//! A comparison starts every server as a process pinned to one core ([`server`], [`peer`]), and the
//! first of them twice: the copy is the A/A control. The load runs in this process, pinned to
//! another core ([`rig`]). It visits every server in every cell in turn, in short slices, round after
//! round ([`schedule`]), and keeps what each slice measured ([`record`]). Figures are compared within
//! a round, as ratios with a bootstrap 95 % interval ([`stats`]); a winner is named only where the
//! interval excludes 1, and by more than the control strayed from it ([`verdict`]).
//!
//! The first figure is *server CPU time a request* ([`proc`]): it holds even where the load, not the
//! server, sets the pace.

pub mod bench;
pub mod bulk;
pub mod child;
pub mod contest;
pub mod cores;
pub mod doubt;
pub mod echo;
pub mod environment;
pub mod file;
pub mod interrupt;
pub mod jobs;
pub mod lock;
pub mod nop;
pub mod peer;
pub mod proc;
pub mod record;
pub mod report;
pub mod rig;
pub mod schedule;
pub mod scratch;
pub mod server;
pub mod stats;
pub mod suite;
pub mod verdict;

mod clock;
mod cpu_clock;
mod usage;
mod words;

pub use usage::{UsageError, distinct};
