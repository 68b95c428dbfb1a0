//! Unix sockets at relative paths. This test has its own binary, because all threads of a
//! process share the working directory.

use annulus::net::{UnixDatagram, UnixListener, UnixStream};
use annulus::{DriverChoice, Runtime};
use annulus_skip::skip;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A directory for the test, removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// Binds sockets in one directory and drops them in another, which contains unrelated files with
/// the same names.
async fn move_away(root: &Path) -> io::Result<()> {
    let (here, there) = (root.join("here"), root.join("there"));
    fs::create_dir_all(here.join("sub"))?;
    fs::create_dir_all(there.join("sub"))?;
    std::env::set_current_dir(&here)?;
    let listeners = ["a", "./b", "sub/c", "../here/d"].map(UnixListener::bind);
    let socket = UnixDatagram::bind("e")?;
    let listeners: Vec<_> = listeners.into_iter().collect::<io::Result<_>>()?;
    std::env::set_current_dir(&there)?;
    for name in ["a", "b", "sub/c", "d"] {
        drop(std::os::unix::net::UnixListener::bind(there.join(name))?);
    }
    fs::write("e", "another's")?;
    // A listener can still be reached after its directory is renamed, and removes its path there.
    fs::rename(&here, root.join("renamed"))?;
    drop(UnixStream::connect("../renamed/sub/c").await?);
    drop((listeners, socket));
    let left: Vec<_> =
        fs::read_dir(root.join("renamed"))?.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["sub"]);
    assert_eq!(fs::read_dir(root.join("renamed/sub"))?.count(), 0);
    for name in ["a", "b", "sub/c", "d", "e"] {
        assert!(there.join(name).exists(), "{name}, an unrelated file, was removed");
    }
    Ok(())
}

/// Checks that a file that has replaced a socket is not removed.
async fn replace(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    let listener = UnixListener::bind("s")?;
    fs::remove_file("s")?;
    let other = std::os::unix::net::UnixListener::bind("s")?;
    drop(listener);
    assert!(Path::new("s").exists(), "the path of the other listener was removed");
    drop(other);
    // The path of a dead server is replaced, and then belongs to this listener.
    let listener = UnixListener::bind("s")?;
    drop(listener);
    assert!(!Path::new("s").exists());
    fs::write("f", "a file")?;
    let error = UnixListener::bind("f").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert_eq!(fs::read("f")?, b"a file");
    let error = UnixListener::bind("missing/s").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    Ok(())
}

#[test]
fn a_socket_at_a_relative_path_removes_only_its_own_file() {
    for driver in [DriverChoice::Uring, DriverChoice::Epoll] {
        let mut runtime = match Runtime::builder().driver(driver).build() {
            Ok(runtime) => runtime,
            Err(error) if driver == DriverChoice::Uring => {
                skip!("not on io_uring: {error}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let name = format!("annulus-relative-{}-{driver:?}", std::process::id());
        let root = Scratch(std::env::temp_dir().join(name));
        fs::create_dir_all(&root.0).unwrap();
        runtime.block_on(move_away(&root.0)).unwrap();
        runtime.block_on(replace(&root.0)).unwrap();
        std::env::set_current_dir(std::env::temp_dir()).unwrap();
    }
}
