//! A PostgreSQL client with tokio-postgres, on annulus alone: `connect_raw` takes an annulus stream
//! directly.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example postgres --
//! /var/run/postgresql/.s.PGSQL.5432 $USER`, with the server's Unix socket and the name of a user
//! that it accepts.

use annulus::net::UnixStream;
use std::error::Error;
use tokio_postgres::{Config, NoTls};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().unwrap_or("/var/run/postgresql/.s.PGSQL.5432".into());
    let user = arguments.next().unwrap_or("postgres".into());
    let (version, answer) = ask(&socket, &user)?;
    println!("{version}: {answer}");
    Ok(())
}

/// Returns the server's version and the result of a query.
pub(crate) fn ask(socket: &str, user: &str) -> Result<(String, i32), Box<dyn Error>> {
    annulus::run(async {
        let stream = UnixStream::connect(socket).await?;
        let (client, connection) =
            Config::new().user(user).dbname("postgres").connect_raw(stream, NoTls).await?;
        // The connection task transfers the bytes, and ends once the client is dropped.
        let connection = annulus::spawn(connection);
        let row = client.query_one("SELECT version(), 6 * $1::int4", &[&7_i32]).await?;
        drop(client);
        connection.await??;
        Ok((row.get(0), row.get(1)))
    })
}
