//! Limits in time, which count across a release.

use crate::*;

fn is_about(limit: Duration, took: Duration) -> bool {
    (limit..limit + SECOND).contains(&took)
}

/// `Http1` counts its limit from the release; the server's header limit counts from the response, and is shorter.
#[test]
fn an_idle_connection_ends_at_its_limit() {
    for (kind, limit) in [(Kind::Http1, IDLE), (Kind::Serve, HEADER)] {
        simulated(async |_| {
            let server = start(kind, "10.0.0.1:80");
            let mut client = TcpStream::connect(server.address).await?;
            ask(&mut client).await?;
            let took = end(&mut client).await;
            assert!(is_about(limit, took), "{kind:?}: {took:?}");
            server.stop.cancel();
            server.ended.await??;
            let errors = server.errors.borrow().join("; ");
            let expected = if kind == Kind::Serve { "no request has come within 20s" } else { "" };
            assert_eq!(errors, expected, "{kind:?}");
            Ok(())
        });
    }
}

/// A head that begins after the release, a byte a second.
#[test]
fn a_slow_head_is_cut_off() {
    for kind in KINDS {
        for pause in [0, 1, 5] {
            simulated(async |_| {
                let server = start(kind, "10.0.0.1:80");
                let mut client = TcpStream::connect(server.address).await?;
                ask(&mut client).await?;
                let answered = Instant::now();
                sleep(SECOND * pause).await;
                let head = format!("GET /1 HTTP/1.1\r\nhost: x\r\na: {}", "a".repeat(1000));
                let begun = Instant::now();
                for byte in head.bytes() {
                    _ = client.send(vec![byte]).await;
                    // The server answers, ends the connection or resets it.
                    if annulus::time::timeout(SECOND, client.recv()).await.is_ok() {
                        break;
                    }
                }
                // `Http1` leaves it to hyper, which counts from the first byte.
                let took = match kind {
                    Kind::Http1 => begun.elapsed(),
                    Kind::Serve => answered.elapsed(),
                };
                assert!(
                    (HEADER..HEADER + SECOND * 3).contains(&took),
                    "{kind:?}, {pause}: {took:?}"
                );
                Ok(())
            });
        }
    }
}

#[test]
fn a_connection_that_is_used_outlives_its_limits() {
    for kind in KINDS {
        simulated(async |_| {
            let server = start(kind, "10.0.0.1:80");
            let mut client = TcpStream::connect(server.address).await?;
            for _ in 0..20 {
                ask(&mut client).await?;
                sleep(HEADER / 2).await;
            }
            Ok(())
        });
    }
}

/// An idle connection that breaks off is no error, released or not.
#[test]
fn a_peer_that_resets_an_idle_connection_is_no_error() {
    for kind in KINDS {
        simulated(async |_| {
            let server = start(kind, "10.0.0.1:80");
            for pause in [Duration::ZERO, SECOND] {
                let mut client = TcpStream::connect(server.address).await?;
                ask(&mut client).await?;
                sleep(pause).await;
                client.set_linger(Some(Duration::ZERO))?;
                drop(client);
            }
            sleep(SECOND).await;
            server.stop.cancel();
            server.ended.await??;
            assert!(server.errors.borrow().is_empty(), "{kind:?}: {:?}", server.errors);
            Ok(())
        });
    }
}
