//! Files on the simulated disk, under every policy, on a slow device and after a power cut.

use annulus::fs::{self, Dir, File, FileCache, OpenOptions, Policy};
use annulus::io::copy;
use annulus::net::{TcpListener, TcpStream};
use annulus::sim::{Device, Disk, Sim, run_on};
use annulus::time::{Instant, sleep, timeout};
use annulus::{Runtime, spawn};
use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::time::Duration;

pub(crate) fn policies() -> impl Iterator<Item = Policy> {
    Policy::ALL.into_iter().map(|(_, policy)| policy)
}

pub(crate) fn on<T>(
    sim: &Rc<Sim>,
    policy: Policy,
    body: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    run_on(sim, Runtime::builder().file_policy(policy), body)
}

#[test]
fn files_are_written_read_moved_and_removed() {
    for policy in policies() {
        let sim = Sim::builder(1).build();
        let ran = on(&sim, policy, async {
            fs::create_dir_all("/a/b").await?;
            let text = vec![7; 100_000];
            fs::write("/a/b/file", text.clone()).await?;
            fs::rename("/a/b/file", "/a/file").await?;
            assert!(fs::read("/a/file").await? == text);
            assert_eq!(fs::metadata("/a/file").await?.len(), 100_000);
            assert_eq!(fs::copy("/a/file", "/a/b/copy").await?, 100_000);
            assert!(fs::read("/a/b/copy").await? == text);
            assert_eq!(fs::read("/a/none").await.unwrap_err().kind(), ErrorKind::NotFound);
            fs::remove_dir_all("/a").await?;
            assert_eq!(fs::metadata("/a").await.unwrap_err().kind(), ErrorKind::NotFound);
            Ok(())
        });
        ran.unwrap_or_else(|error| panic!("{policy:?}: {error}"));
        assert_eq!(sim.leftovers(), [""; 0], "{policy:?}");
    }
}

#[test]
fn holes_stay_holes_under_simulation() {
    for policy in policies() {
        let ran = on(&Sim::builder(1).build(), policy, async {
            let file = File::create("/from").await?;
            file.write_all_at(vec![7; 5000], 1_000_000).await.0?;
            file.set_len(3_000_000).await?;
            let expected = fs::read("/from").await?;
            assert_eq!(fs::copy("/from", "/to").await?, 3_000_000);
            assert!(fs::read("/to").await? == expected);
            let blocks = fs::metadata("/from").await?.blocks();
            assert_eq!(fs::metadata("/to").await?.blocks(), blocks);
            fs::write("/to", vec![1; 2_000_000]).await?;
            let target = OpenOptions::new().write(true).open("/to").await?;
            assert_eq!(File::open("/from").await?.copy_to(&target).await?, 3_000_000);
            assert!(fs::read("/to").await? == expected);
            assert_eq!(fs::metadata("/to").await?.blocks(), blocks);
            Ok(())
        });
        ran.unwrap_or_else(|error| panic!("{policy:?}: {error}"));
    }
}

#[test]
fn removers_of_the_same_tree_all_succeed_under_simulation() {
    for policy in policies() {
        let sim = Sim::builder(1).build();
        let ran = on(&sim, policy, async {
            for n in 0..27 {
                let deep = format!("/tree/{}/{}/{}/d/e", n / 9, n / 3 % 3, n % 3);
                fs::create_dir_all(&deep).await?;
                fs::write(format!("{deep}/file"), "").await?;
            }
            let mut entries = fs::read_dir("/tree/0").await?;
            let removers: Vec<_> =
                (0..3).map(|_| spawn(async { fs::remove_dir_all("/tree").await })).collect();
            let mut removed = 0;
            for remover in removers {
                match remover.await.expect("the task panicked") {
                    Ok(()) => removed += 1,
                    Err(error) => assert!(error.to_string().contains("`/tree`"), "{error}"),
                }
            }
            assert!(removed > 0);
            assert!(!fs::try_exists("/tree").await?);
            assert!(entries.next_entry().await?.is_none());
            Ok(())
        });
        ran.unwrap_or_else(|error| panic!("{policy:?}: {error}"));
    }
}

