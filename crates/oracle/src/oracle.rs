//! The oracle's handle: its interface for its node and for the API.

use crate::{
    Caller, Config, Event, MeasureCounts, OracleError, SeedLeg,
    admission::Admission,
    api,
    connection::ConnectionTerms,
    connection_limit::{ConnectionLimit, Party},
    election::{Election, ElectionState},
    founding,
    limits::{self, KeyCounts, RequestRate},
    measure::{MeasuringService, Scheduler},
    reach::ReachStatements,
    registry::Registry,
    streams::Streams,
};
use axum::Router;
use std::{future::Future, io, path::Path, sync::Arc, time::Duration};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination,
    mesh::{
        AddressesReply, JoinReply, JoinRequest, Member, ReachReply, ReachRequest, RevokeReply,
        RevokeRequest, Rule, StatusReply, TokenReply, TokenRequest,
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
    reach: ReachStatements,
    pub scheduler: Scheduler,
    pub streams: Arc<Streams>,
    /// Limits requests that wait for a roster.
    pub waiting: Semaphore,
    pub waits_each: KeyCounts,
    /// Spaces the requests of each member.
    pub requests: RequestRate,
    members: Arc<ConnectionLimit>,
    /// Connections for joining, and those of strangers.
    strangers: Arc<ConnectionLimit>,
    /// Connections beyond these limits, which are answered with a refusal.
    turned_away: Arc<ConnectionLimit>,
    pub stopping: watch::Sender<bool>,
}

/// Opening and running.
impl Oracle {
    /// Founds a mesh: its key, its database, and its first roster with only `founder`.
    ///
    /// `dir` must be empty or not exist. Everything is created beside it (`DIR.new`) and renamed in one step, so that
    /// an interrupted start leaves no partial oracle. A server's database must be empty; it is committed last, and if
    /// that fails, the next start fills it from the copy in `dir`. The founder gets the roles client, oracle and admin
    /// in addition to its own, and needs a node key and an address.
    ///
    /// # Errors
    /// [`OracleError`]; then `dir` holds no oracle.
    pub async fn create(dir: &Path, founder: Member, config: Config) -> Result<Self, OracleError> {
        let node = founding::found(dir, founder, &config).await?;
        Self::open(dir, node, config).await
    }

    /// Opens the oracle in `dir`, which runs in the node with TLS key `node`, and publishes a new version.
    ///
    /// If the database can be read but not written (locked, full), or its server cannot be reached, the stored roster
    /// is served, and a new one is published as soon as possible. If the database is missing or empty, it is created
    /// from the signed copy.
    ///
    /// # Errors
    /// [`OracleError`]: no oracle in `dir`, a damaged database, another mesh's key, or a node key that is not in the
    /// roster.
    pub async fn open(dir: &Path, node: NodeId, config: Config) -> Result<Self, OracleError> {
        let registry = Arc::new(Registry::open(dir, node, config).await?);
        let (measure, clock) = (registry.config.measure.clone(), registry.config.clock.clone());
        let measuring = MeasuringService::new(measure, clock).map_err(OracleError::Random)?;
        let measuring = Arc::new(measuring);
        let election = Arc::new(Election::new(registry.clone()));
        let streams = Streams::new(registry.clone(), election.clone(), measuring.clone());
        let inner = Inner {
            admission: Admission::new(registry.clone()),
            reach: ReachStatements::new(registry.clone()),
            scheduler: Scheduler::new(registry.clone(), election.clone(), measuring),
            streams: Arc::new(streams.map_err(OracleError::Random)?),
            registry,
            election,
            waiting: Semaphore::new(limits::WAITING),
            waits_each: KeyCounts::default(),
            requests: RequestRate::default(),
            members: ConnectionLimit::new(limits::MEMBERS),
            strangers: ConnectionLimit::new(limits::STRANGERS),
            turned_away: ConnectionLimit::new(limits::TURNED_AWAY),
            stopping: watch::Sender::new(false),
        };
        inner.registry.start().await?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Renews the roster, takes over rosters of other processes and schedules measurements until `shutdown`; then ends
    /// waiting requests and closes the database.
    pub async fn run(&self, shutdown: impl Future<Output = ()> + Send) {
        tokio::select! {
            () = self.look_until(shutdown) => {}
            () = self.inner.election.run() => {}
            () = self.inner.scheduler.run() => {}
            () = self.inner.streams.run() => {}
        }
        self.inner.stopping.send_replace(true);
        self.inner.scheduler.store_last().await;
        self.inner.election.step_down().await;
        self.registry().store.close().await;
    }

    /// Ticks until `shutdown`. A tick that has begun completes, so that everything committed is published.
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

    /// Reports a failure when it begins or changes, not at each tick.
    async fn tick_and_tell(&self, last: &mut Option<String>) {
        let failure = self.tick().await.err().map(|error| error.to_string());
        if let Some(why) = failure.as_ref().filter(|why| last.as_ref() != Some(why)) {
            self.registry().emit(&Event::Trouble(why.clone()));
        }
        *last = failure;
    }

    /// Takes over a newer roster from the database, and renews the roster if it is due. [`Oracle::run`] calls it every
    /// [`crate::Config::refresh`]. Of several oracles only the elected one renews, because oracles with differing
    /// clocks would renew in turn without end.
    ///
    /// # Errors
    /// [`OracleError`]; the next tick tries again.
    pub async fn tick(&self) -> Result<(), OracleError> {
        let registry = self.registry();
        registry.refresh().await?;
        let another = matches!(self.inner.election.state(), ElectionState::Another(_));
        if registry.is_due() && !another { registry.renew().await } else { Ok(()) }
    }
}

/// State and changes.
impl Oracle {
    pub(crate) fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// The mesh's key.
    pub fn mesh(&self) -> NodeId {
        self.registry().mesh()
    }

