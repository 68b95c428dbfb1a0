//! Files: plain speed where the data is in memory, overlap where it is not.
//!
//! io_uring hands most file operations to kernel workers, and a hop there costs more than reading or writing cached data
//! does. So a call is first tried on the loop where it can be expected to be quick, and goes off the loop, to the ring or
//! to a worker thread, where it would wait for a device. [`Policy`] says how this is decided.
//!
//! Calls take owned memory ([`IoBuf`], [`IoBufMut`]) and give it back with the answer: a borrowed piece could be gone
//! while the kernel still writes there.

mod aligned;
mod buf;
mod copy;
mod detached;
mod dir;
mod direct;
mod directories;
mod exact;
mod file;
mod files;
mod free;
mod latency;
mod lock;
mod metadata;
mod open;
mod page_cache;
mod path;
mod pending_call;
mod perform;
mod policy;
mod read_dir;
mod send;
mod transfer;
mod whole;

pub use aligned::AlignedBuf;
pub use buf::{IoBuf, IoBufMut, Slice};
pub use dir::Dir;
pub use direct::{DirectBuf, DirectPool};
pub use file::{Advice, Alignment, File};
pub use latency::QUICK;
pub use lock::Lock;
pub use metadata::Metadata;
pub use open::OpenOptions;
pub use policy::Policy;
pub use read_dir::{DirEntry, EntryKind, ReadDir};
pub use whole::{
    canonicalize, copy, create_dir, create_dir_all, hard_link, metadata, read, read_dir, read_link,
    read_to_string, remove_dir, remove_dir_all, remove_file, rename, set_permissions, symlink,
    symlink_metadata, write,
};

pub(crate) use files::Files;
