//! The figures of a running load for an OpenTelemetry collector: OTLP over HTTP, by OpenTelemetry's
//! own library.
//!
//! The library reads the usual variables: OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME,
//! OTEL_RESOURCE_ATTRIBUTES, OTEL_METRIC_EXPORT_INTERVAL and others.

use super::metrics::{BUCKET_ENDS, COUNTERS, HISTOGRAMS};
use crate::output::note;
use crate::usage::UsageError;
use annulus_load::recording::Interval;
use anyhow::{Context, Result, anyhow};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, Uri};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, MeterProvider as _};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{MetricExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use rustls::crypto::ring;
use std::env;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// The path of metrics at a collector, unless the URL has one.
const METRICS_PATH: &str = "/v1/metrics";
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between exports, unless [`EXPORT_PERIOD_VARIABLE`] is set. The library's own default of
/// a minute is longer than most loads.
const EXPORT_PERIOD: Duration = Duration::from_secs(1);
const EXPORT_PERIOD_VARIABLE: &str = "OTEL_METRIC_EXPORT_INTERVAL";
/// The name of the service, unless [`SERVICE_NAME_VARIABLE`] is set.
const SERVICE_NAME: &str = "annulus-load";
const SERVICE_NAME_VARIABLE: &str = "OTEL_SERVICE_NAME";
/// The attribute of the counter of HTTP statuses, by OpenTelemetry's conventions.
const STATUS_ATTRIBUTE: &str = "http.response.status_code";

/// The figures so far as instruments of OpenTelemetry's library. A thread of the library exports
/// them regularly.
#[derive(Debug)]
pub(super) struct Otlp {
    provider: SdkMeterProvider,
    /// In the order of [`COUNTERS`].
    counters: Vec<Counter<u64>>,
    statuses: Counter<u64>,
    /// In the order of [`HISTOGRAMS`].
    histograms: Vec<Histogram<f64>>,
    failure: Failure,
    url: Uri,
    /// Whether the collector has accepted the first export.
    is_accepted: bool,
}

impl Otlp {
    /// Creates the instruments and exports them once, so that a bad URL is reported early.
    ///
    /// # Errors
    /// If the URL is invalid, or the collector does not accept the metrics.
    pub(super) fn start(url: &Uri) -> Result<Otlp> {
        let (failure, url) = (Failure::default(), endpoint(url)?);
        let client = Client { agent: agent(&url), failure: failure.clone() };
        let exporter = MetricExporter::builder().with_http().with_http_client(client);
        let exporter = exporter.with_endpoint(url.to_string()).with_timeout(EXPORT_TIMEOUT);
        let mut reader = PeriodicReader::builder(exporter.build()?);
        if env::var_os(EXPORT_PERIOD_VARIABLE).is_none() {
            reader = reader.with_interval(EXPORT_PERIOD);
        }
        let mut resource = Resource::builder();
        if env::var_os(SERVICE_NAME_VARIABLE).is_none() {
            resource = resource.with_service_name(SERVICE_NAME);
        }
        let provider = SdkMeterProvider::builder().with_resource(resource.build());
        let provider = provider.with_reader(reader.build()).build();
        let meter = provider.meter("annulus");
        let counters = COUNTERS.iter().map(|(name, help, _)| counter(&meter, name, help)).collect();
        let statuses = counter(&meter, "status_total", "Replies by HTTP status.");
        let histograms =
            HISTOGRAMS.iter().map(|(name, help, _)| histogram(&meter, name, help)).collect();
        let mut otlp =
            Otlp { provider, counters, statuses, histograms, failure, url, is_accepted: false };
        otlp.add(&Interval::default());
        otlp.flush().with_context(|| format!("cannot send metrics to {}", otlp.url))?;
        otlp.is_accepted = true;
        Ok(otlp)
    }

    /// Adds an interval. Reports the first failed export, but no later ones.
    pub(super) fn add(&mut self, interval: &Interval) {
        for (counter, (_, _, of)) in self.counters.iter().zip(COUNTERS) {
            counter.add(of(interval), &[]);
        }
        for (status, count) in &interval.statuses {
            self.statuses.add(*count, &[KeyValue::new(STATUS_ATTRIBUTE, i64::from(*status))]);
        }
        for (histogram, (_, _, of)) in self.histograms.iter().zip(HISTOGRAMS) {
            for (latency, count) in of(interval).buckets() {
                let seconds = *latency as f64 / 1e9;
                (0..*count).for_each(|_| histogram.record(seconds, &[]));
            }
        }
        if let Some(why) = self.failure.first() {
            note(format_args!("annulus: an export of metrics to {} failed: {why}", self.url));
        }
    }

    /// Exports the figures so far, and waits for the collector's answer.
    fn flush(&self) -> Result<()> {
        self.provider.force_flush().map_err(|error| match self.failure.last() {
            Some(why) => anyhow!(why),
            None => anyhow!(error),
        })
    }
}

/// Exports the last figures, unless the first export has failed.
impl Drop for Otlp {
    fn drop(&mut self) {
        if !self.is_accepted {
            return;
        }
        if let Err(error) = self.flush() {
            note(format_args!("annulus: the last metrics did not reach {}: {error:#}", self.url));
        }
    }
}

/// Returns the URL to send metrics to: the usual path is added if the URL has neither a path nor a
/// query.
fn endpoint(url: &Uri) -> Result<Uri> {
    let is_known = url.scheme_str().is_some_and(|scheme| ["http", "https"].contains(&scheme));
    if !is_known || url.host().is_none() {
        let text =
            format!("'{url}' is not the URL of a collector: write it like http://127.0.0.1:4318");
        return Err(UsageError(text).into());
    }
    let mut parts = url.clone().into_parts();
    if url.path() == "/" && url.query().is_none() {
        parts.path_and_query = Some(METRICS_PATH.parse()?);
    }
    Ok(Uri::from_parts(parts)?)
}

/// Returns the name of an instrument: the Prometheus name with dots and without `_total` or
/// `_seconds`.
fn name(name: &str) -> String {
    let name = name.strip_suffix("_total").unwrap_or(name);
    format!("annulus.load.{}", name.strip_suffix("_seconds").unwrap_or(name))
}

fn counter(meter: &Meter, of: &str, help: &'static str) -> Counter<u64> {
    meter.u64_counter(name(of)).with_description(help).build()
}

fn histogram(meter: &Meter, of: &str, help: &'static str) -> Histogram<f64> {
    let ends = BUCKET_ENDS.iter().map(|end| *end as f64 / 1e9).collect();
    let histogram = meter.f64_histogram(name(of)).with_description(help).with_unit("s");
    histogram.with_boundaries(ends).build()
}

/// Creates the HTTP client. It trusts the system's certificates.
fn agent(url: &Uri) -> ureq::Agent {
    let mut config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_global(Some(EXPORT_TIMEOUT));
    if url.scheme_str() == Some("https") {
        let found = rustls_native_certs::load_native_certs().certs;
        let certs: Vec<_> =
            found.iter().map(|cert| Certificate::from_der(cert).to_owned()).collect();
        let tls = TlsConfig::builder().provider(TlsProvider::Rustls);
        let tls = tls.unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
        config = config.tls_config(tls.root_certs(RootCerts::new_with_certs(&certs)).build());
    }
    config.build().into()
}

/// The HTTP client of the exporter. It blocks the exporter's own thread.
struct Client {
    agent: ureq::Agent,
    failure: Failure,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let send = || -> Result<Response<Bytes>, ureq::Error> {
            let (head, body) = request.into_parts();
            let response = self.agent.run(Request::from_parts(head, &body[..]))?;
            let (head, mut body) = response.into_parts();
            Ok(Response::from_parts(head, body.read_to_vec()?.into()))
        };
        let sent = send();
        match &sent {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => self.failure.set(format!("its answer is {}", response.status())),
            Err(error) => self.failure.set(error.to_string()),
        }
        Ok(sent?)
    }
}

