//! The disks of hosts: each has its own, and each can fail, fill up, slow down and lose its power.

use annulus::fs::{self, AlignedBuf, File, Lock, OpenOptions};
use annulus::sim::{Device, Disk, Disturbance, Disturbances, Network, find_failure};
use annulus::spawn;
use annulus::time::{Instant, sleep};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Writes a file and its name durably, then another one without a sync.
async fn write_two() -> io::Result<()> {
    if fs::try_exists("/synced").await? {
        return Ok(());
    }
    for (name, is_synced) in [("/synced", true), ("/unsynced", false)] {
        let file = File::create(name).await?;
        file.write_all_at(vec![7; 5000], 0).await.0?;
        if is_synced {
            file.sync_all().await?;
            File::open("/").await?.sync_all().await?;
        }
    }
    Ok(())
}

/// Returns the length of a file on a disk; 0 if it does not exist.
fn len(disk: Disk, name: &'static str) -> u64 {
    let sim = annulus::sim::Sim::builder(1).disk(disk).build();
    let found = annulus::sim::run_on(&sim, annulus::Runtime::builder(), fs::metadata(name));
    found.map_or(0, |metadata| metadata.len())
}

#[test]
fn a_power_cut_of_one_host_leaves_the_disks_of_the_others() -> io::Result<()> {
    let mut lost = 0;
    for seed in 0..20 {
        let network = Network::new(seed);
        for name in ["one", "other"] {
            network.host(name, write_two)?;
        }
        let faults = network.clone();
        network.client("test", async move {
            sleep(SECOND).await;
            faults.power_cut("one")?;
            faults.crash("other")?;
            sleep(SECOND).await;
            faults.bounce("one")?;
            faults.bounce("other")?;
            sleep(SECOND).await;
            let none = fs::try_exists("/synced").await?;
            assert!(!none, "a client sees the disk of a host");
            let running = faults.set_disk("one", Disk::new(Device::default())).unwrap_err();
            assert!(running.to_string().contains("'one' is running"), "{running}");
            assert_eq!(faults.power_cut("test").unwrap_err().kind(), ErrorKind::InvalidInput);
            io::Result::Ok(())
        })?;
        network.run()?;
        assert_eq!(len(network.disk("one")?, "/synced"), 5000);
        assert_eq!(len(network.disk("other")?, "/synced"), 5000);
        assert_eq!(len(network.disk("other")?, "/unsynced"), 5000, "a crash has lost bytes");
        assert_eq!(network.sim().open_descriptors(), 0);
        lost += u32::from(len(network.disk("one")?, "/unsynced") < 5000);
    }
    assert!((1..20).contains(&lost), "{lost} of 20 power cuts have lost bytes");
    Ok(())
}

/// Creates files, and fails if one is missing at the next start. Without a sync of the directory,
/// their names may be lost.
async fn create(names: Rc<Cell<u32>>, syncs_directory: bool) -> io::Result<()> {
    for name in 0..names.get() {
        fs::metadata(format!("/{name}")).await?;
    }
    loop {
        let file = File::create(format!("/{}", names.get())).await?;
        file.sync_all().await?;
        if syncs_directory {
            File::open("/").await?.sync_all().await?;
        }
        names.set(names.get() + 1);
        sleep(SECOND / 10).await;
    }
}

#[test]
fn a_missing_sync_of_a_directory_is_found() {
    let simulate = |syncs_directory| {
        move |seed| {
            let (network, names) = (Network::new(seed), Rc::new(Cell::new(0)));
            network.host("server", move || create(names.clone(), syncs_directory))?;
            let faults = network.clone();
            network.client("test", async move {
                sleep(SECOND).await;
                faults.power_cut("server")?;
                faults.bounce("server")?;
                sleep(SECOND).await;
                io::Result::Ok(())
            })?;
            network.run()
        }
    };
    let failed = find_failure(0..10, simulate(false)).expect("no seed has lost a name");
    assert!(failed.message.contains("No such file"), "{failed}");
    assert_eq!(find_failure(0..10, simulate(true)), None);
}

#[test]
fn a_direct_write_in_flight_at_a_power_cut_may_be_torn() -> io::Result<()> {
    let (mut whole, mut torn, mut none) = (0, 0, 0);
    for seed in 0..60 {
        let network = Network::new(seed);
        network.host("server", async || {
            if fs::try_exists("/file").await? {
                return io::Result::Ok(());
            }
            let options = OpenOptions::new().write(true).create(true).direct(true);
            let file = options.open("/file").await?;
            file.set_len(4096).await?;
            file.sync_all().await?;
            File::open("/").await?.sync_all().await?;
            let mut buf = AlignedBuf::new(4096, 512)?;
            buf.fill(7);
            file.write_at(buf, 0).await.0?;
            unreachable!("the device takes an hour")
        })?;
        network.set_device("server", Device { write: 3600 * SECOND, ..Device::default() })?;
        network.time_limit(10_000 * SECOND);
        let faults = network.clone();
        network.client("test", async move {
            // The server's sync takes an hour, because it writes the length. The direct write is in
            // flight when the power fails.
            sleep(3700 * SECOND).await;
            faults.power_cut("server")?;
            sleep(SECOND).await;
            io::Result::Ok(())
        })?;
        network.run()?;
        let sim = annulus::sim::Sim::builder(1).disk(network.disk("server")?).build();
        let bytes = annulus::sim::run_on(&sim, annulus::Runtime::builder(), fs::read("/file"))?;
        assert_eq!(bytes.len(), 4096);
        for sector in bytes.chunks(512) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector was torn");
        }
        match bytes.iter().filter(|byte| **byte == 7).count() {
            0 => none += 1,
            4096 => whole += 1,
            _ => torn += 1,
        }
    }
    assert!(whole > 5 && torn > 5 && none > 5, "{whole} whole, {torn} torn, {none} not written");
    Ok(())
}

