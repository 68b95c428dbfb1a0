//! HttpArena's profiles of HTTP/1.1 on axum and annulus: one runtime per CPU.
//!
//! `cargo run --release -- 127.0.0.1:8080`, then `curl '127.0.0.1:8080/json/2?m=3'`. The directory
//! in the variable DATA, by default `/data`, has `dataset.json` and the directory `static`. Limits
//! are those of `annulus_compat::tower::serve`.

use annulus::net::ListenOptions;
use annulus::shards::{ShardedListener, Shards, Spread};
use annulus::signal::until_terminated;
use annulus_compat::{Files, tower::serve};
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tower_http::compression::CompressionLayer;
use tower_http::services::ServeDir;

/// Connections that may wait to be accepted, for clients that connect all at once.
const BACKLOG: u32 = 65_535;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("0.0.0.0:8080".into());
    let data = PathBuf::from(std::env::var_os("DATA").unwrap_or("/data".into()));
    let dataset = Arc::new(read(&data.join("dataset.json"))?);
    let shards = annulus::shards::cpus()?.len();
    let options = ListenOptions::new().backlog(BACKLOG);
    let listener = ShardedListener::bind(address, &options, shards, Spread::Hash)?;
    eprintln!("listening on {}", listener.local_addr());
    // Not pinned: where clients share the CPUs, a pinned shard would wait for them.
    Shards::new(shards).run(async |shard| {
        let files = ServeDir::with_backend(data.join("static"), Files);
        let files = files.precompressed_br().precompressed_gzip();
        let router = router(dataset.clone()).nest_service("/static", files);
        until_terminated(serve(listener.open(&shard)?, router).into_future()).await
    })?;
    Ok(())
}

fn router(dataset: Arc<Vec<Item>>) -> Router {
    Router::new()
        .route("/json/{count}", get(json).layer(CompressionLayer::new()))
        .route("/baseline11", get(sum).post(sum_with_body))
        .route("/pipeline", get(async || "ok"))
        .route("/upload", post(upload))
        .with_state(dataset)
}

/// Reads the dataset. Without the file, there are no items.
fn read(path: &std::path::Path) -> io::Result<Vec<Item>> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text)
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Returns the first items, each with its total.
async fn json(
    State(dataset): State<Arc<Vec<Item>>>,
    Path(count): Path<usize>,
    Query(Factor { m }): Query<Factor>,
) -> Response {
    let total = |item: &Item| item.price.wrapping_mul(item.quantity).wrapping_mul(m);
    let items = dataset.iter().take(count);
    let items: Vec<_> = items.map(|item| Priced { item, total: total(item) }).collect();
    let count = items.len();
    Json(Answer { items, count }).into_response()
}

#[derive(Deserialize)]
struct Terms {
    a: i64,
    b: i64,
}

async fn sum(Query(terms): Query<Terms>) -> String {
    terms.a.wrapping_add(terms.b).to_string()
}

async fn sum_with_body(Query(terms): Query<Terms>, body: String) -> Result<String, StatusCode> {
    let number: i64 = body.trim().parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(terms.a.wrapping_add(terms.b).wrapping_add(number).to_string())
}

/// Counts the bytes of the body, which is not kept in memory.
async fn upload(mut body: Body) -> Result<String, StatusCode> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
        length += frame.data_ref().map_or(0, |data| data.len());
    }
    Ok(length.to_string())
}

#[derive(Deserialize, Serialize)]
struct Item {
    id: u64,
    name: String,
    category: String,
    price: i64,
    quantity: i64,
    active: bool,
    tags: Vec<String>,
    rating: Rating,
}

#[derive(Deserialize, Serialize)]
struct Rating {
    score: i64,
    count: i64,
}

/// A query with the factor of totals.
#[derive(Deserialize)]
struct Factor {
    m: i64,
}

#[derive(Serialize)]
struct Priced<'a> {
    #[serde(flatten)]
    item: &'a Item,
    total: i64,
}

#[derive(Serialize)]
struct Answer<'a> {
    items: Vec<Priced<'a>>,
    count: usize,
}
