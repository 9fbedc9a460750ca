//! Faults of interfaces: a list of current ones, and notices of new ones.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use tokio::sync::Notify;

/// Faults whose notice is pending: an interface has a few at most. Beyond that, the oldest is not reported.
const MOST_UNTOLD: usize = 64;

/// Faults that are listed; names of interfaces come and go. Further ones are not listed.
const MOST: usize = 256;

/// Current faults, and those that were not reported yet.
#[derive(Debug, Default)]
pub(super) struct Faults {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    now: BTreeMap<String, String>,
    untold: VecDeque<String>,
}

impl Faults {
    /// Begins the fault `what`, described by `why`. It is reported once until it ends.
    pub fn begin(&self, what: &str, why: String) {
        let mut state = self.state.lock();
        if !state.now.contains_key(what) && state.now.len() < MOST {
            state.now.insert(what.to_owned(), why.clone());
            if state.untold.len() >= MOST_UNTOLD {
                state.untold.pop_front();
            }
            state.untold.push_back(why);
            self.news.notify_one();
        }
    }

    /// Ends the fault `what`.
    pub fn end(&self, what: &str) {
        self.state.lock().now.remove(what);
    }

    /// The descriptions of all current faults.
    pub fn all(&self) -> Vec<String> {
        self.state.lock().now.values().cloned().collect()
    }

    /// Reports each new fault to `note`; never returns.
    pub async fn report_to(&self, note: impl Fn(String)) {
        loop {
            let next = self.state.lock().untold.pop_front();
            match next {
                Some(why) => note(why),
                None => self.news.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::RefCell, future::pending, time::Duration};
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn a_fault_is_reported_once_until_it_ends() {
        let (faults, heard) = (Faults::default(), RefCell::new(Vec::new()));
        faults.begin("save", "no space".to_owned());
        faults.begin("save", "no space at all".to_owned());
        faults.begin("look", "no kernel".to_owned());
        assert_eq!(faults.all(), ["no kernel", "no space"]);
        faults.end("save");
        faults.begin("save", "read-only".to_owned());
        let telling = faults.report_to(|why| heard.borrow_mut().push(why));
        let both = async { tokio::join!(telling, pending::<()>()) };
        assert!(timeout(Duration::from_secs(1), both).await.is_err());
        assert_eq!(*heard.borrow(), ["no space", "no kernel", "read-only"]);
        assert_eq!(faults.all(), ["no kernel", "read-only"]);
    }
}
