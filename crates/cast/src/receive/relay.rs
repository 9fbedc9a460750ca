//! Relays casts of which this node is not a receiver: keeps a ring and digests, and stores nothing.

mod table;

pub use table::RelaySlot;

use super::{
    conductor::{ParentEnd, Participant, leave_parent, leg_to, note_end},
    control::slowly,
    incoming_legs::IncomingLegs,
    parent_selector::ParentSelector,
    reception::{ParentName, Parents, RING_TERMS, geometry},
};
use crate::Settings;
use crate::{
    leg::{
        Leg, LegReader, LegWriter,
        child::{LegEnd, ReceivedBytes},
        invalid,
    },
    ring::{
        ProofCache, RepairEncoder, SharedRing, Sink, UpstreamQueue,
        serve::{self, SheetProvider},
        stream,
    },
    store::KnownObject,
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use table::RelayTable;
use thalweg_fountain::ChildId;
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_wire::{
    Manifest, Signable as _, Signed,
    cast::{
        Account, CastId, MAX_CANDIDATES, MAX_SOURCE_MESSAGE, Offer, ParentReport, Refusal, Report,
        RingTerms, SourceMessage,
    },
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{interval, timeout},
};
use tokio_util::sync::CancellationToken;

/// Timeout for a silent source. It may connect again.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(30);

/// Capacity of the report queue to a slow source.
const MAX_REPORTS: usize = 64;

/// Interval for reviewing parents; the source gets a report at twice this interval.
const LOOK: Duration = Duration::from_millis(500);

/// All casts that this node relays.
#[derive(Debug)]
pub struct RelayService {
    table: RelayTable,
    dialer: MemberDialer,
}

/// One relayed cast.
#[derive(Debug)]
pub struct Relay {
    id: CastId,
    offer: Signed<Offer>,
    pass: Vec<u8>,
    /// The maximum memory besides its ring, in bytes.
    beside: u64,
    /// Terms for the ring, which is created once the object is described.
    terms: Mutex<RingTerms>,
    /// The number of open or pending control channels.
    connections: AtomicUsize,
    parents: watch::Sender<Arc<Parents>>,
    body: OnceLock<RelayState>,
    control: Mutex<Option<mpsc::Sender<Report>>>,
    /// Legs that the source opens.
    pub incoming: IncomingLegs,
    got: Mutex<BTreeMap<ParentName, Arc<ReceivedBytes>>>,
    now: Mutex<Option<ParentName>>,
}

/// What exists once the object is described.
#[derive(Clone, Debug)]
struct RelayState {
    known: Arc<KnownObject>,
    ring: Arc<SharedRing>,
    proofs: Arc<ProofCache>,
    repairs: Arc<RepairEncoder>,
    upstream: Arc<UpstreamQueue>,
}

impl RelayService {
    /// Creates an empty set.
    pub fn new(settings: &Settings, dialer: MemberDialer) -> Self {
        Self { table: RelayTable::new(settings), dialer }
    }

    /// A relayed cast by its ID.
    pub fn get(&self, id: CastId) -> Option<Arc<Relay>> {
        self.table.all.lock().get(&id).cloned()
    }

    /// Admits a cast if the limits allow it.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn admit(&self, offer: Signed<Offer>, pass: Vec<u8>) -> Result<RelaySlot, Refusal> {
        self.table.take(offer, pass)
    }

    /// Checks whether [`Self::admit`] would succeed, without changing anything.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn would_admit(&self, offer: &Signed<Offer>) -> Result<(), Refusal> {
        self.table.would_take(offer)
    }

    /// Talks with the source until it disconnects. Relaying continues as long as there is a source or a child.
    ///
    /// # Errors
    /// I/O errors of the connection, or a source that violates the protocol.
    pub async fn talk(&self, slot: RelaySlot, leg: Leg) -> io::Result<()> {
        let relay = &slot.relay;
        let (reports, outgoing) = mpsc::channel(MAX_REPORTS);
        *relay.control.lock() = Some(reports);
        let Leg { mut reader, mut writer, .. } = leg;
        let lacks = relay.body.get().is_none();
        writer.write_message(&Report::Needs { manifest: lacks, layout: false }).await?;
        let ended = tokio::select! {
            heard = self.listen(relay, &mut reader) => heard,
            failed = report(relay, &mut writer, outgoing) => failed,
        };
        // A newer channel may be the control channel by now.
        _ = relay.control.lock().take_if(|to| to.is_closed());
        ended
    }

    async fn listen(&self, relay: &Arc<Relay>, reader: &mut LegReader) -> io::Result<()> {
        loop {
            let heard =
                timeout(SOURCE_TIMEOUT, reader.read_message::<SourceMessage>(MAX_SOURCE_MESSAGE))
                    .await;
            let message = heard.map_err(|_| {
                io::Error::other(format!("no message from the source for {SOURCE_TIMEOUT:?}"))
            })?;
            match message {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(e) => return Err(e),
                Ok(SourceMessage::Ring(terms)) if terms.are_sound() => {
                    self.table.set_ring(relay, terms)
                }
                Ok(SourceMessage::Ring(_)) => {
                    return Err(invalid("the source requested a ring buffer that is too large"));
                }
                Ok(SourceMessage::Parents { candidates, .. })
                    if candidates.len() <= MAX_CANDIDATES =>
                {
                    relay.parents.send_replace(Arc::new(Parents { candidates, at_once: 1 }));
                }
                Ok(SourceMessage::Manifest) if relay.body.get().is_some() => {
                    return Err(invalid("the source sent a manifest that this relay already has"));
                }
                Ok(SourceMessage::Manifest) => {
                    let offer = relay.offer.value();
                    let bytes = slowly(reader.read_bytes(offer.manifest_bytes() as usize)).await?;
                    let read = Manifest::decode(&bytes).map_err(invalid)?;
                    if read.object() != offer.object || read.length() != offer.length {
                        return Err(invalid("the manifest does not match the offered object"));
                    }
                    if relay.describe(read)? {
                        self.work(relay);
                    }
                }
                Ok(SourceMessage::Forget) => {
                    self.table.all.lock().remove(&relay.id);
                    return Ok(());
                }
                Ok(SourceMessage::KeepAlive | SourceMessage::Expectation(_)) => {}
                Ok(SourceMessage::Parents { .. } | SourceMessage::Layout) => {
                    return Err(invalid("relays do not accept this message"));
                }
            }
        }
    }

    fn work(&self, relay: &Arc<Relay>) {
        let (dialer, relay) = (self.dialer.clone(), Arc::clone(relay));
        let all = Arc::clone(&self.table.all);
        tokio::spawn(async move {
            let is_known = || all.lock().get(&relay.id).is_some_and(|r| Arc::ptr_eq(r, &relay));
            relay.conduct(&dialer, is_known).await;
        });
    }

    /// Reports all relayed casts for `thalweg cast status`.
    pub fn report(&self) -> Vec<serde_json::Value> {
        let all = self.table.all.lock();
        let one = |relay: &Arc<Relay>| {
            let account = relay.account();
            serde_json::json!({
                "cast": relay.id.to_string(),
                "name": relay.offer.value().name.to_string(),
                "received_bytes": account.received,
                "duplicate_bytes": account.beyond,
                "served_bytes": account.served,
                "missed_symbols": account.missed,
                "ring_peak_bytes": account.ring_peak,
            })
        };
        all.values().map(one).collect()
    }
}

