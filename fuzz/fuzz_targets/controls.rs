//! Control messages as the kernel writes them (`struct cmsghdr`), of any bytes: reading ends, and what is read and can be
//! written comes back the same.
#![no_main]

use annulus_kernel::{Control, ControlWriter, Controls, Direction, descriptors, space};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let read: Vec<Control<'_>> = Controls::new(bytes).collect();
    assert!(read.len() * space(0) <= bytes.len() + space(0), "each takes its header");
    for control in &read {
        if let Control::Descriptors(numbers) = control {
            assert_eq!(descriptors(numbers).count(), numbers.len() / 4);
        }
        come_back(*control);
    }
});

fn come_back(control: Control<'_>) {
    let mut room = vec![0; 4096 + size_of_val(&control)];
    if let Control::Descriptors(numbers) = control {
        room.resize(space(numbers.len()), 0);
    }
    for direction in [Direction::Received, Direction::Sent] {
        let mut writer = ControlWriter::new(&mut room, direction);
        if writer.push(control) {
            let len = writer.len();
            let again: Vec<Control<'_>> = Controls::new(&room[..len]).collect();
            assert_eq!(again, [control], "{direction:?}");
        } else {
            assert!(matches!(control, Control::Unknown { .. }), "{control:?} has room");
        }
    }
}
