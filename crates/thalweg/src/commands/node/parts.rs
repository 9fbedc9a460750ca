//! The parts of a node: its keys, membership, services and tasks.

use super::{
    documents::ProgramDocuments,
    local_oracle::LocalOracle,
    probe_tasks::{self, ProbeTasks},
    reload::LiveServices,
    streams,
};
use crate::commands::{host::StateDir, uplinks};
use anyhow::Context as _;
use prometheus_client::registry::Registry;
use std::{
    future::Future,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};
use thalweg_base::{
    budget::Budget,
    clock::WallClock,
    log::{Event, Log},
};
use thalweg_cast::CastService;
use thalweg_doctor::peer::DoctorService;
use thalweg_dropbox::DropBoxes;
use thalweg_files::{Files, Lending, spool::Spool};
use thalweg_mesh::{
    Membership, MeshFile, Oracle, OracleClient, Reporter, RosterSync, State, SyncEvent,
    carrier_network::OverlayLegs,
    member_dialer::MemberDialer,
    reach::{ReachKeeper, ReachSettings},
    service::{MemberService, SubmitService},
};
use thalweg_net::{DialOptions, Dialer, PrivateKey, RideNetwork, channel::Connector};
use thalweg_node::{
    config::{Config, OfferSection},
    daemon::{DaemonConfig, NoReload, Node, NodeReach, Services},
};
use thalweg_probe::{
    carrier::{Carrier, CarrierLegs},
    prober::{ProbeBudget, Prober, RelayView},
    trains::Trains,
};
use thalweg_relay::{MeshRelay, ReachService, RelayMetrics};
use thalweg_stream::{Scheduler, Streams};
use thalweg_uplinks::bond::{BondLimits, Bonding, Bonds};
use thalweg_wire::{
    Signer as _,
    mesh::{Member, PORT, Role},
};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Connections that this node has opened to its relays and not yet accepted; each is accepted at once.
const REVERSE_CONNECTIONS: usize = 64;

/// A node before it is bound to its addresses.
pub struct Parts {
    mesh: MeshFile,
    key: PrivateKey,
    membership: Membership,
    local_oracle: LocalOracle,
    carrier: Option<Carrier>,
    log: Log,
}

/// The tasks that run beside the daemon.
#[derive(Debug)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    bonds: Option<Bonds>,
    trains: Option<ProbeTasks>,
}

impl Tasks {
    fn new(bonds: Option<Bonds>, trains: Option<ProbeTasks>) -> Self {
        Self { tracker: TaskTracker::new(), stop: CancellationToken::new(), bonds, trains }
    }

    /// Tells the tasks where the daemon is bound, so that streams of bonds to this node's own port reach it, and starts
    /// the probe trains there.
    pub fn start_trains_at(&self, listen: &[SocketAddr]) {
        if let (Some(bonds), Some(first)) = (&self.bonds, listen.first()) {
            bonds.set_own_port(loopback_address(*first));
        }
        if let Some(trains) = self.trains.clone() {
            self.spawn(trains.run(listen.to_vec()));
        }
    }

