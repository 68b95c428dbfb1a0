//! Addresses as text, as servers announce them and users write them: what is read is written the same way.
#![no_main]

use annulus_load::Place;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(place) = text.parse::<Place>() else { return };
    assert_eq!(place.to_string().parse::<Place>().ok().as_ref(), Some(&place));
    if let Err(error) = place.validate() {
        assert!(!error.to_string().is_empty());
    }
});
