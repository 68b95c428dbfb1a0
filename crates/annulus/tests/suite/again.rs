//! Tests that run themselves again in a child process fail if the name they give does not exist.

use crate::common::again;

#[test]
#[should_panic(expected = "0 passed")]
fn a_name_that_no_test_has_is_no_success() {
    again::assert_passes(&mut again::command("program::no_such_test"));
}
