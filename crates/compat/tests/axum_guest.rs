//! The existing axum program of the example, with the same clients: on tokio alone, and with
//! annulus as its guest.

#[path = "../examples/axum_guest/app.rs"]
mod app;
use crate::common;

use annulus_compat::Incoming;
use axum::serve::Listener;
use common::{Outcome, as_guests};
use futures_util::future::try_join_all;
use reqwest::Client;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::oneshot;

async fn converse<L>(listener: L, address: SocketAddr) -> Outcome
where
    L: Listener<Addr: Debug>,
{
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(app::serve(listener, async { _ = stopped.await }));
    let client = Client::builder().no_proxy().build()?;
    let ask = async |path: String| {
        let answer = client.get(format!("http://{address}{path}")).send().await?;
        answer.error_for_status()?.text().await
    };
    let hellos = try_join_all((0..100).map(|number| ask(format!("/hello/{number}")))).await?;
    assert!(hellos.iter().enumerate().all(|(number, text)| *text == format!("hello, {number}\n")));
    let digests = try_join_all((0..20).map(|_| ask("/digest/3".into()))).await?;
    assert!(digests.iter().all(|digest| *digest == (31 + 2).to_string()));
    // Wait for the background task's tick.
    while ask("/count".into()).await? != "100" {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // A request in progress is finished, although the shutdown begins while it waits.
    let slow = ask("/slow".into());
    let end = async {
        ask("/hello/last".into()).await?;
        _ = stop.send(());
        Ok(())
    };
    let (slow, _) = tokio::try_join!(slow, end)?;
    assert_eq!(slow, "slow\n");
    drop(client);
    Ok(server.await??)
}

#[test]
fn on_tokio_alone() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let body = async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        converse(listener, address).await
    };
    let within = async { tokio::time::timeout(Duration::from_secs(60), body).await };
    runtime.block_on(within).expect("the test hangs").unwrap();
}

#[test]
fn as_a_guest_of_tokio() {
    as_guests(async || {
        let listener = Incoming::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        converse(listener, address).await
    });
}
