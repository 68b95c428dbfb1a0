//! Tests of reading suites, and of the suites in the catalogue.

use super::Description;
use crate::tables::{Figure, Suite};

fn parse(text: &str) -> anyhow::Result<Suite> {
    match Description::parse("small", text)? {
        Description::Suite(suite) => Ok(suite),
        Description::Comparison(_) => anyhow::bail!("no tables"),
    }
}

fn suites() -> impl Iterator<Item = (&'static str, Suite)> {
    Description::names().filter_map(|name| match Description::find(name)? {
        Description::Suite(suite) => Some((name, suite)),
        Description::Comparison(_) => None,
    })
}

const SMALL: &str = r#"
    title = "t"
    document = "d"
    kind = "echo"
    machine = []
    commands = []
    [[table]]
    title = "a table"
    unit = "requests/s"
    corner = "connections"
    each = { servers = ["uring"], figure = "rate", bytes = 128 }
    columns = [{ name = "1", connections = 1 }, { name = "50", connections = 50, figure = "percent" }]
    rows = [{ name = "128", published = [5] }, { name = "big", bytes = 1000, servers = ["go"] }]
"#;

/// Returns a suite of four cells.
pub(crate) fn small() -> Suite {
    parse(SMALL).expect("the suite is invalid")
}

#[test]
fn a_question_combines_table_row_and_column() {
    let suite = small();
    let table = &suite.tables[0];
    let first = table.ask(0, 0);
    assert_eq!((first.servers, first.figure), (vec!["uring".to_owned()], Figure::Rate));
    let last = table.ask(1, 1);
    assert_eq!((last.servers, last.figure), (vec!["go".to_owned()], Figure::Percent));
    assert_eq!((last.of.connections, last.of.bytes), (Some(50), Some(1000)));
    assert_eq!((table.published(0, 0), table.published(0, 1)), (Some(5.0), None));
    assert_eq!(suite.questions().count(), 4);
}

#[test]
fn incomplete_and_unknown_entries_are_refused_by_name() {
    for (from, to, part) in [
        ("bytes = 128", "cycles = 1", "'a table': 128 × 1 needs connections and bytes"),
        ("figure = \"rate\", ", "", "128 × 1 needs a figure"),
        ("servers = [\"uring\"], ", "", "needs servers"),
        ("published = [5]", "published = [1, 2, 3]", "row 128 has more figures than columns"),
        ("corner =", "edge =", "unknown field `edge`"),
        ("kind = \"echo\"", "kind = \"dance\"", "unknown variant `dance`"),
        ("connections = 1 }", "connection = 1 }", "unknown field `connection`"),
        ("\"big\", bytes = 1000", "\"b\\nig\", published = [1, 2, 3]", "row b ig has more"),
    ] {
        let error = parse(&SMALL.replace(from, to)).expect_err(from).to_string();
        assert!(error.contains(part) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn suite_without_a_cell_is_refused() {
    let head = SMALL.split("[[table]]").next().unwrap_or_default();
    for (text, part) in [
        (head.to_owned(), "there is no table: add [[table]]"),
        (SMALL.replace("rows = [", "rows = []#"), "'a table' has no rows: add rows = ["),
        (SMALL.replace("columns = [", "columns = []#"), "'a table' has no columns"),
    ] {
        let error = parse(&text).expect_err(part);
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn every_catalogue_suite_is_complete() {
    let published = |suite: &Suite| {
        let rows = suite.tables.iter().flat_map(|table| &table.rows);
        rows.map(|row| row.published.len()).sum::<usize>()
    };
    let counts: Vec<_> = suites().map(|(name, suite)| (name, published(&suite))).collect();
    assert_eq!(
        counts,
        [
            ("bench-echo", 24 + 6 + 6 + 11),
            ("fibers", 48),
            ("file", 2 * 2 * 2),
            ("go-uring", 24),
            ("nop", 21),
            ("op-modes", 3 * 8 * 5),
            ("tcp", 24),
            ("udp", 24 + 24 + 8 + 2),
        ]
    );
}

/// The document computes its "mid" and its rate from other figures, and both must agree with them
/// here. The "mid" is not the median in three rows, and one rate is off by 1.0, so the checks are
/// loose.
#[test]
fn op_modes_mid_is_one_of_three_and_rate_follows() {
    let (_, suite) =
        suites().find(|(name, _)| *name == "op-modes").expect("the catalogue lacks the name");
    for table in suite.tables {
        let first = table.rows[0].published[3];
        for row in table.rows.iter().filter(|row| !row.published.is_empty()) {
            let [a, b, c, middle, rate] = row.published[..] else { panic!("{}", row.name) };
            assert!([a, b, c].contains(&middle), "{}", row.name);
            assert!((rate - 100.0 * middle / first).abs() < 1.1, "{}: {rate}", row.name);
        }
    }
}
