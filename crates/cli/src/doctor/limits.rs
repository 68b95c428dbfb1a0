//! Limits of the process and the machine that concern annulus.

use annulus::MemoryLimit;
use annulus_driver::PoolSize;
use annulus_kernel::{Limit as Bounds, Resource};
use serde::Serialize;

/// One limit: its value, and its meaning.
#[derive(Debug, Serialize)]
pub(super) struct Limit {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) meaning: String,
}

/// All limits.
pub(super) fn gather() -> Vec<Limit> {
    vec![
        open_files(),
        memory(),
        locked_memory(),
        address_space(),
        uring_disabled(),
        backlog(),
        local_ports(),
    ]
}

/// A setting of the kernel, by its path below `/proc/sys`.
pub(crate) fn sysctl(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn open_files() -> Limit {
    let room = annulus_load::limits::room();
    let meaning = format!("at most {room} connections; the soft limit is raised when needed");
    Limit { name: "open files", value: bounds(Resource::OpenFiles, 1, ""), meaning }
}

fn memory() -> Limit {
    let limit = MemoryLimit::of_process();
    let meaning = format!(
        "what runtimes hold for connections by default: {}; those that hold the most wait first",
        limit.source()
    );
    Limit { name: "memory limit", value: format!("{} MiB", limit.bytes() >> 20), meaning }
}

fn locked_memory() -> Limit {
    let meaning = "charged for rings before Linux 5.12, and for registered buffers".to_owned();
    Limit { name: "locked memory", value: bounds(Resource::LockedMemory, 1024, " KiB"), meaning }
}

fn address_space() -> Limit {
    let reserved = PoolSize::default().reserved() >> 20;
    let meaning = format!(
        "a runtime reserves {reserved} MiB of it for what it receives, and uses the memory page by page as that comes: \
         VIRT counts the one, RES the other"
    );
    Limit { name: "address space", value: bounds(Resource::AddressSpace, 1024, " KiB"), meaning }
}

fn uring_disabled() -> Limit {
    let value = sysctl("kernel/io_uring_disabled");
    let meaning = match value.as_deref() {
        Some("0") => "io_uring is open to all processes",
        Some("1") => "io_uring needs CAP_SYS_ADMIN or the group of kernel.io_uring_group",
        Some("2") => {
            "io_uring is off for all processes; as root: sysctl kernel.io_uring_disabled=0"
        }
        Some(_) => "a value this version does not know",
        None => "not on this kernel (it came with 6.6)",
    };
    let value = value.unwrap_or_else(|| "absent".into());
    Limit { name: "kernel.io_uring_disabled", value, meaning: meaning.into() }
}

fn backlog() -> Limit {
    let value = sysctl("net/core/somaxconn").unwrap_or_else(|| "absent".into());
    let meaning = "connections that may wait to be accepted".into();
    Limit { name: "net.core.somaxconn", value, meaning }
}

fn local_ports() -> Limit {
    let value = sysctl("net/ipv4/ip_local_port_range").unwrap_or_else(|| "absent".into());
    let meaning = "ports for the load's connections, per server address".into();
    Limit { name: "net.ipv4.ip_local_port_range", value, meaning }
}

fn bounds(resource: Resource, unit: u64, suffix: &str) -> String {
    let Bounds { soft, hard } = Bounds::of(resource);
    let show = |value: Option<u64>| {
        value.map_or("unlimited".to_owned(), |value| format!("{}{suffix}", value / unit))
    };
    format!("{} (hard {})", show(soft), show(hard))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_value_and_a_meaning() {
        for limit in gather() {
            assert!(!limit.value.is_empty() && !limit.meaning.is_empty(), "{limit:?}");
        }
    }

    #[test]
    fn settings_are_one_line() {
        assert!(sysctl("kernel/osrelease").is_some_and(|text| !text.contains('\n')));
        assert_eq!(sysctl("no/such/setting"), None);
    }
}
