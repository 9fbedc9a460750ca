//! Renews the roster during a download.

use crate::commands::{host, renewal};
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel},
    thread,
    time::Duration,
};
use thalweg_mesh::State;
use thalweg_net::DialOptions;
use thalweg_wire::mesh::Tag;

/// A stored roster that is older than this is renewed: a new relay is used soon, and a script of many small downloads
/// does not ask for each.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The longest wait of a download for a roster that it needs for a path.
const WAIT: Duration = Duration::from_secs(1);

/// The oracle's timeout while the download runs.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A request to the oracle; it ends with the process at the latest.
pub struct Renewal(Option<Receiver<anyhow::Result<()>>>);

impl Renewal {
    /// A request that is never sent.
    pub fn none() -> Self {
        Self(None)
    }

    /// Asks if the stored roster is old, lacks one of the `names` or `tags`, or is not valid. In the latter two cases
    /// it waits for the answer, a second at most.
    pub fn start(state: anyhow::Result<State>, names: &[&str], tags: &[Tag]) -> Self {
        let Some(state) = state.ok().filter(State::has_mesh) else { return Self(None) };
        let lacks = lacks(&state, names, tags);
        if !lacks && renewal::age(&state).is_some_and(|age| age <= MAX_AGE) {
            return Self(None);
        }
        let (sender, answer) = sync_channel(1);
        // On a separate thread, so that a name lookup that hangs does not delay the end of a download.
        let ask = move || {
            let renewed = host::block_on(renewal::renew_without_daemon(
                &state,
                DialOptions::default(),
                TIMEOUT,
            ));
            _ = sender.send(renewed);
        };
        let started = thread::Builder::new().name("roster".to_owned()).spawn(ask);
        let mut asked = Self(started.ok().map(|_| answer));
        if lacks {
            asked.wait();
        }
        asked
    }

    fn wait(&mut self) {
        let Some(answer) = &self.0 else { return };
        match answer.recv_timeout(WAIT) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.0 = None,
            Ok(renewed) => {
                self.0 = None;
                tell(renewed);
            }
        }
    }

    /// After the download: reports if the oracle has refused this host.
    pub fn finish(self) {
        match self.0.map(|answer| answer.try_recv()) {
            None | Some(Err(TryRecvError::Empty | TryRecvError::Disconnected)) => {}
            Some(Ok(renewed)) => tell(renewed),
        }
    }
}

/// Reports a refusal: this host is no longer a member. An oracle that is away is no problem.
fn tell(renewed: anyhow::Result<()>) {
    if let Some(refused) = renewed.err().filter(renewal::is_refusal) {
        thalweg_console::note!("thalweg: {refused}");
    }
}

/// Whether there is no valid roster, or one of the names or tags is not in it.
fn lacks(state: &State, names: &[&str], tags: &[Tag]) -> bool {
    let Ok(membership) = state.membership() else { return false };
    let Some(roster) = membership.current() else { return true };
    let unknown = |name: &&str| {
        !name.contains(':') && name.parse().is_ok_and(|name| roster.by_name(&name).is_none())
    };
    let strange = |tag: &Tag| !roster.members.iter().any(|m| m.tags.contains(tag));
    membership.time_left().is_none() || names.iter().any(unknown) || tags.iter().any(strange)
}
