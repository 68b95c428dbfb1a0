//! Panics of services, as errors.

use crate::hyper::BoxError;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(super) type Payload = Box<dyn Any + Send>;

/// Returns the panic's payload as an error if the function panics. The caller must no longer use
/// the function's state after that.
pub(super) fn catch<R>(call: impl FnOnce() -> R) -> Result<R, Payload> {
    catch_unwind(AssertUnwindSafe(call))
}

/// The first words of the panic messages of tokio and sqlx if they find no tokio runtime.
const NO_TOKIO_MESSAGES: [&str; 3] = [
    "there is no reactor running",
    "there is no timer running",
    "this functionality requires a Tokio context",
];
const REMEDY: &str = "; it needs a tokio runtime: call annulus_compat::with_tokio() at the start of the program, or run \
    annulus inside tokio with annulus_tokio::run";

/// Converts a panic to an error. If the panic says that no tokio runtime was found, the error says
/// what to do.
pub(super) fn error(payload: &Payload) -> BoxError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    let remedy =
        if NO_TOKIO_MESSAGES.iter().any(|begin| text.starts_with(begin)) { REMEDY } else { "" };
    format!("the service panicked: {text}{remedy}").into()
}
