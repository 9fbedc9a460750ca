//! The serving end of sessions with members.

use super::{
    calibrate, carrier_session,
    endpoint::{Endpoint, NoReturnAddress, SessionEntry},
    error::SessionError,
    payer::ArrivalCharge,
    probe_sender::{OutgoingTrain, ProbeSender},
    riders::{AttachGuard, RiderCarrier, Riders},
    session::{big_enough, can, secrets},
};
use crate::prober::ProbeBudget;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};
use thalweg_base::{
    budget::PeerKey,
    costly,
    log::{Event, Log},
    message,
    peer_slots::PeerSlots,
};
use thalweg_measure::train::{Calibration, MAX_PROBES, PacingError, Probe, Train};
use thalweg_mesh::{MeshPeer, service::MemberService};
use thalweg_net::{
    channel::Channel,
    probe::{Opener, Sealer},
};
use thalweg_units::{NodeId, Rate, Time};
use thalweg_wire::mesh::Name;
use thalweg_wire::probe::{
    MAX_BLOCK, MAX_MESSAGE, NO_TRAIN, NodeReply, PlannedProbe, ProbeRequest, Refusal,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::{Semaphore, SemaphorePermit},
    task::spawn_blocking,
    time::timeout,
};

/// A client that requests nothing for this long has left.
const IDLE: Duration = Duration::from_secs(300);

/// How long a calibration is valid.
const FRESH: Duration = Duration::from_secs(600);

/// How long the calibration of a busy host is valid: the host may be calm soon.
const BUSY: Duration = Duration::from_secs(10);

/// The longest wait for probes.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How long a new channel may take to send its first request.
const FIRST: Duration = Duration::from_secs(30);

/// The most channels without a first request, in total and per member. A further one is closed.
const SILENT: (usize, usize) = (256, 16);

/// The most channels for trains, in total and per member, so that no member takes all of them.
const MEASURING: (usize, usize) = (64, 16);

/// The most channels for riders alone, in total and per member: a carrier has as many members, each with one channel,
/// and a new channel may open before the end of the old one is noticed.
const CARRYING: (usize, usize) = (256, 4);

/// The service `probe` of a daemon.
#[derive(Clone, Debug)]
pub struct Trains(Arc<TrainsShared>);

#[derive(Debug)]
struct TrainsShared {
    endpoints: OnceLock<Vec<Arc<Endpoint>>>,
    carrier: OnceLock<Arc<dyn RiderCarrier>>,
    /// The operator's bound on the rate.
    most: OnceLock<Rate>,
    calibration: Mutex<Option<(Instant, Calibration)>>,
    /// One train at a time leaves this host.
    lane: Semaphore,
    silent: PeerSlots<Name>,
    measuring: PeerSlots<Name>,
    carrying: PeerSlots<Name>,
    probe_budget: Arc<ProbeBudget>,
    log: Log,
}

impl Trains {
    /// Creates the service. Trains that members request are charged to this budget. Nothing is served before
    /// [`Self::set_endpoints`].
    pub fn new(probe_budget: Arc<ProbeBudget>, log: Log) -> Self {
        let (endpoints, carrier, most, calibration) = Default::default();
        let of = |(all, each)| PeerSlots::new(all, each);
        Self(Arc::new(TrainsShared {
            endpoints,
            carrier,
            most,
            calibration,
            lane: Semaphore::new(1),
            silent: of(SILENT),
            measuring: of(MEASURING),
            carrying: of(CARRYING),
            probe_budget,
            log,
        }))
    }

    /// Sets the endpoints that receive datagrams; only the first call has an effect.
    pub fn set_endpoints(&self, endpoints: Vec<Arc<Endpoint>>) {
        _ = self.0.endpoints.set(endpoints);
    }

    /// Sets the carrier, whose packets ride; only the first call has an effect.
    pub fn set_carrier(&self, carrier: Arc<dyn RiderCarrier>) {
        _ = self.0.carrier.set(carrier);
    }

    /// Sets this host's calibration, which is valid for ten minutes (10 s if the host is not calm). Without it the host
    /// is calibrated when that is first needed.
    pub fn set_calibration(&self, host: Calibration) {
        *self.0.calibration.lock() = Some((Instant::now(), host));
    }