#[test]
fn a_file_is_a_stream_of_bytes() {
    use annulus::io::{AsyncRecv, AsyncSend};
    for policy in policies() {
        let sim = Sim::builder(1).build();
        let ran = on(&sim, policy, async {
            let options = OpenOptions::new();
            let mut log =
                options.read(true).write(true).create(true).open("/log").await?.into_stream();
            for line in 0..10_000 {
                log.write_all(format!("line {line}\n").as_bytes()).await?;
            }
            log.seek(io::SeekFrom::Start(0)).await?;
            let mut lines = log.lines(20);
            for line in 0..10_000 {
                assert_eq!(lines.next_line().await?, Some(format!("line {line}")));
            }
            assert_eq!(lines.next_line().await?, None);
            Ok(())
        });
        ran.unwrap_or_else(|error| panic!("{policy:?}: {error}"));
        assert_eq!(sim.leftovers(), [""; 0], "{policy:?}");
    }
}

/// Replaces a file so that a power cut leaves either the old or the new one: writes another file,
/// syncs it, renames it, and syncs the directory.
async fn replace(text: &'static str) -> io::Result<()> {
    let mut file = File::create("/new").await?;
    file.write(text).await.0?;
    file.sync_all().await?;
    fs::rename("/new", "/file").await?;
    File::open("/").await?.sync_all().await
}

#[test]
fn a_replaced_file_is_the_old_or_the_new_one_after_a_power_cut() {
    let sim = Sim::builder(1).build();
    on(&sim, Policy::Offload, replace("old text")).unwrap();
    let stop = |turns: u32| {
        let sim = Sim::builder(1).disk(sim.disk()).build();
        let halted = on(&sim, Policy::Offload, async {
            let task = spawn(replace("newer text"));
            for _ in 0..turns {
                annulus::time::sleep(Duration::from_micros(100)).await;
            }
            task.abort();
            Ok(())
        });
        halted.unwrap();
        sim.disk()
    };
    let mut seen = [false; 2];
    for turns in 0..20 {
        let disk = stop(turns);
        for seed in 0..10 {
            let sim = Sim::builder(1).disk(disk.after_power_cut(seed)).build();
            let text = on(&sim, Policy::Inline, fs::read_to_string("/file")).unwrap();
            let new = text == "newer text";
            assert!(new || text == "old text", "{text:?}, cut at turn {turns}");
            seen[usize::from(new)] = true;
        }
    }
    assert_eq!(seen, [true; 2]);
}

/// The second block is not durable: its write had not ended. A write without a sync may be lost.
#[test]
fn durable_writes_survive_a_power_cut_once_they_have_ended() {
    for policy in policies() {
        let sim = Sim::builder(1).build();
        let written = on(&sim, policy, async {
            let file = File::create("/log").await?;
            File::open("/").await?.sync_all().await?;
            file.write_durable_at(vec![1; 4096], 0).await.0?;
            let durable = fs::read("/log").await?.len();
            file.write_at(vec![2; 4096], 4096).await.0?;
            Ok(durable)
        });
        assert_eq!(written.unwrap(), 4096, "{policy:?}");
        let mut lost = false;
        for seed in 0..20 {
            let sim = Sim::builder(1).disk(sim.disk().after_power_cut(seed)).build();
            let left = on(&sim, Policy::Inline, fs::read("/log")).unwrap();
            assert!(left.len() >= 4096 && left[..4096] == [1; 4096], "{policy:?}, seed {seed}");
            lost |= left.get(4096..) != Some(&[2; 4096][..]);
        }
        assert!(lost, "{policy:?}: no power cut lost the write that was not durable");
    }
}

