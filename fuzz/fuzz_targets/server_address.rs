//! Parses arbitrary text as an address of a server. The printed form of an accepted address is
//! parsed as the same address.
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
