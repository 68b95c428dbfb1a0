//! Unpatched tokio-rustls and futures-rustls, and `annulus_compat::rustls`: on io_uring, on epoll,
//! inside tokio, and on a simulated kernel.

mod bounds;
mod certificates;
mod compositions;
mod endings;
mod handshakes;
mod http;
mod listeners;
mod transfers;
mod two_tasks;
mod worlds;
