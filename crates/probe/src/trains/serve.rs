//! The serving end: members' sessions.

use super::{
    calibrate, carry,
    endpoint::{Endpoint, Place, Unshown},
    error::SessionError,
    fly::{Volley, Way},
    payer::Bill,
    riders::{Attached, Carries, Riders},
    session::{big_enough, can, secrets},
};
use crate::prober::Purse;
use futures_util::future::BoxFuture;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};
use thalweg_base::{
    budget::PeerKey,
    costly,
    log::{Event, Log},
    message,
    shares::Shares,
};
use thalweg_measure::train::{Calibration, Dishonest, MAX_PROBES, Probe, Train};
use thalweg_mesh::{MeshPeer, service::MemberService};
use thalweg_net::{
    channel::Channel,
    probe::{Opener, Sealer},
};
use thalweg_units::{NodeId, Rate, Time};
use thalweg_wire::mesh::Name;
use thalweg_wire::probe::{Ask, MAX_MESSAGE, NO_TRAIN, Planned, Refusal, Tell};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, SemaphorePermit},
    task::spawn_blocking,
    time::timeout,
};

/// A client that asks nothing for so long has left.
const IDLE: Duration = Duration::from_secs(300);

/// A calibration is good for so long.
const FRESH: Duration = Duration::from_secs(600);

/// One of a busy host so long: it may be calm soon.
const BUSY: Duration = Duration::from_secs(10);

/// The longest that probes are waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A client says at once what it wants.
const FIRST: Duration = Duration::from_secs(30);

/// Channels that have not said yet what they want, at a time, and those of one member; one too many is closed.
const SILENT: (usize, usize) = (256, 16);

/// Channels for trains at a time, and those of one member: so none takes up all.
const MEASURING: (usize, usize) = (64, 16);

/// Channels that only carry: as many as a carrier has members; each has one, and new ones before the old ones' end is
/// seen.
const CARRYING: (usize, usize) = (256, 4);

/// The service `probe` of a daemon.
#[derive(Clone, Debug)]
pub struct Trains(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    endpoints: OnceLock<Vec<Arc<Endpoint>>>,
    carrier: OnceLock<Arc<dyn Carries>>,
    /// The operator's bound.
    most: OnceLock<Rate>,
    calibration: Mutex<Option<(Instant, Calibration)>>,
    /// One train at a time leaves this host.
    lane: Semaphore,
    silent: Shares<Name>,
    measuring: Shares<Name>,
    carrying: Shares<Name>,
    purse: Arc<Purse>,
    log: Log,
}

impl Trains {
    /// Trains for members are paid from this purse. Nothing is served before [`Self::receive_at`].
    pub fn new(purse: Arc<Purse>, log: Log) -> Self {
        let (endpoints, carrier, most, calibration) = Default::default();
        let of = |(all, each)| Shares::new(all, each);
        Self(Arc::new(Shared {
            endpoints,
            carrier,
            most,
            calibration,
            lane: Semaphore::new(1),
            silent: of(SILENT),
            measuring: of(MEASURING),
            carrying: of(CARRYING),
            purse,
            log,
        }))
    }

    /// Datagrams come by these endpoints; the first word counts.
    pub fn receive_at(&self, endpoints: Vec<Arc<Endpoint>>) {
        _ = self.0.endpoints.set(endpoints);
    }

    /// Riders are this one's; the first word counts.
    pub fn carry_for(&self, carrier: Arc<dyn Carries>) {
        _ = self.0.carrier.set(carrier);
    }

