//! The roster, asked for beside a download.

use crate::commands::{here, renewal};
use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel},
    thread,
    time::Duration,
};
use thalweg_mesh::State;
use thalweg_net::DialOptions;
use thalweg_wire::mesh::Tag;

/// A kept roster is asked for again after this time: a new relay is used soon, and a script
/// of many small downloads does not ask at each.
const FRESH: Duration = Duration::from_secs(600);

/// How long a download waits for a roster without which a path is lacking.
const WAIT: Duration = Duration::from_secs(1);

/// How long the oracle may take while the download runs.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question to the oracle; it ends with the process at the latest.
pub struct Renewal(Option<Receiver<anyhow::Result<()>>>);

impl Renewal {
    /// Nothing is asked.
    pub fn none() -> Self {
        Self(None)
    }

    /// Asks if the kept roster is old, lacks one of the `names` or `tags`, or does not hold;
    /// waits for the answer, a second at most, only in the latter cases.
    pub fn start(state: anyhow::Result<State>, names: &[&str], tags: &[Tag]) -> Self {
        let Some(state) = state.ok().filter(State::has_mesh) else { return Self(None) };
        let lacks = lacks(&state, names, tags);
        if !lacks && renewal::age(&state).is_some_and(|age| age <= FRESH) {
            return Self(None);
        }
        let (told, answer) = sync_channel(1);
        // Of its own thread: a look-up of names that hangs holds up no download's end.
        let ask = move || {
            let renewed = here::block_on(renewal::renew_without_daemon(
                &state,
                DialOptions::default(),
                PATIENCE,
            ));
            _ = told.send(renewed);
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

    /// After the download: says if the oracle refused this host meanwhile.
    pub fn finish(self) {
        match self.0.map(|answer| answer.try_recv()) {
            None | Some(Err(TryRecvError::Empty | TryRecvError::Disconnected)) => {}
            Some(Ok(renewed)) => tell(renewed),
        }
    }
}

/// An oracle that is away hinders nothing; that this host is no member any more, it is to know.
fn tell(renewed: anyhow::Result<()>) {
    if let Some(refused) = renewed.err().filter(renewal::is_refusal) {
        thalweg_console::note!("thalweg get: {refused}");
    }
}

/// Whether there is no roster that holds, or one of the names or tags is not in it.
fn lacks(state: &State, names: &[&str], tags: &[Tag]) -> bool {
    let Ok(membership) = state.membership() else { return false };
    let Some(roster) = membership.current() else { return true };
    let unknown = |name: &&str| {
        !name.contains(':') && name.parse().is_ok_and(|name| roster.by_name(&name).is_none())
    };
    let strange = |tag: &Tag| !roster.members.iter().any(|m| m.tags.contains(tag));
    membership.time_left().is_none() || names.iter().any(unknown) || tags.iter().any(strange)
}
