//! The scripts and manifests of `docs/many-machines.md`: run under MPI, and checked by what reads them.

use crate::common::{ANNULUS, Finished, Server, finish, has_python};
use crate::load_merge::Scratch;
use annulus_load::recording::{Latencies, Recording};
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

#[test]
fn the_playbook_is_valid() {
    if has("ansible-playbook", "the playbook", "ansible-core") {
        let mut command = Command::new("ansible-playbook");
        command.args(["--syntax-check", "-i", "localhost,", &format!("{DIRECTORY}/ansible.yml")]);
        let finished = finish(command.args(["-e", "target=192.0.2.1:7000"]));
        assert_eq!(finished.code, Some(0), "{finished:?}");
    }
}

/// Reads the manifest, checks what an Indexed Job must have, and prints the command of its container.
const MANIFEST: &str = r#"
import sys
try:
    import yaml
except ImportError:
    sys.exit(77)
job = yaml.safe_load(open(sys.argv[1]))
assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job"), job
spec = job["spec"]
assert set(spec) == {"completionMode", "completions", "parallelism", "backoffLimit", "template"}, spec
assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"] == 4, spec
template = spec["template"]
pod = template["spec"]
assert pod["restartPolicy"] == "Never", pod
rule, = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
labels = rule["labelSelector"]["matchLabels"].items()
assert labels <= template["metadata"]["labels"].items(), labels
container, = pod["containers"]
names = {variable["name"] for variable in container["env"]}
assert all(isinstance(word, str) for word in container["command"])
assert {"$(%s)" % name for name in names} <= {w for word in container["command"] for w in [word[word.find("$("):]]}, names
print("\n".join(container["command"]))
"#;

/// The command of the manifest runs, with the server and the start of this test.
#[test]
fn the_manifest_is_an_indexed_job_whose_command_runs() {
    if !has_python("the manifest") {
        return;
    }
    let manifest = format!("{DIRECTORY}/kubernetes.yaml");
    let finished = finish(Command::new("python3").args(["-c", MANIFEST, &manifest]));
    if finished.code == Some(77) {
        _ = writeln!(
            io::stderr(),
            "skipped: the manifest: no PyYAML: apt-get install python3-yaml"
        );
        return;
    }
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    let server = Server::start(&[]);
    let words = finished.stdout.lines().skip(1).map(|word| {
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
