//! A test that runs again by a name that is gone.

use crate::common::again;

#[test]
#[should_panic(expected = "0 passed")]
fn a_name_that_no_test_has_is_no_success() {
    again::assert_passes(&mut again::command("program::no_such_test"));
}
