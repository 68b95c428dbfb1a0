//! Connections that end by a graceful shutdown or an upgrade.

use crate::*;
use annulus::time::timeout;
use held::held;

/// Pauses of a connection after its first response. `None` means no request yet; one second is
/// enough for a release.
const PAUSES: [Option<Duration>; 3] = [None, Some(Duration::ZERO), Some(Duration::from_secs(1))];

/// Opens a connection, and unless `pause` is `None`, gets a response and pauses.
async fn paused(server: &Running, pause: Option<Duration>) -> Result<TcpStream, Failure> {
    let mut client = TcpStream::connect(server.address).await?;
    if let Some(pause) = pause {
        ask(&mut client).await?;
        sleep(pause).await;
    }
    Ok(client)
}

#[test]
fn idle_connection_is_closed_at_once_on_shutdown() {
    simulated(async |_| {
        let server = start("10.0.0.1:80");
        let mut clients = Vec::new();
        for pause in PAUSES {
            clients.push(paused(&server, pause).await?);
        }
        server.stop.cancel();
        for mut client in clients {
            assert!(end(&mut client).await < SECOND);
        }
        server.ended.await??;
        assert!(server.errors.borrow().is_empty(), "{:?}", server.errors);
        Ok(())
    });
}

/// The client shuts down its sending direction right after the request, whose response takes ten
/// seconds. The client gets the response also after a release.
#[test]
fn half_closed_client_gets_its_response() {
    for pause in PAUSES {
        simulated(async |_| {
            let server = start("10.0.0.1:80");
            let mut client = paused(&server, pause).await?;
            client.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await?;
            client.shutdown().await?;
            response(&mut client, 0).await?;
            assert!(end(&mut client).await < SECOND);
            assert!(server.errors.borrow().is_empty(), "{:?}", server.errors);
            Ok(())
        });
    }
}

#[test]
fn request_in_progress_is_finished_on_shutdown() {
    for pause in PAUSES {
        simulated(async |_| {
            let server = start("10.0.0.1:80");
            let mut client = paused(&server, pause).await?;
            client.send("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await?;
            sleep(SECOND).await;
            server.stop.cancel();
            let begun = Instant::now();
            let answer = client.recv().await?.expect("no answer arrived");
            assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
            assert!(begun.elapsed() >= SECOND * 8, "{:?}", begun.elapsed());
            drop(answer);
            assert!(end(&mut client).await < SECOND);
            server.ended.await??;
            assert!(server.errors.borrow().is_empty(), "{:?}", server.errors);
            Ok(())
        });
    }
}

/// Returns a released connection. On real drivers, freed memory shows the release.
async fn released(server: &Running) -> Result<TcpStream, Failure> {
    let mut client = TcpStream::connect(server.address).await?;
    loop {
        ask(&mut client).await?;
        let before = held();
        let is_freed = async {
            while held() > before - 8192 {
                sleep(RELEASE_DELAY / 10).await;
            }
        };
        // On a busy machine, the connection may have been released before `before` was read.
        if timeout(RELEASE_DELAY * 10, is_freed).await.is_ok() {
            return Ok(client);
        }
    }
}

#[test]
fn released_connection_can_be_upgraded() {
    everywhere(async || {
        let server = start("127.0.0.1:0");
        let mut client = released(&server).await?;
        // Bytes sent along with the request head belong to the new protocol.
        let head =
            "GET /upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
        client.send(format!("{head}early")).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.extend_from_slice(&client.recv_exact(1).await?);
        }
        assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
        assert_eq!(&*client.recv_exact(5).await?, b"early");
        // The shutdown waits for the upgraded connection.
        server.stop.cancel();
        for size in [1, 1000, 100_000] {
            client.send(vec![7; size]).await?;
            assert_eq!(&*client.recv_exact(size).await?, vec![7; size]);
        }
        drop(client);
        server.ended.await??;
        let errors = server.errors.borrow();
        assert!(errors.is_empty(), "{errors:?}");
        Ok(())
    });
}

#[test]
fn a_released_connection_ends_on_real_drivers() {
    everywhere(async || {
        let server = start("127.0.0.1:0");
        let (mut one, mut two) = (released(&server).await?, released(&server).await?);
        ask(&mut one).await?;
        two.shutdown().await?;
        end(&mut two).await;
        server.stop.cancel();
        end(&mut one).await;
        server.ended.await??;
        assert!(server.errors.borrow().is_empty(), "{:?}", server.errors);
        Ok(())
    });
}
