//! A session with a member, for trains to it and from it.

use super::{
    calibrate, carrier_session,
    departed_train::{self, DepartedTrain},
    endpoint::{Endpoint, SessionEntry},
    error::SessionError,
    payer::Payer,
    probe_sender::{OutgoingTrain, ProbeSender},
    riders::{AttachGuard, Riders},
    run,
};
use parking_lot::Mutex;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::message;
use thalweg_measure::{
    estimators::Ends,
    train::{Calibration, Doubt, End, Flight, Probe, Train},
};
use thalweg_net::{
    channel::Channel,
    probe::{Opener, SECRET, Sealer, now, too_long},
};
use thalweg_units::{Rate, Time};
use thalweg_wire::probe::{
    Capabilities, LABEL, MAX_MESSAGE, NO_TRAIN, NodeReply, Payload, PlannedProbe, ProbeRequest,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _},
    task::spawn_blocking,
    time::timeout,
};

/// The thread that sends a train starts this long before the announced time. Packets wait until that time, and would be
/// sent without the train if a timer delayed it.
pub(super) const READY: Duration = Duration::from_millis(3);

/// How many datagrams are sent to test whether any pass; some may be lost.
const SHOWN: u16 = 5;

/// How soon the other end answers, beyond the duration of a train.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The longest time for a goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// How long probes may be under way beyond the round trip: queues of half a second can be seen.
const LATEST: Duration = Duration::from_millis(500);

/// How this end takes part in a session.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The calibration of this host.
    pub here: Calibration,
    /// Whether trains are sent although a host is too busy to time them; see [`Session::doubts`].
    pub accepts_busy: bool,
}

impl Terms {
    /// Calibrates this host with [`calibrate`], outside the runtime's threads.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn found(accepts_busy: bool) -> io::Result<Self> {
        let here = spawn_blocking(calibrate).await.map_err(io::Error::other)??;
        Ok(Self { here, accepts_busy })
    }
}

/// Derives the secrets of both directions from the channel: that of the client's datagrams, then that of the other
/// end's.
pub(super) fn secrets<IO>(channel: &Channel<IO>, session: u32) -> io::Result<[[u8; SECRET]; 2]> {
    let of = |direction: u8| {
        let [a, b, c, d] = session.to_be_bytes();
        let mut secret = [0; SECRET];
        channel.exporter_secret(LABEL, &[a, b, c, d, direction], &mut secret)?;
        Ok::<_, io::Error>(secret)
    };
    Ok([of(b'c')?, of(b's')?])
}

pub(super) fn can(of: &Calibration) -> Capabilities {
    let nanos = |time: Duration| u32::try_from(time.as_nanos()).unwrap_or(u32::MAX);
    Capabilities {
        latency: [nanos(of.send_latency), nanos(of.receive_latency)],
        gap_error: of.gap_error.map(nanos),
        honest: of.honest.as_bps(),
        is_valid: of.is_valid,
    }
}

fn calibration(of: &Capabilities) -> Calibration {
    let nanos = |time: u32| Duration::from_nanos(time.into());
    Calibration {
        send_latency: nanos(of.latency[0]),
        receive_latency: nanos(of.latency[1]),
        gap_error: of.gap_error.map(nanos),
        honest: Rate::from_bps(of.honest),
        is_valid: of.is_valid,
    }
}

