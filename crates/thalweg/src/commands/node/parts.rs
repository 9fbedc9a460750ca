//! What a node is made of: its keys, its membership, its relay, its oracle.

use super::seat::Seat;
use crate::commands::uplinks;
use anyhow::Context as _;
use std::{
    future::Future,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};
use thalweg_net::{DialOptions, Dialer, PrivateKey, channel::Connector};
use thalweg_node::{
    bond::{BondLimits, Bonds},
    budget::Budget,
    cast::Casts,
    config::{Config, OfferSection, Whom},
    daemon::{DaemonConfig, MemberService, Node, Services, SubmitService},
    drop_box::DropBoxes,
    files::{Files, Lending, spool::Spool},
    gather::Reach,
    interfaces::InterfaceMetrics,
    mesh::{
        Membership, MeshFile, Oracle, OracleClient, Reporter, RosterSync, State, SyncEvent,
        WallClock,
    },
    prober::{Prober, Purse, RelayView},
    relay::{Event, Log, MeshRelay, RelayMetrics},
};
use thalweg_wire::{
    Signer as _,
    mesh::{Member, Role},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A node before it is bound to its addresses.
pub struct Parts {
    mesh: MeshFile,
    key: PrivateKey,
    membership: Membership,
    seat: Seat,
    log: Log,
}

/// What runs beside the daemon.
#[derive(Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    bonds: Option<Bonds>,
}

impl Tasks {
    fn new(bonds: Option<Bonds>) -> Self {
        Self { tracker: TaskTracker::new(), stop: CancellationToken::new(), bonds }
    }

    /// The daemon is bound there: what leads to this node itself has a place to go.
    pub fn bound(&self, listen: &[SocketAddr]) {
        if let (Some(bonds), Some(first)) = (&self.bonds, listen.first()) {
            bonds.lead_to(near(*first));
        }
    }

