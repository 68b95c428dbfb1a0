//! Addresses as text, as servers announce them and users write them: what is read is written the same way.
#![no_main]

use annulus_load::ServerAddress;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(address) = text.parse::<ServerAddress>() else { return };
    assert_eq!(address.to_string().parse::<ServerAddress>().ok().as_ref(), Some(&address));
    if let Err(error) = address.validate() {
        assert!(!error.to_string().is_empty());
    }
});
