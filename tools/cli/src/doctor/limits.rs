//! Limits of the process and the machine that matter to annulus.

use annulus::MemoryLimit;
use annulus_driver::PoolSize;
use annulus_kernel::{Limit as Bounds, Resource};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct Limit {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) meaning: String,
}

pub(super) fn gather() -> Vec<Limit> {
    let limit = |name, value: String, meaning: String| Limit { name, value, meaning };
    let set = |path| sysctl(path).unwrap_or_else(|| "absent".into());
    let room = annulus_load::limits::available_connections();
    let memory = MemoryLimit::of_process();
    let reserved = PoolSize::default().reserved() >> 20;
    let uring_disabled = set("kernel/io_uring_disabled");
    let io_uring = match uring_disabled.as_str() {
        "0" => "every process may use io_uring",
        "1" => "io_uring requires CAP_SYS_ADMIN or the group of kernel.io_uring_group",
        "2" => "io_uring is disabled for all processes; as root: sysctl kernel.io_uring_disabled=0",
        "absent" => "this kernel does not have it (added in 6.6)",
        _ => "this version does not know this value",
    };
    vec![
        limit(
            "open files",
            bounds(Resource::OpenFiles, 1, ""),
            format!("at most {room} connections; the soft limit is raised when needed"),
        ),
        limit(
            "memory limit",
            format!("{} MiB", memory.bytes() >> 20),
            format!(
                "the default limit on memory for connections: {}; connections that hold the most wait first",
                memory.source()
            ),
        ),
        limit(
            "locked memory",
            bounds(Resource::LockedMemory, 1024, " KiB"),
            "bounds zero-copy sends and the buffers registered with the ring (AlignedBuf)".into(),
        ),
        limit(
            "address space",
            bounds(Resource::AddressSpace, 1024, " KiB"),
            format!(
                "a runtime reserves {reserved} MiB of it for receive buffers, and uses memory page by page as \
                 data arrives: VIRT counts the former, RES the latter"
            ),
        ),
        limit("kernel.io_uring_disabled", uring_disabled, io_uring.into()),
        limit(
            "net.core.somaxconn",
            set("net/core/somaxconn"),
            "maximum number of connections waiting to be accepted".into(),
        ),
        limit(
            "net.ipv4.ip_local_port_range",
            set("net/ipv4/ip_local_port_range"),
            "ports for the connections of annulus load, per server address".into(),
        ),
    ]
}

/// Returns a kernel setting, given its path below `/proc/sys`.
pub(super) fn sysctl(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
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
