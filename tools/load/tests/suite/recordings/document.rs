use annulus_load::recording::{
    ClassInterval, Interval, Latencies, MAX_RECORDING_BYTES, ReadError, Recording, RunInfo,
};
use std::collections::BTreeMap;
use std::fs::File;

fn recording() -> Recording {
    let class = |sent| ClassInterval { sent, ..ClassInterval::default() };
    let interval = |start, length| Interval {
        sent: 3,
        answered: 2,
        outcomes: BTreeMap::from([("2xx".into(), 2)]),
        response: Latencies::from_iter([5, 1_000_000]),
        classes: vec![class(1), class(2)],
        ..Interval::new(start, length)
    };
    let run = RunInfo { command: vec!["annulus".into(), "load".into()], ..RunInfo::default() };
    Recording {
        seconds: 1.5,
        errors: BTreeMap::from([("reset".into(), 1)]),
        first_error: Some("client 3: reset".into()),
        first_refusal: Some("-ERR".into()),
        cpu_seconds: 0.75,
        warnings: vec!["a \"warning\"\n".into()],
        classes: vec!["read".into(), "write".into()],
        intervals: vec![interval(0.0, 1.0), interval(1.0, 0.5)],
        ..Recording::new(run)
    }
}

fn text() -> String {
    let mut text = Vec::new();
    recording().write(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn recording_round_trips_through_json() {
    let text = text();
    assert_eq!(Recording::read(text.as_bytes()).unwrap(), recording());
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["responses"], &value["client_cpu_share"]), (&4.into(), &0.5.into()));
}

#[test]
fn recording_cut_at_any_byte_is_rejected_as_cut() {
    let text = text();
    for end in 1..text.trim_end().len() {
        let error = Recording::read(&text.as_bytes()[..end]).unwrap_err();
        assert!(matches!(error, ReadError::Cut), "{end}: {error}");
    }
}

#[track_caller]
fn refused(text: &str, part: &str) {
    let error = Recording::read(text.as_bytes()).unwrap_err().to_string();
    assert!(error.contains(part), "{part} is not in: {error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn other_formats_and_versions_are_rejected() {
    let text = text();
    refused("", "it is empty");
    refused("start,length\n1,2\n", "not a recording of annulus load");
    refused("[1, 2]", "not a recording of annulus load");
    refused("{}", "no \"format\"");
    refused("{\"format\": \"annulus-bench\", \"version\": 1}", "no \"format\": \"annulus-load\"");
    refused(
        &text.replace("\"version\":1", "\"version\":2"),
        "version 2 of the format annulus-load",
    );
    refused(&text.replace("\"version\":1,", ""), "no version");
    refused(&(text.clone() + "x"), "trailing characters");
}

#[test]
fn invalid_value_error_names_its_place() {
    let text = text();
    refused(&text.replace("\"seconds\":1.5", "\"seconds\":-1"), "its measured time is -1 s");
    refused(&text.replace("\"seconds\":1.5", "\"seconds\":1e999"), "out of range");
    refused(&text.replace("\"start\":1.0", "\"start\":0.0"), "interval 1 of 0.5 s starts at 0 s");
    refused(&text.replace("\"length\":0.5", "\"length\":0"), "interval 1 of 0 s");
    refused(&text.replace("[5,1]", "[5,-1]"), "-1");
    refused(&text.replace("\"sent\":3", "\"send\":3"), "missing field `sent`");
    refused(&text.replace("[\"read\",", "["), "interval 0 has 2 classes instead of 1");
}

/// The file is sparse, so it takes no space on disk.
#[test]
fn oversized_file_is_rejected_without_being_read() {
    let path = std::env::temp_dir().join(format!("annulus-large-{}.json", std::process::id()));
    File::create(&path).unwrap().set_len(MAX_RECORDING_BYTES + 1).unwrap();
    let error = Recording::open(&path).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(error, ReadError::TooLarge), "{error}");
    assert!(error.to_string().contains("more than 1024 MiB"), "{error}");
}