/// A durable write covers its own bytes (`RWF_DSYNC`).
#[test]
fn durable_write_leaves_earlier_writes_as_they_are() {
    let sim = Sim::builder(1).build();
    let ran = run_on(&sim, Runtime::builder(), async {
        let file = File::create("/pages").await?;
        file.set_len(8192).await?;
        file.sync_all().await?;
        File::open("/").await?.sync_all().await?;
        file.write_at(vec![1; 4096], 0).await.0?;
        file.write_durable_at(vec![2; 4096], 4096).await.0
    });
    ran.unwrap();
    let mut lost = false;
    for seed in 0..20 {
        let sim = Sim::builder(1).disk(sim.disk().after_power_cut(seed)).build();
        let left = run_on(&sim, Runtime::builder(), fs::read("/pages")).unwrap();
        assert!(left[4096..] == [2; 4096], "seed {seed}");
        lost |= left[..4096] != [1; 4096];
    }
    assert!(lost, "no power cut lost the write that was not durable");
}

/// `fs::write` truncates the file first, so a power cut may leave an empty one.
#[test]
fn rewritten_file_may_be_empty_after_a_power_cut() {
    let sim = Sim::builder(1).build();
    let ran = run_on(&sim, Runtime::builder(), async {
        fs::write("/state", "old").await?;
        File::open("/state").await?.sync_all().await?;
        File::open("/").await?.sync_all().await?;
        fs::write("/state", "new").await
    });
    ran.unwrap();
    let after = |seed| {
        let sim = Sim::builder(1).disk(sim.disk().after_power_cut(seed)).build();
        run_on(&sim, Runtime::builder(), fs::read("/state")).unwrap()
    };
    let found: HashSet<Vec<u8>> = (0..50).map(after).collect();
    for content in ["", "\0\0\0", "old", "new"] {
        assert!(found.contains(content.as_bytes()), "{content:?} is not in {found:?}");
    }
}

/// After a copy that is dropped or fails, the next one continues after the bytes that were written.
#[test]
fn dropped_and_failed_copies_lose_no_written_bytes() {
    for policy in policies() {
        let disk = Disk::new(Device { capacity: 3 * 4096, ..Device::default() });
        let sim = Sim::builder(1).disk(disk).build();
        let ran = on(&sim, policy, async {
            let listener = TcpListener::bind("127.0.0.1:7000")?;
            let mut client = TcpStream::connect("127.0.0.1:7000").await?;
            let (mut server, _) = listener.accept().await?;
            fs::write("/filler", vec![0; 4096]).await?;
            let mut file = File::create("/file").await?;
            for byte in ["a", "b"] {
                client.send(byte.repeat(4096)).await?;
                let copied = timeout(Duration::from_secs(1), copy(&mut server, &mut file)).await;
                assert!(copied.is_err(), "the copy ended before its stream");
            }
            client.send("no space for this").await?;
            let error = copy(&mut server, &mut file).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StorageFull);
            fs::remove_file("/filler").await?;
            client.send("but for this").await?;
            client.shutdown().await?;
            assert_eq!(copy(&mut server, &mut file).await?, 12);
            let text = ["a".repeat(4096), "b".repeat(4096), "but for this".into()].concat();
            assert_eq!(fs::read_to_string("/file").await?, text);
            Ok(())
        });
        ran.unwrap_or_else(|error| panic!("{policy:?}: {error}"));
    }
}

/// Returns the longest time that an echo takes while files are being synced.
fn slowest_echo(policy: Policy) -> Duration {
    let device = Device { sync: Duration::from_millis(100), ..Device::default() };
    let sim = Sim::builder(1).disk(Disk::new(device)).build();
    let slowest = on(&sim, policy, async {
        let listener = TcpListener::bind("127.0.0.1:7000")?;
        let mut client = TcpStream::connect("127.0.0.1:7000").await?;
        let (mut server, _) = listener.accept().await?;
        spawn(async move {
            while let Some(lease) = server.recv().await? {
                server.send(lease).await?;
            }
            io::Result::Ok(())
        });
        let writer = spawn(async {
            let mut file = File::create("/log").await?;
            for _ in 0..5 {
                file.write("a line\n").await.0?;
                file.sync_all().await?;
            }
            io::Result::Ok(())
        });
        let mut slowest = Duration::ZERO;
        while !writer.is_finished() {
            let start = Instant::now();
            client.send("echo").await?;
            client.recv().await?;
            slowest = slowest.max(start.elapsed());
        }
        writer.await.expect("the task panicked")?;
        Ok(slowest)
    });
    slowest.unwrap()
}