    /// Sets the highest rate within trains, whoever requests them; only the first call has an effect.
    pub fn set_max_rate(&self, most: Rate) {
        _ = self.0.most.set(most);
    }

    /// Calibrates this host before anybody needs it.
    pub async fn calibrate(&self) {
        if let Err(why) = self.calibrated().await {
            self.0.log.put(Event::new("no_calibration").with("why", why));
        }
    }

    /// The last calibration, and when it was found.
    pub(super) fn known(&self) -> Option<(Instant, Calibration)> {
        self.0.known()
    }

    /// This host's calibration, within the operator's bound.
    pub(crate) async fn calibrated(&self) -> io::Result<Calibration> {
        self.0.calibrated().await
    }

    /// The endpoint that sends to this address: one of the same family.
    pub fn endpoint_towards(&self, to: IpAddr) -> Option<Arc<Endpoint>> {
        let all = self.0.endpoints.get()?;
        let is_of = |one: &&Arc<Endpoint>| {
            one.local_addr().is_ok_and(|bound| bound.is_ipv4() == to.to_canonical().is_ipv4())
        };
        all.iter().find(is_of).cloned()
    }

    /// The riders for trains to the node with this key.
    pub(super) fn riders(&self, node: NodeId) -> Option<Arc<dyn Riders>> {
        self.0.carrier.get()?.riders(node)
    }

    /// Bytes that this host's programs have sent to each member through the carrier, if there is one, since it began.
    pub(crate) fn carried(&self) -> Vec<(Name, u64)> {
        self.0.carrier.get().map(|carrier| carrier.sent()).unwrap_or_default()
    }

    /// Waits until this host may send a train to the member, and charges it.
    ///
    /// # Errors
    /// [`SessionError::Budget`] if the day's bytes are used up; [`SessionError::Pacing`] if the train is faster than
    /// the operator allows, even if a busy host is accepted.
    pub(super) async fn lane(
        &self,
        to: NodeId,
        train: &Train,
    ) -> Result<SemaphorePermit<'_>, SessionError> {
        self.0.allows(train)?;
        let permit = self.0.lane.acquire().await.map_err(|_| SessionError::Budget)?;
        if self.0.probe_budget.left().as_bytes() < train.bytes() {
            return Err(SessionError::Budget);
        }
        self.0.probe_budget.charge(to, train.bytes());
        Ok(permit)
    }
}

impl MemberService for Trains {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let served = peer.unless_revoked(shared.admit(channel, &peer)).await;
            let event = Event::new("trains").with("peer", &peer.member().name).with("client", from);
            shared.log.put(match served.unwrap_or_else(|revoked| Err(revoked.into())) {
                Ok(trains) => event.with_number("trains", trains),
                Err(why) => event.with("why", why),
            });
        })
    }

    /// The reports of the carrier and the calibration; each is null if there is none.
    fn report(&self) -> serde_json::Value {
        let carrier = self.0.carrier.get().map(|carrier| carrier.report());
        serde_json::json!({ "carrier": carrier, "calibration": self.calibration_report() })
    }
}

/// An open session.
struct ServedSession {
    place: SessionEntry,
    sender: ProbeSender,
    /// Set while riders use the session.
    attached: Option<AttachGuard>,
    bill: ArrivalCharge,
}

impl TrainsShared {
    /// Serves a session, if the limit for its first request allows.
    async fn admit(&self, mut channel: Channel<TcpStream>, peer: &MeshPeer) -> io::Result<u64> {
        let crowded = || io::Error::other("too many probe sessions at a time");
        let who = &peer.member().name;
        let silent = self.silent.enter(who.clone()).ok_or_else(crowded)?;
        let Some(first) = asked(&mut channel, peer.key(), FIRST).await? else { return Ok(0) };
        let places = match &first {
            ProbeRequest::Carry { .. } => &self.carrying,
            _ => &self.measuring,
        };
        let Some(_place) = places.enter(who.clone()) else {
            message::write(&mut channel, &NodeReply::Refused(Refusal::Busy)).await?;
            return Err(crowded());
        };
        drop(silent);
        self.session(channel, peer, first).await
    }

