//! The node's service: who comes on a channel `cast`, and to which reception.

mod clear;

use super::{
    conduct::Conductor,
    control::{Parting, talk},
    home::{Home, Kept},
    policy::{InboxError, Inboxes},
    reception::{Reception, State, geometry},
    relay::Relays,
    run,
};
use crate::{
    cast::leg::{self, parent},
    config::CastSection,
    daemon::{BoxFuture, MemberService},
    gather::Reach,
    mesh::{Membership, MeshPeer},
    relay::{Event, Log},
};
use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use thalweg_net::{Ed25519, channel::Channel};
use thalweg_wire::{
    Signed,
    cast::{CastId, Offer, Opening, Pass, Refusal, Want},
    mesh::{Member, Name},
};
use tokio::{net::TcpStream, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

/// How often it is looked for casts that are over.
const CLEARED: Duration = Duration::from_secs(600);

/// No offer holds longer: what is kept for others goes with it.
const LONGEST: Duration = Duration::from_secs(31 * 24 * 3600);

/// Takes casts in and hands them on; cheap to clone.
#[derive(Clone, Debug)]
pub struct Casts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    me: Name,
    membership: Membership,
    inboxes: Inboxes,
    max_casts: usize,
    conductor: Conductor,
    relays: Relays,
    receptions: Mutex<BTreeMap<CastId, Entry>>,
    end: CancellationToken,
    log: Log,
}

/// A cast, and whether somebody works at it.
#[derive(Debug)]
struct Entry {
    reception: Arc<Reception>,
    is_running: bool,
    /// Ends the work at it.
    stop: CancellationToken,
    /// It is thrown away just now.
    is_leaving: bool,
}

impl Entry {
    fn new(reception: Arc<Reception>) -> Self {
        let stop = CancellationToken::new();
        Self { reception, is_running: false, stop, is_leaving: false }
    }
}

impl Casts {
    /// What these settings say; `state` is the directory with this node's keys, `reach` dials other
    /// receivers in the node's name.
    ///
    /// # Errors
    /// [`InboxError`].
    pub fn new(
        settings: &CastSection,
        state: &Path,
        membership: Membership,
        reach: Reach,
        log: Log,
    ) -> Result<Self, InboxError> {
        let inboxes = Inboxes::new(settings, state)?;
        Ok(Self(Arc::new(Shared {
            me: reach.me().clone(),
            membership,
            inboxes,
            max_casts: settings.max_casts,
            relays: Relays::new(settings, reach.clone()),
            conductor: Conductor { reach },
            receptions: Mutex::default(),
            end: CancellationToken::new(),
            log,
        })))
    }

    /// For ever: goes on with what earlier processes of this node have left, and works at what
    /// comes. When this is dropped all work ends; what is held is kept.
    pub async fn run(self) {
        let _end = self.0.end.clone().drop_guard();
        self.resume().await;
        loop {
            tokio::time::sleep(CLEARED).await;
            let shared = Arc::clone(&self.0);
            _ = spawn_blocking(move || shared.clear()).await;
        }
    }

