//! Panics of services, as errors.

use crate::hyper::BoxError;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A panic's payload.
pub(super) type Payload = Box<dyn Any + Send>;

/// Calls a function of which nothing is used after a panic.
pub(super) fn catch<R>(call: impl FnOnce() -> R) -> Result<R, Payload> {
    catch_unwind(AssertUnwindSafe(call))
}

/// A panic as an error, with the panic's text.
pub(super) fn error(payload: &Payload) -> BoxError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("the service has panicked: {}", text.unwrap_or("without a text")).into()
}
