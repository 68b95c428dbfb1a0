//! A test that runs itself again in a child process fails if it passes the name of a test that does
//! not exist.

use crate::common::rerun;

#[test]
#[should_panic(expected = "0 passed")]
fn an_unknown_test_name_is_a_failure() {
    rerun::assert_passes(&mut rerun::command("program::no_such_test"));
}
