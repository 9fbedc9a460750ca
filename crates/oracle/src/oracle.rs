//! The oracle's handle: what it offers to its node and to the API.

use crate::{
    Caller, Config, Event, MeasureCounts, OracleError, SeedLeg,
    admission::Admission,
    api,
    connection::Terms,
    election::{Election, Standing},
    founding,
    limits::{self, PerKey},
    measure::{Measuring, Scheduler},
    places::{Party, Places},
    registry::Registry,
    streams::Streams,
};
use axum::Router;
use std::{future::Future, io, path::Path, sync::Arc, time::Duration};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination,
    mesh::{
        JoinReply, JoinRequest, Member, RevokeReply, RevokeRequest, Rule, StatusReply, TokenReply,
        TokenRequest,
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Semaphore, watch},
    time::{MissedTickBehavior, interval},
};

/// The control plane of one mesh; cheap to clone.
#[derive(Clone, Debug)]
pub struct Oracle {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    registry: Arc<Registry>,
    pub election: Arc<Election>,
    pub admission: Admission,
    pub scheduler: Scheduler,
    pub streams: Arc<Streams>,
    /// Requests that wait for a roster.
    pub waiting: Semaphore,
    pub waits_each: PerKey,
    /// Connections of members.
    members: Arc<Places>,
    /// Connections for joining, and of strangers.
    strangers: Arc<Places>,
    /// Those beyond these bounds.
    turned_away: Arc<Places>,
    pub stopping: watch::Sender<bool>,
}

/// Its beginning and its end.
impl Oracle {
    /// Founds a mesh: its key, its database, its first roster with `founder` alone.
    ///
    /// `dir` must not exist or be empty. All is made beside it (`DIR.new`) and put there
    /// in one step, so that an interrupted start leaves no half an oracle. A server's
    /// database must be empty; it is filled last, and if that fails, from the copy in
    /// `dir` at the next start. The founder
    /// gets the roles client, oracle and admin beside its own, and needs a node key and
    /// an address.
    ///
    /// # Errors
    /// [`OracleError`]; then there is no oracle in `dir`.
    pub async fn create(dir: &Path, founder: Member, config: Config) -> Result<Self, OracleError> {
        let node = founding::found(dir, founder, &config).await?;
        Self::open(dir, node, config).await
    }

    /// Opens the oracle in `dir`, which runs in the node with TLS key `node`, and publishes anew.
    ///
    /// If the database can be read but not written (locked, full), or its server is not
    /// reached, the kept roster is served and a new one published as soon as that is
    /// possible. If it is missing or empty, it is made anew from the signed copy.
    ///
    /// # Errors
    /// [`OracleError`]: no oracle there, a damaged database, keys that do not fit: the mesh's,
    /// or the node's own, which the roster must have.
    pub async fn open(dir: &Path, node: NodeId, config: Config) -> Result<Self, OracleError> {
        let registry = Arc::new(Registry::open(dir, node, config).await?);
        let (measure, clock) = (registry.config.measure.clone(), registry.config.clock.clone());
        let measuring = Measuring::new(measure, clock).map_err(OracleError::Random)?;
        let measuring = Arc::new(measuring);
        let election = Arc::new(Election::new(registry.clone()));
        let streams = Streams::new(registry.clone(), election.clone(), measuring.clone());
        let inner = Inner {
            admission: Admission::new(registry.clone()),
            scheduler: Scheduler::new(registry.clone(), election.clone(), measuring),
            streams: Arc::new(streams.map_err(OracleError::Random)?),
            registry,
            election,
            waiting: Semaphore::new(limits::WAITING),
            waits_each: PerKey::default(),
            members: Places::new(limits::MEMBERS),
            strangers: Places::new(limits::STRANGERS),
            turned_away: Places::new(limits::TURNED_AWAY),
            stopping: watch::Sender::new(false),
        };
        inner.registry.start().await?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Renews the roster, takes over what other processes publish and has the mesh measured,
    /// until `shutdown`; then lets waiting requests go and closes the database.
    pub async fn run(&self, shutdown: impl Future<Output = ()> + Send) {
        tokio::select! {
            () = self.look_until(shutdown) => {}
            () = self.inner.election.run() => {}
            () = self.inner.scheduler.run() => {}
            () = self.inner.streams.run() => {}
        }
        self.inner.stopping.send_replace(true);
        self.inner.scheduler.keep_last().await;
        self.inner.election.step_down().await;
        self.registry().store.close().await;
    }

    /// A look that has begun goes on to its end: what is committed is published.
    async fn look_until(&self, shutdown: impl Future<Output = ()> + Send) {
        tokio::pin!(shutdown);
        let mut ticks = interval(self.registry().config.refresh);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                _ = ticks.tick() => self.tick_and_tell(&mut last).await,
            }
        }
    }

    /// Tells of a failure when it begins or changes, and not every second.
    async fn tick_and_tell(&self, last: &mut Option<String>) {
        let failure = self.tick().await.err().map(|error| error.to_string());
        if let Some(why) = failure.as_ref().filter(|why| last.as_ref() != Some(why)) {
            self.registry().tell(&Event::Trouble(why.clone()));
        }
        *last = failure;
    }

    /// One look: takes over a newer roster of the database, and renews the roster if it is due.
    /// [`Oracle::run`] calls it every [`crate::Config::refresh`]. Of several oracles the
    /// elected one renews: clocks that differ would make them do so in turn without end.
    ///
    /// # Errors
    /// [`OracleError`]; the next look tries again.
    pub async fn tick(&self) -> Result<(), OracleError> {
        let registry = self.registry();
        registry.refresh().await?;
        let another = matches!(self.inner.election.standing(), Standing::Another(_));
        if registry.is_due() && !another { registry.renew().await } else { Ok(()) }
    }
}

