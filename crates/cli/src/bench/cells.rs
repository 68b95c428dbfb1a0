//! What is asked of the servers: pairs of clients and bytes, and how well it is to be known.

use super::setup::distinct;
use super::size;
use annulus_lab::schedule::Cell;
use annulus_load::{MAX_CLIENTS, MAX_LENGTH};
use anyhow::Result;

/// Clients where nothing is said.
const CLIENTS: [u64; 3] = [1, 50, 200];
/// Bytes where nothing is said.
const BYTES: [u64; 1] = [128];

/// Every number of clients with every size, where either was given or no pairs were, and then the pairs; each once.
pub(super) fn of(clients: &[u64], bytes: &[u64], pairs: &[Cell]) -> Result<Vec<Cell>> {
    let alone = clients.is_empty() && bytes.is_empty() && !pairs.is_empty();
    let product = if alone { Vec::new() } else { product(clients, bytes) };
    let cells: Vec<Cell> = product.into_iter().chain(pairs.iter().copied()).collect();
    distinct(&cells, Cell::to_string)?;
    Ok(cells)
}

fn product(clients: &[u64], bytes: &[u64]) -> Vec<Cell> {
    let clients = if clients.is_empty() { &CLIENTS } else { clients };
    let bytes = if bytes.is_empty() { &BYTES } else { bytes };
    let pairs = clients.iter().flat_map(|clients| bytes.iter().map(move |bytes| (clients, bytes)));
    pairs.map(|(&c, &b)| Cell { clients: c as usize, bytes: b as usize }).collect()
}

/// Reads `50x128`, `100x16K` or `10x1M`.
pub(super) fn parse(text: &str) -> Result<Cell, String> {
    let (clients, bytes) =
        text.split_once(['x', '×']).ok_or("write COUNTxBYTES, such as 50x128 or 100x16K")?;
    let count = clients.parse().map_err(|_| format!("'{clients}' is not a number of clients"))?;
    Ok(Cell {
        clients: up_to(count, MAX_CLIENTS, "clients")?,
        bytes: up_to(size::parse(bytes)? as usize, MAX_LENGTH, "bytes")?,
    })
}

/// A number from 1 to `most`.
fn up_to(value: usize, most: usize, of_what: &str) -> Result<usize, String> {
    match value {
        value if (1..=most).contains(&value) => Ok(value),
        _ => Err(format!("{value} {of_what}: ask for 1 to {most}")),
    }
}

/// Reads half an interval's width: above 0, at most 1.
pub(super) fn precision(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(half) if half > 0.0 && half <= 1.0 => Ok(half),
        _ => Err("write a number above 0 and at most 1, such as 0.03".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(clients: &[u64], bytes: &[u64], pairs: &[&str]) -> Vec<(usize, usize)> {
        let pairs: Vec<Cell> = pairs.iter().map(|pair| parse(pair).unwrap()).collect();
        let cells = of(clients, bytes, &pairs).unwrap();
        cells.iter().map(|cell| (cell.clients, cell.bytes)).collect()
    }

    #[test]
    fn cells_are_every_pair_and_those_named() {
        assert_eq!(pairs(&[1, 50], &[1, 128], &[]), [(1, 1), (1, 128), (50, 1), (50, 128)]);
        assert_eq!(pairs(&[], &[], &[]), [(1, 128), (50, 128), (200, 128)]);
        assert_eq!(pairs(&[], &[], &["100x16K", "10x1M"]), [(100, 16_384), (10, 1 << 20)]);
        assert_eq!(pairs(&[4], &[], &["1×2"]), [(4, 128), (1, 2)]);
    }

    #[test]
    fn a_cell_named_twice_is_refused() {
        let error = of(&[50], &[], &[parse("50x128").unwrap()]).unwrap_err().to_string();
        assert!(error.starts_with("50 clients × 128 bytes is asked for twice"), "{error}");
    }

    #[test]
    fn what_is_no_cell_is_refused_with_the_way_out() {
        for (text, part) in [
            ("50", "such as 50x128"),
            ("0x1", "0 clients: ask for 1 to 1000000"),
            ("x1", "'' is not a number of clients"),
            ("1x", "'' is not a number of bytes"),
            ("1xé", "'é' is not a number of bytes"),
            ("1x65M", "68157440 bytes: ask for 1 to 67108864"),
            ("1x18446744073709551615M", "is not a number of bytes"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_precision_is_a_small_part() {
        assert_eq!(precision("0.03"), Ok(0.03));
        for text in ["0", "-1", "2", "NaN", "x"] {
            assert!(precision(text).is_err(), "{text}");
        }
    }
}
