//! Legs that the source opened after a call.

use crate::leg::Leg;
use thalweg_wire::cast::ServiceMode;
use tokio::sync::{Mutex, mpsc};

/// The capacity of the queue. One call is made at a time; more legs are late answers.
const WAITING: usize = 4;

/// Passes legs from the source's channels to the task that called.
#[derive(Debug)]
pub struct IncomingLegs {
    from: mpsc::Sender<(ServiceMode, Leg)>,
    to: Mutex<mpsc::Receiver<(ServiceMode, Leg)>>,
}

impl Default for IncomingLegs {
    fn default() -> Self {
        let (from, to) = mpsc::channel(WAITING);
        Self { from, to: Mutex::new(to) }
    }
}

impl IncomingLegs {
    /// Queues a leg on which the source serves in the given way. Returns whether there was room; otherwise the leg is
    /// closed.
    pub fn take(&self, how: ServiceMode, leg: Leg) -> bool {
        self.from.try_send((how, leg)).is_ok()
    }

    /// Closes legs that came too late for their call. Must be called before the next call.
    pub async fn forget(&self) {
        let mut to = self.to.lock().await;
        while to.try_recv().is_ok() {}
    }

    /// Waits for the next leg of this kind. Legs of other kinds are closed.
    pub async fn next(&self, how: ServiceMode) -> Option<Leg> {
        let mut to = self.to.lock().await;
        loop {
            let (its, leg) = to.recv().await?;
            if its == how {
                return Some(leg);
            }
        }
    }
}
