//! A pipe without a reader raises no signal, even if the process does not ignore it. This test
//! has its own binary, because it changes the signals of the process.

mod common;

use annulus::pipe::pipe;
use common::run;
use std::io::ErrorKind;

#[test]
fn a_broken_pipe_does_not_end_a_process_with_the_default_sigpipe() {
    // SAFETY: no other code of this process deals with signals.
    #[allow(unsafe_code)]
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL)
    };
    run(async {
        let (mut sender, receiver) = pipe()?;
        drop(receiver);
        while sender.send("to no reader").await.is_ok() {
            annulus::task::yield_now().await;
        }
        assert_eq!(sender.drain().await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        Ok(())
    });
}
