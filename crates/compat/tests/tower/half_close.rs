//! Clients that shut down their sending direction right after a request, like `nc -N`, and clients
//! that disconnect.

use crate::tower::*;
use tokio::sync::Notify;

async fn half_closed(address: &str, path: &str, body: &str) -> Outcome {
    let server = start(address, |server| server);
    for head in [
        format!("{path} HTTP/1.1\r\nhost: x\r\nconnection: close"),
        format!("{path} HTTP/1.1\r\nhost: x"),
        format!("{path} HTTP/1.0"),
    ] {
        for _ in 0..10 {
            let mut client = TcpStream::connect(server.address).await?;
            client.send(format!("GET {head}\r\n\r\n")).await?;
            client.shutdown().await?;
            let answer = rest(&mut client).await;
            assert!(answer.contains("200 OK") && answer.ends_with(body), "{answer}");
        }
    }
    assert!(server.errors.borrow().is_empty(), "{:?}", server.errors);
    Ok(())
}

#[test]
fn half_closed_client_gets_its_response() {
    everywhere(|| half_closed("127.0.0.1:0", "/", "hello"));
    simulated(|_| half_closed("10.0.0.1:80", "/", "hello"));
    simulated(|_| half_closed("10.0.0.1:80", "/sleep", "slept"));
}

#[test]
fn client_disconnect_drops_the_handler() {
    let ends = async |address: &str| {
        let (begun, dropped) = (Rc::new(Notify::new()), Rc::new(Notify::new()));
        let (begins, drops) = (begun.clone(), dropped.clone());
        let waits = service_fn(move |_| {
            let guard = Dropped(drops.clone());
            begins.notify_one();
            async move {
                pending::<()>().await;
                drop(guard);
                Ok::<_, Infallible>(hyper::Response::new(String::new()))
            }
        });
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        annulus::spawn(serve_hyper(listener, waits).into_future());
        let mut client = TcpStream::connect(address).await?;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await?;
        begun.notified().await;
        client.abort();
        dropped.notified().await;
        Outcome::Ok(())
    };
    everywhere(|| ends("127.0.0.1:0"));
    simulated(|_| ends("10.0.0.1:80"));
}

/// Notifies when it is dropped.
struct Dropped(Rc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