    /// A channel with each new roster: its signed bytes, for `Signed::<Roster>::open`.
    pub fn roster(&self) -> watch::Receiver<Arc<[u8]>> {
        self.registry().bytes.subscribe()
    }

    /// Counts of measurements since this oracle was opened, for metrics. Does not block.
    pub fn measured(&self) -> MeasureCounts {
        self.inner.scheduler.measuring.counts()
    }

    /// Whether this oracle schedules now.
    pub fn is_elected(&self) -> bool {
        matches!(self.inner.election.state(), ElectionState::Elected { .. })
    }

    /// The number of requests that wait for a newer roster.
    pub fn waiting(&self) -> usize {
        limits::WAITING - self.inner.waiting.available_permits()
    }

    /// The number of connections for joining or of strangers.
    pub fn strangers(&self) -> usize {
        self.inner.strangers.len()
    }

    /// The oracle's view of the mesh.
    pub fn status(&self) -> StatusReply {
        self.registry().status()
    }

    /// Creates a token with which one host can join once. Only its hash is stored.
    ///
    /// # Errors
    /// [`OracleError::Refused`] if the caller is not an admin or the request is beyond the bounds; database errors.
    pub async fn create_token(
        &self,
        caller: &Caller,
        request: TokenRequest,
    ) -> Result<TokenReply, OracleError> {
        self.inner.admission.create_token(caller, request).await
    }

    /// Makes the requesting host a member, by the key that `caller` has proven.
    ///
    /// Using the token and adding the member are one transaction: of several keys with one token exactly one succeeds.
    /// If the same keys ask again, they get the same name, as long as they are members. The new roster is published
    /// before the answer.
    ///
    /// # Errors
    /// [`OracleError::Refused`], or database errors; the token is unchanged.
    pub async fn join(
        &self,
        caller: &Caller,
        request: JoinRequest,
    ) -> Result<JoinReply, OracleError> {
        self.inner.admission.join(caller, request).await
    }

    /// Revokes a member, given by name or by one of its keys: the roster omits it from now on.
    ///
    /// Its keys can never join again; another host can use its name. Two revocations are refused, and cannot be forced:
    /// of the caller itself, and of the last member with the role oracle or admin, since nobody could undo that. The
    /// new roster is published before the answer.
    ///
    /// # Errors
    /// [`OracleError::Refused`], or database errors; nothing was changed.
    pub async fn revoke(
        &self,
        caller: &Caller,
        request: RevokeRequest,
    ) -> Result<RevokeReply, OracleError> {
        self.inner.admission.revoke(caller, request).await
    }