#[test]
fn a_slow_device_stalls_an_echo_only_if_calls_are_inline() {
    let few = Duration::from_millis(1);
    for policy in [Policy::Offload, Policy::Adaptive] {
        let slowest = slowest_echo(policy);
        assert!(slowest < few, "{policy:?}: an echo took {slowest:?}");
    }
    assert!(slowest_echo(Policy::Inline) >= Duration::from_millis(100));
}

/// Reads single pages, from the first page onwards.
async fn read_pages(file: &File, count: u64) -> io::Result<()> {
    for page in 0..count {
        let (read, _) = file.read_exact_at(vec![0; 4096], page % 64 * 4096).await;
        read?;
    }
    Ok(())
}

#[test]
fn a_file_that_leaves_the_page_cache_stalls_the_loop_a_few_times() {
    let device = Device { read: Duration::from_millis(10), ..Device::default() };
    let sim = Sim::builder(1).disk(Disk::new(device)).build();
    let ran = on(&sim, Policy::Adaptive, async {
        fs::write("/file", vec![1; 64 * 4096]).await?;
        let file = File::open("/file").await?;
        for round in 0..3 {
            read_pages(&file, 10_000).await?;
            file.sync_all().await?;
            sim.drop_page_cache();
            let before = annulus::counters().expect("not in a runtime");
            read_pages(&file, 64).await?;
            let after = annulus::counters().expect("not in a runtime");
            let left = after.file_ring - before.file_ring;
            assert!(left >= 60, "only {left} of 64 reads went off the loop in round {round}");
        }
        Ok(())
    });
    ran.unwrap();
}

#[test]
fn a_cold_file_is_read_off_the_loop_without_a_check_until_it_is_warm() {
    const PAGES: u64 = 512;
    let device = Device { read: Duration::from_micros(100), ..Device::default() };
    let sim = Sim::builder(1).disk(Disk::new(device)).build();
    let ran = on(&sim, Policy::Adaptive, async {
        fs::write("/file", vec![1; PAGES as usize * 4096]).await?;
        let file = File::open("/file").await?;
        file.sync_all().await?;
        let read = async |pages: u64| {
            let before = annulus::counters().expect("not in a runtime");
            for page in 0..pages {
                file.read_exact_at(vec![0; 4096], page * 4096).await.0?;
            }
            let after = annulus::counters().expect("not in a runtime");
            let misses = after.file_misses - before.file_misses;
            let ring = after.file_ring - before.file_ring;
            io::Result::Ok((misses, ring, after.file_inline - before.file_inline))
        };
        for round in 0..3 {
            sim.drop_page_cache();
            let (misses, ring, _) = read(PAGES).await?;
            assert!(ring >= PAGES - 4, "{ring} of {PAGES} reads on the ring in round {round}");
            assert!(misses <= PAGES / 16 + 4, "{misses} wasted checks in round {round}");
            let (_, ring, inline) = read(PAGES).await?;
            assert!(ring <= 16, "{ring} reads of a warm file went off the loop");
            assert_eq!(ring + inline, PAGES);
        }
        Ok(())
    });
    ran.unwrap();
}

#[test]
fn a_full_disk_is_an_error_until_a_file_is_removed() {
    let device = Device { capacity: 1 << 16, ..Device::default() };
    for policy in policies() {
        let sim = Sim::builder(1).disk(Disk::new(device)).build();
        let ran = on(&sim, policy, async {
            let error = fs::write("/large", vec![1; 1 << 17]).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
            fs::remove_file("/large").await?;
            fs::write("/small", vec![1; 1 << 15]).await
        });
        ran.unwrap_or_else(|error| panic!("{policy:?}: {error}"));
    }
}

