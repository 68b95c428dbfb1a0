//! Unpatched tokio-postgres against a real PostgreSQL: on annulus sockets alone, and in a tokio
//! runtime that has annulus as its guest, on sockets of both.

use crate::common;
#[path = "../examples/postgres.rs"]
#[allow(dead_code, reason = "`main` is used only by the example")]
mod example;
use crate::servers;

use annulus::net::{TcpStream, UnixStream};
use bytes::Bytes;
use common::{Failure, Outcome, as_guests, on_drivers};
use futures_util::future::{join_all, poll_fn, try_join_all};
use futures_util::{SinkExt, StreamExt, pin_mut};
use servers::{Directory, Server, free_port, program};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls};

/// Size of the data that `COPY` transfers in each direction.
const COPIED_BYTES: usize = 10 << 20;

/// The user to run PostgreSQL as if the test runs as root, which PostgreSQL refuses.
const UNPRIVILEGED_UID: u32 = 65_534;

pub(crate) struct Postgres {
    pub(crate) port: u16,
    // Must be dropped before the directory.
    _server: Server,
    directory: Directory,
}

impl Postgres {
    /// Starts a separate cluster; `None` if PostgreSQL is not installed.
    pub(crate) fn start() -> Option<Self> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let mut installed: Vec<_> =
            versions.flatten().map(|entry| entry.path().join("bin")).collect();
        installed.sort();
        let postgres = program("postgres", &installed, "postgresql")?;
        let initdb = program("initdb", &[postgres.parent()?.into()], "postgresql")?;
        let mut tries = 0;
        loop {
            match Self::start_with(&initdb, &postgres) {
                Ok(started) => return Some(started),
                // Another process may have taken the port in the meantime.
                Err(failure) if tries == 3 => panic!("{failure}"),
                Err(_) => tries += 1,
            }
        }
    }

    fn start_with(initdb: &Path, postgres: &Path) -> Result<Self, Failure> {
        let directory = Directory::new("postgres")?;
        let data = directory.path().join("data");
        let unprivileged = |program: &Path| {
            let mut command = Command::new(program);
            command.current_dir(directory.path());
            if rustix::process::geteuid().is_root() {
                command.uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID);
            }
            command
        };
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(
                directory.path(),
                Some(UNPRIVILEGED_UID),
                Some(UNPRIVILEGED_UID),
            )?;
        }
        let mut made = unprivileged(initdb);
        made.args([
            "--username=annulus",
            "--auth=trust",
            "--no-sync",
            "--no-locale",
            "--encoding=UTF8",
        ]);
        let made = made.arg("--pgdata").arg(&data).output()?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into());
        }
        let port = free_port()?;
        let mut server = unprivileged(postgres);
        server.arg("-D").arg(&data).arg("-k").arg(directory.path());
        server.args(["-F", "-h", "127.0.0.1", "-p"]).arg(port.to_string());
        server.args(["-c", "max_connections=40"]);
        let server = Server::start(&mut server, "database system is ready to accept connections")?;
        Ok(Self { port, _server: server, directory })
    }

    fn config(&self) -> Config {
        let mut config = Config::new();
        config.user("annulus").dbname("postgres").host("127.0.0.1").port(self.port);
        config
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join(format!(".s.PGSQL.{}", self.port))
    }

    async fn over_tcp(&self) -> Result<Session, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let (client, connection) = self.config().connect_raw(stream, NoTls).await?;
        Ok(Session::new(client, connection))
    }

    async fn over_unix(&self) -> Result<Session, Failure> {
        let stream = UnixStream::connect(self.socket()).await?;
        let (client, connection) = self.config().connect_raw(stream, NoTls).await?;
        Ok(Session::new(client, connection))
    }

    /// Connects like a tokio program, with a tokio socket and `tokio::spawn`.
    async fn over_tokio(&self) -> Result<Session, Failure> {
        let (client, connection) = self.config().connect(NoTls).await?;
        let (notices, received) = mpsc::unbounded_channel();
        tokio::spawn(drive(connection, notices));
        Ok(Session { client, notices: received })
    }

    /// Cancels the query that a client is waiting for, over an annulus socket.
    async fn cancel(&self, client: &Client) -> Outcome {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        Ok(client.cancel_token().cancel_query_raw(stream, NoTls).await?)
    }
}

struct Session {
    client: Client,
    /// Unsolicited messages from the server to this session, such as notifications.
    notices: mpsc::UnboundedReceiver<AsyncMessage>,
}

impl Session {
    fn new<S>(client: Client, connection: Connection<S, tokio_postgres::tls::NoTlsStream>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let (notices, received) = mpsc::unbounded_channel();
        annulus::spawn(drive(connection, notices));
        Self { client, notices: received }
    }
}

/// Drives a connection until its client is dropped.
async fn drive<S>(
    mut connection: Connection<S, tokio_postgres::tls::NoTlsStream>,
    notices: mpsc::UnboundedSender<AsyncMessage>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        _ = notices.send(message);
    }
}

async fn converse(mut session: Session, other: Session) -> Outcome {
    let client = &session.client;
    client
        .batch_execute("CREATE TEMP TABLE items (id int PRIMARY KEY, name text NOT NULL)")
        .await?;
    let insert = client.prepare("INSERT INTO items VALUES ($1, $2)").await?;
    for id in 0..100_i32 {
        assert_eq!(client.execute(&insert, &[&id, &format!("item {id}")]).await?, 1);
    }
    let row = client.query_one("SELECT name FROM items WHERE id = $1", &[&42_i32]).await?;
    assert_eq!(row.get::<_, &str>(0), "item 42");

    let twice = client.execute(&insert, &[&0_i32, &"again"]).await.unwrap_err();
    assert_eq!(twice.code(), Some(&SqlState::UNIQUE_VIOLATION), "a duplicate key was not reported");
    let count = client.query_one("SELECT count(*) FROM items", &[]).await?;
    assert_eq!(count.get::<_, i64>(0), 100);

    pipelined(client).await?;
    copied(client).await?;
    rolled_back(&mut session.client).await?;
    notified(session, other).await
}

