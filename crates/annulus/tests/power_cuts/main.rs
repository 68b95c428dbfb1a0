//! Power cuts under simulation.
#![cfg(feature = "sim")]

mod recipe;
