//! File calls, with their arguments copied.

use super::disk::OpenId;
use crate::piece::Piece;

/// A path, and the directory from which it starts; the root if none. An empty path names that file itself.
#[derive(Clone, Debug)]
pub(crate) struct StartedPath {
    pub(crate) dir: Option<OpenId>,
    pub(crate) path: Vec<u8>,
}

/// The memory of a call.
pub(crate) type Pieces = Box<[Piece]>;

/// A call. Without an offset it is at the cursor of the file.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Open { at: StartedPath, flags: u32, mode: u32 },
    Read { file: OpenId, into: Pieces, offset: Option<u64>, nowait: bool },
    Write { file: OpenId, from: Pieces, offset: Option<u64> },
    Copy { from: OpenId, from_offset: Option<u64>, to: OpenId, to_offset: Option<u64>, len: u32 },
    Sync { file: OpenId },
    Stat { at: StartedPath, itself: bool, into: Piece },
    SetLen { file: OpenId, len: u64 },
    Allocate { file: OpenId, keep_len: bool, offset: u64, len: u64 },
    Seek { file: OpenId, offset: i64, origin: u32, into: Piece },
    Nothing,
    Remove { at: StartedPath, directory: bool },
    Rename { from: StartedPath, to: StartedPath, replace: bool },
    Link { from: StartedPath, to: StartedPath },
    MakeDir { at: StartedPath, mode: u32 },
    SetMode { at: StartedPath, mode: u32 },
    SetModeOf { file: OpenId, mode: u32 },
    ReadDir { file: OpenId, into: Piece },
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A count, or zero.
    Count(u32),
    /// A file was opened.
    Opened(OpenId),
}