    async fn resume(&self) {
        let shared = Arc::clone(&self.0);
        let found = spawn_blocking(move || shared.found()).await.unwrap_or_default();
        for (reception, is_done) in found {
            let id = reception.home.id;
            if is_done {
                let (shared, done) = (Arc::clone(&self.0), Arc::clone(&reception));
                match spawn_blocking(move || run::reopen(&done)).await {
                    Ok(Ok(store)) => reception.set(State::Complete(store, 0)),
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<CastId, Entry>> {
        // A panic in between leaves whole entries behind.
        self.receptions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Casts whose directories are there.
    fn found(&self) -> Vec<(Arc<Reception>, bool)> {
        let mut found = Vec::new();
        for home in self.inboxes.homes() {
            match home.kept() {
                Ok(Some(kept)) => {
                    let is_done = kept.is_done;
                    let known = kept.record.as_ref().map(|record| record.from.clone());
                    let source = known.unwrap_or_else(|| self.name_of(&kept.offer));
                    found.push((Reception::new(home, source, kept), is_done));
                }
                // Killed as it was made, or as it was thrown away.
                Ok(None) if home.is_unborn() => self.remove(&home),
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

    fn is_running(&self, id: CastId) -> bool {
        self.lock().get(&id).is_some_and(|entry| entry.is_running)
    }

    /// Sees to it that somebody works at a cast that is described and has not ended well.
    fn work(self: &Arc<Self>, id: CastId) {
        let mut receptions = self.lock();
        let Some(entry) = receptions.get_mut(&id) else { return };
        let is_ready = entry.reception.described().is_some();
        let is_over = matches!(entry.reception.state(), State::Complete(..))
            || entry.reception.offer().value().expiry < self.membership.now();
        if entry.is_running || entry.is_leaving || !is_ready || is_over {
            return;
        }
        entry.is_running = true;
        let stop = CancellationToken::new();
        entry.stop = stop.clone();
        let (shared, reception) = (Arc::clone(self), Arc::clone(&entry.reception));
        let working = run::run(Arc::clone(&reception), self.conductor.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = shared.end.cancelled() => return,
                () = stop.cancelled() => {}
                () = working => {}
            }
            if let Some(entry) = shared.lock().get_mut(&id) {
                entry.is_running = false;
            }
            shared.tell_end(&reception);
        });
    }

    fn tell_end(&self, reception: &Reception) {
        let event = Event::new("cast").with("cast", reception.home.id);
        let event = event.with("from", &reception.source);
        let offer = reception.offer().into_value();
        let event = event.with("name", &offer.name).with_number("bytes", offer.length);
        self.log.put(match reception.state() {
            State::Failed(why) => event.with("why", why),
            _ => event,
        });
    }

    async fn serve(
        self: Arc<Self>,
        mut channel: Channel<TcpStream>,
        peer: &MeshPeer,
    ) -> io::Result<()> {
        match leg::opening(&mut channel).await? {
            Opening::Offer { offer, pass } => match self.offered(offer, pass, peer).await {
                Ok(reception) => self.control(channel, reception).await,
                Err(why) => leg::refuse(channel, why).await,
            },
            Opening::Relay { offer, pass } => match self.asked_to_relay(offer, pass, peer) {
                Ok((offer, pass)) => {
                    let leg = leg::accept(channel, false).await?;
                    self.relays.talk(offer, pass, leg).await
                }
                Err(why) => leg::refuse(channel, why).await,
            },
            Opening::Hello { cast, pass, want: Want::Stream }
                if self.relays.get(cast).is_some() =>
            {
                let Some(relay) = self.relays.get(cast) else { return Ok(()) };
                match self.check_pass(&pass, cast, relay.offer(), &peer.member().name) {
                    Ok(()) => {
                        let leg = leg::accept(channel, relay.offer().value().open).await?;
                        relay.serve(leg).await
                    }
                    Err(why) => leg::refuse(channel, why).await,
                }
            }
            Opening::Hello { cast, pass, want } => match self.greeted(cast, &pass, peer.member()) {
                Ok((reception, is_open)) => {
                    let Some(store) = reception.store() else {
                        return leg::refuse(channel, Refusal::Unknown).await;
                    };
                    let leg = leg::accept(channel, is_open).await?;
                    let _child = reception.serving(peer.member().name.clone());
                    let serving = async {
                        match want {
                            Want::Pull => parent::serve(Arc::clone(&store), leg, None).await,
                            Want::Stream => reception.ring(&store)?.serve(leg).await,
                        }
                    };
                    tokio::select! {
                        served = serving => served.map_err(io::Error::other),
                        () = reception.left(&store) => Ok(()),
                    }
                }
                Err(why) => leg::refuse(channel, why).await,
            },
            Opening::Serve { cast, .. }
                if self.relays.get(cast).is_some_and(|r| r.offer().signer() == peer.key()) =>
            {
                let Some(relay) = self.relays.get(cast) else { return Ok(()) };
                let leg = leg::accept(channel, relay.offer().value().open).await?;
                // One that nobody asked for is closed.
                _ = relay.take(leg);
                Ok(())
            }
            Opening::Serve { cast, .. } => {
                let its = self.get(cast).filter(|r| r.offer().signer() == peer.key());
                let Some(reception) = its else {
                    return leg::refuse(channel, Refusal::Unknown).await;
                };
                let is_open = reception.offer().value().open;
                let leg = leg::accept(channel, is_open).await?;
                // One that nobody asked for is closed.
                _ = reception.take(leg);
                Ok(())
            }
        }
    }

    /// Whether this node hands a cast on that is not for it.
    fn asked_to_relay(
        &self,
        offer: Vec<u8>,
        pass: Vec<u8>,
        peer: &MeshPeer,
    ) -> Result<(Signed<Offer>, Vec<u8>), Refusal> {
        let offer = self.check_offer(&offer, &pass, peer)?;
        let id = offer.value().id(&offer.signer());
        self.relays.admit(id).map(|()| (offer, pass))
    }

    /// Whether an offer is its sender's, for this node, and can be.
    fn check_offer(
        &self,
        offer: &[u8],
        pass: &[u8],
        peer: &MeshPeer,
    ) -> Result<Signed<Offer>, Refusal> {
        let invalid = |why: String| Refusal::Invalid(why);
        let offer = Signed::<Offer>::open(offer, &Ed25519).map_err(|e| invalid(e.to_string()))?;
        let id = offer.value().id(&offer.signer());
        if offer.signer() != peer.key() {
            return Err(invalid("the offer is signed by another than its sender".to_owned()));
        }
        self.check_pass(pass, id, &offer, &self.me)?;
        geometry(offer.value())?;
        let now = self.membership.now().as_unix_nanos();
        if offer.value().expiry.as_unix_nanos() > now.saturating_add(LONGEST.as_nanos() as u64) {
            return Err(invalid(format!("it is offered for more than {LONGEST:?}")));
        }
        Ok(offer)
    }

    /// Whether this node takes a cast; what is kept of it.
    async fn offered(
        self: &Arc<Self>,
        offer: Vec<u8>,
        pass: Vec<u8>,
        peer: &MeshPeer,
    ) -> Result<Arc<Reception>, Refusal> {
        let offer = self.check_offer(&offer, &pass, peer)?;
        let id = offer.value().id(&offer.signer());
        let shared = Arc::clone(self);
        let member = peer.member().clone();
        let admit = move || shared.admit(id, offer, pass, &member);
        let admitted = spawn_blocking(admit).await;
        let reception = admitted.map_err(|e| Refusal::System(e.to_string()))??;
        self.work(id);
        Ok(reception)
    }

    fn admit(
        &self,
        id: CastId,
        offer: Signed<Offer>,
        pass: Vec<u8>,
        from: &Member,
    ) -> Result<Arc<Reception>, Refusal> {
        let known = self.get(id);
        if self.lock().get(&id).is_some_and(|entry| entry.is_leaving) {
            return Err(Refusal::Busy);
        }
        if let Some(reception) = known.filter(|r| still_holds(r)) {
            reception.home.begin(&offer, &pass).map_err(run::refusal)?;
            reception.renew(offer, pass);
            if !self.is_running(id) && matches!(reception.state(), State::Failed(_)) {
                // It is gone on with: why it ended before is told no more.
                reception.set(State::New);
            }
            return Ok(reception);
        }
        let unfinished = |entry: &&Entry| !matches!(entry.reception.state(), State::Complete(..));
        if self.lock().values().filter(unfinished).count() >= self.max_casts {
            return Err(Refusal::Busy);
        }
        let others = |inbox: &Path| {
            let receptions = self.lock();
            let here = receptions.values().filter(|e| e.reception.home.inbox == inbox);
            here.map(|e| e.reception.lacks()).sum()
        };
        let home: Home = self.inboxes.admit(from, id, offer.value(), others)?;
        home.remove().and_then(|()| home.begin(&offer, &pass)).map_err(run::refusal)?;
        let kept =
            Kept { offer, pass, parents: None, described: None, is_done: false, record: None };
        let reception = Reception::new(home, from.name.clone(), kept);
        reception.home.keep_record(&reception.record()).map_err(run::refusal)?;
        self.lock().insert(id, Entry::new(Arc::clone(&reception)));
        Ok(reception)
    }

    async fn control(
        self: &Arc<Self>,
        channel: Channel<TcpStream>,
        reception: Arc<Reception>,
    ) -> io::Result<()> {
        let id = reception.home.id;
        let leg = leg::accept(channel, false).await?;
        match talk(&reception, leg, || self.work(id)).await? {
            // What came is kept until the offer is over.
            Parting::Gone => Ok(()),
            Parting::Forget => {
                self.forget(id).await;
                Ok(())
            }
        }
    }

    /// Whether another receiver may have it from here.
    fn greeted(
        &self,
        id: CastId,
        pass: &[u8],
        member: &Member,
    ) -> Result<(Arc<Reception>, bool), Refusal> {
        let reception = self.get(id).ok_or(Refusal::Unknown)?;
        let offer = reception.offer();
        self.check_pass(pass, id, &offer, &member.name)?;
        Ok((reception, offer.value().open))
    }

    fn check_pass(
        &self,
        pass: &[u8],
        id: CastId,
        offer: &Signed<Offer>,
        to: &Name,
    ) -> Result<(), Refusal> {
        let pass = Signed::<Pass>::open(pass, &Ed25519).map_err(|_| Refusal::Pass)?;
        let now = self.membership.now();
        let value = pass.value();
        let is_right = pass.signer() == offer.signer()
            && value.cast == id
            && value.to == *to
            && value.expiry > now
            && offer.value().expiry > now;
        if is_right { Ok(()) } else { Err(Refusal::Pass) }
    }
}

/// What has its name may have been taken out of the inbox since: then it may be cast anew.
fn still_holds(reception: &Reception) -> bool {
    let State::Complete(..) = reception.state() else { return true };
    let name = reception.offer().into_value().name;
    let name = std::os::unix::ffi::OsStrExt::from_bytes(name.as_bytes());
    reception.home.inbox.join::<&std::ffi::OsStr>(name).symlink_metadata().is_ok()
}

impl MemberService for Casts {
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
        let all = receptions.values().map(|entry| super::report::of(&entry.reception));
        serde_json::json!({
            "inboxes": self.0.inboxes.len(),
            "casts": all.collect::<Vec<_>>(),
            "relayed": self.0.relays.report(),
        })
    }
}
