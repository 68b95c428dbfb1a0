//! axum on annulus with one runtime per core, with the server of `annulus_compat::tower`.

use annulus::net::ListenOptions;
use annulus::shards::{ShardedListener, Shards, Spread, cpus};
use annulus::{DriverChoice, Runtime};
use annulus_compat::tower::serve;
use peer_axum::{Address, BACKLOG, announce, arguments, must, router};

fn main() {
    let (address, mode) = arguments(&["uring", "epoll"]);
    let driver = match mode.as_deref() {
        Some("epoll") => DriverChoice::Epoll,
        _ => DriverChoice::Uring,
    };
    let cores = must(cpus()).len();
    let options = ListenOptions::new().backlog(BACKLOG as u32);
    let spread = Spread::LeastConnections;
    let listener = must(ShardedListener::bind(address, &options, cores, spread));
    announce(&Address::Tcp(listener.local_addr()));
    let shards = Shards::new(cores).runtime(move |_| Runtime::builder().driver(driver));
    must(shards.run(async |shard| serve(listener.open(&shard)?, router()).await));
}
