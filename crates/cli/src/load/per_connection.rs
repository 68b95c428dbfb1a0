//! `annulus load --per-connection`: a connection a message.

use super::{LoadArgs, Outcome, Watch, classify};
use crate::output::{self, Target};
use crate::table::{client, failings, thousands};
use crate::text::Listing;
use crate::usage::UsageError;
use annulus_load::Mode;
use annulus_load::per_connection::{self, PerConnectionPlan, PerConnectionReport, TimeSummary};
use anyhow::Result;
use std::process::ExitCode;

pub(super) fn run(args: LoadArgs) -> Result<ExitCode> {
    let json = args.json.clone().map(Target::open).transpose()?;
    let plan = plan(args)?;
    let mut watch = Watch::new()?;
    let report = per_connection::run(&plan, &mut watch).map_err(classify)?;
    let page = (report.completed > 0).then(|| page(&report));
    output::deliver(json, &report, page)?;
    Outcome {
        address: &report.address,
        interrupted: report.interrupted,
        answered: report.completed,
        errors: &report.errors,
        first_error: report.first_error.as_deref(),
    }
    .judge(&watch)
}

fn plan(args: LoadArgs) -> Result<PerConnectionPlan> {
    let Mode::Tasks(driver) = args.driver else {
        let text = "--per-connection with --driver threads: it runs on event loops, as many as --threads says";
        return Err(UsageError(text.into()).into());
    };
    Ok(PerConnectionPlan {
        address: args.address.streams()?,
        connections: args.connections.unwrap_or(args.number) as usize,
        clients: args.number as usize,
        length: args.length as usize,
        threads: args.threads.unwrap_or(1) as usize,
        pin: args.pin,
        reply_timeout: args.reply_timeout,
        connect_timeout: args.connect_timeout,
        seed: args.seed,
        driver,
    })
}

fn page(report: &PerConnectionReport) -> String {
    let mut page = Listing::new();
    let PerConnectionReport { address, clients, threads, length, completed, seconds, .. } = report;
    let length = thousands(*length as u64);
    page.row(
        "server",
        &format!("{address}, {clients} clients on {threads} threads, {length} bytes a connection"),
    );
    let rate = thousands(report.connections_per_second.round() as u64);
    page.row(
        "connections",
        &format!("{} in {seconds:.3} s, {rate} a second", thousands(*completed)),
    );
    let names = ["average", "min", "p50", "p90", "p99", "max"];
    page.row("µs", &names.map(|name| format!("{name:<11}")).concat());
    page.row("echo", &figures(&report.echo_us));
    page.row("with connect", &figures(&report.total_us));
    client(&mut page, report.client_cpu_share, &report.driver);
    failings(&mut page, &report.errors, &report.doubts);
    page.line("");
    totals(report).iter().for_each(|line| page.line(line));
    page.finish()
}

fn figures(times: &TimeSummary) -> String {
    let TimeSummary { average, min, p50, p90, p99, max, .. } = *times;
    [average, min, p50, p90, p99, max].map(|figure| format!("{figure:<11.1}")).concat()
}

/// The totals as BenchEcho prints them: of every connection's echo together, and of the whole run.
fn totals(report: &PerConnectionReport) -> [String; 7] {
    let TimeSummary { sum, average, p99, .. } = report.echo_us;
    let elapsed = report.seconds * 1e6;
    [
        "all echo sync:".into(),
        format!("sum:{sum:.0}us"),
        format!("average:{average:.0}us"),
        format!("p99:{p99:.0}us"),
        "all echo async:".into(),
        format!("sum:: {elapsed:.0} us ({:.6} ms)", elapsed / 1e3),
        format!("average:{:.0}us", report.elapsed_us_per_connection),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The example of BenchEcho's own description.
    #[test]
    fn totals_read_as_the_document_prints_them() {
        let echo = TimeSummary {
            sum: 1_655_333.0,
            average: 16_553.33,
            p99: 23_459.0,
            ..TimeSummary::default()
        };
        let report = PerConnectionReport {
            address: "127.0.0.1:7000".into(),
            connections: 100,
            clients: 100,
            threads: 4,
            length: 16_384,
            completed: 100,
            seconds: 0.037_482,
            interrupted: false,
            connections_per_second: 100.0 / 0.037_482,
            elapsed_us_per_connection: 374.82,
            echo_us: echo,
            total_us: echo,
            errors: BTreeMap::new(),
            first_error: None,
            client_cpu_share: 0.5,
            driver: "uring".into(),
            doubts: Vec::new(),
        };
        let text = page(&report);
        let document = "\nall echo sync:\nsum:1655333us\naverage:16553us\np99:23459us\n\
                        all echo async:\nsum:: 37482 us (37.482000 ms)\naverage:375us\n";
        assert!(text.ends_with(document), "{text}");
        assert!(
            text.contains("16,384 bytes a connection") && text.contains("2,668 a second"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
