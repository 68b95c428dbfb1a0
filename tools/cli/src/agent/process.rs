//! The processes that an agent observes, read from `/proc` without tracing them.

use super::protocol::{Calls, Figures, Reading};
use annulus_lab::proc::{Memory, Usage};
use annulus_lab::{listening, process_tree};
use annulus_load::clock;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where systemd keeps the control groups of its units.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";
/// Limits how deep the search for a unit's control group, and for groups inside it, descends.
const MAX_GROUP_DEPTH: usize = 8;

/// What to observe, as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A process and those that it has started.
    Pid(u32),
    /// The processes of a systemd unit.
    Unit(String),
    /// The processes that listen on this TCP port, and those that they have started.
    Port(u16),
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Subject, String> {
        let unknown = || {
            format!(
                "'{text}' is not a process: write port:8080 for what listens there, \
                 unit:nginx.service, or pid:1234"
            )
        };
        let (kind, value) = text.split_once(':').ok_or_else(unknown)?;
        match kind {
            "pid" => match value.parse() {
                Ok(pid @ 1..) => Ok(Subject::Pid(pid)),
                _ => Err(format!("'{value}' is not a process id: use a number above 0")),
            },
            "port" => match value.parse() {
                Ok(port @ 1..) => Ok(Subject::Port(port)),
                _ => Err(format!("'{value}' is not a valid port: use 1 to 65535")),
            },
            "unit" if value.is_empty() || value.contains('/') || value.starts_with('.') => {
                Err(format!("'{value}' is not a unit: write its name, such as nginx.service"))
            }
            "unit" if value.contains('.') => Ok(Subject::Unit(value.to_owned())),
            "unit" => Ok(Subject::Unit(format!("{value}.service"))),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Pid(pid) => write!(f, "pid:{pid}"),
            Subject::Unit(unit) => write!(f, "unit:{unit}"),
            Subject::Port(port) => write!(f, "port:{port}"),
        }
    }
}

#[derive(Debug)]
pub(super) struct Processes {
    subject: Subject,
    roots: Vec<Root>,
}

/// A process that is observed together with those that it starts.
#[derive(Debug)]
struct Root {
    pid: u32,
    name: String,
    /// Start time in ticks since boot. It differs for a later process with the same id.
    started: u64,
}

impl Processes {
    /// Finds the processes of a subject.
    ///
    /// # Errors
    /// If there is no such process, or this user may not see it.
    pub(super) fn find(subject: &Subject) -> Result<Processes> {
        let pids = match subject {
            Subject::Pid(pid) => vec![*pid],
            Subject::Port(port) => {
                let owners = listening::owners_of_port(*port);
                if owners.is_empty() {
                    bail!(
                        "no process that this user may see listens at TCP port {port}: start the \
                         server, or run the agent as the server's user, in its network namespace"
                    );
                }
                owners
            }
            Subject::Unit(unit) => processes_of_unit(Path::new(CONTROL_GROUPS), unit)?,
        };
        let roots: Vec<_> = pids.into_iter().map(Root::find).collect::<Result<_>>()?;
        // A root that another root has started is left out, because it is in that root's tree.
        let started: BTreeSet<u32> =
            roots.iter().flat_map(|root| process_tree::of(root.pid).1).collect();
        let roots = roots.into_iter().filter(|root| !started.contains(&root.pid)).collect();
        Ok(Processes { subject: subject.clone(), roots })
    }

    /// Adds up the figures of all roots and their descendants. Returns `Gone` if a root has ended
    /// or can no longer be read.
    pub(super) fn read(&self) -> Reading {
        let mut sum = Figures {
            at: clock::now().as_nanos() as u64,
            cpu: 0,
            switches: 0,
            processes: 0,
            resident_bytes: 0,
            calls: Ok(Calls::default()),
        };
        for root in &self.roots {
            if let Err(error) = root.add_to(&mut sum) {
                return Reading::Gone(format!(
                    "process {} ({}) has ended or may not be read: {error:#}",
                    root.pid, root.name
                ));
            }
        }
        Reading::Figures(sum)
    }
}

impl fmt::Display for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roots = self.roots.iter().map(|root| format!("{} ({})", root.name, root.pid));
        write!(f, "{}: {}", self.subject, roots.collect::<Vec<_>>().join(", "))
    }
}

impl Root {
    fn find(pid: u32) -> Result<Root> {
        let started = started(pid).with_context(|| format!("there is no process {pid}"))?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Ok(Root { pid, name: name.trim().to_owned(), started })
    }

    fn add_to(&self, sum: &mut Figures) -> Result<()> {
        if started(self.pid)? != self.started {
            bail!("another process has its id");
        }
        let usage = Usage::of(self.pid)?;
        sum.cpu = sum.cpu.saturating_add(usage.cpu_ns);
        sum.switches = sum.switches.saturating_add(usage.switches);
        let memory = Memory::of_tree(self.pid)?;
        sum.resident_bytes = sum.resident_bytes.saturating_add(memory.resident_bytes);
        let (root, others) = process_tree::of(self.pid);
        for pid in [root].into_iter().chain(others) {
            sum.processes += 1;
            let Ok(calls) = &mut sum.calls else { continue };
            match calls_of(pid) {
                Ok(of_one) => {
                    calls.read = calls.read.saturating_add(of_one.read);
                    calls.write = calls.write.saturating_add(of_one.write);
                }
                // The process has just ended, and its count is lost.
                Err(_) if pid != root && started(pid).is_err() => {}
                Err(error) => {
                    let why =
                        format!("/proc/{pid}/io: {error:#}; run the agent as the server's user");
                    sum.calls = Err(why);
                }
            }
        }
        Ok(())
    }
}