    /// Serves requests until the client leaves. Returns the number of trains.
    async fn session(
        &self,
        mut channel: Channel<TcpStream>,
        peer: &MeshPeer,
        first: ProbeRequest,
    ) -> io::Result<u64> {
        let (mut open, mut trains, mut next) = (None, 0, Some(first));
        while let Some(ask) = next {
            let told = match (ask, &open) {
                (ProbeRequest::Open, None) => match self.open(&channel, peer).await? {
                    Ok((opened, told)) => {
                        open = Some(opened);
                        told
                    }
                    Err(refusal) => NodeReply::Refused(refusal),
                },
                (ProbeRequest::Carry { epoch }, _) => {
                    let carrying = self.carry(&channel, &mut open, peer, epoch)?;
                    carrying.unwrap_or_else(NodeReply::Refused)
                }
                (ProbeRequest::Arrivals { train, probes, wait }, Some(open)) => {
                    trains += u64::from(train != NO_TRAIN);
                    let wait = Duration::from_millis(wait.into()).min(LONGEST_WAIT);
                    arrivals(open, (train, probes), wait).await
                }
                (ProbeRequest::Send { train, probes, accepts_busy }, Some(open)) => {
                    trains += 1;
                    let request = TrainRequest { train, probes, accepts_busy };
                    let sent = self.send(open, peer.key(), request).await;
                    sent.map_or_else(NodeReply::Refused, NodeReply::Sent)
                }
                (ProbeRequest::Take { bytes } | ProbeRequest::Give { bytes }, _)
                    if bytes as usize > MAX_BLOCK || self.pay(peer.key(), bytes).is_err() =>
                {
                    // The block may follow already, so nothing else can be read here.
                    message::write(&mut channel, &NodeReply::Refused(Refusal::Budget)).await?;
                    return Ok(trains);
                }
                (ProbeRequest::Take { bytes }, _) => {
                    let mut block = vec![0; bytes as usize];
                    timeout(FIRST, channel.read_exact(&mut block)).await??;
                    NodeReply::Took(bytes)
                }
                (ProbeRequest::Give { bytes }, _) => {
                    message::write(&mut channel, &NodeReply::Given(bytes)).await?;
                    channel.write_all(&vec![0; bytes as usize]).await?;
                    channel.flush().await?;
                    next = asked(&mut channel, peer.key(), IDLE).await?;
                    continue;
                }
                _ => NodeReply::Refused(Refusal::Session),
            };
            message::write(&mut channel, &told).await?;
            next = asked(&mut channel, peer.key(), IDLE).await?;
        }
        Ok(trains)
    }

    /// Charges bytes that are moved over a channel itself.
    fn pay(&self, peer: NodeId, bytes: u32) -> Result<(), Refusal> {
        if self.probe_budget.left().as_bytes() < u64::from(bytes) {
            return Err(Refusal::Budget);
        }
        self.probe_budget.charge(peer, bytes.into());
        Ok(())
    }

    async fn open(
        &self,
        channel: &Channel<TcpStream>,
        peer: &MeshPeer,
    ) -> io::Result<Result<(ServedSession, NodeReply), Refusal>> {
        let host = self.calibrated().await?;
        let opened = self.place(channel, peer)?;
        Ok(opened.map(|(open, port)| {
            let told = NodeReply::Opened { session: open.place.number, port, can: can(&host) };
            (open, told)
        }))
    }