    /// Runs work until it ends or all tasks are stopped.
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tracker.spawn(async move {
            tokio::select! { () = stop.cancelled() => {}, () = work => {} }
        });
    }

    /// Asks all tasks to stop.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until all tasks have ended.
    pub async fn join(self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl Parts {
    /// Opens the parts in the state directory.
    ///
    /// # Errors
    /// If a part is damaged or missing.
    pub async fn open(state: &State, config: &Config, log: Log) -> anyhow::Result<Self> {
        let (mesh, key, membership) = (state.mesh()?, state.node_key()?, state.membership()?);
        if let Some(damage) = membership.damage() {
            log.put(Event::new("roster_damaged").with("what", damage));
        }
        let settings = &config.oracle;
        let local_oracle = LocalOracle::open(state, key.id(), &membership, settings, &log).await?;
        let carrier = None;
        let mut parts = Self { mesh, key, membership, local_oracle, carrier, log };
        parts.carrier = parts.carrier(config)?;
        Ok(parts)
    }

    /// The daemon's key.
    pub fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// This host's entry in the roster, if it has one.
    pub fn member(&self) -> Option<Member> {
        self.membership.current()?.by_key(&self.key.id()).cloned()
    }

    /// Whether other members use its port, for the oracle or the relay.
    pub fn serves_others(&self) -> bool {
        self.local_oracle.is_present() || self.relays()
    }

    fn relays(&self) -> bool {
        self.member().is_some_and(|m| m.is(Role::Relay))
    }

    /// Builds the node that the daemon serves, and starts the tasks beside it.
    ///
    /// # Errors
    /// If TLS refuses the key, or the kernel does not list this host's addresses.
    pub fn into_node(
        self,
        config: &Config,
        settings: &DaemonConfig,
        state: &State,
        state_dir: &StateDir,
    ) -> anyhow::Result<(Node, Tasks, LiveServices)> {
        let mut registry = Default::default();
        let metrics = RelayMetrics::register(&mut registry);
        let legs = metrics.legs().clone();
        let budget = uplinks::budget();
        let relays = config.relay.enabled && self.relays();
        let view = relays.then(|| relay_view(config, metrics.clone()));
        let relay = match relays {
            true => Some(self.relay(config, settings, metrics, budget.clone())?),
            false => None,
        };
        let reach = Some(self.standing(relay.clone())?);
        let client = OracleClient::new(&self.key, self.mesh.oracles.clone(), WallClock::default())?;
        let bonds = self.bonds(config);
        let prober = self.prober(config, budget, state)?;
        let trains =
            |prober: &Prober| probe_tasks::trains(prober, self.log.clone(), &config.measure);
        let trains = prober.as_ref().map(trains);
        trains.iter().for_each(|trains| trains.register(&mut registry));
        let start = |(trains, prober): (_, &Prober)| self.probe_tasks(trains, prober.lane(), state);
        let streams = self.streams(config)?;
        let mut probe_tasks = trains.clone().zip(prober.as_ref()).map(start).transpose()?;
        if let (Some(probe_tasks), Some(prober)) = (&mut probe_tasks, &prober) {
            probe_tasks.enable_overlay(&config.measure, prober, &legs, &mut registry);
            probe_tasks.enable_stream_measurements(&config.stream, prober, &streams);
        }
        bonds.iter().for_each(uplinks::track_accepted_bonds);
        let tasks = Tasks::new(bonds.clone(), probe_tasks);
        tasks.spawn(self.sync(client.clone(), state).run());
        if let Some(prober) = prober.clone() {
            prober.register(&mut registry);
            tasks.spawn(prober.run(self.ordering_oracles(settings, &client)?, view));
        }
        let measure = prober.clone().map(|prober| Arc::new(prober) as Arc<dyn MemberService>);
        self.start_oracle(config, &tasks, &mut registry);
        if config.stream.scheduler == Scheduler::Oracle {
            let oracles = self.ordering_oracles(settings, &client)?;
            tasks.spawn(streams.clone().follow_oracle(oracles));
        }
        let reverse = self.reach(config, &tasks, self.ordering_oracles(settings, &client)?)?;
        let control = self.local_oracle.control().unwrap_or_else(|| Arc::new(client));
        let oracle = self.local_oracle.service();
        let live = self.live_services(config, state, (relay.clone(), prober, streams))?;
        let transfers = self.transfers(config, state, &live, &tasks, &mut registry)?;
        let relay = relay.map(|relay| Arc::new(relay) as Arc<dyn MemberService>);
        let documents = Arc::new(ProgramDocuments::new(state, state_dir, config));
        // The transfers open the interfaces, if nothing else did.
        uplinks::register(&mut registry);
        let bond = bonds.map(|bonds| Arc::new(bonds) as Arc<dyn MemberService>);
        let doctor = Some(Arc::new(self.doctor()?) as Arc<dyn MemberService>);
        let probe = trains.map(|trains| Arc::new(trains) as Arc<dyn MemberService>);
        let services = Services { relay, oracle, measure, bond, probe, doctor, reach, ..transfers };
        let node = Node {
            name: self.mesh.name,
            key: self.key,
            membership: self.membership,
            services,
            control,
            jobs: None,
            documents,
            settings: Arc::new(NoReload),
            registry,
            legs: config.measure.overlay.then_some(legs),
            reach: Some(reverse),
            log: self.log,
        };
        Ok((node, tasks, live))
    }

    /// The services whose settings can change while they run: those given, and those that move files and objects.
    fn live_services(
        &self,
        config: &Config,
        state: &State,
        (relay, prober, streams): (Option<MeshRelay>, Option<Prober>, Streams),
    ) -> anyhow::Result<LiveServices> {
        let boxes = self.drop_boxes(config, state)?;
        let files = self.files(config, boxes.as_ref(), state)?;
        let (casts, oracle) = (self.casts(config, state)?, self.local_oracle.clone());
        Ok(LiveServices { relay, prober, files, casts, boxes, streams, oracle })
    }

    /// The services that move files, objects and streams; their tasks start now.
    fn transfers(
        &self,
        config: &Config,
        state: &State,
        live: &LiveServices,
        tasks: &Tasks,
        registry: &mut Registry,
    ) -> anyhow::Result<Services> {
        let lending = self.lending(config, state)?;
        lending.spool().register(registry);
        tasks.spawn(lending.spool().clone().sweep_periodically());
        let LiveServices { files, casts, boxes, streams, .. } = live;
        files.lend(lending);
        files.register(registry);
        let files = Some(Arc::new(files.clone()) as Arc<dyn MemberService>);
        let (casts, boxes, streams) = (casts.clone(), boxes.clone(), streams.clone());
        tasks.spawn(casts.clone().run());
        let cast = Some(Arc::new(casts) as Arc<dyn MemberService>);
        if let Some(boxes) = boxes.clone() {
            boxes.register(registry);
            tasks.spawn(boxes.run());
        }
        streams.register(registry);
        tasks.spawn(streams.clone().adapt());
        tasks.spawn(thalweg_stream::run_transcoders(streams.clone()));
        tasks.spawn(streams::run(streams.clone(), state.stream_socket(), self.log.clone()));
        let stream = Some(Arc::new(streams) as Arc<dyn MemberService>);
        let submit = boxes.map(|boxes| Arc::new(boxes) as Arc<dyn SubmitService>);
        Ok(Services { files, cast, stream, submit, ..Services::default() })
    }

    /// Starts the tasks of this node's oracle: those of a running one, or the reminder that it is down.
    fn start_oracle(&self, config: &Config, tasks: &Tasks, registry: &mut Registry) {
        if let LocalOracle::Running(oracle) = &self.local_oracle {
            oracle.register(registry);
            let stop = tasks.stop.clone();
            // It runs to its end even when stopped, because it closes its database.
            tasks.tracker.spawn(oracle.clone().run(stop.cancelled_owned()));
            tasks.spawn(oracle.clone().feed(self.membership.clone(), self.log.clone()));
        }
        tasks.spawn(self.local_oracle.clone().maintain(config.oracle.clone(), self.log.clone()));
    }

    fn relay(
        &self,
        config: &Config,
        settings: &DaemonConfig,
        metrics: RelayMetrics,
        budget: Arc<Budget>,
    ) -> anyhow::Result<MeshRelay> {
        let relay = super::settings::relay(config, &settings.listen);
        let (membership, log) = (self.membership.clone(), self.log.clone());
        Ok(MeshRelay::new(self.key.id(), relay, membership, budget, metrics, log)?)
    }

    /// The service for members that cannot be dialled. They stand here if this node relays.
    fn standing(&self, relay: Option<MeshRelay>) -> anyhow::Result<Arc<dyn MemberService>> {
        let (connector, membership) = (Connector::new(&self.key)?, self.membership.clone());
        Ok(Arc::new(ReachService::new(relay, connector, membership, self.log.clone())))
    }

    /// Starts the task that keeps this node reachable if it cannot be dialled.
    fn reach(
        &self,
        config: &Config,
        tasks: &Tasks,
        oracle: OracleClient,
    ) -> anyhow::Result<NodeReach> {
        let settings = ReachSettings {
            mode: config.reach,
            key: self.key.id(),
            connector: Connector::new(&self.key)?,
            membership: self.membership.clone(),
            oracle,
        };
        let (sender, connections) = mpsc::channel(REVERSE_CONNECTIONS);
        let keeper = ReachKeeper::new(settings, sender, self.log.clone());
        let view = keeper.view();
        tasks.spawn(keeper.run());
        Ok(NodeReach { connections, view })
    }

    /// The oracles whose orders and plans are followed. An oracle in this node comes first, at the node's own port.
    fn ordering_oracles(
        &self,
        settings: &DaemonConfig,
        others: &OracleClient,
    ) -> anyhow::Result<OracleClient> {
        if !matches!(self.local_oracle, LocalOracle::Running(_)) {
            return Ok(others.beside());
        }
        let addresses = settings.listen.iter().map(|at| loopback_address(*at).into()).collect();
        let own = Oracle { key: self.key.id(), addresses };
        let all = [vec![own], others.oracles()].concat();
        Ok(OracleClient::new(&self.key, all, WallClock::default())?)
    }

    /// The prober; `None` if the settings disable it.
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
        let purse = ProbeBudget::with_file(
            budget,
            settings.max_bytes_per_day,
            state.measured_file(),
            unkept,
        );
        let (membership, log) = (self.membership.clone(), self.log.clone());
        Ok(Some(Prober::new(who, membership, purse, settings.max_rate, log)?))
    }

    /// The service that answers other members' checks.
    fn doctor(&self) -> anyhow::Result<DoctorService> {
        let (name, version) = (self.mesh.name.clone(), env!("CARGO_PKG_VERSION"));
        Ok(DoctorService::new(name, &self.key, version, self.membership.clone())?)
    }

    /// The service of files. It also runs if nothing is offered: any node can hold data in transit.
    fn files(
        &self,
        config: &Config,
        boxes: Option<&DropBoxes>,
        state: &State,
    ) -> anyhow::Result<Files> {
        let (membership, log) = (self.membership.clone(), self.log.clone());
        let settings = with_drop_box_offers(config, boxes).files();
        Ok(Files::new(&settings, state.dir(), self.key.id(), membership, log)?)
    }

    /// The spool for data in transit through this node.
    fn lending(&self, config: &Config, state: &State) -> anyhow::Result<Lending> {
        let (dir, membership) = (state.dir().join("spool"), self.membership.clone());
        let (bound, keep_free) = (config.files.spool_bytes, config.files.keep_free());
        let spool = Spool::open(&dir, bound, keep_free, WallClock::default());
        let spool = spool.with_context(|| format!("cannot use the spool {}", dir.display()))?;
        let (name, identity) = (self.mesh.name.clone(), Connector::new(&self.key)?);
        let dialer = Dialer::with_identity(DialOptions::default(), identity.clone());
        let bonds = uplinks::track_bonds(self.bonding(dialer, config, state)?);
        let dialer = MemberDialer::new(name, membership.clone(), identity, DialOptions::default());
        let dialer = dialer.with_carrier(Arc::new(bonds)).with_ride_network(self.rides());
        Ok(Lending::new(spool, dialer, membership))
    }

    /// The bonds for this dialer's streams.
    fn bonding(&self, dialer: Dialer, config: &Config, state: &State) -> anyhow::Result<Bonding> {
        let settings = config.interfaces.settings();
        uplinks::bonding(dialer, settings, state, self.interface_logger())
    }

    /// Logs faults of interfaces.
    pub fn interface_logger(&self) -> impl Fn(String) + Clone + Send + use<> {
        let log = self.log.clone();
        move |why| log.put(Event::new("interfaces").with("why", why))
    }

    /// The service that receives and forwards casts. It also runs without an inbox, to tell other members so.
    fn casts(&self, config: &Config, state: &State) -> anyhow::Result<CastService> {
        let (membership, log) = (self.membership.clone(), self.log.clone());
        let (name, identity) = (self.mesh.name.clone(), Connector::new(&self.key)?);
        let dialer = Dialer::with_identity(DialOptions::default(), identity.clone());
        let bonds = uplinks::track_bonds(self.bonding(dialer, config, state)?.awaited());
        let dialer = MemberDialer::new(name, membership.clone(), identity, DialOptions::default());
        let dialer = dialer.with_carrier(Arc::new(bonds)).with_ride_network(self.rides());
        Ok(CastService::new(&(&config.cast).into(), state.dir(), membership, dialer, log)?)
    }

    /// The service that receives and forwards streams. It also runs if no member may subscribe, because this host's own
    /// programs may.
    fn streams(&self, config: &Config) -> anyhow::Result<Streams> {
        let (membership, log) = (self.membership.clone(), self.log.clone());
        let (name, identity) = (self.mesh.name.clone(), Connector::new(&self.key)?);
        let dialer = MemberDialer::new(name, membership, identity, DialOptions::default());
        let dialer = dialer.with_ride_network(self.rides());
        Ok(Streams::new((&config.stream).into(), dialer, log))
    }

    /// The service of probe trains: it receives their datagrams and sends trains for other programs, but not during
    /// bulk flows.
    fn probe_tasks(
        &self,
        trains: Trains,
        flows: Arc<Semaphore>,
        state: &State,
    ) -> anyhow::Result<ProbeTasks> {
        let (name, identity) = (self.mesh.name.clone(), Connector::new(&self.key)?);
        // Not over bonds: a train takes a single path, and its control messages take the same.
        let dialer =
            MemberDialer::new(name, self.membership.clone(), identity, DialOptions::default());
        let dialer = dialer.direct();
        let (socket, log) = (state.probe_socket(), self.log.clone());
        let carrier = self.carrier.clone();
        if let Some(carrier) = carrier.clone() {
            trains.set_carrier(Arc::new(carrier));
        }
        Ok(ProbeTasks { trains, flows, carrier, overlay: None, follow: None, dialer, socket, log })
    }

    /// The carrier; `None` if the settings disable it.
    fn carrier(&self, config: &Config) -> anyhow::Result<Option<Carrier>> {
        if !(config.carrier.enabled && config.measure.enabled) {
            return Ok(None);
        }
        let (name, membership) = (self.mesh.name.clone(), self.membership.clone());
        let identity = Connector::new(&self.key)?;
        let dialer = MemberDialer::new(name, membership.clone(), identity, DialOptions::default());
        let dialer = dialer.direct();
        let (settings, log) = (config.carrier.settings(), self.log.clone());
        Ok(Some(Carrier::new(settings, self.key.id(), membership, dialer, log)))
    }

    /// The carried legs of this node's own connections, and which of them are used automatically.
    pub fn rides(&self) -> Arc<dyn RideNetwork> {
        match &self.carrier {
            Some(carrier) => Arc::new(CarrierLegs::of(carrier.clone())),
            None => Arc::new(OverlayLegs::of(&self.membership.mesh())),
        }
    }

    /// The address for connections that arrive through the carrier, if there is one.
    pub fn carrier_address(&self) -> Option<SocketAddr> {
        self.carrier.as_ref().map(|carrier| (carrier.address(), PORT).into())
    }

    /// The accepting end of members' bonds; `None` if the settings disable it.
    fn bonds(&self, config: &Config) -> Option<Bonds> {
        let settings = &config.bond;
        let limits = BondLimits { bonds: settings.max_bonds, memory: settings.memory.as_bytes() };
        let bonds = || Bonds::new(Default::default(), limits, self.log.clone());
        settings.enabled.then(bonds)
    }

    /// The drop boxes in the settings; `None` if there are none.
    fn drop_boxes(&self, config: &Config, state: &State) -> anyhow::Result<Option<DropBoxes>> {
        if config.drop_box.is_empty() {
            return Ok(None);
        }
        // A separate copy of the key: stamps are signed by tasks that outlive this value.
        let who = (self.mesh.name.clone(), state.node_key()?);
        let (membership, log) = (self.membership.clone(), self.log.clone());
        let boxes: Vec<_> = config.drop_box.iter().map(Into::into).collect();
        Ok(Some(DropBoxes::open(&boxes, state.dir(), who, membership, log)?))
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

/// The settings, extended by the offers of drop boxes to their destinations.
pub fn with_drop_box_offers(config: &Config, boxes: Option<&DropBoxes>) -> Config {
    let mut config = config.clone();
    let offers = boxes.into_iter().flat_map(DropBoxes::offers);
    let offer =
        |(path, to)| OfferSection { path, to: vec![thalweg_wire::mesh::MemberPattern::Member(to)] };
    config.files.offer.extend(offers.map(offer));
    config
}

/// The address at which this host reaches its own listening port.
fn loopback_address(mut at: SocketAddr) -> SocketAddr {
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
