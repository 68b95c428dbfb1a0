//! The published schema, and a validator for the subset of JSON Schema that it uses.

use annulus_load::recording::{
    ClassInterval, DatagramCounts, Interval, Latencies, PartInfo, Recording, RunInfo, ServerUsage,
};
use serde_json::{Map, Value};

const PUBLISHED_SCHEMA: &str = include_str!("../../../../../docs/load-recording.schema.json");

/// The rules that the validator knows, including those that only describe.
const KNOWN_RULES: [&str; 15] = [
    "type",
    "const",
    "minimum",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "$ref",
    "description",
    "title",
    "$schema",
    "$id",
];

/// Checks a value against a schema. A member that the schema does not contain is an error, because
/// it would be undocumented.
fn check(root: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let wrong = |what: String| Err(format!("{place}: {what}"));
    let rules = schema.as_object().expect("the schema is not an object");
    let unknown = rules.keys().find(|key| !KNOWN_RULES.contains(&key.as_str()) && *key != "$defs");
    assert_eq!(unknown, None, "the validator does not know a rule");
    if let Some(name) = rules.get("$ref") {
        let path = name.as_str().unwrap().trim_start_matches('#');
        check(root, root.pointer(path).expect("a reference has no definition"), value, place)?;
    }
    if rules.get("const").is_some_and(|wanted| wanted != value) {
        return wrong(format!("{value} is not {}", rules["const"]));
    }
    if let Some(types) = rules.get("type")
        && !one_or_many(types).any(|name| has_type(name, value))
    {
        return wrong(format!("{value} is not of type {types}"));
    }
    if let (Some(least), Some(number)) = (rules.get("minimum"), value.as_f64())
        && number < least.as_f64().unwrap()
    {
        return wrong(format!("{number} is less than {least}"));
    }
    match value {
        Value::Object(members) => check_members(root, rules, members, place),
        Value::Array(elements) => check_elements(root, rules, elements, place),
        _ => Ok(()),
    }
}

fn check_members(
    root: &Value,
    rules: &Map<String, Value>,
    members: &Map<String, Value>,
    place: &str,
) -> Result<(), String> {
    for name in rules.get("required").into_iter().flat_map(one_or_many) {
        if !members.contains_key(name) {
            return Err(format!("{place}: {name} is missing"));
        }
    }
    if rules.contains_key("$ref") {
        return Ok(());
    }
    for (name, value) in members {
        let own = rules.get("properties").and_then(|properties| properties.get(name));
        let schema = own.or(rules.get("additionalProperties"));
        let schema = schema.ok_or_else(|| format!("{place}: {name} is not documented"))?;
        check(root, schema, value, &format!("{place}.{name}"))?;
    }
    Ok(())
}

fn check_elements(
    root: &Value,
    rules: &Map<String, Value>,
    elements: &[Value],
    place: &str,
) -> Result<(), String> {
    let limit = |name: &str| rules.get(name).and_then(Value::as_u64).map(|limit| limit as usize);
    let (least, most) = (limit("minItems"), limit("maxItems"));
    if elements.len() < least.unwrap_or(0) || elements.len() > most.unwrap_or(usize::MAX) {
        return Err(format!("{place}: {} elements", elements.len()));
    }
    for (number, element) in elements.iter().enumerate() {
        let prefix = rules.get("prefixItems").and_then(|schemas| schemas.get(number));
        if let Some(schema) = prefix.or(rules.get("items")) {
            check(root, schema, element, &format!("{place}[{number}]"))?;
        }
    }
    Ok(())
}

fn one_or_many(value: &Value) -> impl Iterator<Item = &str> {
    let one = value.as_str().into_iter();
    one.chain(value.as_array().into_iter().flatten().filter_map(Value::as_str))
}

fn has_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        _ => panic!("the validator does not know the type {name}"),
    }
}

fn validate(value: &Value) -> Result<(), String> {
    let schema: Value = serde_json::from_str(PUBLISHED_SCHEMA).unwrap();
    check(&schema, &schema, value, "")
}

fn as_json(recording: &Recording) -> Value {
    let mut text = Vec::new();
    recording.write(&mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Returns a recording with every optional part.
fn full(host: &str) -> Recording {
    let latencies = Latencies::from_iter((1..=100).map(|n| (n * 1000, 20_000)));
    let class = ClassInterval {
        sent: 1,
        answered: 1,
        outcomes: [("2xx".to_owned(), 1)].into(),
        response: latencies.clone(),
        ..ClassInterval::default()
    };
    let interval = Interval {
        sent: latencies.len(),
        answered: latencies.len(),
        outcomes: [("2xx".to_owned(), 5)].into(),
        statuses: [(200, 5)].into(),
        together: Latencies::from_iter([1, 2, 5]),
        response: latencies.clone(),
        service: latencies,
        classes: vec![class.clone(), class],
        datagrams: Some(DatagramCounts { lost: 1, ..DatagramCounts::default() }),
        ..Interval::new(0.0, 1.0)
    };
    let mut run = RunInfo {
        command: vec!["annulus".into(), "load".into()],
        label: Some("a label".into()),
        length: Some(512),
        rate: Some(0.5),
        requests: Some(5),
        request: Some("GET /".into()),
        interval: 1.0,
        parts: vec![
            PartInfo { part: 1, host: "one".into(), responses: 5, ..PartInfo::default() },
            PartInfo { part: 2, missing: Some("lost".into()), ..PartInfo::default() },
        ],
        ..RunInfo::default()
    };
    run.machine.host = host.into();
    Recording {
        seconds: 1.0,
        errors: [("reset".to_owned(), 1)].into(),
        first_error: Some("reset".into()),
        first_refusal: Some("HTTP/1.1 500".into()),
        warnings: vec!["a warning".into()],
        classes: vec!["read".into(), "write".into()],
        server: Some(ServerUsage {
            cpu_us_per_request: Some(2.5),
            read_calls: Some(3),
            unavailable: vec!["write calls".into()],
            ..ServerUsage::default()
        }),
        intervals: vec![interval],
        ..Recording::new(run)
    }
}

#[test]
fn recordings_match_the_published_schema() {
    assert_eq!(validate(&as_json(&Recording::new(RunInfo::default()))), Ok(()));
    assert_eq!(validate(&as_json(&full("one"))), Ok(()));
}

#[test]
fn schema_rejects_invalid_recordings() {
    let changed = |pointer: &str, to: Value| {
        let mut value = as_json(&full("one"));
        *value.pointer_mut(pointer).unwrap() = to;
        validate(&value).unwrap_err()
    };
    assert_eq!(changed("/version", 2.into()), ".version: 2 is not 1");
    assert_eq!(changed("/run/connections", (-1).into()), ".run.connections: -1 is less than 0");
    assert_eq!(
        changed("/intervals/0/datagrams/lost", (-1).into()),
        ".intervals[0].datagrams.lost: -1 is less than 0"
    );
    assert_eq!(changed("/seconds", "1".into()), ".seconds: \"1\" is not of type \"number\"");
    assert_eq!(
        changed("/latency_us/p99", true.into()),
        ".latency_us.p99: true is not of type [\"number\",\"null\"]"
    );
    let pair = serde_json::json!([[5]]);
    assert_eq!(changed("/intervals/0/response", pair), ".intervals[0].response[0]: 1 elements");
    let mut value = as_json(&full("one"));
    value["run"].as_object_mut().unwrap().insert("new".into(), 1.into());
    assert_eq!(validate(&value).unwrap_err(), ".run: new is not documented");
    value["run"].as_object_mut().unwrap().clear();
    assert_eq!(validate(&value).unwrap_err(), ".run: command is missing");
}
