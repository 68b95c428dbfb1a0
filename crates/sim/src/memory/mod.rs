//! Memory shared with the submitter. Only this module and the implementation of `Kernel` use
//! addresses. An address comes from a submission entry, or from an argument or a buffer ring. Under
//! the contract of [`Kernel::enter`](annulus_kernel::Kernel::enter), the memory of an entry is
//! valid and otherwise unused until the terminal completion.
//! [`Kernel::register`](annulus_kernel::Kernel::register) guarantees the same for arguments and
//! buffer rings. The types here can be created only under these contracts, so their values may be
//! used until the terminal completion has been posted.

mod argument;
mod buffer_entries;
mod file_call;
mod header;
mod queues;
mod submitted;

pub(crate) use argument::{PinnedBuffer, RegisterArgument};
pub(crate) use buffer_entries::BufferEntries;
pub(crate) use file_call::{DiskCall, FILE_OPCODES, FileRequest, REFUSED_FILE_OPCODES};
pub(crate) use header::MessageHeader;
pub(crate) use queues::{COMPLETION_OFFSETS, Queues, RingSizes, SUBMISSION_OFFSETS};
pub(crate) use submitted::{REGISTERED_BUFFER_OPCODES, SubmittedEntry};