/// A session, at the end that opened it.
pub struct Session<IO> {
    channel: Channel<IO>,
    entry: SessionEntry,
    sender: ProbeSender,
    terms: Terms,
    there: Calibration,
    rtt: Duration,
    next: u32,
    attached: Option<AttachGuard>,
    asked: Instant,
    payer: Option<Payer>,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Session<IO> {
    /// Opens a session on a channel of the protocol `probe`; `at` is the address of its member, and the endpoint must
    /// be running.
    ///
    /// # Errors
    /// [`SessionError`], e.g. if datagrams do not pass.
    pub async fn open(
        mut channel: Channel<IO>,
        at: IpAddr,
        endpoint: &Arc<Endpoint>,
        terms: Terms,
    ) -> Result<Self, SessionError> {
        let began = Instant::now();
        let (number, port, there) = match ask(&mut channel, &ProbeRequest::Open, PATIENCE).await? {
            NodeReply::Opened { session, port, can } => (session, port, calibration(&can)),
            _ => return Err(SessionError::Protocol("unexpected type of answer")),
        };
        let mut rtt = began.elapsed();
        let [own, others] = secrets(&channel, number)?;
        let entry = endpoint.enter(number, Opener::new(&others)?, None, at);
        let entry = entry.ok_or(SessionError::Protocol("it used a session number twice"))?;
        let sealer = Arc::new(Mutex::new(Sealer::new(&own, number)?));
        let to = SocketAddr::new(at, port);
        let sender = ProbeSender { socket: Arc::new(endpoint.sender()?), to, sealer, riders: None };
        let began = Instant::now();
        show(&mut channel, &sender).await?;
        rtt = rtt.min(began.elapsed());
        let asked = Instant::now();
        Ok(Self {
            channel,
            entry,
            sender,
            terms,
            there,
            rtt,
            next: 0,
            attached: None,
            asked,
            payer: None,
        })
    }

    /// From now on these riders use trains to the member, whose node must have a carrier as well.
    ///
    /// # Errors
    /// [`SessionError`], e.g. if it has none.
    pub async fn carry(&mut self, riders: Arc<dyn Riders>) -> Result<(), SessionError> {
        let epoch = riders.epoch();
        match ask(&mut self.channel, &ProbeRequest::Carry { epoch }, PATIENCE).await? {
            NodeReply::Carrying { epoch, .. } => {
                self.attached =
                    Some(carrier_session::attach(&mut self.sender, &self.entry, riders, epoch));
                Ok(())
            }
            _ => Err(SessionError::Protocol("unexpected type of answer")),
        }
    }

    /// Whether packets may ride in trains to the member.
    pub(super) fn carries(&self) -> bool {
        self.sender.riders.is_some()
    }

    /// Announces a train that is sent after this pause: riders that come shortly before may wait for it. Returns its
    /// time, for [`Self::depart_at`].
    pub fn announce(&self, train: &Train, after: Duration) -> Time {
        let at = now() + after;
        if let Some(riders) = &self.sender.riders {
            riders.announce(at, train);
        }
        at
    }

    /// From now on each train to the member waits for its turn, and is charged.
    pub fn pay_by(&mut self, payer: Payer) {
        self.payer = Some(payer);
    }

    /// An upper bound of the channel's round trip.
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// The calibrations of this host and the member's, against which trains are checked.
    pub fn hosts(&self) -> [Calibration; 2] {
        let judged =
            |host: Calibration| if self.terms.accepts_busy { host.accepting_busy() } else { host };
        [self.terms.here, self.there].map(judged)
    }

    /// The path in this direction as tools need it, if probes of `largest` bytes pass.
    pub fn ends(&self, way: run::Direction, largest: u16) -> Ends {
        let [here, there] = self.hosts();
        let [sender, receiver] = match way {
            run::Direction::There => [here, there],
            run::Direction::Back => [there, here],
        };
        Ends { sender, receiver, rtt: self.rtt, largest, overhead: self.overhead() }
    }

    /// IP and UDP header bytes per probe.
    pub fn overhead(&self) -> u32 {
        self.sender.overhead()
    }

    /// The calibrations of this host and the member's, as they were found.
    pub fn calibrations(&self) -> [Calibration; 2] {
        [self.terms.here, self.there]
    }

    /// Sets whether trains are sent although a host is too busy to time them.
    pub fn accept_busy(&mut self, accepts: bool) {
        self.terms.accepts_busy = accepts;
    }

    /// The doubts that follow from the hosts' calibrations, whatever the result; none unless [`Terms::accepts_busy`].
    pub fn doubts(&self, way: run::Direction) -> Vec<Doubt> {
        let (sender, receiver) = match way {
            run::Direction::There => (&self.terms.here, &self.there),
            run::Direction::Back => (&self.there, &self.terms.here),
        };
        let of = [(End::Sender, sender), (End::Receiver, receiver)];
        of.into_iter().filter_map(|(end, host)| Doubt::of_host(end, host)).collect()
    }

    /// The longest probe of these sizes, longest first, of which any arrives.
    ///
    /// # Errors
    /// [`SessionError::Mtu`] of the first size if none arrives.
    pub async fn fitting(
        &mut self,
        way: run::Direction,
        sizes: &[u16],
    ) -> Result<u16, SessionError> {
        let gap = Duration::ZERO;
        for size in sizes {
            let probe = Probe { size: *size, header: 0, gap, may_carry: false };
            let Ok(train) = Train::uniform(probe, usize::from(SHOWN)) else { continue };
            let result = match way {
                run::Direction::There => self.send(train).await,
                run::Direction::Back => self.receive(train).await,
            };
            match result {
                Ok(flight) if flight.arrived.iter().any(Option::is_some) => return Ok(*size),
                Ok(_) | Err(SessionError::Mtu { .. }) => {}
                Err(why) => return Err(why),
            }
        }
        let size = sizes.first().copied().unwrap_or(0);
        Err(SessionError::Mtu { size, overhead: self.overhead() })
    }

    /// Sends a train to the member and waits for its arrivals.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn send(&mut self, train: Train) -> Result<Flight, SessionError> {
        self.send_with(train, Vec::new()).await
    }

