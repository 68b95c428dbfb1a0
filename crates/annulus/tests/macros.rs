//! `#[annulus::main]`, `#[annulus::test]`, `select!` and `join!`, on both drivers.

use annulus_skip::skip;
use std::process::Command;
use std::time::Duration;
use std::{env, io};

use annulus::net::UnixStream;
use annulus::{DriverChoice, Runtime};

#[annulus::main]
pub(crate) async fn program() -> io::Result<usize> {
    let (mut one, mut two) = UnixStream::pair()?;
    let (sent, lease) = annulus::join!(one.send("four"), two.recv());
    sent?;
    Ok(lease?.expect("the stream ended too early").len())
}

#[annulus::main]
async fn returns_nothing() {
    annulus::task::yield_now().await;
}

#[annulus::main]
async fn never_returns_by_itself() -> ! {
    panic!("by the program")
}

#[test]
fn a_main_returns_the_result_of_its_body() {
    assert_eq!(program().unwrap(), 4);
    returns_nothing();
    let panicked = std::panic::catch_unwind(|| never_returns_by_itself()).unwrap_err();
    assert_eq!(panicked.downcast_ref(), Some(&"by the program"));
}

#[annulus::test]
async fn a_test_may_return_an_error() -> Result<(), Box<dyn std::error::Error>> {
    let (mut one, mut two) = UnixStream::pair()?;
    one.send("7").await?;
    let lease = two.recv().await?.ok_or("the end")?;
    assert_eq!(std::str::from_utf8(&lease)?.parse::<u8>()?, 7);
    Ok(())
}

#[annulus::main(driver = DriverChoice::Epoll, task_budget = 7, measure = true,)]
async fn with_settings() -> io::Result<String> {
    Ok(annulus::handle()?.stats().await?.driver.to_string())
}

#[test]
fn a_main_has_the_settings_of_its_arguments() {
    assert_eq!(with_settings().unwrap(), "epoll");
}

#[annulus::test(start_paused = true)]
async fn a_paused_test_sleeps_at_no_cost() -> io::Result<()> {
    let start = annulus::time::Instant::now();
    let listener = annulus::net::TcpListener::bind("127.0.0.1:7000")?;
    let mut client = annulus::net::TcpStream::connect("127.0.0.1:7000").await?;
    let (mut server, _) = listener.accept().await?;
    client.send("ping").await?;
    assert_eq!(&*server.recv_exact(4).await?, b"ping");
    let day = Duration::from_secs(86_400);
    annulus::time::sleep(day).await;
    assert!(start.elapsed() >= day);
    Ok(())
}

#[annulus::test(start_paused = true, driver = DriverChoice::Epoll)]
async fn a_paused_test_may_have_settings() {
    annulus::time::sleep(Duration::from_secs(u64::from(u32::MAX))).await;
    let stats = annulus::handle().unwrap().stats().await.unwrap();
    assert_eq!(stats.driver.to_string(), "epoll");
}

#[annulus::test(start_paused = true)]
#[should_panic(expected = "deadlock")]
async fn a_paused_test_that_waits_forever_fails() {
    std::future::pending::<()>().await;
}

#[annulus::test(start_paused = false, task_budget = 9)]
async fn a_test_is_not_paused_if_it_says_so() {
    annulus::task::yield_now().await;
}

#[annulus::test]
#[should_panic(expected = "as it should")]
async fn a_test_may_expect_a_panic() {
    annulus::task::yield_now().await;
    panic!("as it should");
}

#[annulus::test]
async fn a_select_loses_nothing_of_the_other_branch() -> io::Result<()> {
    let (mut one, mut two) = UnixStream::pair()?;
    annulus::select! {
        biased;
        _ = two.recv() => panic!("the receive completed without bytes"),
        () = annulus::time::sleep(Duration::from_millis(1)) => {}
    }
    one.send("late").await?;
    assert_eq!(&*two.recv_exact(4).await?, b"late");
    let both = annulus::try_join!(one.send("a"), async { two.recv_exact(1).await });
    assert_eq!(&*both?.1, b"a");
    Ok(())
}

/// Fails unless it runs on the requested driver.
#[annulus::test]
async fn the_driver_is_the_requested_one() -> io::Result<()> {
    let stats = annulus::handle()?.stats().await?;
    if let Ok(wanted) = env::var("ANNULUS_DRIVER") {
        assert_eq!(stats.driver.to_string(), wanted);
    }
    Ok(())
}

#[test]
fn all_tests_pass_on_both_drivers() {
    const INSIDE: &str = "ANNULUS_TEST_INSIDE";
    if env::var_os(INSIDE).is_some() {
        return;
    }
    for (name, choice) in [("uring", DriverChoice::Uring), ("epoll", DriverChoice::Epoll)] {
        if let Err(error) = Runtime::builder().driver(choice).build() {
            assert_eq!(choice, DriverChoice::Uring, "{error}");
            skip!("not on {name}: {error}");
            continue;
        }
        let mut tests = Command::new(env::current_exe().unwrap());
        let ran = tests.env("ANNULUS_DRIVER", name).env(INSIDE, "").output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && text.contains("11 passed"), "on {name}: {text}");
    }
}
