//! Power cuts and failing disks under simulation, and the example `log` on them.
#![cfg(feature = "sim")]

mod disks;
mod full;
mod log;
mod recipe;
#[path = "../common/rerun.rs"]
mod rerun;
