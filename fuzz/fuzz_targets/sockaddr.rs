//! Reads arbitrary bytes as a socket address in the kernel's layout. An internet or Unix address
//! that was accepted can be written and read back unchanged.
#![no_main]

use annulus_kernel::{Address, UnixName};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let address = Address::from_bytes(bytes);
    assert!(bytes.starts_with(address.as_bytes()));
    assert!(!format!("{address:?}").is_empty());
    if let Ok(inet) = address.to_inet() {
        assert_eq!(Address::from(inet).to_inet().ok(), Some(inet));
        let (raw, len) = Address::inet_bytes(inet);
        assert_eq!(Address::read_inet(&raw[..len]).ok(), Some(inet));
    }
    if let Ok(name) = address.to_unix()
        && let Ok(again) = Address::unix(name)
    {
        assert_eq!(again.to_unix().ok(), Some(name));
    }
    let name = match bytes {
        [0, name @ ..] => UnixName::Abstract(name),
        path => UnixName::Path(path),
    };
    if let Ok(address) = Address::unix(name) {
        assert_eq!(address.to_unix().ok(), Some(name));
    }
});
