//! Files that leave the page cache and return to it.

use annulus::Runtime;
use annulus::fs::{self, Advice, File, Policy};
use annulus_skip::skip;
use std::io;

const PAGES: u64 = 512;
/// Far enough apart that a kernel which caches more than the page it was asked for, such as one
/// with large folios, does not cache the next page that is read.
const STRIDE: u64 = 64 << 10;

/// Reads all pages. Returns how many reads were tried on the loop without finding their data, and
/// how many found it there.
async fn read_pages(file: &File) -> io::Result<(u64, u64)> {
    let before = annulus::counters().expect("not in a runtime");
    for page in 0..PAGES {
        file.read_exact_at(vec![0; 4096], page * STRIDE).await.0?;
    }
    let after = annulus::counters().expect("not in a runtime");
    Ok((after.file_misses - before.file_misses, after.file_inline - before.file_inline))
}

#[test]
fn reads_follow_a_file_that_leaves_the_page_cache_and_returns() {
    let path = std::env::temp_dir().join(format!("annulus-cold-{}", std::process::id()));
    let mut runtime = Runtime::builder().file_policy(Policy::Adaptive).build().unwrap();
    let seen = runtime.block_on(async {
        fs::write(&path, vec![1; (PAGES * STRIDE) as usize]).await?;
        let file = File::open(&path).await?;
        file.sync_all().await?;
        file.advise(0, 0, Advice::Random).await?;
        let mut seen = Vec::new();
        for _ in 0..3 {
            file.advise(0, 0, Advice::DontNeed).await?;
            let cold = read_pages(&file).await?;
            seen.push((cold, read_pages(&file).await?));
        }
        io::Result::Ok(seen)
    });
    std::fs::remove_file(&path).unwrap();
    for ((misses, inline), (_, warm)) in seen.unwrap() {
        if inline > PAGES / 2 {
            // The file system is in memory or reads ahead.
            return skip!("{inline} of {PAGES} reads of a cold file found their data");
        }
        assert!(misses <= PAGES / 4, "{misses} of {PAGES} reads were checked in vain");
        assert!(warm >= PAGES - 32, "{warm} of {PAGES} reads of a warm file were made on the loop");
    }
}