/// Sends many queries on one connection before the first is answered.
async fn pipelined(client: &Client) -> Outcome {
    let square = client.prepare("SELECT $1::int8 * $1::int8").await?;
    let square = &square;
    let asked = (0..500_i64).map(|n| async move {
        let row = client.query_one(square, &[&n]).await?;
        Ok::<_, tokio_postgres::Error>((n, row.get::<_, i64>(0)))
    });
    assert!(try_join_all(asked).await?.into_iter().all(|(n, square)| square == n * n));
    Ok(())
}

async fn copied(client: &Client) -> Outcome {
    client.batch_execute("CREATE TEMP TABLE copies (line text)").await?;
    let line = |number: usize| format!("{number:0>1023}\n");
    let sink = client.copy_in("COPY copies FROM STDIN").await?;
    pin_mut!(sink);
    let lines = COPIED_BYTES / 1024;
    for first in (0..lines).step_by(64) {
        let piece: String = (first..(first + 64).min(lines)).map(line).collect();
        sink.send(Bytes::from(piece)).await?;
    }
    assert_eq!(sink.finish().await?, lines as u64);
    let rows = client.copy_out("COPY copies TO STDOUT").await?;
    pin_mut!(rows);
    let mut number = 0;
    while let Some(row) = rows.next().await {
        assert_eq!(row?, line(number));
        number += 1;
    }
    assert_eq!(number, lines);
    Ok(())
}

async fn rolled_back(client: &mut Client) -> Outcome {
    let transaction = client.transaction().await?;
    transaction.execute("DELETE FROM items", &[]).await?;
    // Dropping the uncommitted transaction rolls it back.
    drop(transaction);
    let count = client.query_one("SELECT count(*) FROM items", &[]).await?;
    assert_eq!(count.get::<_, i64>(0), 100);
    Ok(())
}

async fn notified(mut session: Session, other: Session) -> Outcome {
    session.client.batch_execute("LISTEN news").await?;
    for number in 0..20 {
        other.client.execute("SELECT pg_notify('news', $1)", &[&number.to_string()]).await?;
        let notification = loop {
            match session.notices.recv().await.ok_or("the connection has ended")? {
                AsyncMessage::Notification(notification) => break notification,
                _ => continue,
            }
        };
        assert_eq!(
            (notification.channel(), notification.payload()),
            ("news", &*number.to_string())
        );
    }
    Ok(())
}

/// Several sessions wait for a lock at the same time, until the last session releases it.
async fn concurrent(sessions: &[Session]) -> Outcome {
    let (last, waiting) = sessions.split_last().ok_or("no session")?;
    last.client.batch_execute("SELECT pg_advisory_lock(7)").await?;
    let wait = async |session: &Session| {
        session.client.batch_execute("SELECT pg_advisory_lock_shared(7)").await
    };
    let release = async {
        // Wait until all other sessions wait for the lock.
        let query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        while last.client.query_one(query, &[]).await?.get::<_, i64>(0) < waiting.len() as i64 {}
        last.client.batch_execute("SELECT pg_advisory_unlock(7)").await.map_err(Failure::from)
    };
    let (waited, released) = tokio::join!(join_all(waiting.iter().map(wait)), release);
    waited.into_iter().collect::<Result<Vec<_>, _>>()?;
    released
}

/// Another connection cancels a query that would take an hour.
async fn cancelled(server: &Postgres, session: &Session) -> Outcome {
    let sleeping = session.client.batch_execute("SELECT pg_sleep(3600)");
    let cancel = async {
        let other = server.over_tcp().await?;
        let query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        while other.client.query_one(query, &[]).await?.get::<_, i64>(0) == 0 {}
        server.cancel(&session.client).await
    };
    let (slept, cancelled) = tokio::join!(sleeping, cancel);
    cancelled?;
    assert_eq!(slept.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
    Ok(())
}

#[test]
fn on_annulus_sockets_alone() {
    let Some(server) = &Postgres::start() else { return };
    let (version, answer) = example::ask(server.socket().to_str().unwrap(), "annulus").unwrap();
    assert!(version.starts_with("PostgreSQL "), "{version}");
    assert_eq!(answer, 42);
    on_drivers(async || {
        converse(server.over_tcp().await?, server.over_unix().await?).await?;
        let sessions = try_join_all((0..10).map(|_| server.over_unix())).await?;
        concurrent(&sessions).await?;
        cancelled(server, &server.over_unix().await?).await
    });
}

#[test]
fn as_a_guest_of_tokio() {
    let Some(server) = &Postgres::start() else { return };
    as_guests(async || {
        converse(server.over_tokio().await?, server.over_tcp().await?).await?;
        converse(server.over_unix().await?, server.over_tokio().await?).await?;
        let tokios = try_join_all((0..5).map(|_| server.over_tokio())).await?;
        let ours = try_join_all((0..5).map(|_| server.over_tcp())).await?;
        let sessions: Vec<_> = tokios.into_iter().chain(ours).collect();
        concurrent(&sessions).await?;
        cancelled(server, &server.over_tokio().await?).await
    });
}