async fn report(
    relay: &Relay,
    writer: &mut LegWriter,
    mut reports: mpsc::Receiver<Report>,
) -> io::Result<()> {
    let mut ticks = interval(2 * LOOK);
    loop {
        tokio::select! {
            _ = ticks.tick() => writer.write_message(&Report::Account(relay.account())).await?,
            report = reports.recv() => match report {
                Some(report) => writer.write_message(&report).await?,
                // The source has opened a new control channel.
                None => return Ok(()),
            },
        }
    }
}

impl Relay {
    fn new(id: CastId, offer: Signed<Offer>, pass: Vec<u8>, beside: u64) -> Self {
        Self {
            id,
            offer,
            pass,
            beside,
            terms: Mutex::new(RING_TERMS),
            connections: AtomicUsize::new(0),
            parents: watch::Sender::new(Arc::default()),
            body: OnceLock::new(),
            control: Mutex::default(),
            incoming: IncomingLegs::default(),
            got: Mutex::default(),
            now: Mutex::default(),
        }
    }

    /// The maximum memory of this relay, in bytes.
    fn memory(&self) -> u64 {
        self.beside.saturating_add(self.terms.lock().bytes)
    }

    pub fn offer(&self) -> &Signed<Offer> {
        &self.offer
    }

    /// Serves one child.
    ///
    /// # Errors
    /// I/O errors of the connection; before the object is described, an error with the text of [`Refusal::Unknown`].
    pub async fn serve(&self, leg: Leg) -> io::Result<()> {
        let body = self.body.get().ok_or_else(|| io::Error::other(Refusal::Unknown))?;
        let served = serve::serve(&body.ring, body, leg).await;
        // Report at once: the source may finish before the next regular report.
        self.tell(Report::Account(self.account()));
        served
    }

