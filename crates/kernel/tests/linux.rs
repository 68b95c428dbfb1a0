//! Calls on Linux.
#![allow(unsafe_code)]

use annulus_kernel::*;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;

fn socket(domain: Domain) -> Fd {
    // SAFETY: the socket is new, and each test closes its own once.
    unsafe { Fd::from_raw(Linux.socket(domain, SocketType::Datagram, true).unwrap()) }
}

#[test]
fn options_are_read_as_set() {
    let fd = socket(Domain::Inet);
    let query = |query| Linux.option(fd, query).unwrap();
    for (option, value, wanted) in [
        (SocketOption::Broadcast, 1, 1),
        (SocketOption::Ttl(Ip::V4), 7, 7),
        (SocketOption::Tos(Ip::V4), 0xb8, 0xb8),
        (SocketOption::RecvBuffer, 20_000, 40_000),
        (SocketOption::SendBuffer, 30_000, 60_000),
        (SocketOption::DontFragment(Ip::V4), 1, libc::IP_PMTUDISC_PROBE as u32),
        (SocketOption::DontFragment(Ip::V4), 0, libc::IP_PMTUDISC_DONT as u32),
    ] {
        Linux.set_option(fd, option, value).unwrap();
        assert_eq!(Linux.option(fd, option).unwrap(), wanted, "{option:?}");
    }
    assert_eq!(query(SocketOption::Error), 0);
    assert_eq!(query(SocketOption::Type), libc::SOCK_DGRAM as u32);
    assert_eq!(query(SocketOption::Domain), libc::AF_INET as u32);
    assert_eq!(query(SocketOption::Linger), SocketOption::NO_LINGER);
    for seconds in [3, 0, SocketOption::NO_LINGER] {
        Linux.set_option(fd, SocketOption::Linger, seconds).unwrap();
        assert_eq!(query(SocketOption::Linger), seconds);
    }
    Linux.close(fd);
}

#[test]
fn a_pair_of_unix_sockets_has_the_credentials_of_its_creator() {
    let (one, other) = Linux.socket_pair(SocketType::Stream, true).unwrap();
    // SAFETY: the sockets are new, and each is closed once.
    let (one, other) = unsafe { (Fd::from_raw(one), Fd::from_raw(other)) };
    assert_eq!(Linux.peer_credentials(one).unwrap().pid, std::process::id());
    assert_eq!(Linux.local_address(other).unwrap().to_unix().unwrap(), UnixName::Unnamed);
    Linux.close(one);
    Linux.close(other);
}

#[test]
fn only_sockets_are_unlinked() {
    let path = std::env::temp_dir().join(format!("annulus-kernel-{}", std::process::id()));
    let address = Address::unix(UnixName::Path(path.as_os_str().as_encoded_bytes())).unwrap();
    std::fs::write(&path, "a file").unwrap();
    Linux.unlink(&address);
    std::fs::remove_file(&path).expect("unlink removed a regular file");
    let fd = socket(Domain::Unix);
    Linux.bind(fd, &address).unwrap();
    Linux.unlink(&address);
    assert!(!path.exists());
    Linux.close(fd);
}

#[test]
fn a_process_is_signalled_by_its_descriptor() {
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let process = process::open(child.id()).unwrap();
    process::signal(process.as_fd(), libc::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    let gone = process::signal(process.as_fd(), libc::SIGTERM).unwrap_err();
    assert_eq!(gone.raw_os_error(), libc::ESRCH);
    assert!(process::open(0).is_err() && process::open(u32::MAX).is_err());
}

#[test]
fn invalid_interface_names_are_refused() {
    assert_eq!(DeviceName::new("eth0").unwrap().to_string(), "eth0");
    for name in ["", "longer-than-that", "a/b", "a b", "a\0"] {
        let error = DeviceName::new(name).unwrap_err().to_string();
        assert!(error.contains(&format!("{name:?}")), "{error}");
    }
}

#[test]
fn drain_empties_a_pair_filled_through_a_duplicate() {
    let (one, other) = descriptor::pair().unwrap();
    assert!(!descriptor::drain(&one).unwrap());
    let sender = std::os::unix::net::UnixStream::from(descriptor::duplicate(&other).unwrap());
    std::io::Write::write_all(&mut &sender, &[7; 1000]).unwrap();
    assert!(descriptor::drain(&one).unwrap());
    assert!(!descriptor::drain(&one).unwrap(), "bytes were left after a drain");
    drop((other, sender));
    assert!(!descriptor::drain(&one).unwrap(), "the end of the stream counted as data");
}

#[test]
fn identity_follows_links_only_before_the_last_component() {
    let dir = std::env::temp_dir().join(format!("annulus-identity-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let link = dir.join("link");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    let identity = |path| file::identity(path).unwrap();
    assert_ne!(identity(&link), identity(&dir));
    assert_eq!(identity(&link.join(".")), identity(&dir));
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(file::identity(&dir).is_err());
}

#[test]
fn a_thread_has_the_cpus_that_it_sets() {
    let before = process::cpus().unwrap();
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu)).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set(first);
    process::set_cpus(&one).unwrap();
    assert_eq!(process::cpus().unwrap().count(), 1);
    process::set_cpus(&before).unwrap();
    assert_eq!(process::cpus().unwrap().count(), before.count());
}
