//! Recordings as others read and use them: as JSON, against the published schema, merged and compared.

mod compared;
mod document;
mod merge;
mod schema;
