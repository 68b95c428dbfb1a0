//! Tests that run themselves again in a child process fail if the name they give does not exist.

use crate::common::again;

#[test]
#[should_panic(expected = "0 passed")]
fn an_unknown_test_name_is_a_failure() {
    again::assert_passes(&mut again::command("program::no_such_test"));
}
