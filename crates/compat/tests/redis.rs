//! The unpatched crate redis against a real redis-server: in a tokio runtime that has annulus as
//! its guest, and on annulus sockets alone.

use crate::common;
#[path = "../examples/redis_client.rs"]
#[allow(dead_code, reason = "`main` is used only by the example")]
mod example;
use crate::servers;

use annulus::net::{TcpStream, UnixStream};
use annulus_compat::SendStream;
use common::{Failure, Outcome, as_guests, on_drivers};
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncCommands, AsyncConnectionConfig, RedisConnectionInfo};
use servers::{Directory, Server, free_port, program};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Each of these clones of one connection has one request pending at a time.
const CLONE_COUNT: usize = 100;
const REQUESTS_PER_CLONE: usize = 100;

struct Redis {
    port: u16,
    // Must be dropped before the directory.
    _server: Server,
    directory: Directory,
}

impl Redis {
    /// Starts a separate server; `None` if redis-server is not installed.
    fn start() -> Option<Self> {
        let redis = program("redis-server", &[], "redis-server")?;
        let mut tries = 0;
        loop {
            match Self::start_with(&redis) {
                Ok(started) => return Some(started),
                // Another process may have taken the port in the meantime.
                Err(failure) if tries == 3 => panic!("{failure}"),
                Err(_) => tries += 1,
            }
        }
    }

    fn start_with(redis: &PathBuf) -> Result<Self, Failure> {
        let directory = Directory::new("redis")?;
        let port = free_port()?;
        let mut server = Command::new(redis);
        server.current_dir(directory.path()).args(["--bind", "127.0.0.1", "--save", ""]);
        server.args(["--port", &port.to_string(), "--unixsocket", "socket"]);
        let server = Server::start(&mut server, "eady to accept connections")?;
        Ok(Self { port, _server: server, directory })
    }

    fn client(&self) -> redis::RedisResult<redis::Client> {
        redis::Client::open(format!("redis://127.0.0.1:{}", self.port))
    }

    async fn over_tcp(&self) -> Result<MultiplexedConnection, Failure> {
        over(TcpStream::connect(("127.0.0.1", self.port)).await?).await
    }

    async fn over_unix(&self) -> Result<MultiplexedConnection, Failure> {
        over(UnixStream::connect(self.directory.path().join("socket")).await?).await
    }
}

/// Connects over an annulus stream, without a response timeout, which would need tokio's timers.
async fn over<S>(stream: S) -> Result<MultiplexedConnection, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let (info, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
    let config = config.set_response_timeout(None).set_connection_timeout(None);
    let stream = SendStream::new(stream);
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&info, stream, config).await?;
    annulus::spawn(driver);
    Ok(connection)
}

async fn converse(mut connection: MultiplexedConnection) -> Outcome {
    redis::cmd("FLUSHALL").exec_async(&mut connection).await?;
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    connection.set::<_, _, ()>("bytes", &bytes).await?;
    assert!(connection.get::<_, Vec<u8>>("bytes").await? == bytes);
    assert_eq!(connection.get::<_, Option<String>>("nothing").await?, None);

    let wrong = connection.lpush::<_, _, ()>("bytes", 1).await.unwrap_err();
    assert_eq!(wrong.code(), Some("WRONGTYPE"), "a wrong type was not reported");

    let mut pipeline = redis::pipe();
    for index in 0..1000 {
        pipeline.set(format!("key {index}"), index).ignore();
    }
    for index in 0..1000 {
        pipeline.get(format!("key {index}"));
    }
    let answers: Vec<usize> = pipeline.query_async(&mut connection).await?;
    assert!(answers.into_iter().eq(0..1000));

    let (counted, total): (i64, i64) = redis::pipe()
        .atomic()
        .incr("count", 3)
        .incr("count", 4)
        .query_async(&mut connection)
        .await?;
    assert_eq!((counted, total), (3, 7));
    multiplexed(connection).await
}

/// Sends many concurrent requests over one connection; each gets its own response.
async fn multiplexed(connection: MultiplexedConnection) -> Outcome {
    let clones = (0..CLONE_COUNT).map(|clone| {
        let mut connection = connection.clone();
        async move {
            for request in 0..REQUESTS_PER_CLONE {
                let sent = format!("{clone} {request}");
                let answer: String =
                    redis::cmd("ECHO").arg(&sent).query_async(&mut connection).await?;
                assert_eq!(answer, sent);
            }
            Ok::<_, Failure>(())
        }
    });
    try_join_all(clones).await?;
    Ok(())
}

#[test]
fn as_a_guest_of_tokio() {
    let Some(server) = &Redis::start() else { return };
    as_guests(async || {
        let client = server.client()?;
        converse(client.get_multiplexed_async_connection().await?).await?;
        converse(server.over_tcp().await?).await?;
        subscribed(&client, server).await
    });
}

/// Publishes on an annulus connection, and receives the messages with the stock client.
async fn subscribed(client: &redis::Client, server: &Redis) -> Outcome {
    let mut subscription = client.get_async_pubsub().await?;
    subscription.subscribe("news").await?;
    let mut publisher = server.over_unix().await?;
    let mut messages = subscription.on_message();
    for number in 0..200 {
        let receivers: u32 = publisher.publish("news", number).await?;
        assert_eq!(receivers, 1);
        let message = messages.next().await.ok_or("the subscription has ended")?;
        assert_eq!(message.get_payload::<u32>()?, number);
    }
    Ok(())
}

#[test]
fn late_response_is_an_error() {
    let Some(server) = &Redis::start() else { return };
    as_guests(async || {
        let config =
            AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_millis(50)));
        let client = server.client()?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let late = connection.blpop::<_, ()>("empty", 3600.0).await.unwrap_err();
        assert!(late.is_timeout(), "{late}");
        Ok(())
    });
}

#[test]
fn on_annulus_sockets_alone() {
    let Some(server) = &Redis::start() else { return };
    on_drivers(async || {
        converse(server.over_tcp().await?).await?;
        converse(server.over_unix().await?).await
    });
}

#[test]
fn connection_closed_by_the_server_is_an_error() {
    let Some(server) = Redis::start() else { return };
    as_guests(async || {
        let mut connection = server.over_tcp().await?;
        redis::cmd("CLIENT")
            .arg("KILL")
            .arg("SKIPME")
            .arg("no")
            .exec_async(&mut connection)
            .await
            .ok();
        let gone = redis::cmd("PING").exec_async(&mut connection).await.unwrap_err();
        assert!(gone.is_io_error() || gone.is_connection_dropped(), "{gone}");
        assert_eq!(connection.get_db(), 0);
        Ok(())
    });
}

#[test]
fn the_example_counts_its_calls() {
    let Some(server) = Redis::start() else { return };
    let address = format!("127.0.0.1:{}", server.port);
    for calls in 1..=2 {
        assert_eq!(example::greet(&address).unwrap(), ("hello".to_owned(), calls));
    }
}
