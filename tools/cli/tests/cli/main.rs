//! Tests the annulus command from outside: as a child process, with its sockets, signals, output
//! and exit status.

mod agent;
mod bench_pages;
mod bench_programs;
mod bench_servers;
mod bench_suites;
mod bench_sweep;
mod browser;
mod common;
mod contenders;
mod denied_syscalls;
mod doctor;
mod echo;
mod echo_shutdown;
mod files;
mod killed_bench;
mod load;
mod load_compare;
mod load_interrupted;
mod load_metrics;
#[cfg(feature = "otlp")]
mod load_otlp;
mod load_parts;
mod load_progress_line;
mod load_protocols;
mod load_recording;
mod load_scenarios;
mod man;
mod memory_flood;
mod metrics;
mod sample_recordings;
mod udp;
mod unix;
mod unwritable_output;
mod usage;
mod workers;
