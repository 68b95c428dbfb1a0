//! Files: calls are made inline if the data is in memory, and off the loop if they would wait for a
//! device.
//!
//! io_uring hands most file operations to kernel workers, and that round trip costs more than
//! reading or writing cached data. So a call is first tried inline, on the loop's thread, if it is
//! expected to be quick. If it would wait for a device, it goes off the loop: to the ring or to a
//! worker thread. [`Policy`] describes how this is decided.
//!
//! Calls take owned memory ([`IoBuf`], [`IoBufMut`]) and return it with the result: borrowed memory
//! could be freed while the kernel is still writing to it. The return type is a tuple, to which `?`
//! cannot be applied (error E0277): first take it apart.
//!
//! ```
//! # use annulus::fs::{self, File};
//! # annulus::run(async {
//! # let path = std::env::temp_dir().join(format!("annulus-tuple-{}", std::process::id()));
//! # fs::write(&path, "content").await?;
//! # let mut file = File::open(&path).await?;
//! let (read, buffer) = file.read(Vec::with_capacity(4096)).await;
//! println!("{:?}", &buffer[..read?]);
//! # fs::remove_file(&path).await?;
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```

mod aligned;
mod cache_entries;
mod call;
mod copy;
mod dir;
mod durable;
mod exact;
mod file;
mod file_cache;
mod many;
mod metadata;
pub(crate) mod open;
mod open_file;
pub(crate) mod path;
mod read_dir;
mod send;
pub(crate) mod stream;
pub(crate) mod transfer;
mod vectored;
mod whole;

pub use crate::bytes::buf::{IoBuf, IoBufMut, Slice};
pub use crate::file_policy::Policy;
pub use aligned::AlignedBuf;
pub use dir::{Dir, DirBuilder};
pub use file::{Advice, Alignment, File, Lock};
pub use file_cache::{CachedFile, FileCache, FileCacheStats};
pub use metadata::Metadata;
pub use open::OpenOptions;
pub use read_dir::{DirEntry, EntryKind, ReadDir};
pub use stream::FileStream;
pub use whole::{
    canonicalize, copy, create_dir, create_dir_all, hard_link, metadata, read, read_dir, read_link,
    read_to_string, remove_dir, remove_dir_all, remove_file, rename, set_permissions, symlink,
    symlink_metadata, try_exists, write,
};
