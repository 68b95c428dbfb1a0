//! Answers, and the dataset behind some of them.

use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

const TEXT: &[u8] = b"HTTP/1.1 200 OK\r\nServer: annulus\r\nContent-Type: text/plain\r\n";
const JSON: &[u8] = b"HTTP/1.1 200 OK\r\nServer: annulus\r\nContent-Type: application/json\r\n";

pub(crate) fn number(answers: &mut Vec<u8>, number: i64, keep_alive: bool) {
    text(answers, itoa::Buffer::new().format(number).as_bytes(), keep_alive);
}

pub(crate) fn text(answers: &mut Vec<u8>, body: &[u8], keep_alive: bool) {
    answer(answers, TEXT, body, keep_alive);
}

pub(crate) fn json(answers: &mut Vec<u8>, body: &[u8], keep_alive: bool) {
    answer(answers, JSON, body, keep_alive);
}

/// Appends an answer without a body.
pub(crate) fn refuse(answers: &mut Vec<u8>, refusal: Refusal, keep_alive: bool) {
    let head = format!("HTTP/1.1 {}\r\nServer: annulus\r\n", refusal.0);
    answer(answers, head.as_bytes(), b"", keep_alive);
}

fn answer(answers: &mut Vec<u8>, head: &[u8], body: &[u8], keep_alive: bool) {
    answers.extend_from_slice(head);
    if !keep_alive {
        answers.extend_from_slice(b"Connection: close\r\n");
    }
    answers.extend_from_slice(b"Content-Length: ");
    answers.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
    answers.extend_from_slice(b"\r\n\r\n");
    answers.extend_from_slice(body);
}

/// The items of `dataset.json`.
#[derive(Default)]
pub(crate) struct Dataset(Vec<Item>);

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

#[derive(Serialize)]
struct Answer<'a> {
    items: Vec<Priced<'a>>,
    count: usize,
}

#[derive(Serialize)]
struct Priced<'a> {
    #[serde(flatten)]
    item: &'a Item,
    total: i64,
}

impl Dataset {
    /// Reads the dataset in the directory DATA. Without the file, there are no items.
    pub(crate) fn read() -> io::Result<Self> {
        let directory = std::env::var_os("DATA").unwrap_or("/data".into());
        let path = PathBuf::from(directory).join("dataset.json");
        let invalid = |error| io::Error::other(format!("{}: {error}", path.display()));
        match std::fs::read(&path) {
            Ok(text) => Ok(Self(serde_json::from_slice(&text).map_err(invalid)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self(Vec::new())),
            Err(error) => Err(error),
        }
    }

    /// Appends the first items as JSON, each with its total.
    pub(crate) fn write(&self, count: usize, factor: i64, json: &mut Vec<u8>) {
        let total = |item: &Item| item.price.wrapping_mul(item.quantity).wrapping_mul(factor);
        let items = self.0.iter().take(count);
        let items: Vec<_> = items.map(|item| Priced { item, total: total(item) }).collect();
        let count = items.len();
        serde_json::to_writer(json, &Answer { items, count }).expect("items are valid JSON");
    }
}
