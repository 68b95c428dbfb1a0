//! x
pub mod clock; pub mod random; pub mod stats; pub mod schedule; pub mod record; pub mod verdict; pub mod cores; mod words; pub mod proc; pub mod server; pub mod lock; pub mod interrupt;
