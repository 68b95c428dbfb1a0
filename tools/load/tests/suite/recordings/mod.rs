//! Recordings as other programs use them: as JSON, against the published schema, and compared.

mod compared;
mod document;
mod schema;
