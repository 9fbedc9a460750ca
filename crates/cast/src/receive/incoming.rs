//! Legs that the source has opened because it was called.

use crate::leg::Leg;
use thalweg_wire::cast::Want;
use tokio::sync::{Mutex, mpsc};

/// Legs that wait to be taken: one is called for at a time, others are late.
const WAITING: usize = 4;

/// From the source's channels to whoever called.
#[derive(Debug)]
pub struct Incoming {
    from: mpsc::Sender<(Want, Leg)>,
    to: Mutex<mpsc::Receiver<(Want, Leg)>>,
}

impl Default for Incoming {
    fn default() -> Self {
        let (from, to) = mpsc::channel(WAITING);
        Self { from, to: Mutex::new(to) }
    }
}

impl Incoming {
    /// One has come, on which the source serves like this; whether it waits now. Else it is closed.
    pub fn take(&self, how: Want, leg: Leg) -> bool {
        self.from.try_send((how, leg)).is_ok()
    }

    /// Those that came too late for their call are closed: to be done before another call.
    pub async fn forget(&self) {
        let mut to = self.to.lock().await;
        while to.try_recv().is_ok() {}
    }

    /// The next one of this kind.
    pub async fn next(&self, how: Want) -> Option<Leg> {
        let mut to = self.to.lock().await;
        loop {
            let (its, leg) = to.recv().await?;
            if its == how {
                return Some(leg);
            }
        }
    }
}