/// What it knows and decides.
impl Oracle {
    pub(crate) fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// The mesh's key.
    pub fn mesh(&self) -> NodeId {
        self.registry().mesh()
    }

    /// Told of each new roster: its signed bytes, as `Signed::<Roster>::open` reads them.
    pub fn roster(&self) -> watch::Receiver<Arc<[u8]>> {
        self.registry().bytes.subscribe()
    }

    /// What measuring has come to since this oracle was opened, for metrics. Waits for nothing.
    pub fn measured(&self) -> MeasureCounts {
        self.inner.scheduler.measuring.counts()
    }

    /// Whether this oracle schedules now.
    pub fn is_elected(&self) -> bool {
        matches!(self.inner.election.standing(), Standing::Elected { .. })
    }

    /// Requests that wait for a newer roster now.
    pub fn waiting(&self) -> usize {
        limits::WAITING - self.inner.waiting.available_permits()
    }

    /// Connections for joining, and of strangers, now.
    pub fn strangers(&self) -> usize {
        self.inner.strangers.len()
    }

    /// The oracle's view of the mesh.
    pub fn status(&self) -> StatusReply {
        self.registry().status()
    }

    /// Makes a token that lets one host join, once; keeps its hash alone.
    ///
    /// # Errors
    /// [`OracleError::Refused`] if the caller is no admin, or the request beyond the
    /// bounds; the database's.
    pub async fn create_token(
        &self,
        caller: &Caller,
        request: TokenRequest,
    ) -> Result<TokenReply, OracleError> {
        self.inner.admission.create_token(caller, request).await
    }

    /// Makes the host that `request` is about a member, by the key that `caller` has proven.
    ///
    /// The token's use and the member's entry are one transaction: of several keys with
    /// one token exactly one wins. The same keys asking again get the same name again, as
    /// long as they are members. The new roster is published before the answer.
    ///
    /// # Errors
    /// [`OracleError::Refused`], or the database's; the token is as it was.
    pub async fn join(
        &self,
        caller: &Caller,
        request: JoinRequest,
    ) -> Result<JoinReply, OracleError> {
        self.inner.admission.join(caller, request).await
    }

    /// Leaves a member out of the roster from now on, by name or by one of its keys.
    ///
    /// Its keys never join again; its name can be used by another host. Refused, without
    /// a way to force it: the caller itself, and the last member with the role oracle or
    /// admin, since nobody could undo that. The new roster is published before the answer.
    ///
    /// # Errors
    /// [`OracleError::Refused`], or the database's; nothing changed.
    pub async fn revoke(
        &self,
        caller: &Caller,
        request: RevokeRequest,
    ) -> Result<RevokeReply, OracleError> {
        self.inner.admission.revoke(caller, request).await
    }

