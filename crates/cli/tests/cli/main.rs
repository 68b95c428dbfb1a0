//! The annulus command from outside: a child process, its sockets, signals, output and exit status.

mod bulk;
mod common;
mod denied;
mod doctor;
mod echo;
mod file;
mod interrupted;
mod killed;
mod load;
mod load_compare;
mod load_merge;
mod load_page;
mod load_protocols;
mod manual;
mod metrics;
mod nop;
mod printing;
mod recordings;
mod server_bench;
mod signals;
mod suite;
mod udp;
mod unix;
mod usage;
mod workers;
