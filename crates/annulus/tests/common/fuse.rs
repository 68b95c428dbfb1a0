//! A FUSE file system served by this process, which stops answering when the test asks it to. It
//! needs root and `/dev/fuse`.
#![allow(dead_code, unsafe_code, reason = "each test uses only some of it")]

use annulus_skip::skip;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Numbers of FUSE requests.
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
/// Number of bytes in each file.
pub(crate) const LEN: usize = 1000;

/// A mounted file system. It contains a file under every name except `missing`. Dropping it
/// unmounts it, and calls that hang then fail.
pub(crate) struct Mounted {
    at: PathBuf,
    hangs: Arc<AtomicBool>,
    device: Arc<File>,
}

impl Mounted {
    /// Mounts it on a new directory. Returns `None` if this process may not mount it.
    pub(crate) fn at(path: PathBuf) -> Option<Self> {
        std::fs::create_dir(&path).expect("the directory cannot be created");
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let Ok(device) = device else {
            skip!("/dev/fuse cannot be opened here");
            return None;
        };
        let options =
            format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let texts =
            ["annulus-test", "fuse.annulus", &options].map(|text| CString::new(text).unwrap());
        let target = CString::new(path.as_os_str().as_bytes()).unwrap();
        let [source, kind, options] = texts.each_ref().map(|text| text.as_ptr());
        // SAFETY: the strings outlive the call.
        let answer = unsafe { libc::mount(source, target.as_ptr(), kind, 0, options.cast()) };
        if answer != 0 {
            skip!("FUSE cannot be mounted here: {}", io::Error::last_os_error());
            return None;
        }
        let (hangs, device) = (Arc::new(AtomicBool::new(false)), Arc::new(device));
        let (ours, server) = (hangs.clone(), device.clone());
        thread::spawn(move || serve(&server, &hangs));
        Some(Self { at: path, hangs: ours, device })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.at
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    /// Stops answering requests.
    pub(crate) fn hang(&self) {
        self.hangs.store(true, Ordering::SeqCst);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let target = CString::new(self.at.as_os_str().as_bytes()).unwrap();
        // SAFETY: the string outlives the call.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_FORCE | libc::MNT_DETACH) };
    }
}

/// Answers requests until the file system is unmounted.
fn serve(mut device: &File, hangs: &AtomicBool) {
    let mut request = vec![0; 1 << 17];
    while let Ok(len @ 40..) = device.read(&mut request) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
        let (kind, name) = (word(4), &request[40..len]);
        let answer = match kind {
            INIT => init(),
            _ if hangs.load(Ordering::SeqCst) => continue,
            LOOKUP if name == b"missing\0" => Err(libc::ENOENT),
            LOOKUP => {
                Ok([&[2, 1, 0, 0, 0].map(u64::to_ne_bytes).concat(), &*attributes(2)].concat())
            }
            GETATTR => {
                let node = u64::from(word(16));
                Ok([&[0u64, 0].map(u64::to_ne_bytes).concat(), &*attributes(node)].concat())
            }
            // Bypasses the page cache, so that each read asks the server.
            OPEN => Ok([0u32, 0, 1, 0].map(u32::to_ne_bytes).concat()),
            OPENDIR => Ok(vec![0; 16]),
            READ => Ok(vec![7; LEN.min(word(40 + 16) as usize)]),
            FLUSH | RELEASE => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        };
        let (error, body) = answer.map_or_else(|error| (-error, Vec::new()), |body| (0, body));
        let mut reply = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
        reply.extend(error.to_ne_bytes());
        reply.extend(&request[8..16]);
        reply.extend(body);
        _ = device.write_all(&reply);
    }
}

/// `struct fuse_init_out` of protocol 7.31.
fn init() -> Result<Vec<u8>, i32> {
    let mut body = [7u32, 31, 65_536, 0].map(u32::to_ne_bytes).concat();
    body.extend([16u16, 12].map(u16::to_ne_bytes).concat());
    body.extend([65_536u32, 1].map(u32::to_ne_bytes).concat());
    body.resize(64, 0);
    Ok(body)
}

/// Returns `struct fuse_attr` of the root or of a file. The kernel may cache neither.
fn attributes(node: u64) -> Vec<u8> {
    let mode = if node == 1 { libc::S_IFDIR | 0o777 } else { libc::S_IFREG | 0o666 };
    let mut attributes = [node, LEN as u64, 2, 0, 0, 0].map(u64::to_ne_bytes).concat();
    attributes.extend([0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_ne_bytes).concat());
    attributes
}
