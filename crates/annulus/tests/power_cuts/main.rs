//! Power cuts and failing disks under simulation, and the example `log` on them.
#![cfg(feature = "sim")]

mod disks;
mod log;
mod recipe;
