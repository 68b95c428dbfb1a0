//! Memory shared with the submitter: the only place, beside the seam itself, that follows an address.
//!
//! An address gets in here in two ways only: from a submission entry, whose submitter promised under
//! [`Kernel::enter`](annulus_kernel::Kernel::enter) that its memory is valid and untouched until the terminal completion;
//! and from an argument or a buffer ring passed under [`Kernel::register`](annulus_kernel::Kernel::register). The types
//! here have no other constructors, so what holds one may use it until it has posted that completion.

mod argument;
mod buffer_entries;
mod file_call;
mod header;
mod piece;
mod queues;
mod submitted;

pub(crate) use argument::Argument;
pub(crate) use buffer_entries::BufferEntries;
pub(crate) use file_call::FileRequest;
pub(crate) use header::Header;
pub(crate) use piece::{Piece, Seal};
pub(crate) use queues::{COMPLETIONS, Queues, SUBMISSIONS, Shape};
pub(crate) use submitted::Submitted;
