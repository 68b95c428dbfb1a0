//! Control messages in the kernel's layout (`struct cmsghdr`), read from arbitrary bytes. Reading
//! terminates, and each message that can be written again is read back unchanged.
#![no_main]

use annulus_kernel::{Control, ControlWriter, Controls, Direction, descriptors, space};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let read: Vec<Control<'_>> = Controls::new(bytes).collect();
    assert!(
        read.len() * space(0) <= bytes.len() + space(0),
        "more control messages were read than the bytes can hold"
    );
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
            assert!(matches!(control, Control::Unknown { .. }), "{control:?} was not written");
        }
    }
}