    /// Makes these the rules; publishes a new version if they differ from the ones that are there.
    ///
    /// # Errors
    /// [`OracleError`], nothing changed.
    pub async fn set_rules(&self, rules: Vec<Rule>) -> Result<(), OracleError> {
        self.registry().set_rules(rules).await
    }

    /// Makes these the addresses of this oracle's own node; publishes if they differ.
    ///
    /// # Errors
    /// [`OracleError`], nothing changed.
    pub async fn set_addresses(&self, addresses: Vec<Destination>) -> Result<(), OracleError> {
        self.registry().set_addresses(addresses).await
    }
}

/// Its connections.
impl Oracle {
    /// The routes; each request needs a [`Caller`] in its extensions.
    pub fn router(&self) -> Router {
        api::router(self.clone())
    }

    /// Answers the requests of one connection, until it ends. A member has 16 at a time;
    /// for a further one, that which was idle for longest is closed. Strangers (keys of no
    /// member) are served as on [`serve_join`](Self::serve_join), with refusals.
    ///
    /// # Errors
    /// When the connection breaks, sends what is no HTTP, takes too long or gives way.
    pub async fn serve<IO>(&self, stream: IO, caller: Caller) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let newest = self.registry().newest();
        let party = match caller.key().map(|key| newest.roster.by_key(&key)) {
            None => None,
            Some(Some(member)) => Some(Party::Member(member.principal())),
            Some(None) => return self.serve_once(stream, caller, self.router()).await,
        };
        drop(newest);
        let place = party.map(|party| self.inner.members.enter(party));
        if let Some(None) = place {
            return self.turn_away(stream, caller).await;
        }
        let place = place.flatten().map(Arc::new);
        Terms::lasting(self.router(), place).conduct(stream, caller).await
    }

    /// Answers one request to join, of whichever key, and no other: 404. The request has
    /// 5 s to come, all together half a minute.
    ///
    /// 64 such connections are served at a time, 8 of one IPv4 address or IPv6 /64; beyond
    /// that the oldest without a request is closed, and if all have one, a further one is
    /// answered 503.
    ///
    /// # Errors
    /// As of [`serve`](Self::serve).
    pub async fn serve_join<IO>(&self, stream: IO, caller: Caller) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_once(stream, caller, api::join_router(self.clone())).await
    }

    async fn serve_once<IO>(&self, stream: IO, caller: Caller, router: Router) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match self.inner.strangers.enter(Party::network(&caller)) {
            Some(place) => Terms::once(router, place).conduct(stream, caller).await,
            None => self.turn_away(stream, caller).await,
        }
    }

    /// Answers one request that there are too many connections.
    async fn turn_away<IO>(&self, stream: IO, caller: Caller) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let full = || io::Error::new(io::ErrorKind::QuotaExceeded, "too many connections at once");
        let place = self.inner.turned_away.enter(Party::network(&caller)).ok_or_else(full)?;
        Terms::once(api::crowded_router(), place).conduct(stream, caller).await
    }
}

/// For experiments with meshes that nobody has.
impl Oracle {
    /// Takes these legs for measured, as if both ends had reported them; nothing is kept. For
    /// experiments: who is an oracle's owner can as well write to its database.
    pub async fn assume(&self, legs: impl IntoIterator<Item = SeedLeg>) {
        self.inner.scheduler.assume(legs).await;
    }

    /// All members ask for orders just now, as far as the service knows. For experiments.
    pub async fn assume_present(&self) {
        self.inner.scheduler.assume_present().await;
    }

    /// Ranks all that is known, taken from the table anew: how many legs that is, and how long
    /// it took. Blocks. For experiments.
    pub fn rank_timed(&self) -> (usize, Duration) {
        self.inner.scheduler.rank_timed()
    }

    /// How long the ranking takes that follows from the last one and these legs. Blocks. For
    /// experiments.
    pub fn rank_next_timed(&self, legs: impl IntoIterator<Item = SeedLeg>) -> Duration {
        self.inner.scheduler.rank_next_timed(legs)
    }

    /// Gives orders as if this oracle had just been elected and each measurement ended at
    /// once, one after the other: how long the first look took, which fills all places, and
    /// each of the others, which gives one order. Blocks. For experiments.
    pub fn orders_timed(&self, looks: usize) -> (Duration, Vec<Duration>) {
        self.inner.scheduler.orders_timed(looks)
    }
}