    /// Opens a session. Returns it with the port that receives its datagrams.
    fn place(
        &self,
        channel: &Channel<TcpStream>,
        peer: &MeshPeer,
    ) -> io::Result<Result<(ServedSession, u16), Refusal>> {
        if channel.depth() > 0 {
            // The address would be the relay's.
            return Ok(Err(no(
                "a channel for probe trains must come directly from the member, not through a relay",
            )));
        }
        let at = channel.get_ref().local_addr()?.ip();
        let Some(endpoint) = self.endpoint(at) else { return Ok(Err(Refusal::Session)) };
        let mut number = [0; 4];
        getrandom::fill(&mut number).map_err(io::Error::other)?;
        let session = u32::from_be_bytes(number);
        let [others, own] = secrets(channel, session)?;
        let who = Some(peer.member().name.clone());
        let address = channel.get_ref().peer_addr()?.ip();
        let Some(place) = endpoint.enter(session, Opener::new(&others)?, who, address) else {
            return Ok(Err(Refusal::Busy));
        };
        let sealer = Arc::new(Mutex::new(Sealer::new(&own, session)?));
        let port = endpoint.local_addr()?.port();
        let socket = Arc::new(endpoint.sender()?);
        // The client's port is unknown before its first datagram; nothing is sent before.
        let to = SocketAddr::new(address, 0);
        let sender = ProbeSender { socket, to, sealer, riders: None };
        let (incoming, probe_budget) =
            (Arc::clone(&place.incoming), Arc::clone(&self.probe_budget));
        let bill = ArrivalCharge { incoming, probe_budget, from: peer.key() };
        Ok(Ok((ServedSession { place, sender, attached: None, bill }, port)))
    }

    /// Lets riders use the open session, or a new one.
    fn carry(
        &self,
        channel: &Channel<TcpStream>,
        open: &mut Option<ServedSession>,
        peer: &MeshPeer,
        epoch: u64,
    ) -> io::Result<Result<NodeReply, Refusal>> {
        let carrier = self.carrier.get();
        let Some(riders) = carrier.and_then(|carrier| carrier.riders(peer.key())) else {
            let is_gone = carrier.is_some_and(|carrier| carrier.is_gone());
            return Ok(Err(if is_gone { Refusal::Device } else { Refusal::Carrier }));
        };
        let own = riders.epoch();
        let mut opened = match open.take() {
            Some(opened) => opened,
            None => match self.place(channel, peer)? {
                Ok((opened, _)) => opened,
                Err(refusal) => return Ok(Err(refusal)),
            },
        };
        let port = opened.place.endpoint.local_addr()?.port();
        opened.attached =
            Some(carrier_session::attach(&mut opened.sender, &opened.place, riders, epoch));
        let session = open.insert(opened).place.number;
        Ok(Ok(NodeReply::Carrying { session, port, epoch: own }))
    }

    /// The endpoint at this address of the host, or else at all addresses of its family.
    fn endpoint(&self, at: IpAddr) -> Option<&Arc<Endpoint>> {
        let all = self.endpoints.get()?;
        let of = |is: &dyn Fn(IpAddr) -> bool| {
            all.iter().find(|one| one.local_addr().is_ok_and(|bound| is(bound.ip())))
        };
        let at = at.to_canonical();
        let is_all = |ip: IpAddr| ip.is_unspecified() && ip.is_ipv4() == at.is_ipv4();
        of(&|ip| ip == at).or_else(|| of(&is_all))
    }

    /// This host's calibration within the operator's bound: what the node reports, and checks trains against.
    async fn calibrated(&self) -> io::Result<Calibration> {
        let found = self.found().await?;
        let honest = self.most.get().map_or(found.honest, |most| found.honest.min(*most));
        Ok(Calibration { honest, ..found })
    }

    /// Checks that a train keeps to the operator's bound.
    fn allows(&self, train: &Train) -> Result<(), PacingError> {
        self.most.get().map_or(Ok(()), |most| train.check_rate(*most))
    }

    fn known(&self) -> Option<(Instant, Calibration)> {
        *self.calibration.lock()
    }

    /// The last calibration, unless it is too old.
    fn fresh(&self) -> Option<Calibration> {
        let (at, host) = self.known()?;
        (at.elapsed() < if host.is_valid { FRESH } else { BUSY }).then_some(host)
    }