    /// Runs until it ends or all are told to stop.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tracker.spawn(async move {
            tokio::select! { () = stop.cancelled() => {}, () = work => {} }
        });
    }

    /// Tells all to stop.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until all have.
    pub async fn ended(self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl Parts {
    /// Opens all that is in the state directory.
    ///
    /// # Errors
    /// Whatever is damaged or missing.
    pub async fn open(state: &State, config: &Config, log: Log) -> anyhow::Result<Self> {
        let (mesh, key, membership) = (state.mesh()?, state.node_key()?, state.membership()?);
        if let Some(damage) = membership.damage() {
            log.put(Event::new("roster_damaged").with("what", damage));
        }
        let settings = &config.oracle;
        let seat = Seat::open(state, key.id(), &membership, settings, &log).await?;
        Ok(Self { mesh, key, membership, seat, log })
    }

    /// The daemon's key.
    pub fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// This host's entry in the roster, if it is in it.
    pub fn member(&self) -> Option<Member> {
        self.membership.current()?.by_key(&self.key.id()).cloned()
    }

    /// Whether others have a reason to come to its port.
    pub fn serves_others(&self) -> bool {
        self.seat.is_taken() || self.relays()
    }

    fn relays(&self) -> bool {
        self.member().is_some_and(|m| m.is(Role::Relay))
    }

    /// The node that the daemon serves, and what runs beside it.
    ///
    /// # Errors
    /// If TLS does not take the key, or the kernel does not tell this host's addresses.
    pub fn into_node(
        self,
        config: &Config,
        settings: &DaemonConfig,
        state: &State,
    ) -> anyhow::Result<(Node, Tasks)> {
        let mut registry = Default::default();
        let metrics = RelayMetrics::register(&mut registry);
        let budget = Arc::new(Budget::new());
        let relays = config.relay.enabled && self.relays();
        let view = relays.then(|| relay_view(config, metrics.clone()));
        let relay = match relays {
            true => {
                let relay = self.relay(config, settings, metrics, budget.clone())?;
                Some(Arc::new(relay) as Arc<dyn MemberService>)
            }
            false => None,
        };
        let client = OracleClient::new(&self.key, self.mesh.oracles.clone(), WallClock::default())?;
        let bonds = self.bonds(config);
        let tasks = Tasks::new(bonds.clone());
        tasks.spawn(self.sync(client.clone(), state).run());
        let prober = self.prober(config, budget, state)?;
        if let Some(prober) = prober.clone() {
            prober.register(&mut registry);
            tasks.spawn(prober.run(self.measured_for(settings, &client)?, view));
        }
        let measure = prober.map(|prober| Arc::new(prober) as Arc<dyn MemberService>);
        if let Seat::Taken(oracle) = &self.seat {
            oracle.register(&mut registry);
            let stop = tasks.stop.clone();
            // To its end: it closes its database.
            tasks.tracker.spawn(oracle.clone().run(stop.cancelled_owned()));
            tasks.spawn(oracle.clone().feed(self.membership.clone(), self.log.clone()));
        }
        tasks.spawn(self.seat.clone().remind(config.oracle.clone(), self.log.clone()));
        let control = self.seat.control().unwrap_or_else(|| Arc::new(client));
        let oracle = self.seat.service();
        let lending = self.lending(config, state)?;
        lending.spool().register(&mut registry);
        if let Some(uplinks) = uplinks::of_process() {
            registry.register_collector(Box::new(InterfaceMetrics(uplinks)));
        }
        tasks.spawn(lending.spool().clone().keep());
        let boxes = self.drop_boxes(config, state)?;
        let files = self.files(&offering(config, boxes.as_ref()), state, lending)?;
        files.register(&mut registry);
        let files = Some(Arc::new(files) as Arc<dyn MemberService>);
        let casts = self.casts(config, state)?;
        tasks.spawn(casts.clone().run());
        let cast = Some(Arc::new(casts) as Arc<dyn MemberService>);
        if let Some(boxes) = boxes.clone() {
            boxes.register(&mut registry);
            tasks.spawn(boxes.run());
        }
        let bond = bonds.map(|bonds| Arc::new(bonds) as Arc<dyn MemberService>);
        let submit = boxes.map(|boxes| Arc::new(boxes) as Arc<dyn SubmitService>);
        let node = Node {
            name: self.mesh.name,
            key: self.key,
            membership: self.membership,
            services: Services { relay, oracle, measure, files, cast, bond, submit },
            control,
            registry,
            log: self.log,
        };
        Ok((node, tasks))
    }

    fn relay(
        &self,
        config: &Config,
        settings: &DaemonConfig,
        metrics: RelayMetrics,
        budget: Arc<Budget>,
    ) -> anyhow::Result<MeshRelay> {
        let first = settings.listen.first().copied();
        let own = first.unwrap_or_else(|| ([0, 0, 0, 0], 0).into());
        let mut relay = config.relay.to_relay(own);
        let admin = settings.listen.iter().copied().chain(config.socks.listen);
        relay.egress = relay.egress.with_admin(admin.chain(config.metrics.listen));
        let (membership, log) = (self.membership.clone(), self.log.clone());
        Ok(MeshRelay::new(self.key.id(), relay, membership, budget, metrics, log)?)
    }

    /// Whose orders are carried out: the oracles', that in this node first, by its own port.
    fn measured_for(
        &self,
        settings: &DaemonConfig,
        others: &OracleClient,
    ) -> anyhow::Result<OracleClient> {
        if !matches!(self.seat, Seat::Taken(_)) {
            return Ok(others.beside());
        }
        let addresses = settings.listen.iter().map(|at| near(*at).into()).collect();
        let own = Oracle { key: self.key.id(), addresses };
        let all = [vec![own], others.oracles()].concat();
        Ok(OracleClient::new(&self.key, all, WallClock::default())?)
    }

    /// Who measures; none if the settings say so.
    fn prober(
        &self,
        config: &Config,
        budget: Arc<Budget>,
        state: &State,
    ) -> anyhow::Result<Option<Prober>> {
        let settings = &config.measure;
        if !settings.enabled {
            return Ok(None);
        }
        let who = (self.mesh.name.clone(), &self.key);
        let log = self.log.clone();
        let unkept = move |e| log.put(Event::new("measured_not_kept").with("why", e));
        let purse = Purse::kept(budget, settings.max_bytes_per_day, state.measured_file(), unkept);
        let (membership, log) = (self.membership.clone(), self.log.clone());
        Ok(Some(Prober::new(who, membership, purse, settings.max_rate, log)?))
    }

    /// Who serves files. Also where nothing is offered: any node can hold data on its way.
    fn files(&self, config: &Config, state: &State, lending: Lending) -> anyhow::Result<Files> {
        let (membership, log) = (self.membership.clone(), self.log.clone());
        let files = Files::new(&config.files, state.dir(), membership, log)?;
        files.lend(lending);
        Ok(files)
    }

    /// What goes by way of this node.
    fn lending(&self, config: &Config, state: &State) -> anyhow::Result<Lending> {
        let (dir, membership) = (state.dir().join("spool"), self.membership.clone());
        let spool = Spool::open(&dir, config.files.spool_bytes, WallClock::default());
        let spool = spool.with_context(|| format!("cannot use the spool {}", dir.display()))?;
        let (name, identity) = (self.mesh.name.clone(), Connector::new(&self.key)?);
        let dialer = Dialer::with_identity(DialOptions::default(), identity.clone());
        let bonds = uplinks::bonding(dialer, config.interfaces.settings(), state)?;
        let reach = Reach::new(name, membership.clone(), identity, DialOptions::default());
        let reach = reach.carried_by(Arc::new(bonds));
        Ok(Lending::new(spool, reach, membership))
    }

    /// Who takes casts in and hands them on. Also where no inbox is: others learn so.
    fn casts(&self, config: &Config, state: &State) -> anyhow::Result<Casts> {
        let (membership, log) = (self.membership.clone(), self.log.clone());
        let (name, identity) = (self.mesh.name.clone(), Connector::new(&self.key)?);
        let dialer = Dialer::with_identity(DialOptions::default(), identity.clone());
        let bonds = uplinks::bonding(dialer, config.interfaces.settings(), state)?;
        let reach = Reach::new(name, membership.clone(), identity, DialOptions::default());
        let reach = reach.carried_by(Arc::new(bonds.awaited()));
        Ok(Casts::new(&config.cast, state.dir(), membership, reach, log)?)
    }

    /// The far end of members' bonds; none if the settings say so.
    fn bonds(&self, config: &Config) -> Option<Bonds> {
        let settings = &config.bond;
        let limits = BondLimits { bonds: settings.max_bonds, memory: settings.memory.as_bytes() };
        let bonds = || Bonds::new(Default::default(), limits, self.log.clone());
        settings.enabled.then(bonds)
    }

    /// The settings' drop boxes; none if there are none.
    fn drop_boxes(&self, config: &Config, state: &State) -> anyhow::Result<Option<DropBoxes>> {
        if config.drop_box.is_empty() {
            return Ok(None);
        }
        // A key of its own copy: stamps are signed by tasks that outlive this.
        let who = (self.mesh.name.clone(), state.node_key()?);
        let (membership, log) = (self.membership.clone(), self.log.clone());
        Ok(Some(DropBoxes::open(&config.drop_box, state.dir(), who, membership, log)?))
    }

    fn sync(&self, client: OracleClient, state: &State) -> RosterSync {
        let log = self.log.clone();
        let report: Reporter = Arc::new(move |event: &SyncEvent| {
            let line = Event::new(event.name()).with("what", event);
            log.put(if event.is_alert() { line.with("level", "alert") } else { line });
        });
        let who = (self.mesh.clone(), self.key.id());
        RosterSync::new(client, self.membership.clone(), who, Some(state.clone()), report)
    }
}

/// The settings with what drop boxes offer to their destinations.
fn offering(config: &Config, boxes: Option<&DropBoxes>) -> Config {
    let mut config = config.clone();
    let offers = boxes.into_iter().flat_map(DropBoxes::offers);
    let offer = |(path, to)| OfferSection { path, to: vec![Whom::Member(to)] };
    config.files.offer.extend(offers.map(offer));
    config
}

/// Where this host reaches a port that it listens at.
fn near(mut at: SocketAddr) -> SocketAddr {
    match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => at.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => at.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    at
}

fn relay_view(config: &Config, metrics: RelayMetrics) -> RelayView {
    RelayView {
        metrics,
        max_sessions: config.relay.max_connections as u64,
        capacity: config.measure.relay_capacity,
        passive: config.measure.passive,
    }
}
