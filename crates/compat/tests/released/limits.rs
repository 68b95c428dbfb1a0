//! Time limits, which keep counting across a release.

use crate::*;

fn is_about(limit: Duration, took: Duration) -> bool {
    (limit..limit + SECOND).contains(&took)
}

/// The header timeout starts at the response, and is shorter than the idle timeout.
#[test]
fn idle_connection_is_closed_at_the_header_timeout() {
    simulated(async |_| {
        let server = start("10.0.0.1:80");
        let mut client = TcpStream::connect(server.address).await?;
        ask(&mut client).await?;
        let took = end(&mut client).await;
        assert!(is_about(HEADER_TIMEOUT, took), "{took:?}");
        server.stop.cancel();
        server.ended.await??;
        let errors = server.errors.borrow().join("; ");
        assert_eq!(errors, "no request arrived within 20s");
        Ok(())
    });
}

/// The head is sent at one byte per second, beginning before or after the release.
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
                // The server responds, closes the connection or resets it.
                if annulus::time::timeout(SECOND, client.recv()).await.is_ok() {
                    break;
                }
            }
            let took = answered.elapsed();
            assert!(
                (HEADER_TIMEOUT..HEADER_TIMEOUT + SECOND * 3).contains(&took),
                "{pause}: {took:?}"
            );
            Ok(())
        });
    }
}

#[test]
fn active_connection_outlives_its_limits() {
    simulated(async |_| {
        let server = start("10.0.0.1:80");
        let mut client = TcpStream::connect(server.address).await?;
        for _ in 0..20 {
            ask(&mut client).await?;
            sleep(HEADER_TIMEOUT / 2).await;
        }
        Ok(())
    });
}

/// Tests a connection that has been released and one that has not.
#[test]
fn reset_of_an_idle_connection_is_not_an_error() {
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