#[test]
fn entries_removed_while_listing_hide_no_other_entry() {
    let sim = Sim::builder(1).build();
    let ran = on(&sim, Policy::Adaptive, async {
        fs::create_dir("/many").await?;
        for number in 0..1500 {
            fs::write(format!("/many/{number}"), "").await?;
        }
        let (mut entries, mut names) = (fs::read_dir("/many").await?, HashSet::new());
        while let Some(entry) = entries.next_entry().await? {
            assert!(names.insert(entry.file_name().to_os_string()), "an entry was listed twice");
            if names.len() <= 100 {
                fs::remove_file(entry.path()).await?;
            }
        }
        assert_eq!(names.len(), 1500);
        fs::remove_dir_all("/many").await
    });
    ran.unwrap();
    assert_eq!(sim.leftovers(), [""; 0]);
}

#[test]
fn files_opened_in_a_directory_stay_in_it() {
    let sim = Sim::builder(1).build();
    let ran = on(&sim, Policy::Adaptive, async {
        fs::create_dir("/home").await?;
        let home = Dir::open("/home").await?;
        let options = OpenOptions::new().write(true).create(true);
        let mut file = home.open_file("note", &options).await?;
        file.write("here").await.0?;
        drop(file);
        assert_eq!(fs::read_to_string("/home/note").await?, "here");
        let mut entries = fs::read_dir("/home").await?;
        let first = entries.next_entry().await?.expect("the directory is empty");
        assert_eq!(first.file_name(), "note");
        assert!(entries.next_entry().await?.is_none());
        Ok(())
    });
    ran.unwrap();
    assert_eq!(sim.leftovers(), [""; 0]);
}

#[test]
fn an_open_file_is_looked_up_again_after_its_validity() {
    for policy in policies() {
        let sim = Sim::builder(1).build();
        let ran = on(&sim, policy, async {
            fs::create_dir_all("/public/sub").await?;
            fs::write("/public/page", "old").await?;
            let files = FileCache::new(Dir::open("/public").await?);
            files.set_valid_for(Duration::from_secs(5));
            let first = files.open("page").await?;
            fs::write("/new", "newer").await?;
            fs::rename("/new", "/public/page").await?;
            sleep(Duration::from_millis(4900)).await;
            assert_eq!(files.open("page").await?.metadata().len(), 3);
            sleep(Duration::from_millis(100)).await;
            assert_eq!(files.open("page").await?.metadata().len(), 5);
            assert_eq!(first.metadata().len(), 3);
            // The file was found unchanged, so the result stays valid for the same time again.
            sleep(Duration::from_secs(5)).await;
            for _ in 0..2 {
                assert_eq!(files.open("page").await?.metadata().len(), 5);
            }
            assert_eq!(files.stats().checks, 2);
            assert!(files.open("sub/../page").await.is_ok());
            let error = files.open("../new").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            // Unused files are closed when another file is opened.
            sleep(Duration::from_secs(61)).await;
            assert!(files.open("sub").await?.metadata().is_dir());
            assert_eq!(files.len(), 1);
            Ok(())
        });
        ran.unwrap_or_else(|error| panic!("{policy:?}: {error}"));
        assert_eq!(sim.leftovers(), [""; 0], "{policy:?}");
    }
}

/// A directory that is restored counts the links `..` of its subdirectories.
#[test]
fn subdirectories_can_be_removed_after_a_power_cut() -> io::Result<()> {
    let sim = Sim::builder(1).build();
    run_on(&sim, Runtime::builder(), async {
        fs::create_dir_all("/a/b/c").await?;
        for (name, parent) in
            [("/x", "/"), ("/y", "/"), ("/z", "/"), ("/a/d", "/a"), ("/a/b/e", "/a/b")]
        {
            fs::create_dir(name).await?;
            File::open(parent).await?.sync_all().await?;
        }
        io::Result::Ok(())
    })?;
    let sim = Sim::builder(2).disk(sim.disk().after_power_cut(3)).build();
    run_on(&sim, Runtime::builder(), async {
        assert_eq!(fs::metadata("/").await?.nlink(), 6);
        fs::remove_dir_all("/a").await?;
        for name in ["/x", "/y", "/z"] {
            fs::remove_dir(name).await?;
        }
        assert_eq!(fs::metadata("/").await?.nlink(), 2);
        fs::write("/file", "new").await
    })
}
