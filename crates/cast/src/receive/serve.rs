//! The node's cast service: its receptions, and the tasks that run them.

mod admit;
mod answer;
mod clear;

use super::{
    conductor::Conductor,
    inboxes::{InboxError, Inboxes},
    leg_limiter::LegLimiter,
    reception::{Reception, State},
    relay::RelayService,
    run,
};
use crate::Settings;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::{
    live_settings::LiveSettings,
    log::{Event, Log},
};
use thalweg_mesh::{Membership, MeshPeer, member_dialer::MemberDialer, service::MemberService};
use thalweg_net::channel::Channel;
use thalweg_wire::{
    Signed,
    cast::{CastId, Offer, Refusal},
    mesh::Name,
};
use tokio::{net::TcpStream, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

/// Interval for removing expired casts, and casts whose objects were removed from their inboxes.
const CLEAR_INTERVAL: Duration = Duration::from_secs(60);

/// The maximum lifetime of an offer. Data kept for other receivers is removed when the offer expires.
const MAX_LIFETIME: Duration = Duration::from_secs(31 * 24 * 3600);

/// Receives casts and forwards them; cheap to clone.
#[derive(Clone, Debug)]
pub struct CastService(Arc<ServiceState>);

#[derive(Debug)]
struct ServiceState {
    me: Name,
    membership: Membership,
    inboxes: LiveSettings<Inboxes>,
    /// The directory with this node's keys.
    state: PathBuf,
    max_casts: usize,
    conductor: Conductor,
    relays: RelayService,
    receptions: Mutex<BTreeMap<CastId, Entry>>,
    /// Held while a cast is admitted.
    admission: Mutex<()>,
    served: Arc<LegLimiter>,
    end: CancellationToken,
    log: Log,
}

/// A cast, and whether a task is running for it.
#[derive(Debug)]
struct Entry {
    reception: Arc<Reception>,
    is_running: bool,
    /// The object was offered again since the task started, so a later failure may have another cause.
    is_renewed: bool,
    /// Stops the task.
    stop: CancellationToken,
    /// The cast is being removed.
    is_leaving: bool,
    /// When this process first heard of the cast.
    since: Instant,
}

impl Entry {
    fn new(reception: Arc<Reception>) -> Self {
        Self {
            reception,
            is_running: false,
            is_renewed: false,
            stop: CancellationToken::new(),
            is_leaving: false,
            since: Instant::now(),
        }
    }
}

impl CastService {
    /// Creates the service. `state` is the directory with this node's keys; `dialer` dials other receivers in the
    /// node's name.
    ///
    /// # Errors
    /// [`InboxError`].
    pub fn new(
        settings: &Settings,
        state: &Path,
        membership: Membership,
        dialer: MemberDialer,
        log: Log,
    ) -> Result<Self, InboxError> {
        let inboxes = Inboxes::new(settings, state)?;
        Ok(Self(Arc::new(ServiceState {
            me: dialer.me().clone(),
            membership,
            inboxes: LiveSettings::new(inboxes),
            state: state.to_owned(),
            max_casts: settings.max_casts,
            relays: RelayService::new(settings, dialer.clone()),
            conductor: Conductor { dialer },
            receptions: Mutex::default(),
            admission: Mutex::default(),
            served: Arc::default(),
            end: CancellationToken::new(),
            log,
        })))
    }

    /// Checks the inboxes of other settings. Casts that are offered once the function that it returns was called use them;
    /// an incomplete cast whose inbox no longer takes it ends when it is offered again.
    ///
    /// # Errors
    /// [`InboxError`]; nothing is changed.
    pub fn prepare(&self, settings: &Settings) -> Result<impl FnOnce() + Send + use<>, InboxError> {
        let inboxes = Inboxes::new(settings, &self.0.state)?;
        let shared = Arc::clone(&self.0);
        Ok(move || shared.inboxes.set(inboxes))
    }

    /// Runs forever: resumes casts that earlier processes of this node left, and receives new ones. Dropping the future
    /// stops all tasks; received data is kept.
    pub async fn run(self) {
        let _end = self.0.end.clone().drop_guard();
        self.resume().await;
        loop {
            tokio::time::sleep(CLEAR_INTERVAL).await;
            let shared = Arc::clone(&self.0);
            _ = spawn_blocking(move || shared.clear()).await;
        }
    }

    async fn resume(&self) {
        let shared = Arc::clone(&self.0);
        let found = spawn_blocking(move || shared.load_stored()).await.unwrap_or_default();
        for (reception, is_done) in found {
            let id = reception.home.id;
            if is_done {
                let (shared, done) = (Arc::clone(&self.0), Arc::clone(&reception));
                let now = self.0.membership.now();
                match spawn_blocking(move || run::reopen(&done, now)).await {
                    Ok(Ok(Some(store))) => reception.set(State::Complete(store, 0)),
                    // Its files must be read first, like an existing copy.
                    Ok(Ok(None)) => {}
                    Ok(Err(why)) => shared.log.put(Event::new("cast_unkept").with("why", why)),
                    Err(_) => {}
                }
            }
            self.0.lock().entry(id).or_insert_with(|| Entry::new(reception));
        }
        let shared = Arc::clone(&self.0);
        _ = spawn_blocking(move || shared.clear()).await;
        let all: Vec<CastId> = self.0.lock().keys().copied().collect();
        all.into_iter().for_each(|id| self.0.work(id));
    }
}

impl ServiceState {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<CastId, Entry>> {
        self.receptions.lock()
    }

    /// Casts whose directories are in the inboxes.
    fn load_stored(&self) -> Vec<(Arc<Reception>, bool)> {
        let mut found = Vec::new();
        for home in self.inboxes.get().homes() {
            match home.load() {
                Ok(Some(kept)) => {
                    let is_done = kept.is_done;
                    let known = kept.record.as_ref().map(|record| record.from.clone());
                    let source = known.unwrap_or_else(|| self.name_of(&kept.offer));
                    found.push((Reception::new(home, source, kept), is_done));
                }
                // The process was killed while it created or removed the directory.
                Ok(None) if home.is_unborn() => _ = self.remove(&home),
                Ok(None) => {}
                Err(why) => self.log.put(Event::new("cast_unkept").with("why", why)),
            }
        }
        found
    }

    fn name_of(&self, offer: &Signed<Offer>) -> Name {
        let roster = self.membership.current();
        let member = roster.as_ref().and_then(|roster| roster.by_key(&offer.signer()));
        member.map_or_else(|| self.me.clone(), |member| member.name.clone())
    }

    fn get(&self, id: CastId) -> Option<Arc<Reception>> {
        self.lock().get(&id).map(|entry| Arc::clone(&entry.reception))
    }

    /// Clears an earlier failure, because the cast was offered again.
    fn clear_failure(&self, id: CastId, reception: &Reception) {
        let mut receptions = self.lock();
        if let Some(entry) = receptions.get_mut(&id) {
            entry.is_renewed = entry.is_running;
        }
        if matches!(reception.state(), State::Failed(_)) {
            reception.set(State::New);
        }
    }

    /// Whether the current settings still accept the cast.
    fn check_still_allowed(&self, reception: &Reception) -> Result<(), Refusal> {
        let (offer, roster) = (reception.offer(), self.membership.current());
        let member = roster.as_ref().and_then(|roster| roster.by_key(&offer.signer()));
        // If the current roster does not have the member, the earlier check stands.
        let Some(member) = member else { return Ok(()) };
        self.inboxes.get().takes(&reception.home.inbox, member, reception.bytes())
    }

    /// Starts the task of a cast that is described and not complete, unless it runs.
    fn work(self: &Arc<Self>, id: CastId) {
        let mut receptions = self.lock();
        let Some(entry) = receptions.get_mut(&id) else { return };
        let is_ready = entry.reception.described().is_some();
        let is_over = matches!(entry.reception.state(), State::Complete(..))
            || entry.reception.offer().value().expiry < self.membership.now();
        if entry.is_running || entry.is_leaving || !is_ready || is_over {
            return;
        }
        if let Err(why) = self.check_still_allowed(&entry.reception) {
            return entry.reception.set(State::Failed(why));
        }
        (entry.is_running, entry.is_renewed) = (true, false);
        let stop = CancellationToken::new();
        entry.stop = stop.clone();
        let (shared, reception) = (Arc::clone(self), Arc::clone(&entry.reception));
        let (asked, its) = (Arc::clone(self), Arc::clone(&reception));
        let has_room = move || asked.has_room(&its);
        let conductor = self.conductor.clone();
        tokio::spawn(async move {
            let ended = tokio::select! {
                () = shared.end.cancelled() => return,
                () = stop.cancelled() => Ok(()),
                ended = run::run(&reception, &conductor, has_room) => ended,
            };
            if shared.record_end(id, &reception, ended) {
                return shared.work(id);
            }
            shared.report_end(&reception);
        });
    }

    /// Records the end of a cast's task. Returns whether to try again: it failed, and was offered in the meantime. A
    /// peer that is told of the failure may offer the object at once and must find that the task can start.
    fn record_end(&self, id: CastId, reception: &Reception, ended: Result<(), Refusal>) -> bool {
        let mut receptions = self.lock();
        let is_renewed = receptions.get_mut(&id).is_some_and(|entry| {
            entry.is_running = false;
            std::mem::take(&mut entry.is_renewed)
        });
        match ended {
            Ok(()) => false,
            Err(_) if is_renewed => {
                reception.set(State::New);
                true
            }
            Err(why) => {
                reception.set(State::Failed(why));
                false
            }
        }
    }

    fn report_end(&self, reception: &Reception) {
        let event = Event::new("cast").with("cast", reception.home.id);
        let event = event.with("from", &reception.source);
        let offer = reception.offer().into_value();
        let event = event.with("name", &offer.name).with_number("bytes", offer.length);
        self.log.put(match reception.state() {
            State::Failed(why) => event.with("why", why),
            _ => event,
        });
    }
}

impl MemberService for CastService {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let serving = Arc::clone(&shared).serve(channel, &peer);
            let ended = peer.unless_revoked(serving).await;
            if let Err(why) = ended.unwrap_or_else(|revoked| Err(revoked.into())) {
                let event = Event::new("cast_leg").with("client", from);
                shared.log.put(event.with("peer", &peer.member().name).with("why", why));
            }
        })
    }

    fn report(&self) -> serde_json::Value {
        let receptions = self.0.lock();
        let all = receptions.values().map(|entry| super::report::to_json(&entry.reception));
        serde_json::json!({
            "inboxes": self.0.inboxes.get().len(),
            "casts": all.collect::<Vec<_>>(),
            "relayed": self.0.relays.report(),
        })
    }
}
