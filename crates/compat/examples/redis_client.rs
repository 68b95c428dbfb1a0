//! A Redis client with the crate redis, on annulus alone: its multiplexed connection takes an
//! annulus stream in a `SendStream`.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example redis_client -- 127.0.0.1:6379`,
//! with `redis-server` running.

use annulus::net::TcpStream;
use annulus_compat::SendStream;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig, RedisConnectionInfo};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:6379".into());
    let (greeting, calls) = greet(&address)?;
    println!("{greeting}, {calls}");
    Ok(())
}

/// Returns a greeting stored in the server, and the number of calls so far.
pub(crate) fn greet(address: &str) -> Result<(String, u64), Box<dyn Error>> {
    annulus::run(async {
        let stream = SendStream::new(TcpStream::connect(address).await?);
        // The client's own timeouts would need tokio's timers; use `annulus::time::timeout`
        // instead.
        let config =
            AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let info = RedisConnectionInfo::default();
        let (mut redis, driver) =
            MultiplexedConnection::new_with_config(&info, stream, config).await?;
        annulus::spawn(driver);
        redis.set::<_, _, ()>("greeting", "hello").await?;
        Ok(redis::pipe().get("greeting").incr("calls", 1).query_async(&mut redis).await?)
    })
}
