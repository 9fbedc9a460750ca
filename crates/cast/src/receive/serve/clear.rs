//! Casts that are over: their work ends, and what came is thrown away.

use super::{Shared, State};
use crate::receive::{home::Home, reception::Reception};
use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt as _, sync::Arc, time::Duration};
use thalweg_base::log::Event;
use thalweg_wire::cast::{CastId, Refusal};
use tokio::task::spawn_blocking;

/// What came of a cast that did not become complete is kept so long after its offer is over.
const UNFINISHED: Duration = Duration::from_secs(7 * 24 * 3600);

/// An offer of which nothing comes holds its place so long.
const UNDESCRIBED: Duration = Duration::from_secs(600);

/// What is to be done about a cast whose offer is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Nothing yet.
    Nothing,
    /// Nobody gives it any more: what came is kept for the same cast offered anew.
    Stop,
    /// All of it goes but what has its name.
    Remove,
}

impl Shared {
    /// Ends and forgets casts whose offers are over: of those that are complete what others would ask
    /// for, of others what came, a week later.
    pub(super) fn clear(&self) {
        self.let_go_of_gone();
        let now = self.membership.now().as_unix_nanos();
        let mut over = Vec::new();
        self.lock().retain(|_, entry| {
            let is_idle = entry.since.elapsed() > UNDESCRIBED && is_only_offered(&entry.reception);
            let due = if is_idle { Due::Remove } else { due(&entry.reception, now) };
            if due == Due::Stop || entry.is_running && due == Due::Remove {
                // What came is removed when it is looked for the next time.
                entry.stop.cancel();
                entry.reception.set(State::Failed(Refusal::Over));
            }
            let goes = due == Due::Remove && !entry.is_leaving && !entry.is_running;
            over.extend(goes.then(|| Arc::clone(&entry.reception)));
            !goes
        });
        // What cannot be removed was logged.
        over.iter().for_each(|reception| _ = self.remove(&reception.home));
    }

    /// What the settings do not allow any more ends, and what came is thrown away.
    pub(super) fn cast_out(&self, reception: &Reception) {
        let entry = self.lock().remove(&reception.home.id);
        entry.inspect(|entry| entry.stop.cancel());
        reception.set(State::Failed(Refusal::Policy));
        // What cannot be removed was logged.
        _ = self.remove(&reception.home);
    }

    /// Forgets what was taken out of its inbox: files that are held open keep their place on the disk.
    pub(super) fn let_go_of_gone(&self) {
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

    /// The source has given it up: what came is thrown away. What has its name stays, and is given to
    /// who asks until the offer is over.
    ///
    /// # Errors
    /// Why what came is still there; then the cast is still known.
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
                // Paths of this host are not the source's business.
                return Err(Refusal::Unremoved(why.kind().to_string()));
            }
            receptions.remove(&id);
            let event = Event::new("cast_forgotten").with("cast", id);
            shared.log.put(event.with("from", &reception.source));
            Ok(())
        };
        // It does not panic; if it did, the directory is looked at again at the next start.
        spawn_blocking(remove).await.unwrap_or_else(|e| Err(Refusal::System(e.to_string())))
    }

    /// Throws away all that is kept of a cast; what is still there is removed at the next start.
    pub(super) fn remove(&self, home: &Home) -> io::Result<()> {
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

/// It had its name, and nothing has that name now.
fn is_gone(reception: &Reception) -> bool {
    let State::Complete(..) = reception.state() else { return false };
    let name = reception.offer().into_value().name;
    let path = reception.home.inbox.join(OsStr::from_bytes(name.as_bytes()));
    path.symlink_metadata().is_err_and(|why| why.kind() == io::ErrorKind::NotFound)
}

fn due(reception: &Reception, now: u64) -> Due {
    let expiry = reception.offer().value().expiry.as_unix_nanos();
    let is_complete = matches!(reception.state(), State::Complete(..));
    let kept = if is_complete { 0 } else { UNFINISHED.as_nanos() as u64 };
    match expiry {
        expiry if expiry >= now => Due::Nothing,
        expiry if expiry.saturating_add(kept) < now => Due::Remove,
        _ => Due::Stop,
    }
}
