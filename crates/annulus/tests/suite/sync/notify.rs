use super::is_ready;
use crate::common::run;
use annulus::sync::Notify;

#[test]
fn one_notification_is_kept_and_the_longest_waiter_gets_it() {
    run(async {
        let notify = Notify::new();
        notify.notify_one();
        notify.notify_one();
        notify.notified().await;
        let (mut first, mut second) = (notify.notified(), notify.notified());
        assert!(!is_ready(&mut first).await, "two without a waiter are one");
        assert!(!is_ready(&mut second).await);
        notify.notify_one();
        assert!(!is_ready(&mut second).await);
        assert!(is_ready(&mut first).await);
        notify.notify_one();
        assert!(is_ready(&mut second).await);
        Ok(())
    });
}

/// What comes after `notify_waiters` is for those that wait after it.
#[test]
fn one_that_all_were_told_takes_no_later_notification() {
    run(async {
        let notify = Notify::new();
        let (mut first, mut second) = (notify.notified(), notify.notified());
        assert!(!is_ready(&mut first).await);
        notify.notify_waiters();
        let mut later = notify.notified();
        assert!(!is_ready(&mut later).await);
        notify.notify_one();
        assert!(is_ready(&mut first).await && is_ready(&mut second).await);
        assert!(is_ready(&mut later).await);
        Ok(())
    });
}

#[test]
fn a_waiter_that_goes_passes_it_on() {
    run(async {
        let notify = Notify::new();
        let (mut first, mut second) = (notify.notified(), notify.notified());
        assert!(!is_ready(&mut first).await && !is_ready(&mut second).await);
        notify.notify_one();
        drop(first);
        assert!(is_ready(&mut second).await);
        Ok(())
    });
}

#[test]
fn all_that_there_are_polled_or_not_and_none_later() {
    run(async {
        let notify = Notify::new();
        let (mut polled, mut fresh) = (notify.notified(), notify.notified());
        assert!(!is_ready(&mut polled).await);
        notify.notify_waiters();
        assert!(is_ready(&mut polled).await && is_ready(&mut fresh).await);
        assert!(!is_ready(&mut notify.notified()).await);
        // One that was notified by itself as well keeps no second notification.
        let mut both = notify.notified();
        assert!(!is_ready(&mut both).await);
        notify.notify_one();
        notify.notify_waiters();
        assert!(is_ready(&mut both).await);
        assert!(!is_ready(&mut notify.notified()).await);
        Ok(())
    });
}
