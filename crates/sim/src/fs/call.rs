//! Calls on files and paths, their arguments copied in.

use super::disk::OpenId;
use crate::memory::Piece;

/// A path, and the directory it starts from: the root where not said.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) dir: Option<OpenId>,
    pub(crate) path: Vec<u8>,
}

/// Memory of one call, in pieces.
pub(crate) type Pieces = Box<[Piece]>;

/// One call. An offset that is missing is the file's cursor.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Open { at: Place, flags: u32, mode: u32 },
    Read { file: OpenId, into: Pieces, offset: Option<u64>, nowait: bool },
    Write { file: OpenId, from: Pieces, offset: Option<u64> },
    Copy { from: OpenId, from_offset: Option<u64>, to: OpenId, to_offset: Option<u64>, len: u32 },
    Sync { file: OpenId },
    Stat { at: Place, itself: bool, into: Piece },
    SetLen { file: OpenId, len: u64 },
    Allocate { file: OpenId, keep_len: bool, offset: u64, len: u64 },
    Nothing,
    Remove { at: Place, directory: bool },
    Rename { from: Place, to: Place, replace: bool },
    Link { from: Place, to: Place },
    MakeDir { at: Place, mode: u32 },
    SetMode { at: Place, mode: u32 },
    SetModeOf { file: OpenId, mode: u32 },
    ReadDir { file: OpenId, into: Piece },
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A count, or nothing.
    Count(u32),
    /// A file was opened.
    Opened(OpenId),
}
