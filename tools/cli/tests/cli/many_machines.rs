//! The scripts and manifests of `docs/many-machines.md`: run under MPI, and checked by what reads them.

use crate::common::{ANNULUS, Finished, Server, finish, has_python};
use crate::load_merge::Scratch;
use annulus_load::recording::{Latencies, Recording};
use serde_json::Value;
use std::io::{self, Write};
use std::process::Command;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/many-machines");

/// Whether a program is installed; if not, `test` is skipped with a line that says how to get it.
fn has(program: &str, test: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        _ = writeln!(io::stderr(), "skipped: {test}: no {program}: apt-get install {package}");
    }
    found
}

/// Four ranks that begin to measure together after `lead` seconds.
fn under_mpi(server: &Server, scratch: &Scratch, lead: u32) -> Finished {
    let address = server.address.to_string();
    let mut command = Command::new("bash");
    command.args([
        &format!("{DIRECTORY}/mpi.sh"),
        "4",
        "-a",
        &address,
        "-c",
        "2",
        "-l",
        "64",
        "-t",
        "1",
    ]);
    command.args(["--warm-up", "0.2", "--rate", "400"]).current_dir(&scratch.0);
    command.env("LEAD", lead.to_string()).env("ANNULUS", ANNULUS);
    // Of Open MPI: more ranks than cores, as root in a container, and no cores of their own.
    command.env("MPIRUN_OPTIONS", "--oversubscribe --allow-run-as-root --bind-to none");
    finish(&mut command)
}

#[test]
fn four_ranks_of_mpi_are_merged_into_one_recording() {
    if !has("mpirun", "four ranks of MPI", "openmpi-bin") {
        return;
    }
    let (server, scratch) = (Server::start(&[]), Scratch::new("mpi"));
    // A machine that is busy may take longer to launch; the runs then say that it was too late.
    let mut leads = [4, 8, 16, 32].into_iter();
    let finished = loop {
        let lead = leads.next().expect("launched in time at last");
        let finished = under_mpi(&server, &scratch, lead);
        let is_late = ["ago by this machine's clock", "too late", "the warm-up alone"];
        if !is_late.iter().any(|text| finished.stderr.contains(text)) {
            break finished;
        }
    };
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let ranks = [0, 1, 2, 3]
        .map(|rank| Recording::open(scratch.path(&format!("rank-{rank}.json"))).unwrap());
    let all = Recording::open(scratch.path("all.json")).unwrap();
    let mut sum = Latencies::default();
    for (number, rank) in ranks.iter().enumerate() {
        let total = rank.total();
        assert!(total.answered > 0 && total.response.len() == total.answered, "rank {number}");
        assert_eq!(rank.run.label.as_deref(), Some(format!("rank {number}").as_str()));
        sum.add(&total.response);
    }
    assert_eq!(all.total().response, sum, "the sum of all ranks, bucket by bucket");
    assert_eq!((all.run.clients, all.run.rate, all.parts.len()), (8, Some(1600.0), 4));
    // One clock: all began at the same second of it.
    let starts = ranks.map(|rank| rank.run.started);
    let earliest = starts.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(starts.iter().all(|start| start - earliest < 1.0), "{starts:?}");
    assert!(finished.stdout.contains("one machine's"), "{}", finished.stdout);
}

#[test]
fn the_scripts_are_valid() {
    for script in ["mpi.sh", "slurm.sh"] {
        let finished = finish(Command::new("bash").args(["-n", &format!("{DIRECTORY}/{script}")]));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{script}");
        let finished = finish(Command::new("bash").arg(format!("{DIRECTORY}/{script}")));
        assert!(finished.code != Some(0) && finished.stderr.contains("usage: "), "{finished:?}");
    }
}

/// Checks a file of YAML against a schema: the part of JSON Schema that the two schemas here use. Prints it as JSON.
const VALIDATE: &str = r##"
import json, re, sys
try:
    import yaml
except ImportError:
    sys.exit(77)

def problem(rules, value, place):
    unknown = set(rules) - {"title", "$defs", "$ref", "const", "enum", "type", "pattern", "minimum", "minItems", "items",
                            "required", "properties", "additionalProperties", "oneOf"}
    assert not unknown, unknown
    if "$ref" in rules and (found := problem(schema["$defs"][rules["$ref"].rsplit("/")[-1]], value, place)):
        return found
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
    kind = types.get(rules.get("type"), object)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return f"{place}: {value!r} is no {rules['type']}"
    if "const" in rules and value != rules["const"] or value not in rules.get("enum", [value]):
        return f"{place}: {value!r} is not {rules.get('const', rules.get('enum'))}"
    if "pattern" in rules and not re.fullmatch(rules["pattern"], value, re.S):
        return f"{place}: {value!r} does not match {rules['pattern']}"
    if value < rules["minimum"] if "minimum" in rules else False:
        return f"{place}: {value} is less than {rules['minimum']}"
    if "oneOf" in rules and sum(problem(one, value, place) is None for one in rules["oneOf"]) != 1:
        return f"{place}: not exactly one of {rules['oneOf']}"
    if isinstance(value, list):
        if len(value) < rules.get("minItems", 0):
            return f"{place}: {len(value)} elements"
        found = (problem(rules.get("items", {}), one, f"{place}[{n}]") for n, one in enumerate(value))
        return next(filter(None, found), None)
    if isinstance(value, dict):
        missing = [name for name in rules.get("required", []) if name not in value]
        if missing:
            return f"{place}: no {missing[0]}"
        named, rest = rules.get("properties", {}), rules.get("additionalProperties", {})
        for name, one in value.items():
            if name not in named and rest is False:
                return f"{place}: {name} is not known"
            if found := problem(named.get(name, rest), one, f"{place}.{name}"):
                return found