/// What `busy` has observed on its host.
#[derive(Default)]
struct Felt {
    errors: Vec<ErrorKind>,
    slowest: Duration,
    starts: u32,
}

/// Writes and syncs files all the time.
async fn busy(felt: Rc<RefCell<Felt>>) -> io::Result<()> {
    felt.borrow_mut().starts += 1;
    for number in 0.. {
        let start = Instant::now();
        let written = async {
            let file = File::create(format!("/{}", number % 3)).await?;
            file.write_all_at(vec![1; 5000], 0).await.0?;
            file.sync_all().await
        };
        let outcome = written.await;
        {
            let felt = &mut *felt.borrow_mut();
            felt.errors.extend(outcome.err().map(|error| error.kind()));
            felt.slowest = felt.slowest.max(start.elapsed());
        }
        sleep(SECOND / 100).await;
    }
    Ok(())
}

#[test]
fn every_disturbance_of_a_disk_begins_and_ends() -> io::Result<()> {
    for kind in [
        &[Disturbance::PowerCut],
        &[Disturbance::SlowDisk],
        &[Disturbance::FailingDisk],
        &[Disturbance::FullDisk],
    ] {
        let (network, felt) = (Network::new(3), Rc::<RefCell<Felt>>::default());
        let shared = felt.clone();
        network.host("server", move || busy(shared.clone()))?;
        network.disturb(Disturbances { kinds: kind, ..Disturbances::default() });
        let (faults, shared) = (network.clone(), felt.clone());
        network.client("test", async move {
            sleep(60 * SECOND).await;
            faults.calm();
            sleep(3 * SECOND).await;
            let disturbed = shared.take();
            sleep(10 * SECOND).await;
            let calm = shared.take();
            assert!(calm.errors.is_empty() && calm.slowest < SECOND / 100 && calm.starts == 0);
            *shared.borrow_mut() = disturbed;
            io::Result::Ok(())
        })?;
        network.run()?;
        let Felt { errors, slowest, starts } = felt.take();
        match kind[0] {
            Disturbance::PowerCut => assert!(starts > 1, "{starts} starts"),
            Disturbance::SlowDisk => assert!(slowest > SECOND / 20, "{slowest:?}"),
            Disturbance::FullDisk => assert!(errors.contains(&ErrorKind::StorageFull)),
            _ => assert!(errors.len() > 10, "{errors:?}"),
        }
        assert_eq!(
            errors.is_empty(),
            matches!(kind[0], Disturbance::PowerCut | Disturbance::SlowDisk)
        );
    }
    Ok(())
}

#[test]
fn a_device_that_a_program_sets_keeps_its_disturbance() -> io::Result<()> {
    let network = Network::new(1);
    network.client("test", {
        let network = network.clone();
        async move {
            let few = Duration::from_millis(1);
            network.disturb(Disturbances {
                kinds: &[Disturbance::FullDisk],
                pause: few..2 * few,
                length: 1000 * SECOND..2000 * SECOND,
            });
            sleep(SECOND).await;
            network.set_device("test", Device { sync: SECOND, ..Device::default() })?;
            sleep(few).await;
            let full = fs::write("/file", "text").await.expect_err("the disk is full");
            assert_eq!(full.kind(), ErrorKind::StorageFull);
            network.calm();
            sleep(few).await;
            fs::write("/file", "text").await?;
            let start = Instant::now();
            let file = Rc::new(File::open("/file").await?);
            let syncing = file.clone();
            spawn(async move { syncing.sync_all().await }).await.expect("no panic")?;
            assert!(start.elapsed() >= SECOND, "the program's device was replaced");
            io::Result::Ok(())
        }
    })?;
    network.run()
}

/// Locks a file for as long as the host runs. Fails if the lock of an earlier start is still held.
async fn hold_lock(starts: Rc<Cell<u32>>) -> io::Result<()> {
    starts.set(starts.get() + 1);
    let held = OpenOptions::new().write(true).create(true).open("/lock").await?;
    held.try_lock(Lock::Exclusive).await.expect("a lock of an earlier start is held");
    let other = File::open("/lock").await?;
    for lock in [Lock::Shared, Lock::Exclusive] {
        other.try_lock(lock).await.expect_err("a lock was allowed beside an exclusive one");
    }
    held.try_lock(Lock::Shared).await?;
    other.try_lock(Lock::Shared).await?;
    other.try_lock(Lock::Exclusive).await.expect_err("an exclusive lock beside a shared one");
    drop(other);
    held.try_lock(Lock::Exclusive).await.expect("the drop has not released the lock");
    sleep(Duration::MAX).await;
    Ok(())
}

#[test]
fn locks_exclude_other_opens_and_end_with_the_host() -> io::Result<()> {
    let (network, starts) = (Network::new(1), Rc::<Cell<u32>>::default());
    let counted = starts.clone();
    network.host("host", move || hold_lock(counted.clone()))?;
    let faults = network.clone();
    network.client("test", async move {
        sleep(SECOND).await;
        faults.power_cut("host")?;
        faults.bounce("host")?;
        sleep(SECOND).await;
        faults.crash("host")?;
        faults.bounce("host")?;
        sleep(SECOND).await;
        io::Result::Ok(())
    })?;
    network.run()?;
    assert_eq!(starts.get(), 3);
    Ok(())
}
