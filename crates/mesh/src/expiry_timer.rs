//! One timer for all tasks that wait for the roster's expiry (decision 0018).

use super::membership::Inner;
use parking_lot::Mutex;
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{sync::watch, task::JoinHandle, time::sleep};

/// How often the wall clock is compared with the roster's expiry: it may jump, and timers do not follow it.
const CLOCK_CHECK: Duration = Duration::from_secs(1);

/// Wakes the tasks that wait for the roster's expiry.
///
/// A timer for each of 8,000 idle connections would wake 8,000 tasks a second, a few per cent of a core; this is one
/// task.
#[derive(Debug, Default)]
pub(super) struct ExpiryTimer {
    invalid: watch::Sender<()>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl ExpiryTimer {
    /// A receiver that is notified at least once a second while the roster is not valid. The task that notifies it runs
    /// in the runtime of the first caller, as long as the membership lives.
    pub(super) fn watch(&self, membership: &Arc<Inner>) -> watch::Receiver<()> {
        let lapsed = self.invalid.subscribe();
        let mut task = self.task.lock();
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            *task = Some(tokio::spawn(notify_while_invalid(Arc::downgrade(membership))));
        }
        lapsed
    }
}

async fn notify_while_invalid(membership: Weak<Inner>) {
    while let Some(inner) = membership.upgrade() {
        let left = inner.time_left();
        if left.is_none() {
            inner.guard.invalid.send_replace(());
        }
        drop(inner);
        sleep(left.unwrap_or(CLOCK_CHECK).min(CLOCK_CHECK)).await;
    }
}