schema, value = json.load(open(sys.argv[1])), yaml.safe_load(open(sys.argv[2]))
if found := problem(schema, value, ""):
    sys.exit(found)
print(json.dumps(value))
"##;

/// Checks a text of YAML; what it says as JSON, or what is wrong. `None` without Python and its YAML.
fn validated(schema: &str, text: &str) -> Option<Result<Value, String>> {
    let test = "the manifest and the playbook";
    if !has_python(test) {
        return None;
    }
    let name = std::thread::current().name().unwrap_or("yaml").replace(':', "-");
    let scratch = Scratch::new(&name);
    let path = scratch.path("checked.yaml");
    std::fs::write(&path, text).unwrap();
    let schema = format!("{}/tests/cli/{schema}.schema.json", env!("CARGO_MANIFEST_DIR"));
    let finished = finish(Command::new("python3").args(["-c", VALIDATE, &schema, &path]));
    match finished.code {
        Some(0) => Some(Ok(finished.json())),
        Some(77) => {
            let line = format!("skipped: {test}: no PyYAML: apt-get install python3-yaml");
            _ = writeln!(io::stderr(), "{line}");
            None
        }
        _ => Some(Err(finished.stderr)),
    }
}

/// Checks that each change to a text is found: what is replaced by what, and a part of what is then wrong.
fn refused(schema: &str, text: &str, changes: &[(&str, &str, &str)]) {
    for (from, to, part) in changes {
        assert!(text.contains(from), "'{from}' is not in the text");
        let found = validated(schema, &text.replacen(from, to, 1));
        let error = found.expect("the same check again").expect_err(from);
        assert!(error.contains(part), "'{part}' is not in: {error}");
    }
}

#[test]
fn the_playbook_is_valid() {
    let text = std::fs::read_to_string(format!("{DIRECTORY}/ansible.yml")).unwrap();
    if let Some(playbook) = validated("ansible_playbook", &text) {
        assert_eq!(playbook.unwrap().as_array().unwrap().len(), 2);
        refused(
            "ansible_playbook",
            &text,
            &[
                ("hosts: load", "host: load", "no hosts"),
                ("builtin.fetch", "builtin.fetched", "not exactly one of"),
                ("        dest:", "        to:", "no dest"),
                ("run_once: true", "run_once: 5", "5 is no boolean"),
                ("register: run", "registered: run", "registered is not known"),
            ],
        );
    }
    if has("ansible-playbook", "the playbook", "ansible-core") {
        let mut command = Command::new("ansible-playbook");
        command.args(["--syntax-check", "-i", "localhost,", &format!("{DIRECTORY}/ansible.yml")]);
        let finished = finish(command.args(["-e", "target=192.0.2.1:7000"]));
        assert_eq!(finished.code, Some(0), "{finished:?}");
    }
}

#[test]
fn the_manifest_is_as_the_api_says() {
    let text = std::fs::read_to_string(format!("{DIRECTORY}/kubernetes.yaml")).unwrap();
    let Some(manifest) = validated("kubernetes_job", &text) else { return };
    let (job, pod) = (&manifest.unwrap(), "/spec/template/spec");
    assert_eq!(job["spec"]["completions"], job["spec"]["parallelism"], "all pods run at once");
    let rule =
        "affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0/labelSelector";
    let selected = job.pointer(&format!("{pod}/{rule}/matchLabels/app"));
    assert_eq!(selected, job.pointer("/spec/template/metadata/labels/app"), "a pod a node");
    let container = job.pointer(&format!("{pod}/containers/0")).unwrap();
    let variable = format!("$({})", container["env"][0]["name"].as_str().unwrap());
    let command = container["command"].as_array().unwrap();
    assert!(command.iter().any(|word| word.as_str().unwrap().contains(&variable)), "{variable}");
    refused(
        "kubernetes_job",
        &text,
        &[
            ("completionMode: Indexed", "completionMode: NonIndexed", "is not Indexed"),
            ("  completionMode: Indexed\n", "", "no completionMode"),
            ("completions: 4", "completions: \"4\"", "'4' is no integer"),
            ("restartPolicy: Never", "restartPolicy: Always", "is not ['Never', 'OnFailure']"),
            ("backoffLimit", "backOffLimit", "backOffLimit is not known"),
            ("--number=100", "{number: 100}", "is no string"),
            ("memory: 128Mi", "memory: 128 MiB", "does not match"),
            ("cpu: \"2\"", "cpu: 2", "2 is no string"),
        ],
    );
}

/// The command of the manifest runs, with the server and the start of this test.
#[test]
fn the_manifest_is_an_indexed_job_whose_command_runs() {
    let text = std::fs::read_to_string(format!("{DIRECTORY}/kubernetes.yaml")).unwrap();
    let Some(manifest) = validated("kubernetes_job", &text) else { return };
    let command = manifest.unwrap().pointer("/spec/template/spec/containers/0/command").cloned();
    let words: Vec<String> = serde_json::from_value(command.unwrap()).unwrap();
    let server = Server::start(&[]);
    let words = words.iter().skip(1).map(|word| {
        let word = word.replace("server.example:7000", &server.address.to_string());
        word.replace("START_AT", "+2s")
            .replace("=30s", "=200ms")
            .replace("$(JOB_COMPLETION_INDEX)", "3")
    });
    let mut words: Vec<_> = words.collect();
    words.push("--warm-up=0".into());
    let finished = finish(Command::new(ANNULUS).args(words));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    let recording = Recording::read(finished.stdout.as_bytes()).unwrap();
    assert_eq!((recording.run.label.as_deref(), recording.run.clients), (Some("pod-3"), 100));
}
