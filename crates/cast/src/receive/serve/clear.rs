//! Removes casts whose offers have expired: stops their tasks and deletes received data.

use super::{ServiceState, State};
use crate::receive::{cast_directory::CastDirectory, reception::Reception};
use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt as _, sync::Arc, time::Duration};
use thalweg_base::log::Event;
use thalweg_wire::cast::{CastId, Refusal};
use tokio::task::spawn_blocking;

/// How long the data of an incomplete cast is kept after its offer has expired.
const UNFINISHED: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long an offer may hold its place without a description.
const UNDESCRIBED: Duration = Duration::from_secs(600);

/// The action that is due for a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DueAction {
    Nothing,
    /// Stop the task: nobody serves the cast any more. The data is kept in case it is offered again.
    Stop,
    /// Remove everything but the complete object.
    Remove,
}

impl ServiceState {
    /// Ends and removes casts whose offers have expired. A complete cast loses what is kept for other receivers at
    /// once; an incomplete one loses its data a week later.
    pub(super) fn clear(&self) {
        self.drop_removed();
        let now = self.membership.now().as_unix_nanos();
        let mut over = Vec::new();
        self.lock().retain(|_, entry| {
            let is_idle = entry.since.elapsed() > UNDESCRIBED && is_only_offered(&entry.reception);
            let due = if is_idle { DueAction::Remove } else { due(&entry.reception, now) };
            if due == DueAction::Stop || entry.is_running && due == DueAction::Remove {
                // The data is removed at the next call.
                entry.stop.cancel();
                entry.reception.set(State::Failed(Refusal::Over));
            }
            let goes = due == DueAction::Remove && !entry.is_leaving && !entry.is_running;
            over.extend(goes.then(|| Arc::clone(&entry.reception)));
            !goes
        });
        // Failures to remove were logged.
        over.iter().for_each(|reception| _ = self.remove(&reception.home));
    }

    /// Stops a cast that the settings no longer allow, and removes its data.
    pub(super) fn expel(&self, reception: &Reception) {
        let entry = self.lock().remove(&reception.home.id);
        entry.inspect(|entry| entry.stop.cancel());
        reception.set(State::Failed(Refusal::Policy));
        // Failures to remove were logged.
        _ = self.remove(&reception.home);
    }

    /// Forgets casts whose objects were removed from their inboxes: open files would keep their disk space allocated.
    pub(super) fn drop_removed(&self) {
        let mut gone = Vec::new();
        self.lock().retain(|_, entry| {
            let is_gone = !entry.is_leaving && is_gone(&entry.reception);
            gone.extend(is_gone.then(|| Arc::clone(&entry.reception)));
            !is_gone
        });
        for reception in gone {
            reception.set(State::Failed(Refusal::Over));
            _ = self.remove(&reception.home);
        }
    }

    /// Removes the data of a cast that its source abandoned. A complete object stays and is served until the offer
    /// expires.
    ///
    /// # Errors
    /// Why the data could not be removed; then the cast stays known.
    pub(super) async fn forget(self: &Arc<Self>, id: CastId) -> Result<(), Refusal> {
        let reception = {
            let mut receptions = self.lock();
            let Some(entry) = receptions.get_mut(&id) else { return Ok(()) };
            if entry.is_leaving || matches!(entry.reception.state(), State::Complete(..)) {
                return Ok(());
            }
            entry.is_leaving = true;
            entry.stop.cancel();
            Arc::clone(&entry.reception)
        };
        reception.set(State::Failed(Refusal::Over));
        let shared = Arc::clone(self);
        let remove = move || {
            let removed = shared.remove(&reception.home);
            let mut receptions = shared.lock();
            if let Err(why) = removed {
                if let Some(entry) = receptions.get_mut(&id) {
                    entry.is_leaving = false;
                }
                // Sources should not learn paths of this host.
                return Err(Refusal::Unremoved(why.kind().to_string()));
            }
            receptions.remove(&id);
            let event = Event::new("cast_forgotten").with("cast", id);
            shared.log.put(event.with("from", &reception.source));
            Ok(())
        };
        // The task does not panic; if it did, the directory is checked at the next start.
        spawn_blocking(remove).await.unwrap_or_else(|e| Err(Refusal::System(e.to_string())))
    }

    /// Removes everything that is kept of a cast. What cannot be removed is tried again at the next start.
    pub(super) fn remove(&self, home: &CastDirectory) -> io::Result<()> {
        home.remove().inspect_err(|why| {
            let event = Event::new("cast_unremoved").with("cast", home.id);
            self.log.put(event.with("why", why));
        })
    }
}

fn is_only_offered(reception: &Reception) -> bool {
    let is_new = matches!(reception.state(), State::New | State::Failed(_));
    is_new && reception.described().is_none() && !reception.is_conducted()
}

/// Whether the object had its name, and the name no longer exists.
pub(super) fn is_gone(reception: &Reception) -> bool {
    let State::Complete(..) = reception.state() else { return false };
    let name = reception.offer().into_value().name;
    let path = reception.home.inbox.join(OsStr::from_bytes(name.as_bytes()));
    path.symlink_metadata().is_err_and(|why| why.kind() == io::ErrorKind::NotFound)
}

fn due(reception: &Reception, now: u64) -> DueAction {
    let expiry = reception.offer().value().expiry.as_unix_nanos();
    let is_complete = matches!(reception.state(), State::Complete(..));
    let kept = if is_complete { 0 } else { UNFINISHED.as_nanos() as u64 };
    match expiry {
        expiry if expiry >= now => DueAction::Nothing,
        expiry if expiry.saturating_add(kept) < now => DueAction::Remove,
        _ => DueAction::Stop,
    }
}