/// Why an export failed, shared with the thread of the exporter.
#[derive(Clone, Debug, Default)]
struct Failure(Arc<Mutex<FailureState>>);

#[derive(Debug, Default)]
struct FailureState {
    last: Option<String>,
    is_reported: bool,
}

impl Failure {
    fn set(&self, why: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).last = Some(why);
    }

    fn last(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).last.clone()
    }

    /// Returns the latest failure the first time that a failure is known, and `None` afterwards.
    fn first(&self) -> Option<String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = state.last.clone().filter(|_| !state.is_reported);
        state.is_reported |= first.is_some();
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_without_a_path_gets_the_usual_one() {
        for (url, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/metrics"),
            ("http://[::1]:4318/", "http://[::1]:4318/v1/metrics"),
            ("https://otlp.example/base/v1/metrics", "https://otlp.example/base/v1/metrics"),
        ] {
            let found = endpoint(&url.parse().expect("a URL")).expect(url);
            assert_eq!(found.to_string(), expected);
        }
        for url in ["127.0.0.1:4318", "grpc://127.0.0.1:4317", "/v1/metrics"] {
            let error = endpoint(&url.parse().expect("a URI")).expect_err(url).to_string();
            assert!(error.contains("write it like http://127.0.0.1:4318"), "{error}");
        }
    }

    #[test]
    fn instruments_are_named_with_dots_and_without_units() {
        let names = ["requests_sent_total", "response_seconds"].map(name);
        assert_eq!(names, ["annulus.load.requests_sent", "annulus.load.response"]);
    }
}
