//! The load generator of annulus, as a library.
//!
//! A [`Plan`] describes the server, the [`Workload`] and its size. Clients are tasks of the annulus
//! runtime, on one or more threads. Every byte of an echo is verified. Measuring starts once every
//! client is connected and the warm-up is over, and only what completes within the measured time
//! counts. Latency counts from the time at which a message is due, which its [`Schedule`]
//! determines. In a closed loop, that is when a reply has freed its slot and the think time has
//! passed; in an open loop, it is a scheduled time.
//!
//! ```no_run
//! use annulus_load::{Plan, Streams, run};
//! use std::time::Duration;
//!
//! let mut plan = Plan::new("127.0.0.1:7000".parse().unwrap(), Streams::default());
//! plan.duration = Duration::from_secs(5);
//! let recording = run(&plan, &mut ()).unwrap();
//! let summary = recording.summary();
//! println!("{:.0} requests/s, p99 {:?} µs", summary.requests_per_second, summary.latency_us.p99);
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod condition;
mod datagrams;
mod exchange;
mod expected;
mod fault;
mod findings;
mod invalid;
mod merge;
mod mix;
mod observer;
#[cfg(feature = "options")]
mod options;
mod outcome;
mod part;
mod payload;
mod plan;
mod protocol;
mod random;
mod run;
mod run_queue;
mod schedule;
mod server_address;
mod streams;
mod threads;
mod tls;
mod transport;
mod warnings;

pub mod affinity {
    //! Pinning the calling thread to one CPU, and listing the usable CPUs.

    pub use annulus_kernel::affinity::{PinError, Pinned, allowed, check, pin};
}
pub mod clock;
pub mod compare;
pub mod fan_out;
#[doc(hidden)]
pub mod files;
#[doc(hidden)]
pub mod fuzzing;
pub mod idle;
pub mod limits;
mod load_error;
#[doc(hidden)]
pub mod pem;
pub mod recording;
pub mod stats;

pub use condition::{Conditions, LatencyLimit};
pub use exchange::http::{Http, HttpRequest};
pub use exchange::script::{
    Framing, LengthField, MAX_LENGTH_FIELD_OFFSET, Script, ScriptRequest, script_bytes,
    script_template,
};
pub use expected::Expected;
#[doc(hidden)]
pub use expected::{hex, parse_hash};
pub use invalid::InvalidValue;
#[doc(hidden)]
pub use invalid::counted;
pub use load_error::LoadError;
pub use merge::{LiveSum, PartResult};
pub use mix::{DataRows, FieldValues, MAX_MESSAGE_BYTES, Mix, Template};
pub use observer::{Observer, Progress};
#[cfg(feature = "options")]
pub use options::{
    Address, Endpoint, Options, OptionsError, RequestSpec, RequestTable, check_target_round_trip,
    parse_bytes, parse_duration,
};
#[cfg(feature = "options")]
#[doc(hidden)]
pub use options::{parse_cpu, without_type_names};
pub use part::{MAX_PARTS, Part};
pub use plan::{
    Datagrams, MAX_CLIENTS, MAX_DATAGRAM_BYTES, MAX_EVENT_LOOPS, MAX_IN_FLIGHT_BYTES, MAX_PIPELINE,
    MAX_WINDOW, Plan, Streams, Turns, Workload,
};
pub use protocol::Protocol;
pub use run::run;
pub use schedule::{
    Arrivals, MAX_BURST_PERIOD, MAX_BURST_REQUESTS, MAX_RATE, MAX_THINK_TIME, Rate, Schedule,
    ThinkTime, parse_number,
};
pub use server_address::{MAX_UNIX_PATH_BYTES, ServerAddress, unix_address};
#[doc(hidden)]
pub use tls::{CertificateCheck, Presented};
pub use tls::{ClientIdentity, Tls, Trust};
pub use transport::SOURCE_ADDRESSES;