    /// As [`Self::send`], with bytes of the tool's own in each probe, which programs at the member can receive
    /// ([`super::ProbeService`]). If `headers` is empty, no probe has any.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn send_with(
        &mut self,
        train: Train,
        headers: Vec<Vec<u8>>,
    ) -> Result<Flight, SessionError> {
        let departed = self.depart(train, headers).await?;
        self.arrivals(departed).await
    }

    /// Sends a train to the member without requesting its arrivals. [`Self::arrivals`] does that, for one of the last
    /// few trains.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn depart(
        &mut self,
        train: Train,
        headers: Vec<Vec<u8>>,
    ) -> Result<DepartedTrain, SessionError> {
        self.depart_at(train, headers, now()).await
    }

    /// As [`Self::depart`], but not before `at`, to the microsecond.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn depart_at(
        &mut self,
        train: Train,
        headers: Vec<Vec<u8>>,
        at: Time,
    ) -> Result<DepartedTrain, SessionError> {
        let train = train.with_overhead(self.overhead());
        self.hosts()[0].check(&train)?;
        let has = |at: usize| headers.get(at).map_or(0, Vec::len);
        big_enough(&train, has)?;
        let (number, probes, size) = (self.number(), train.probes().len(), longest(&train));
        let payer = self.payer.clone();
        let _turn = match &payer {
            Some(payer) => Some(payer.turn(&train).await?),
            None => None,
        };
        let sent_train = self
            .sender
            .send_train(OutgoingTrain { number, train, headers, at }, self.wait())
            .await?;
        if sent_train.sent.iter().all(Option::is_none) {
            return Err(unsent(sent_train.failed, size, self.overhead()));
        }
        Ok(DepartedTrain { number, probes, sent_train })
    }

    /// Requests the arrivals of a train.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn arrivals(&mut self, of: DepartedTrain) -> Result<Flight, SessionError> {
        let DepartedTrain { number, probes, sent_train } = of;
        let wait = self.wait().as_millis() as u16;
        let ask_for = ProbeRequest::Arrivals { train: number, probes: probes as u16, wait };
        self.asked = Instant::now();
        let told = ask(&mut self.channel, &ask_for, PATIENCE).await?;
        let NodeReply::Arrivals { arrived, dropped } = told else {
            return Err(SessionError::Protocol("unexpected type of answer"));
        };
        departed_train::flight(sent_train, (arrived, dropped), probes)
    }

    /// How long ago the member was last asked for anything. After five minutes it assumes that this end has left.
    pub fn silence(&self) -> Duration {
        self.asked.elapsed()
    }

    /// How long probes and routers' reports may be under way.
    fn wait(&self) -> Duration {
        self.rtt + LATEST
    }

    /// Requests a train from the member, and waits for it.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn receive(&mut self, train: Train) -> Result<Flight, SessionError> {
        if train.is_limited() {
            return Err(SessionError::Hops);
        }
        let train = train.with_overhead(self.overhead());
        self.hosts()[1].check(&train)?;
        big_enough(&train, |_| 0)?;
        let (number, probes) = (self.number(), train.probes().len());
        let planned = |probe: &Probe| PlannedProbe {
            size: probe.size,
            header: probe.header,
            gap: probe.gap.as_nanos() as u64,
            may_carry: probe.may_carry,
        };
        let plan = ProbeRequest::Send {
            train: number,
            probes: train.probes().iter().map(planned).collect(),
            accepts_busy: self.terms.accepts_busy,
        };
        let told = ask(&mut self.channel, &plan, PATIENCE + train.duration()).await?;
        let NodeReply::Sent(sent) = told else {
            return Err(SessionError::Protocol("unexpected type of answer"));
        };
        let arrivals = match sent.iter().any(Option::is_some) {
            true => self.entry.arrivals(number, probes, LATEST).await,
            false => (vec![None; probes], 0),
        };
        departed_train::flight(
            departed_train::from_member_report(sent, train.duration()),
            arrivals,
            probes,
        )
    }

    /// Closes the session in order.
    pub async fn close(mut self) {
        // If the member has left already, no goodbye is needed.
        _ = timeout(GOODBYE, self.channel.shutdown()).await;
    }

    fn number(&mut self) -> u32 {
        let number = self.next;
        self.next = (self.next + 1) % NO_TRAIN;
        number
    }
}

