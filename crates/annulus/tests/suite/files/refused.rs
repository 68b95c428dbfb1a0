//! Copies whose system calls are refused, or return 0 before the end: all bytes arrive. Each test
//! needs a process of its own, since a seccomp filter is permanent.

use crate::common::denied::{deny, deny_with, deny_without};
use crate::common::rerun::{self, rerun};
use crate::common::{pair, pattern, receive};
use crate::files::mode::{Mode, everywhere};
use annulus::fs::{self, File, OpenOptions, Policy};
use annulus::io::{copy, copy_at_most, copy_bidirectional, copy_range};
use annulus::{Runtime, spawn};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

/// The error codes with which calls are refused. 0 is not an error: the call does nothing and
/// returns 0.
const REFUSALS: [i32; 10] = [
    0,
    libc::EPERM,
    libc::EACCES,
    libc::ENOSYS,
    libc::EINVAL,
    libc::EXDEV,
    libc::EOPNOTSUPP,
    libc::EOVERFLOW,
    libc::EIO,
    libc::ENOBUFS,
];

const MIB: usize = 1 << 20;

#[test]
fn files_are_copied_whatever_copy_file_range_returns() {
    if !rerun::is_alone(rerun!(files_are_copied_whatever_copy_file_range_returns)) {
        return;
    }
    for errno in REFUSALS {
        deny(libc::SYS_copy_file_range, errno);
        everywhere(|place| async move {
            let text = pattern(600_000);
            std::fs::write(place.join("from"), &text)?;
            assert_eq!(fs::copy(place.join("from"), place.join("to")).await?, 600_000);
            assert!(std::fs::read(place.join("to"))? == text);
            let mut from = File::open(place.join("from")).await?;
            let mut to = File::create(place.join("to")).await?;
            assert_eq!(copy_at_most(&mut from, &mut to, 300_000).await?, 300_000);
            assert_eq!(copy(&mut from, &mut to).await?, 300_000);
            assert!(std::fs::read(place.join("to"))? == text);
            Ok(())
        });
    }
}