    /// Creates the ring once the manifest has come. Returns whether this was the first time.
    fn describe(&self, manifest: Manifest) -> io::Result<bool> {
        let offer = self.offer.value().clone();
        let geometry = geometry(&offer).map_err(io::Error::other)?;
        let proofs = Arc::new(ProofCache::new(&geometry));
        let upstream = Arc::new(UpstreamQueue::default());
        let bytes = self.terms.lock().bytes;
        let ring = SharedRing::new(&geometry, bytes, Some(Arc::clone(&upstream)))?;
        let repairs = RepairEncoder::for_receiver(self.offer.signer(), None, Arc::clone(&proofs));
        let known =
            Arc::new(KnownObject { id: self.id, offer, geometry, manifest: Arc::new(manifest) });
        let body = RelayState { known, ring, proofs, repairs: Arc::new(repairs), upstream };
        Ok(self.body.set(body).is_ok())
    }

    /// Keeps one parent as long as there are children.
    async fn conduct(self: &Arc<Self>, dialer: &MemberDialer, is_known: impl Fn() -> bool) {
        let Some(body) = self.body.get() else { return };
        let mut legs: JoinSet<(ParentName, ParentEnd)> = JoinSet::new();
        let (mut selector, mut parents) = (ParentSelector::default(), self.parents.subscribe());
        let mut looks = interval(LOOK);
        while is_known() {
            if body.ring.has_children() {
                let wanted = Arc::clone(&parents.borrow_and_update());
                for (who, fault) in selector.review(&wanted) {
                    leave_parent(&**self, &mut selector, who, fault);
                }
                for candidate in selector.next(&wanted) {
                    let got =
                        Arc::clone(self.got.lock().entry(candidate.name.clone()).or_default());
                    let end = CancellationToken::new();
                    selector.begin(&candidate, Arc::clone(&got), end.clone());
                    let (relay, dialer) = (Arc::clone(self), dialer.clone());
                    let (body, who) = (body.clone(), candidate.name);
                    legs.spawn(async move {
                        tokio::select! {
                            ended = relay.take_from(&dialer, &body, &who, got) => (who, ended),
                            () = end.cancelled() => (who, ParentEnd::Left(LegEnd::Done)),
                        }
                    });
                }
            }
            tokio::select! {
                Some(ended) = legs.join_next() => match ended {
                    Ok((who, end)) => note_end(&**self, &mut selector, who, end),
                    // A leg's task does not panic; if one did, forgetting the state lets its parent be tried again.
                    Err(_) => selector.forget(),
                },
                () = body.ring.moved.notified(), if legs.is_empty() => {}
                _ = parents.changed() => {}
                _ = looks.tick() => {}
            }
        }
        legs.shutdown().await;
    }

    async fn take_from(
        &self,
        dialer: &MemberDialer,
        body: &RelayState,
        who: &ParentName,
        got: Arc<ReceivedBytes>,
    ) -> ParentEnd {
        let want = thalweg_wire::cast::ServiceMode::Stream;
        let leg = match leg_to(dialer, self, who, want).await {
            Ok(leg) => leg,
            Err(end) => return end,
        };
        *self.now.lock() = Some(who.clone());
        let RelayState { known, ring, proofs, repairs, upstream } = body.clone();
        let left = stream(Sink::Relay { known, ring, proofs, repairs, upstream }, got, leg).await;
        *self.now.lock() = None;
        ParentEnd::Left(left)
    }

    fn account(&self) -> Account {
        let mut account = Account::default();
        let now = self.now.lock().clone();
        for (name, got) in &*self.got.lock() {
            let (bytes, beyond) = (got.bytes.load(Relaxed), got.beyond.load(Relaxed));
            account.received += bytes;
            account.beyond += beyond;
            let (is_now, bytes) = (now.as_ref() == Some(name), bytes.saturating_sub(beyond));
            account.parents.push(ParentReport { name: name.clone(), is_now, bps: 0, bytes });
        }
        if let Some(body) = self.body.get() {
            (account.served, account.missed) = (body.ring.served(), body.ring.missed());
            account.ring_peak = body.ring.peak();
        }
        account
    }
}

impl Participant for Relay {
    fn pass(&self) -> (CastId, Vec<u8>) {
        (self.id, self.pass.clone())
    }

    fn tell(&self, report: Report) -> bool {
        self.control.lock().as_ref().is_some_and(|to| to.try_send(report).is_ok())
    }

    fn incoming(&self) -> &IncomingLegs {
        &self.incoming
    }
}

impl SheetProvider for RelayState {
    fn provide(&self, child: ChildId, block: u32) {
        match self.repairs.known(&self.known, block) {
            Some(proof) => self.ring.give_page(child, &proof),
            None => {
                if self.ring.wait_for_page(child, block) {
                    self.upstream.request_page(block);
                }
            }
        }
    }
}
