//! Registered files: the simulated kernel gives the same results as Linux.

use crate::common::*;
use annulus_ring::FileTable;
use annulus_sim::Sim;
use rustix::io::Errno;

const BADF: i32 = -Errno::BADF.raw_os_error();

#[test]
fn a_registered_file_is_named_by_its_index_and_stays_open() {
    on_both(|mut host| {
        let (a, b) = host.pair();
        let sends = |bytes: &'static [u8], index| send(a, bytes, ALL).of_file(index);
        assert_eq!(host.once(sends(b"no table", 1)), BADF);
        let table = FileTable::register(&host.ring, 2).unwrap();
        assert_eq!(host.once(sends(b"an empty index", 1)), BADF);
        table.set(&host.ring, 1, a).unwrap();
        assert_eq!(host.once(sends(b"by index", 1)), 8);
        assert_eq!(host.recv(b), Ok(b"by index".to_vec()));
        assert_eq!(host.once(sends(b"behind the table", 7)), BADF);
        host.kernel.close(a);
        assert_eq!(host.once(sends(b"still open", 1)), 10);
        assert_eq!(host.recv(b), Ok(b"still open".to_vec()));
        table.clear(&host.ring, 1).unwrap();
        assert_eq!(host.recv(b), Ok(Vec::new()), "the last reference is gone");
        assert_eq!(host.once(sends(b"cleared", 1)), BADF);
    });
}

#[test]
fn an_index_takes_another_file_and_gives_the_first_one_up() {
    on_both(|mut host| {
        let ((a, b), (c, d)) = (host.pair(), host.pair());
        let table = FileTable::register(&host.ring, 1).unwrap();
        table.set(&host.ring, 0, a).unwrap();
        host.kernel.close(a);
        table.set(&host.ring, 0, c).unwrap();
        assert_eq!(host.recv(b), Ok(Vec::new()));
        assert_eq!(host.once(send(c, b"other", ALL).of_file(0)), 5);
        assert_eq!(host.recv(d), Ok(b"other".to_vec()));
    });
}

#[test]
fn a_ring_has_one_table_and_what_it_cannot_hold_is_refused() {
    on_both(|mut host| {
        let errno = |result: std::io::Result<()>| errno_of(&result.unwrap_err()).unwrap();
        let (a, _b) = host.pair();
        assert!(FileTable::register(&host.ring, 0).is_err());
        let table = FileTable::register(&host.ring, 2).unwrap();
        assert_eq!(errno(FileTable::register(&host.ring, 2).map(drop)), Errno::BUSY);
        assert_eq!(errno(table.set(&host.ring, 2, a)), Errno::INVAL);
        assert_eq!(errno(table.set(&host.ring, 0, owned(9_999_999))), Errno::BADF);
        table.set(&host.ring, 0, a).unwrap();
        table.clear(&host.ring, 1).unwrap();
    });
}

#[test]
fn files_of_a_ring_that_ends_are_given_up() {
    let (mut host, sim) = Host::simulated(Sim::builder(1));
    let (a, b) = host.pair();
    let table = FileTable::register(&host.ring, 1).unwrap();
    table.set(&host.ring, 0, a).unwrap();
    host.kernel.close(a);
    host.kernel.close(b);
    assert_ne!(sim.leftovers(), [] as [&str; 0]);
    drop(host);
    assert_eq!(sim.leftovers(), [] as [&str; 0]);
}

#[test]
fn a_table_has_no_more_indices_than_the_process_may_have_descriptors() {
    let (host, _) = Host::simulated(Sim::builder(1).descriptors(8));
    let error = FileTable::register(&host.ring, 9).unwrap_err();
    assert_eq!(errno_of(&error), Some(Errno::MFILE));
    FileTable::register(&host.ring, 8).unwrap();
}
