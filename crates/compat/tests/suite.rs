//! All tests that do not need a separate process, in one program: each additional program is linked
//! separately and runs on its own.

mod common;
mod programs;
mod servers;

#[path = "all_cores.rs"]
mod all_cores;
#[path = "axum.rs"]
mod axum;
#[path = "axum_guest.rs"]
mod axum_guest;
#[path = "bad_input.rs"]
mod bad_input;
#[path = "durations.rs"]
mod durations;
#[path = "early_answer.rs"]
mod early_answer;
#[path = "example_servers.rs"]
mod example_servers;
#[path = "files.rs"]
mod files;
#[path = "https.rs"]
mod https;
#[path = "hyper.rs"]
mod hyper;
#[path = "hyper_util.rs"]
mod hyper_util;
#[path = "postgres.rs"]
mod postgres;
#[path = "quinn/main.rs"]
mod quinn;
#[path = "redis.rs"]
mod redis;
#[path = "reqwest.rs"]
mod reqwest;
#[path = "reverse_proxy/main.rs"]
mod reverse_proxy;
#[path = "rustls/main.rs"]
mod rustls;
#[path = "service.rs"]
mod service;
#[path = "simulated/main.rs"]
mod simulated;
#[path = "tonic/main.rs"]
mod tonic;
#[path = "tower/main.rs"]
mod tower;
#[path = "tungstenite.rs"]
mod tungstenite;
#[path = "with_tokio.rs"]
mod with_tokio;
