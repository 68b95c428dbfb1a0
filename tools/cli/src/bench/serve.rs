//! `annulus bench serve`: shows results in a browser, even while they are being measured.

use crate::http::{self, Answer, Refusal, Request};
use crate::output::note;
use annulus::signal::{self, Signal};
use annulus_lab::page::ResultsDirectory;
use anyhow::{Context, Result};
use clap::Args;
use futures_util::future::{Either, select};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

const AFTER_HELP: &str = "\
Listens on the loopback interface only. A page is generated from the results
for each request. The page of an unfinished run reloads itself every ten
seconds, which takes CPU time from that run. Ctrl-C ends the server.

Examples:
  annulus bench serve lab-results/2026-11-23-quick
  annulus bench serve results --port 0        on a free port, which is printed";

/// How long a connection may take, from accept to close: generating the page of large results takes
/// time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Headers that make a browser reload the page.
const RELOAD_HEADERS: &str = "Refresh: 10\r\nCache-Control: no-store\r\n";

/// Show results in a browser, even while they are being measured
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ServeArgs {
    /// A directory of results, as annulus bench writes them
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The port on 127.0.0.1; 0 for any free port
    #[arg(short, long, default_value_t = 7080)]
    port: u16,
}

pub(super) fn run(args: ServeArgs) -> Result<ExitCode> {
    let directory = ResultsDirectory::open(&args.directory)
        .with_context(|| format!("cannot read {}", args.directory.display()))?;
    let served = annulus::run(serve(Arc::new(directory), args));
    served.map(|()| ExitCode::SUCCESS)
}

async fn serve(directory: Arc<ResultsDirectory>, args: ServeArgs) -> Result<()> {
    let mut signals =
        signal::signals(&[Signal::SIGINT, Signal::SIGTERM]).context("cannot watch for ctrl-C")?;
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), args.port);
    let listener = http::bind(&[address]).with_context(|| {
        format!("cannot listen on {address}: choose another port with --port, or 0 for a free one")
    })?;
    let address = listener.local_addr().context("cannot read the address")?;
    note(format_args!("annulus: http://{address}/ until ctrl-C"));
    let answer = move |request| answer(Arc::clone(&directory), request);
    let served = pin!(http::serve(listener, ANSWER_TIMEOUT, answer));
    match select(pin!(signals.recv()), served).await {
        Either::Left((stopped, _)) => stopped.map(drop).context("cannot watch for ctrl-C"),
        Either::Right((failed, _)) => failed.context("cannot accept connections"),
    }
}

async fn answer(directory: Arc<ResultsDirectory>, request: Request) -> Result<Answer, Refusal> {
    if !request.host.as_deref().is_none_or(is_loopback) {
        return Err(Refusal::forbidden("use localhost or 127.0.0.1 as the host"));
    }
    let shown = annulus::task::spawn_blocking(move || directory.show(&request.path)).await;
    match shown {
        Ok(Ok(Some(shown))) => {
            let headers =
                if shown.is_unfinished { RELOAD_HEADERS } else { "Cache-Control: no-store\r\n" };
            Ok(Answer::new(shown.media_type, shown.text).with_headers(headers))
        }
        Ok(Ok(None)) => Err(Refusal::unknown("no such run: / lists the runs")),
        Ok(Err(error)) => Err(Refusal::failed(&error)),
        Err(panic) => Err(Refusal::failed(&anyhow::Error::msg(panic.to_string()))),
    }
}

/// Returns true if the Host header refers to the loopback interface. Any other name may belong to a
/// website that resolves its name to this machine in order to read the results.
fn is_loopback(host: &str) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = without_port.trim_start_matches('[').trim_end_matches(']');
    without_port.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_hosts_are_served() {
        for host in
            ["localhost", "LocalHost:7080", "127.0.0.1:7080", "127.8.9.1", "[::1]:80", "[::1]"]
        {
            assert!(is_loopback(host), "{host}");
        }
        for host in
            ["", "example.org", "localhost.example.org:80", "10.0.0.1:80", "[::2]:1", "0.0.0.0"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
