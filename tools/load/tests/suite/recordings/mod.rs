//! Recordings as others read and use them: as JSON, against the published schema and compared.

mod compared;
mod document;
mod schema;