    /// Sets the relays through which the calling node is reached, for a node that cannot be dialled; none: it is
    /// dialled. The roster that has them is published before the answer; changes of many members share one, at most one
    /// a second.
    ///
    /// # Errors
    /// [`OracleError::Refused`] if they are no relays or change too often, or database errors.
    pub async fn set_reach(
        &self,
        caller: &Caller,
        request: ReachRequest,
    ) -> Result<ReachReply, OracleError> {
        self.inner.reach.set(caller, request).await
    }

    /// Sets the rules. Publishes a new version if they differ from the current ones.
    ///
    /// # Errors
    /// [`OracleError`]; nothing was changed.
    pub async fn set_rules(&self, rules: Vec<Rule>) -> Result<(), OracleError> {
        self.registry().set_rules(rules).await
    }

    /// Sets the addresses of the member that asks, or of this oracle's own node if a program of this host asks. Publishes
    /// a new version if they differ.
    ///
    /// # Errors
    /// [`OracleError`]; nothing was changed.
    pub async fn set_addresses(
        &self,
        caller: &Caller,
        addresses: Vec<Destination>,
    ) -> Result<AddressesReply, OracleError> {
        self.registry().set_addresses(caller, addresses).await
    }
}

/// Connections.
impl Oracle {
    /// The routes; each request needs a [`Caller`] in its extensions.
    pub fn router(&self) -> Router {
        api::router(self.clone())
    }

    /// Serves requests on one connection until it ends. A member has at most 16 connections; a further one evicts the
    /// one that has been idle longest. Strangers (keys of no member) are served as by [`serve_join`](Self::serve_join),
    /// with refusals.
    ///
    /// # Errors
    /// The connection breaks, sends something other than HTTP, takes too long or is evicted.
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
        ConnectionTerms::persistent(self.router(), place).serve(stream, caller).await
    }

    /// Answers one request to join, with any key; other requests get 404. The request must arrive within 5 s, and the
    /// connection lasts at most 30 s.
    ///
    /// At most 64 such connections are served at a time, 8 per IPv4 address or IPv6 /64. Beyond that the oldest
    /// connection without a request is closed; if all have one, a further connection is answered 503.
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
            Some(place) => {
                ConnectionTerms::single_request(router, place).serve(stream, caller).await
            }
            None => self.turn_away(stream, caller).await,
        }
    }

    /// Answers one request with a refusal, because there are too many connections.
    async fn turn_away<IO>(&self, stream: IO, caller: Caller) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let full = || io::Error::new(io::ErrorKind::QuotaExceeded, "too many connections at once");
        let place = self.inner.turned_away.enter(Party::network(&caller)).ok_or_else(full)?;
        ConnectionTerms::single_request(api::crowded_router(), place).serve(stream, caller).await
    }
}

/// For experiments with hypothetical meshes.
impl Oracle {
    /// Records these legs as if both ends had reported their measurements; nothing is stored. For experiments: it gives
    /// no new power, since the oracle's owner can write to the database anyway.
    pub async fn assume(&self, legs: impl IntoIterator<Item = SeedLeg>) {
        self.inner.scheduler.assume(legs).await;
    }

    /// Marks all members as present, as if they asked for orders now. For experiments.
    pub async fn assume_present(&self) {
        self.inner.scheduler.assume_present().await;
    }

    /// Ranks the whole table from scratch. Returns the number of legs and the time taken. Blocks. For experiments.
    pub fn rank_timed(&self) -> (usize, Duration) {
        self.inner.scheduler.rank_timed()
    }

    /// The time that an incremental ranking takes after these legs changed. Blocks. For experiments.
    pub fn rank_next_timed(&self, legs: impl IntoIterator<Item = SeedLeg>) -> Duration {
        self.inner.scheduler.rank_next_timed(legs)
    }

    /// Gives orders as if this oracle had just been elected and each measurement ended at once, one after the other.
    /// Returns the time of the first scheduling pass, which fills all places, and of each of the others, which give one
    /// order each. Blocks. For experiments.
    pub fn orders_timed(&self, looks: usize) -> (Duration, Vec<Duration>) {
        self.inner.scheduler.orders_timed(looks)
    }
}
