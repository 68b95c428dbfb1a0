//! Memory shared with the submitter. Only this module, and the trait itself, use addresses. An address comes from a
//! submission entry, whose memory is valid and unused until the terminal completion under the contract of
//! [`Kernel::enter`](annulus_kernel::Kernel::enter), or from an argument or a buffer ring under that of
//! [`Kernel::register`](annulus_kernel::Kernel::register). The types here have no other constructors, so a value of them
//! may be used until that completion was posted.

mod argument;
mod buffer_entries;
mod file_call;
mod header;
mod queues;
mod submitted;

pub(crate) use argument::RegisterArgument;
pub(crate) use buffer_entries::BufferEntries;
pub(crate) use file_call::{DiskCall, FILE_OPCODES, FileRequest, REFUSED_FILE_OPCODES};
pub(crate) use header::MessageHeader;
pub(crate) use queues::{COMPLETION_OFFSETS, Queues, RingSizes, SUBMISSION_OFFSETS};
pub(crate) use submitted::SubmittedEntry;
