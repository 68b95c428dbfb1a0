//! Types that all other layers use, such as slots and handles.

pub(crate) mod budget;
pub(crate) mod connection_limit;
pub(crate) mod driver_kind;
pub(crate) mod exposed;
pub(crate) mod io;
pub(crate) mod kernel_held;
pub(crate) mod op_error;
pub(crate) mod queues;
pub(crate) mod recheck;
pub(crate) mod send_error;
pub(crate) mod unix_address;