    /// What this host can do is that, for ten minutes; without a word it is found out when it is first asked for.
    pub fn calibrated_as(&self, host: Calibration) {
        *self.0.calibration.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Instant::now(), host));
    }

    /// Trains have no gaps that are faster than this, whoever wants them; the first word counts.
    pub fn no_faster_than(&self, most: Rate) {
        _ = self.0.most.set(most);
    }

    /// Calibrates this host, so that it is known what it can do before anybody asks; the endpoints are there.
    pub async fn calibrate(&self) {
        if let Err(why) = self.calibrated().await {
            self.0.log.put(Event::new("no_calibration").with("why", why));
        }
    }

    /// What the last calibration found, and when it was.
    pub(super) fn known(&self) -> Option<(Instant, Calibration)> {
        self.0.known()
    }

    /// What this host can do, and may.
    pub(crate) async fn calibrated(&self) -> io::Result<Calibration> {
        self.0.calibrated().await
    }

    /// The endpoint from which a member at this address is reached.
    pub fn towards(&self, to: IpAddr) -> Option<Arc<Endpoint>> {
        let all = self.0.endpoints.get()?;
        let is_of = |one: &&Arc<Endpoint>| {
            one.local_addr().is_ok_and(|bound| bound.is_ipv4() == to.to_canonical().is_ipv4())
        };
        all.iter().find(is_of).cloned()
    }

    /// Who may ride in trains to the node with this key.
    pub(super) fn riders(&self, node: NodeId) -> Option<Arc<dyn Riders>> {
        self.0.carrier.get()?.riders(node)
    }

    /// What this host's programs have sent to members by the carrier, if there is one: bytes, since it began.
    pub(crate) fn carried(&self) -> Vec<(Name, u64)> {
        self.0.carrier.get().map(|carrier| carrier.sent()).unwrap_or_default()
    }

    /// This host's turn to send a train to the member, paid for.
    ///
    /// # Errors
    /// [`SessionError::Budget`]: the day's bytes are used up; [`SessionError::Dishonest`]: it is faster than it may be,
    /// also where a busy host was accepted.
    pub(super) async fn lane(
        &self,
        to: NodeId,
        train: &Train,
    ) -> Result<SemaphorePermit<'_>, SessionError> {
        self.0.allows(train)?;
        let permit = self.0.lane.acquire().await.map_err(|_| SessionError::Budget)?;
        if self.0.purse.left().as_bytes() < train.bytes() {
            return Err(SessionError::Budget);
        }
        self.0.purse.charge(to, train.bytes());
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

    /// The carrier's, and what calibration found; each is null where there is none.
    fn report(&self) -> serde_json::Value {
        let carrier = self.0.carrier.get().map(|carrier| carrier.report());
        serde_json::json!({ "carrier": carrier, "calibration": self.published() })
    }
}

/// An open session.
struct Open {
    place: Place,
    way: Way,
    /// While riders go in it.
    attached: Option<Attached>,
    bill: Bill,
}

impl Shared {
    /// A session, if there is a place for what the client wants first.
    async fn admit(&self, mut channel: Channel<TcpStream>, peer: &MeshPeer) -> io::Result<u64> {
        let crowded = || io::Error::other("too many sessions of trains at a time");
        let who = &peer.member().name;
        let silent = self.silent.enter(who.clone()).ok_or_else(crowded)?;
        let Some(first) = asked(&mut channel, peer.key(), FIRST).await? else { return Ok(0) };
        let places = match &first {
            Ask::Carry { .. } => &self.carrying,
            _ => &self.measuring,
        };
        let Some(_place) = places.enter(who.clone()) else {
            message::write(&mut channel, &Tell::Refused(Refusal::Busy)).await?;
            return Err(crowded());
        };
        drop(silent);
        self.session(channel, peer, first).await
    }

    /// Until the client leaves; how many trains there were.
    async fn session(
        &self,
        mut channel: Channel<TcpStream>,
        peer: &MeshPeer,
        first: Ask,
    ) -> io::Result<u64> {
        let (mut open, mut trains, mut next) = (None, 0, Some(first));
        while let Some(ask) = next {
            let told = match (ask, &open) {
                (Ask::Open, None) => match self.open(&channel, peer).await? {
                    Ok((opened, told)) => {
                        open = Some(opened);
                        told
                    }
                    Err(refusal) => Tell::Refused(refusal),
                },
                (Ask::Carry { epoch }, _) => {
                    let carrying = self.carry(&channel, &mut open, peer, epoch)?;
                    carrying.unwrap_or_else(Tell::Refused)
                }
                (Ask::Arrivals { train, probes, wait }, Some(open)) => {
                    trains += u64::from(train != NO_TRAIN);
                    let wait = Duration::from_millis(wait.into()).min(LONGEST_WAIT);
                    arrivals(open, (train, probes), wait).await
                }
                (Ask::Send { train, probes, accepts_busy }, Some(open)) => {
                    trains += 1;
                    let wanted = Wanted { train, probes, accepts_busy };
                    let sent = self.send(open, peer.key(), wanted).await;
                    sent.map_or_else(Tell::Refused, Tell::Sent)
                }
                _ => Tell::Refused(Refusal::Session),
            };
            message::write(&mut channel, &told).await?;
            next = asked(&mut channel, peer.key(), IDLE).await?;
        }
        Ok(trains)
    }

