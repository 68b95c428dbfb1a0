//! Files with short reads before their end, and files that have shrunk: copies to streams are
//! complete, and do not wait for a peer.

use crate::common::{pattern, receive};
use crate::files::mode::{Mode, everywhere};
use crate::files::place::Place;
use annulus::fs::{self, File, Policy};
use annulus::io::copy_range;
use annulus::net::UnixStream;
use rustix::fs::{Advice, fadvise};
use std::io;
use std::path::Path;

/// Keeps only the first page of a file in memory, if its file system stores it on a device.
fn keep_first_page(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileExt;

    let file = std::fs::File::open(path)?;
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    fadvise(&file, 0, None, Advice::Random)?;
    file.read_exact_at(&mut [0], 0)
}

#[test]
fn a_small_partly_cached_file_is_sent_whole() {
    const LEN: usize = 16_000;
    everywhere(|place| async move {
        let path = place.join("file");
        fs::write(&path, pattern(LEN)).await?;
        let file = File::open(&path).await?;
        fadvise(&file, 0, None, Advice::Random)?;
        let (mut client, mut server) = UnixStream::pair()?;
        for round in 0..12 {
            keep_first_page(&path)?;
            let copied = match round % 3 {
                0 => copy_range(&file, .., &mut client).await?,
                1 => copy_range(&file, ..LEN as u64, &mut client).await?,
                _ => copy_range(&file, ..16 * 1024, &mut client).await?,
            };
            assert_eq!(copied, LEN as u64, "round {round}");
            assert!(receive(&mut server, LEN).await? == pattern(LEN));
        }
        Ok(())
    });
}

#[test]
fn a_file_with_short_reads_is_sent_up_to_the_end_of_the_range() {
    everywhere(|_| async move {
        let all = std::fs::read("/proc/self/smaps")?.len();
        assert!(all > 16 * 1024, "a file of {all} bytes fits into one read");
        let file = File::open("/proc/self/smaps").await?;
        let (mut client, mut server) = UnixStream::pair()?;
        assert_eq!(copy_range(&file, ..16 * 1024, &mut client).await?, 16 * 1024);
        assert_eq!(receive(&mut server, 16 * 1024).await?.len(), 16 * 1024);
        Ok(())
    });
}

/// Copies a file that has shrunk. The peer reads nothing while the copy runs.
async fn copy_of_shrunk(place: Place) -> io::Result<()> {
    let path = place.join("file");
    fs::write(&path, pattern(400_000)).await?;
    let file = File::open(&path).await?;
    let (mut client, mut server) = UnixStream::pair()?;
    // The first copy lets the runtime know the file's length. The server does not receive the byte
    // yet: after one receive, the runtime would go on reading from the socket.
    assert_eq!(copy_range(&file, 399_999.., &mut client).await?, 1);
    std::fs::File::options().write(true).open(&path)?.set_len(150_000)?;
    assert_eq!(copy_range(&file, .., &mut client).await?, 150_000);
    drop(client);
    let all = receive(&mut server, usize::MAX).await?;
    assert!(all[0] == pattern(400_000)[399_999] && all[1..] == pattern(150_000));
    Ok(())
}

#[test]
fn a_copy_of_a_shrunken_file_does_not_wait_for_the_peer() {
    // Off the loop, pieces are read and queued, and the last one waits for space.
    let modes = Mode::all().into_iter().filter(|mode| mode.policy != Policy::Offload);
    modes.for_each(|mode| mode.run(copy_of_shrunk));
}
