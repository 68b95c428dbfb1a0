//! Limits in time, which count across a release.

use crate::*;

fn is_about(limit: Duration, took: Duration) -> bool {
    (limit..limit + SECOND).contains(&took)
}

/// The limit of a head counts from the response, and is shorter than that of an idle connection.
#[test]
fn an_idle_connection_ends_at_its_limit() {
    simulated(async |_| {
        let server = start("10.0.0.1:80");
        let mut client = TcpStream::connect(server.address).await?;
        ask(&mut client).await?;
        let took = end(&mut client).await;
        assert!(is_about(HEADER, took), "{took:?}");
        server.stop.cancel();
        server.ended.await??;
        let errors = server.errors.borrow().join("; ");
        assert_eq!(errors, "no request arrived within 20s");
        Ok(())
    });
}

/// A head that begins after the release, a byte a second.
#[test]
fn a_slow_head_is_cut_off() {
    for pause in [0, 1, 5] {
        simulated(async |_| {
            let server = start("10.0.0.1:80");
            let mut client = TcpStream::connect(server.address).await?;
            ask(&mut client).await?;
            let answered = Instant::now();
            sleep(SECOND * pause).await;
            let head = format!("GET /1 HTTP/1.1\r\nhost: x\r\na: {}", "a".repeat(1000));
            for byte in head.bytes() {
                _ = client.send(vec![byte]).await;
                // The server answers, ends the connection or resets it.
                if annulus::time::timeout(SECOND, client.recv()).await.is_ok() {
                    break;
                }
            }
            let took = answered.elapsed();
            assert!((HEADER..HEADER + SECOND * 3).contains(&took), "{pause}: {took:?}");
            Ok(())
        });
    }
}

#[test]
fn a_connection_that_is_used_outlives_its_limits() {
    simulated(async |_| {
        let server = start("10.0.0.1:80");
        let mut client = TcpStream::connect(server.address).await?;
        for _ in 0..20 {
            ask(&mut client).await?;
            sleep(HEADER / 2).await;
        }
        Ok(())
    });
}

/// An idle connection that breaks off is no error, released or not.
#[test]
fn a_peer_that_resets_an_idle_connection_is_no_error() {
    simulated(async |_| {
        let server = start("10.0.0.1:80");
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
        assert!(server.errors.borrow().is_empty(), "{:?}", server.errors);
        Ok(())
    });
}