/// Only the owner of a file may change its permissions.
#[test]
fn a_copy_that_may_not_change_permissions_loses_nothing() {
    if !rerun::is_alone(rerun!(a_copy_that_may_not_change_permissions_loses_nothing)) {
        return;
    }
    deny(libc::SYS_fchmod, libc::EPERM);
    everywhere(|place| async move {
        for (name, mode) in [("from", 0o640), ("same", 0o640), ("other", 0o600)] {
            let mut options = std::fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(mode).open(place.join(name));
            file?.write_all(name.as_bytes())?;
        }
        assert_eq!(fs::copy(place.join("from"), place.join("same")).await?, 4);
        assert_eq!(std::fs::read(place.join("same"))?, b"from");
        let error = fs::copy(place.join("from"), place.join("other")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(std::fs::read(place.join("other"))?, b"other");
        Ok(())
    });
}

/// Some files of the kernel, such as those of tracefs, are regular but have no position.
#[test]
fn a_file_without_a_position_is_read_to_the_end() {
    if !rerun::is_alone(rerun!(a_file_without_a_position_is_read_to_the_end)) {
        return;
    }
    deny_with(libc::SYS_lseek, libc::ESPIPE, 2, libc::SEEK_CUR as u32);
    everywhere(|place| async move {
        let text = pattern(100_000);
        std::fs::write(place.join("from"), &text)?;
        assert!(fs::read(place.join("from")).await? == text);
        let from = || File::open(place.join("from"));
        let mut memory = Vec::new();
        assert_eq!(copy(&mut from().await?, &mut memory).await?, 100_000);
        assert!(memory == text);
        for options in [OpenOptions::new().write(true), OpenOptions::new().append(true)] {
            let mut to = options.create(true).open(place.join("to")).await?;
            to.set_len(0).await?;
            assert_eq!(copy_at_most(&mut from().await?, &mut to, 70_000).await?, 70_000);
            assert!(std::fs::read(place.join("to"))? == text[..70_000]);
        }
        Ok(())
    });
}

#[test]
fn a_kernel_copy_of_zero_bytes_is_not_the_end() {
    if !rerun::is_alone(rerun!(a_kernel_copy_of_zero_bytes_is_not_the_end)) {
        return;
    }
    // Calls after the first one, which copies 16 MiB, return 0.
    deny_with(libc::SYS_copy_file_range, 0, 4, 2 * MIB as u32);
    everywhere(|place| async move {
        let text = pattern(20 * MIB);
        std::fs::write(place.join("from"), &text)?;
        let mut from = File::open(place.join("from")).await?;
        let mut to = File::create(place.join("to")).await?;
        assert_eq!(copy_at_most(&mut from, &mut to, 18 * MIB as u64).await?, 18 * MIB as u64);
        assert!(std::fs::read(place.join("to"))? == text[..18 * MIB]);
        Ok(())
    });
}

#[test]
fn files_are_sent_whatever_sendfile_returns() {
    if !rerun::is_alone(rerun!(files_are_sent_whatever_sendfile_returns)) {
        return;
    }
    for errno in REFUSALS {
        deny(libc::SYS_sendfile, errno);
        everywhere(|place| async move {
            let text = pattern(3 * MIB);
            std::fs::write(place.join("from"), &text)?;
            let mut from = File::open(place.join("from")).await?;
            let (mut near, mut far) = pair().await?;
            let sent = spawn(async move {
                near.send("head").await?;
                let part = copy_range(&from, ..MIB as u64, &mut near).await?;
                Ok::<_, io::Error>(part + copy(&mut from, &mut near).await?)
            });
            let got = receive(&mut far, 4 + 4 * MIB).await?;
            assert_eq!(sent.await.unwrap()?, 4 * MIB as u64);
            assert!(got == [b"head", &text[..MIB], &text[..]].concat());
            Ok(())
        });
    }
}

#[test]
fn a_sendfile_of_zero_bytes_is_not_the_end() {
    if !rerun::is_alone(rerun!(a_sendfile_of_zero_bytes_is_not_the_end)) {
        return;
    }
    // Calls after the first two, which send 1 MiB each, return 0.
    deny_with(libc::SYS_sendfile, 0, 3, MIB as u32 / 2);
    everywhere(|place| async move {
        let text = pattern(2 * MIB + MIB / 2);
        std::fs::write(place.join("from"), &text)?;
        let from = File::open(place.join("from")).await?;
        let (mut near, mut far) = pair().await?;
        let len = text.len() as u64;
        let sent = spawn(async move { copy_range(&from, ..len, &mut near).await });
        let got = receive(&mut far, text.len()).await?;
        assert_eq!(sent.await.unwrap()?, len);
        assert!(got == text);
        Ok(())
    });
}

/// Sends bytes both ways through a proxy, in pieces that go through a pipe if that is allowed.
async fn proxied() -> io::Result<()> {
    let ((client, mut near), (mut far, server)) = (pair().await?, pair().await?);
    let copied = spawn(async move { copy_bidirectional(&mut near, &mut far).await });
    let text = pattern(2 * MIB);
    let ends = [client, server].map(|end| {
        let text = text.clone();
        spawn(async move {
            let (mut recv, mut send) = end.into_split();
            let sending = text.clone();
            let sent = spawn(async move {
                for piece in sending.chunks(50_000) {
                    send.send(piece.to_vec()).await?;
                }
                send.shutdown().await
            });
            assert!(receive(&mut recv, text.len()).await? == text);
            sent.await.unwrap()
        })
    });
    for end in ends {
        end.await.unwrap()?;
    }
    assert_eq!(copied.await.unwrap()?, (2 * MIB as u64, 2 * MIB as u64));
    Ok(())
}

fn proxy_on_both_drivers() -> u64 {
    let modes = Mode::all().into_iter().filter(|mode| mode.policy == Policy::Inline);
    let spliced = modes.map(|mode| {
        let builder = Runtime::builder().driver(mode.driver).splice_threshold(Some(1));
        let mut runtime = builder.build().unwrap();
        runtime.block_on(proxied()).unwrap_or_else(|error| panic!("{mode:?}: {error}"));
        runtime.counters().spliced_bytes
    });
    spliced.sum()
}

#[test]
fn streams_are_copied_whatever_splice_returns() {
    if !rerun::is_alone(rerun!(streams_are_copied_whatever_splice_returns)) {
        return;
    }
    assert!(proxy_on_both_drivers() > 0, "no bytes went through a pipe");
    for errno in REFUSALS.into_iter().filter(|errno| *errno != libc::EIO) {
        deny(libc::SYS_splice, errno);
        assert_eq!(proxy_on_both_drivers(), 0);
    }
}

#[test]
fn bytes_in_a_pipe_that_cannot_be_spliced_out_are_sent() {
    if !rerun::is_alone(rerun!(bytes_in_a_pipe_that_cannot_be_spliced_out_are_sent)) {
        return;
    }
    for errno in [libc::EPERM, libc::EINVAL, libc::ENOSYS, libc::EOVERFLOW] {
        // Splices into a pipe ask for its capacity of 1 MiB and are allowed. Splices out of it ask
        // for fewer bytes and are refused.
        deny_without(libc::SYS_splice, errno, 4, MIB as u32);
        assert!(proxy_on_both_drivers() > 0, "no bytes went through a pipe");
    }
}