/// Shows this end's address to the member, and checks that datagrams pass.
pub(super) async fn show<IO: AsyncRead + AsyncWrite + Unpin>(
    channel: &mut Channel<IO>,
    sender: &ProbeSender,
) -> Result<(), SessionError> {
    for _ in 0..SHOWN {
        // If the network reports an error for a datagram, its absence shows that as well.
        _ = sender.show();
    }
    let wait = LATEST.as_millis() as u16;
    let asked = ProbeRequest::Arrivals { train: NO_TRAIN, probes: 1, wait };
    match ask(channel, &asked, PATIENCE).await? {
        NodeReply::Arrivals { arrived, .. } if arrived.first().is_some_and(Option::is_some) => {
            Ok(())
        }
        NodeReply::Arrivals { .. } => Err(SessionError::Shut(sender.to.ip(), sender.to.port())),
        _ => Err(SessionError::Protocol("unexpected type of answer")),
    }
}

/// Checks that each probe has room for its head and the tool's bytes.
pub(super) fn big_enough(train: &Train, has: impl Fn(usize) -> usize) -> Result<(), SessionError> {
    for (at, probe) in train.probes().iter().enumerate() {
        let header = u16::try_from(has(at)).unwrap_or(u16::MAX);
        if Payload::padding(probe.size, header).is_none() {
            let least = Payload::least(header);
            return Err(SessionError::Small { at, size: probe.size, least });
        }
    }
    Ok(())
}

fn longest(train: &Train) -> u16 {
    train.probes().iter().map(|probe| probe.size).max().unwrap_or(0)
}

fn unsent(why: Option<io::Error>, size: u16, overhead: u32) -> SessionError {
    match why {
        Some(why) if too_long(&why) => SessionError::Mtu { size, overhead },
        Some(why) => SessionError::Unsent(why),
        None => SessionError::Unsent(io::ErrorKind::Other.into()),
    }
}

pub(super) async fn ask<IO: AsyncRead + AsyncWrite + Unpin>(
    channel: &mut Channel<IO>,
    what: &ProbeRequest,
    patience: Duration,
) -> Result<NodeReply, SessionError> {
    let exchange = async {
        message::write(channel, what).await?;
        message::read(channel, MAX_MESSAGE).await
    };
    match timeout(patience, exchange).await {
        Ok(Ok(Some(NodeReply::Refused(why)))) => Err(why.into()),
        Ok(Ok(Some(told))) => Ok(told),
        Ok(Ok(None)) => Err(SessionError::Closed),
        Ok(Err(why)) => Err(why.into()),
        Err(_) => Err(SessionError::Silent(patience)),
    }
}