    async fn found(&self) -> io::Result<Calibration> {
        if let Some(known) = self.fresh() {
            return Ok(known);
        }
        // Not while this host sends a train: each would disturb the other. Until the train has been sent the last
        // calibration serves, so that members who request trains do not make others wait.
        let lane = self.lane.try_acquire().ok();
        let _lane = match (lane, self.known()) {
            (Some(lane), _) => lane,
            (None, Some((_, known))) => return Ok(known),
            (None, None) => self.lane.acquire().await.map_err(io::Error::other)?,
        };
        // Somebody else may have calibrated meanwhile.
        if let Some(known) = self.fresh() {
            return Ok(known);
        }
        let found = spawn_blocking(calibrate).await.map_err(io::Error::other)??;
        *self.calibration.lock() = Some((Instant::now(), found));
        Ok(found)
    }

    async fn send(
        &self,
        open: &ServedSession,
        peer: NodeId,
        request: TrainRequest,
    ) -> Result<Vec<Option<u64>>, Refusal> {
        let host = self.calibrated().await.map_err(no)?;
        let host = if request.accepts_busy { host.accepting_busy() } else { host };
        let (overhead, most, number) =
            (open.sender.overhead(), self.most.get().copied(), request.train);
        let checking = move || checked(&request.probes, overhead, &host, most);
        let train = costly::run(PeerKey::Node(peer), checking).await.map_err(no)??;
        let to = open.place.incoming.from().map_err(no)?;
        let _lane = self.lane.try_acquire().map_err(|_| Refusal::Busy)?;
        if self.probe_budget.left().as_bytes() < train.bytes() {
            return Err(Refusal::Budget);
        }
        self.probe_budget.charge(peer, train.bytes());
        let sender = ProbeSender { to, ..open.sender.clone() };
        let outgoing = OutgoingTrain { number, train, headers: Vec::new(), at: Time::ZERO };
        let sent_train = sender.send_train(outgoing, Duration::ZERO).await.map_err(no)?;
        Ok(sent_train.sent.into_iter().map(|at| at.map(|at| at.as_nanos())).collect())
    }
}

/// The arrivals of a train, which are charged.
async fn arrivals(open: &ServedSession, (train, probes): (u32, u16), wait: Duration) -> NodeReply {
    if train == NO_TRAIN {
        let shown = open.place.incoming.shown(wait).await;
        // If the member's riders could not be answered, it is told at once.
        if let (Some(_), Err(why @ NoReturnAddress::Elsewhere { .. })) =
            (&open.attached, open.place.incoming.from())
        {
            return NodeReply::Refused(no(why));
        }
        return NodeReply::Arrivals { arrived: vec![shown.then_some(0)], dropped: 0 };
    }
    let probes = usize::from(probes).min(MAX_PROBES);
    let (arrived, dropped) = open.place.arrivals(train, probes, wait).await;
    open.bill.pay();
    NodeReply::Arrivals { arrived, dropped }
}

/// Reads the client's next request; `None` if it has left.
async fn asked(
    channel: &mut Channel<TcpStream>,
    peer: NodeId,
    within: Duration,
) -> io::Result<Option<ProbeRequest>> {
    let reading = message::read_in_turn(channel, MAX_MESSAGE, PeerKey::Node(peer));
    let read = timeout(within, reading).await.map_err(io::Error::from)??;
    Ok(read.map(|(ask, _)| ask))
}

/// A train that a member requests.
struct TrainRequest {
    train: u32,
    probes: Vec<PlannedProbe>,
    accepts_busy: bool,
}

/// Builds and checks the train. Thousands of probes take milliseconds.
fn checked(
    probes: &[PlannedProbe],
    overhead: u32,
    host: &Calibration,
    most: Option<Rate>,
) -> Result<Train, Refusal> {
    let train = train(probes).map_err(no)?.with_overhead(overhead);
    big_enough(&train, |_| 0).map_err(no)?;
    host.check(&train).map_err(no)?;
    most.map_or(Ok(()), |most| train.check_rate(most)).map_err(no)?;
    Ok(train)
}

fn no(why: impl ToString) -> Refusal {
    Refusal::Train(why.to_string())
}

fn train(probes: &[PlannedProbe]) -> Result<Train, thalweg_measure::train::TrainError> {
    let probe = |planned: &PlannedProbe| Probe {
        size: planned.size,
        header: planned.header,
        gap: Duration::from_nanos(planned.gap),
        may_carry: planned.may_carry,
    };
    Train::new(probes.iter().map(probe).collect())
}