    async fn open(
        &self,
        channel: &Channel<TcpStream>,
        peer: &MeshPeer,
    ) -> io::Result<Result<(Open, Tell), Refusal>> {
        let host = self.calibrated().await?;
        let opened = self.place(channel, peer)?;
        Ok(opened.map(|(open, port)| {
            let told = Tell::Opened { session: open.place.number, port, can: can(&host) };
            (open, told)
        }))
    }

    /// A new session, and the port that takes its datagrams.
    fn place(
        &self,
        channel: &Channel<TcpStream>,
        peer: &MeshPeer,
    ) -> io::Result<Result<(Open, u16), Refusal>> {
        if channel.depth() > 0 {
            // Its address would be the relay's.
            return Ok(Err(no(
                "channels for trains come from the member itself, through no relay",
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
        // Its port is not known before its first datagram; nothing is sent before.
        let to = SocketAddr::new(address, 0);
        let way = Way { socket, to, sealer, riders: None };
        let (incoming, purse) = (Arc::clone(&place.incoming), Arc::clone(&self.purse));
        let bill = Bill { incoming, purse, from: peer.key() };
        Ok(Ok((Open { place, way, attached: None, bill }, port)))
    }

    /// Riders as well, in the session that is open or in a new one.
    fn carry(
        &self,
        channel: &Channel<TcpStream>,
        open: &mut Option<Open>,
        peer: &MeshPeer,
        epoch: u64,
    ) -> io::Result<Result<Tell, Refusal>> {
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
        opened.attached = Some(carry::attach(&mut opened.way, &opened.place, riders, epoch));
        let session = open.insert(opened).place.number;
        Ok(Ok(Tell::Carrying { session, port, epoch: own }))
    }

    /// The one at this address of the host, or at all of its family.
    fn endpoint(&self, at: IpAddr) -> Option<&Arc<Endpoint>> {
        let all = self.endpoints.get()?;
        let of = |is: &dyn Fn(IpAddr) -> bool| {
            all.iter().find(|one| one.local_addr().is_ok_and(|bound| is(bound.ip())))
        };
        let at = at.to_canonical();
        let is_all = |ip: IpAddr| ip.is_unspecified() && ip.is_ipv4() == at.is_ipv4();
        of(&|ip| ip == at).or_else(|| of(&is_all))
    }

    /// What this host can do, and may: what it says of itself, and what trains are held against.
    async fn calibrated(&self) -> io::Result<Calibration> {
        let found = self.found().await?;
        let honest = self.most.get().map_or(found.honest, |most| found.honest.min(*most));
        Ok(Calibration { honest, ..found })
    }

    /// Whether a train keeps the operator's bound.
    fn allows(&self, train: &Train) -> Result<(), Dishonest> {
        self.most.get().map_or(Ok(()), |most| train.within(*most))
    }

    fn known(&self) -> Option<(Instant, Calibration)> {
        *self.calibration.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known, unless it is too old.
    fn fresh(&self) -> Option<Calibration> {
        let (at, host) = self.known()?;
        (at.elapsed() < if host.is_valid { FRESH } else { BUSY }).then_some(host)
    }

    async fn found(&self) -> io::Result<Calibration> {
        if let Some(known) = self.fresh() {
            return Ok(known);
        }
        // Not beside a train of this host's: each would measure the other. What is known lasts until the train has left,
        // so that members who request trains do not make others wait.
        let lane = self.lane.try_acquire().ok();
        let _lane = match (lane, self.known()) {
            (Some(lane), _) => lane,
            (None, Some((_, known))) => return Ok(known),
            (None, None) => self.lane.acquire().await.map_err(io::Error::other)?,
        };
        // Somebody else may have asked meanwhile.
        if let Some(known) = self.fresh() {
            return Ok(known);
        }
        let found = spawn_blocking(calibrate).await.map_err(io::Error::other)??;
        *self.calibration.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Instant::now(), found));
        Ok(found)
    }

    async fn send(
        &self,
        open: &Open,
        peer: NodeId,
        wanted: Wanted,
    ) -> Result<Vec<Option<u64>>, Refusal> {
        let host = self.calibrated().await.map_err(no)?;
        let host = if wanted.accepts_busy { host.as_it_is() } else { host };
        let (overhead, most, number) =
            (open.way.overhead(), self.most.get().copied(), wanted.train);
        let checking = move || checked(&wanted.probes, overhead, &host, most);
        let train = costly::run(PeerKey::Node(peer), checking).await.map_err(no)??;
        let to = open.place.incoming.from().map_err(no)?;
        let _lane = self.lane.try_acquire().map_err(|_| Refusal::Busy)?;
        if self.purse.left().as_bytes() < train.bytes() {
            return Err(Refusal::Budget);
        }
        self.purse.charge(peer, train.bytes());
        let way = Way { to, ..open.way.clone() };
        let volley = Volley { number, train, headers: Vec::new(), at: Time::ZERO };
        let flown = way.fly(volley, Duration::ZERO).await.map_err(no)?;
        Ok(flown.sent.into_iter().map(|at| at.map(|at| at.as_nanos())).collect())
    }
}

/// What came of a train, which is paid for.
async fn arrivals(open: &Open, (train, probes): (u32, u16), wait: Duration) -> Tell {
    if train == NO_TRAIN {
        let shown = open.place.incoming.shown(wait).await;
        // Whose riders could not be answered is told at once.
        if let (Some(_), Err(why @ Unshown::Elsewhere { .. })) =
            (&open.attached, open.place.incoming.from())
        {
            return Tell::Refused(no(why));
        }
        return Tell::Arrivals { arrived: vec![shown.then_some(0)], dropped: 0 };
    }
    let probes = usize::from(probes).min(MAX_PROBES);
    let (arrived, dropped) = open.place.arrivals(train, probes, wait).await;
    open.bill.pay();
    Tell::Arrivals { arrived, dropped }
}

/// What the client asks next; `None`: it has left.
async fn asked(
    channel: &mut Channel<TcpStream>,
    peer: NodeId,
    within: Duration,
) -> io::Result<Option<Ask>> {
    let reading = message::read_in_turn(channel, MAX_MESSAGE, PeerKey::Node(peer));
    let read = timeout(within, reading).await.map_err(io::Error::from)??;
    Ok(read.map(|(ask, _)| ask))
}

/// A train that a member wants to be sent.
struct Wanted {
    train: u32,
    probes: Vec<Planned>,
    accepts_busy: bool,
}

/// The train of these probes, if it may be sent. Thousands of probes take milliseconds.
fn checked(
    probes: &[Planned],
    overhead: u32,
    host: &Calibration,
    most: Option<Rate>,
) -> Result<Train, Refusal> {
    let train = train(probes).map_err(no)?.over(overhead);
    big_enough(&train, |_| 0).map_err(no)?;
    host.check(&train).map_err(no)?;
    most.map_or(Ok(()), |most| train.within(most)).map_err(no)?;
    Ok(train)
}

fn no(why: impl ToString) -> Refusal {
    Refusal::Train(why.to_string())
}

fn train(probes: &[Planned]) -> Result<Train, thalweg_measure::train::TrainError> {
    let probe = |planned: &Planned| Probe {
        size: planned.size,
        header: planned.header,
        gap: Duration::from_nanos(planned.gap),
        may_carry: planned.may_carry,
    };
    Train::new(probes.iter().map(probe).collect())
}