/// Returns when a process started, in ticks since the boot.
fn started(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name is in parentheses and may itself contain parentheses. The state follows.
    let rest = stat.rsplit_once(") ").context("no name in /proc/PID/stat")?.1;
    let fields: Vec<_> = rest.split_whitespace().collect();
    if matches!(fields.first(), Some(&("Z" | "X"))) {
        bail!("it has ended, and its parent has not waited for it");
    }
    Ok(fields.get(19).context("no start time in /proc/PID/stat")?.parse()?)
}

fn calls_of(pid: u32) -> Result<Calls> {
    calls_in(&fs::read_to_string(format!("/proc/{pid}/io"))?)
}

fn calls_in(text: &str) -> Result<Calls> {
    let value = |name: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.with_context(|| format!("it has no {name}"))?.trim().parse()?)
    };
    Ok(Calls { read: value("syscr:")?, write: value("syscw:")? })
}

/// Returns the processes in a systemd unit's control group and in the groups inside it.
fn processes_of_unit(groups: &Path, unit: &str) -> Result<Vec<u32>> {
    let group = find_group(groups, unit, MAX_GROUP_DEPTH).with_context(|| {
        format!(
            "no control group of {unit} is below {}: is the unit active (systemctl status), and \
             does the machine use cgroup v2?",
            groups.display()
        )
    })?;
    let mut pids = Vec::new();
    add_processes(&group, &mut pids, MAX_GROUP_DEPTH);
    if pids.is_empty() {
        bail!("the unit {unit} has no process: start it");
    }
    Ok(pids)
}

fn find_group(directory: &Path, unit: &str, depth: usize) -> Option<PathBuf> {
    let inner = directories(directory);
    let found = inner.iter().find(|path| path.file_name().is_some_and(|name| name == unit));
    found.cloned().or_else(|| {
        let depth = depth.checked_sub(1)?;
        inner.iter().find_map(|path| find_group(path, unit, depth))
    })
}

fn add_processes(group: &Path, pids: &mut Vec<u32>, depth: usize) {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|pid| *pid > 0));
    if let Some(depth) = depth.checked_sub(1) {
        directories(group).iter().for_each(|group| add_processes(group, pids, depth));
    }
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    fn figures(processes: &Processes) -> Figures {
        match processes.read() {
            Reading::Figures(figures) => figures,
            Reading::Gone(why) => panic!("{why}"),
        }
    }

    #[test]
    fn displayed_subjects_parse_back() {
        for text in ["pid:12", "port:8080", "unit:nginx.service", "unit:a@b.socket"] {
            assert_eq!(text.parse::<Subject>().unwrap().to_string(), text);
        }
        assert_eq!("unit:nginx".parse(), Ok(Subject::Unit("nginx.service".into())));
        for (text, part) in [
            ("", "'' is not a process: write port:8080"),
            ("nginx", "unit:nginx.service"),
            ("name:x", "'name:x' is not a process"),
            ("pid:0", "'0' is not a process id"),
            ("pid:-1", "'-1' is not a process id"),
            ("port:70000", "'70000' is not a valid port"),
            ("unit:", "'' is not a unit"),
            ("unit:../x", "'../x' is not a unit"),
        ] {
            let error = text.parse::<Subject>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn own_process_has_figures_that_grow() {
        let processes = Processes::find(&Subject::Pid(std::process::id())).unwrap();
        let before = figures(&processes);
        let end = clock::thread_cpu() + std::time::Duration::from_millis(20);
        while clock::thread_cpu() < end {
            fs::read("/proc/self/stat").unwrap();
        }
        let after = figures(&processes);
        assert!(after.cpu > before.cpu && after.at > before.at, "{before:?} {after:?}");
        assert!(after.resident_bytes > 1 << 20 && after.processes >= 1, "{after:?}");
        assert!(after.calls.unwrap().read > before.calls.unwrap().read);
    }

    #[test]
    fn process_is_found_by_its_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let processes = Processes::find(&Subject::Port(port)).unwrap();
        assert!(processes.to_string().starts_with(&format!("port:{port}: ")), "{processes}");
        drop(listener);
    }

    #[test]
    fn ended_process_is_gone() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let processes = Processes::find(&Subject::Pid(child.id())).unwrap();
        assert_eq!(figures(&processes).processes, 1);
        child.kill().unwrap();
        child.wait().unwrap();
        let Reading::Gone(why) = processes.read() else {
            panic!("the ended process can still be read")
        };
        assert!(why.contains("(cat) has ended"), "{why}");
        let error = format!("{:#}", Processes::find(&Subject::Pid(child.id())).unwrap_err());
        assert!(error.contains("there is no process"), "{error}");
    }

    #[test]
    fn unit_has_the_processes_of_its_control_group() {
        let root = std::env::temp_dir().join(format!("annulus-groups-{}", std::process::id()));
        let group = root.join("system.slice").join("web.service");
        fs::create_dir_all(group.join("inner")).unwrap();
        fs::write(group.join("cgroup.procs"), "12\n13\n").unwrap();
        fs::write(group.join("inner").join("cgroup.procs"), "14\n0\n").unwrap();
        assert_eq!(processes_of_unit(&root, "web.service").unwrap(), [12, 13, 14]);
        let error = processes_of_unit(&root, "no.service").unwrap_err().to_string();
        assert!(error.contains("no control group of no.service"), "{error}");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn calls_are_parsed_from_proc_pid_io() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 30\nsyscw: 40\nread_bytes: 5\n";
        assert_eq!(calls_in(text).unwrap(), Calls { read: 30, write: 40 });
        assert!(calls_in("rchar: 1\n").unwrap_err().to_string().contains("no syscr:"));
    }
}
