//! The tests of this crate that do not need a process of their own, in one program.

#[path = "../common/mod.rs"]
mod common;

mod compared;
mod compared_files;
mod datagram_stress;
mod driver;
mod epoll;
mod faults;
mod files;
mod memory_checks;
mod operations;
mod registered_buffers;
mod restricted;
mod ring;
mod sim_only;
mod tcp;
mod tcp_stress;
mod udp;
mod unix;
