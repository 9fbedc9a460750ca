//! All streams of a node, and who brings and takes them.

use crate::{
    Chains, Clock, Counts, Plan, Settings, Stream, Way,
    adaptation::Adaptation,
    child::follow,
    io::{Leg, handle},
    parent::{self, Child, Served},
    publisher,
    status::StreamStatus,
    stream::Source,
};
use futures_util::future::BoxFuture;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use thalweg_base::log::{Event, Log};
use thalweg_mesh::{MeshPeer, member_dialer::MemberDialer, service::MemberService};
use thalweg_net::channel::{Channel, Protocol};
use thalweg_wire::{
    mesh::{Member, Name},
    stream::leg::{
        Accepted, Announce, Answer, Ask, Bounded, Ending, Head, MAX_ALLOW, MAX_HOPS, Opening,
        Refusal, Said,
    },
};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// Until a parent has answered, or failed.
const ANSWER: Duration = Duration::from_secs(15);

/// Between two tries to reach a parent.
const AGAIN: Duration = Duration::from_millis(500);

/// A stream that nobody brings is asked for at its parent so many times.
const TRIES: u32 = 20;

/// The streams of a node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Streams(pub(crate) Arc<Inner>);

/// What all clones share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub settings: Settings,
    dialer: MemberDialer,
    pub clock: Clock,
    streams: Mutex<BTreeMap<Name, Arc<Stream>>>,
    pub plan: watch::Sender<Arc<Plan>>,
    pub adaptation: Adaptation,
    /// How many places each member has; none: programs of this host.
    places: Mutex<BTreeMap<Option<Name>, usize>>,
    counts: Counts,
    locals: AtomicU64,
    end: CancellationToken,
    log: Log,
}

/// A place among the subscribers, given back when it is dropped.
struct Place {
    hub: Arc<Inner>,
    /// Whose it is; none: a program's of this host.
    member: Option<Name>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.hub.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = places.get_mut(&self.member) {
            *count -= 1;
            if *count == 0 {
                places.remove(&self.member);
            }
        }
    }
}

/// A publisher at work: when this is dropped the stream is without one, also where the member was revoked meanwhile.
struct Publishing {
    hub: Streams,
    stream: Arc<Stream>,
    /// How it has ended; none: it was cut off.
    ended: Option<io::Result<Ending>>,
}

impl Drop for Publishing {
    fn drop(&mut self) {
        let cut = || Err(io::ErrorKind::ConnectionAborted.into());
        let ended = self.ended.take().unwrap_or_else(cut);
        self.hub.finish(&self.stream, ended);
    }
}

/// Who opened a connection.
enum Opener {
    /// A program of this host's owner.
    Local,
    /// A member.
    Member(Box<Member>),
}

impl Streams {
    /// The streams of the node that this dialler speaks for.
    pub fn new(settings: Settings, dialer: MemberDialer, log: Log) -> Self {
        Self(Arc::new(Inner {
            settings,
            dialer,
            clock: Clock::start(),
            streams: Mutex::default(),
            plan: watch::channel(Arc::default()).0,
            adaptation: Adaptation::default(),
            places: Mutex::default(),
            counts: Counts::default(),
            locals: AtomicU64::new(0),
            end: CancellationToken::new(),
            log,
        }))
    }

    /// Makes known to `registry` what is counted, as `thalweg_stream_…`.
    pub fn register(&self, registry: &mut Registry) {
        self.0.counts.register(registry);
    }

    /// All that is known of all of them.
    pub fn status(&self) -> Vec<StreamStatus> {
        let streams: Vec<_> = self.0.lock().values().cloned().collect();
        streams.iter().map(|stream| stream.status()).collect()
    }

    /// The global scheduler's newest word.
    pub fn set_plan(&self, plan: Plan) {
        for (name, planned) in &plan.streams {
            if let (Some(why), Some(stream)) = (&planned.refused, self.0.get(name))
                && matches!(stream.source(), Source::Publisher(_))
            {
                stream.end(Ending::Failed(why.clone()));
            }
        }
        self.0.adaptation.set_oracle(plan);
        self.apply();
    }

    /// The global scheduler's word, and when it changes.
    pub fn plan(&self) -> watch::Receiver<Arc<Plan>> {
        self.0.plan.subscribe()
    }

    /// This node's name.
    pub fn me(&self) -> &Name {
        self.0.dialer.me()
    }

    /// Ends all of it; to be called once.
    pub fn end(&self) {
        self.0.end.cancel();
    }

    /// Serves a connection of a program of this host's owner.
    ///
    /// # Errors
    /// The connection's.
    pub(crate) async fn serve_local(&self, leg: Leg) -> io::Result<()> {
        self.serve_leg(leg, Opener::Local).await
    }

    async fn serve_leg(&self, mut leg: Leg, who: Opener) -> io::Result<()> {
        match (leg.opening().await?, &who) {
            (Opening::Subscribe(ask), _) => self.subscribe(leg, ask, who).await,
            (Opening::Publish(announce), _) => self.publish(leg, announce, who).await,
            (Opening::Status, Opener::Local) => {
                let report = self.report().to_string();
                leg.answer(&Answer::Status(report.len() as u32)).await?;
                leg.say.bytes(report.as_bytes()).await
            }
            (Opening::Status, Opener::Member(_)) => {
                let why =
                    Refusal::Invalid("a node tells its owner alone of its streams".to_owned());
                leg.answer(&Answer::Refused(why)).await
            }
        }
    }

    async fn subscribe(&self, mut leg: Leg, ask: Ask, who: Opener) -> io::Result<()> {
        let admitted = self.admit(&ask, &who).await;
        let (stream, place) = match admitted {
            Ok(admitted) => admitted,
            Err(why) => return leg.answer(&Answer::Refused(why.cut())).await,
        };
        let start = stream.beginning(ask.after);
        let about = Accepted { start, ..stream.about() };
        leg.answer(&Answer::Accepted(about)).await?;
        let to = match who {
            Opener::Local => Child::Local(self.0.locals.fetch_add(1, Ordering::Relaxed)),
            Opener::Member(member) => Child::Member(member.name),
        };
        let shown = match &to {
            Child::Local(number) => format!("local-{number}"),
            Child::Member(name) => name.to_string(),
        };
        let settings = &self.0.settings;
        let served = Served {
            stream: Arc::clone(&stream),
            ask,
            to,
            memory: usize::try_from(settings.leg_memory.as_bytes()).unwrap_or(usize::MAX),
            stall: settings.stall,
            plan: self.0.plan.subscribe(),
            clock: self.0.clock,
            counts: self.0.counts.leg(),
        };
        let ended = parent::serve(leg, served).await;
        drop(place);
        let why = match &ended {
            Ok(why) => why.to_string(),
            Err(why) => why.to_string(),
        };
        let event = Event::new("stream_leg_ended").with("stream", &stream.name);
        self.0.log.put(event.with("to", shown).with("why", why));
        Ok(())
    }

    /// The stream that is asked for, if this caller may have it.
    async fn admit(&self, ask: &Ask, who: &Opener) -> Result<(Arc<Stream>, Place), Refusal> {
        ask.check()?;
        let member = match who {
            Opener::Local => None,
            Opener::Member(member) => Some(member.name.clone()),
        };
        let place = self.0.place(member).ok_or(Refusal::Busy(Bounded::Subscribers))?;
        let stream = match self.0.get(&ask.stream).filter(|stream| stream.head().borrow().run > 0) {
            Some(stream) => self.meant(stream, ask)?,
            None => self.fetch(ask, who).await?,
        };
        if let Opener::Member(member) = who {
            let is_ours = stream.about().origin == *self.me();
            if !is_ours && !self.0.settings.relay {
                return Err(Refusal::NoRelay);
            }
            if !stream.allows(member) {
                return Err(Refusal::Subscribe);
            }
        }
        Ok((stream, place))
    }

    /// The stream, unless another member's of this name is asked for.
    fn meant(&self, stream: Arc<Stream>, ask: &Ask) -> Result<Arc<Stream>, Refusal> {
        let origin = stream.about().origin;
        let Some(from) = ask.from.as_ref().filter(|from| *from != self.me()) else {
            return Ok(stream);
        };
        let is_parent = matches!(stream.source(), Source::Parent(way) if way.node == *from);
        if is_parent || origin == *from {
            return Ok(stream);
        }
        let name = &ask.stream;
        Err(Refusal::Invalid(format!("`{name}` comes from {origin} at this node, not from {from}")))
    }

    /// A stream that is not here yet, once its parent has answered.
    async fn fetch(&self, ask: &Ask, who: &Opener) -> Result<Arc<Stream>, Refusal> {
        if matches!(who, Opener::Member(_)) && !self.0.settings.relay {
            // Whether there is such a stream elsewhere is nobody's business here.
            return Err(Refusal::Unknown(ask.stream.clone()));
        }
        if ask.hops >= MAX_HOPS {
            return Err(Refusal::Hops);
        }
        let planned = self.0.plan.borrow().parent(&ask.stream).cloned();
        let named = ask.from.clone().filter(|from| from != self.me()).map(Way::direct);
        let way = planned.or(named).ok_or_else(|| Refusal::Unknown(ask.stream.clone()))?;
        let (stream, is_new) = self.0.stream(&ask.stream, &way.node)?;
        let (told, answer) = watch::channel(None);
        if is_new {
            let (hub, chains) = (self.clone(), Chains::default());
            let upstream = Upstream { hub, stream: Arc::clone(&stream), way, chains, told };
            tokio::spawn(upstream.run(ask.clone()));
        }
        let mut head = stream.head();
        let begun = head.wait_for(|head| head.run > 0 || head.ended.is_some());
        let is_late = timeout(ANSWER, begun).await.is_err();
        if stream.head().borrow().run > 0 {
            return Ok(stream);
        }
        let ended = stream.head().borrow().ended.clone();
        let why = match (answer.borrow().clone(), ended) {
            (Some(why), _) => why,
            (None, Some(why)) if !is_late => Refusal::Upstream(why.to_string()),
            _ => Refusal::Upstream("it did not answer in time".to_owned()),
        };
        Err(why)
    }

    async fn publish(&self, mut leg: Leg, announce: Announce, who: Opener) -> io::Result<()> {
        let (stream, shown) = match self.begin(announce, &who) {
            Ok(begun) => begun,
            Err(why) => return leg.answer(&Answer::Refused(why.cut())).await,
        };
        let mut publishing =
            Publishing { hub: self.clone(), stream: Arc::clone(&stream), ended: None };
        leg.answer(&Answer::Accepted(stream.about())).await?;
        let event = Event::new("stream_published").with("stream", &stream.name);
        self.0.log.put(event.with("by", &shown));
        let Leg { hear, say, .. } = &mut leg;
        publishing.ended = Some(tokio::select! {
            ended = publisher::take(&stream, hear) => ended,
            // The global scheduler has refused it, or this node stops.
            why = stream.ended() => {
                let bye = Head::message(&Said::End(why.clone()));
                _ = timeout(Duration::from_secs(1), say.bytes(&bye)).await;
                Ok(why)
            }
        });
        Ok(())
    }

    /// A publisher has gone: at once for all if it has said so, else after a while.
    fn finish(&self, stream: &Arc<Stream>, ended: io::Result<Ending>) {
        let event = Event::new("stream_publisher_left").with("stream", &stream.name);
        stream.vacate();
        match ended {
            Ok(why) => {
                self.0.log.put(event.with("why", &why));
                stream.end(why);
                self.0.remove(stream);
            }
            Err(why) => {
                self.0.log.put(event.with("why", why));
                match tokio::runtime::Handle::try_current() {
                    Ok(runtime) => drop(runtime.spawn(self.clone().expire(Arc::clone(stream)))),
                    // The process ends.
                    Err(_) => stream.end(Ending::Gone),
                }
            }
        }
    }

    /// Ends the stream unless its publisher returns in time.
    async fn expire(self, stream: Arc<Stream>) {
        sleep(self.0.settings.grace).await;
        if stream.source() == Source::Nobody {
            stream.end(Ending::Gone);
            self.0.remove(&stream);
        }
    }

    /// A stream that this publisher begins, or goes on with; and the publisher's name.
    fn begin(&self, announce: Announce, who: &Opener) -> Result<(Arc<Stream>, String), Refusal> {
        announce.check()?;
        let shown = match who {
            Opener::Local => "a program of this host".to_owned(),
            Opener::Member(member) => member.name.to_string(),
        };
        if let Opener::Member(member) = who
            && !self.0.settings.publish.iter().any(|whom| whom.is(member))
        {
            return Err(Refusal::Publish);
        }
        let planned = self.0.plan.borrow().streams.get(&announce.stream).cloned();
        if let Some(by) = planned.and_then(|planned| planned.refused) {
            return Err(Refusal::Taken { stream: announce.stream, by });
        }
        let (stream, _) = self.0.stream(&announce.stream, self.me())?;
        let by = match stream.source() {
            Source::Nobody => None,
            Source::Publisher(who) => Some(who),
            Source::Parent(way) => Some(way.node.to_string()),
        };
        let taken = |by| Refusal::Taken { stream: announce.stream.clone(), by };
        if let Some(by) = by {
            return Err(taken(by));
        }
        let allow = self.0.settings.subscribe.iter().take(MAX_ALLOW).map(ToString::to_string);
        let about = Accepted {
            run: run(),
            start: 0,
            tracks: announce.tracks,
            latency_ms: announce.latency_ms,
            origin: self.me().clone(),
            allow: allow.collect(),
        };
        if !stream.publish(about, shown.clone()) {
            return Err(taken("another program".to_owned()));
        }
        Ok((stream, shown))
    }
}

/// A number that no other run has.
fn run() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness two runs of a node that was started anew in between could be taken for one.
    _ = getrandom::fill(&mut bytes);
    u64::from_be_bytes(bytes).max(1)
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Arc<Stream>>> {
        // Only whole values are put in.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, name: &Name) -> Option<Arc<Stream>> {
        self.lock().get(name).cloned()
    }

    /// The stream of this name, and whether it is new.
    fn stream(&self, name: &Name, origin: &Name) -> Result<(Arc<Stream>, bool), Refusal> {
        let mut streams = self.lock();
        if let Some(stream) = streams.get(name) {
            return Ok((Arc::clone(stream), false));
        }
        if streams.len() >= self.settings.max_streams {
            return Err(Refusal::Busy(Bounded::Streams));
        }
        let stream = Stream::new(name.clone(), self.clock, &self.settings, origin.clone());
        let stream = Arc::new(stream);
        streams.insert(name.clone(), Arc::clone(&stream));
        Ok((stream, true))
    }

    fn remove(&self, stream: &Arc<Stream>) {
        let mut streams = self.lock();
        if streams.get(&stream.name).is_some_and(|held| Arc::ptr_eq(held, stream)) {
            streams.remove(&stream.name);
        }
    }

    /// A place, if there is one: a member has no more than half as many as there may be streams.
    fn place(self: &Arc<Self>, member: Option<Name>) -> Option<Place> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, own) = (places.values().sum::<usize>(), places.get(&member).copied());
        let most = self.settings.max_streams.div_ceil(2);
        let is_full = member.is_some() && own.unwrap_or(0) >= most;
        if is_full || all >= self.settings.max_subscribers {
            return None;
        }
        *places.entry(member.clone()).or_default() += 1;
        Some(Place { hub: Arc::clone(self), member })
    }

    fn subscribers(&self) -> usize {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

/// Brings a stream from another node.
struct Upstream {
    hub: Streams,
    stream: Arc<Stream>,
    way: Way,
    chains: Chains,
    /// Why the first try came to nothing.
    told: watch::Sender<Option<Refusal>>,
}

impl Upstream {
    /// Until the stream ends, or nobody wants it any more.
    async fn run(mut self, ask: Ask) {
        let hub = self.hub.clone();
        let end = hub.0.end.clone();
        let ended = tokio::select! {
            // Whoever takes it from here may find another parent.
            () = end.cancelled() => Ending::Failed("the node stops".to_owned()),
            ended = self.bring(ask) => ended,
        };
        self.stream.vacate();
        self.stream.end(ended);
        hub.0.remove(&self.stream);
    }

    async fn bring(&mut self, mut ask: Ask) -> Ending {
        ask.hops += 1;
        let mut tries = 0;
        loop {
            let leg = match self.open(&ask).await {
                Ok(opened) => opened,
                Err(why) => {
                    let is_begun = self.stream.head().borrow().run > 0;
                    tries += 1;
                    if !is_begun || tries > TRIES || !why.is_passing() {
                        self.told.send_replace(Some(why.clone()));
                        return Ending::Failed(why.to_string());
                    }
                    sleep(AGAIN).await;
                    self.update(&mut ask);
                    continue;
                }
            };
            tries = 0;
            match self.follow(leg).await {
                Ok(None) => return Ending::Over,
                Ok(Some(Ending::Failed(_) | Ending::Stalled)) | Err(_) => {}
                Ok(Some(why)) => return why,
            }
            self.stream.vacate();
            self.update(&mut ask);
        }
    }

    /// Takes frames until the leg ends or the plan names another parent.
    async fn follow(&mut self, leg: Leg) -> io::Result<Option<Ending>> {
        let (clock, way, name) = (self.hub.0.clock, self.way.clone(), self.stream.name.clone());
        let mut plan = self.hub.plan();
        let moved = plan.wait_for(|plan| plan.parent(&name).is_some_and(|other| *other != way));
        let followed = tokio::select! {
            ended = follow(&self.stream, leg, &mut self.chains, clock) => ended,
            _ = moved => Ok(Some(Ending::Failed("the plan names another parent".to_owned()))),
        };
        if let Err(why) = &followed {
            let event = Event::new("stream_parent_lost").with("stream", &self.stream.name);
            self.hub.0.log.put(event.with("parent", &self.way).with("why", why));
        }
        followed
    }

    /// What is to be asked for now.
    fn update(&mut self, ask: &mut Ask) {
        if let Some(way) = self.hub.0.plan.borrow().parent(&self.stream.name) {
            self.way = way.clone();
        }
        let head = self.stream.head().borrow().clone();
        ask.after = head.next.checked_sub(1).map(|last| (head.run, last));
        let wanted = self.stream.wanted().borrow().clone();
        if wanted.legs > 0 {
            (ask.level, ask.tracks) = (wanted.level, wanted.tracks);
            ask.latency_ms = u32::try_from(wanted.latency.as_millis()).unwrap_or(u32::MAX);
        }
    }

    /// A leg to the parent.
    async fn open(&self, ask: &Ask) -> Result<Leg, Refusal> {
        let upstream = |why: String| Refusal::Upstream(format!("{}: {why}", self.way));
        let channel = self.channel().await.map_err(|why| upstream(why.to_string()))?;
        let socket = channel.get_ref().tcp().and_then(handle);
        let mut leg = Leg::new(channel, socket);
        match leg.open(&Opening::Subscribe(ask.clone())).await {
            Ok(Answer::Accepted(accepted)) if accepted.origin == *self.hub.me() => {
                Err(upstream("it says that the stream comes from this node".to_owned()))
            }
            Ok(Answer::Accepted(accepted)) => {
                let start = accepted.start;
                self.stream.begin(accepted, Source::Parent(self.way.clone()), start);
                Ok(leg)
            }
            Ok(Answer::Refused(why)) => Err(why),
            Ok(Answer::Status(_)) => Err(upstream("it answers something else".to_owned())),
            Err(why) => Err(upstream(why.to_string())),
        }
    }

    /// Over the carrier if the settings want it and both ends have one, else as it goes.
    async fn channel(
        &self,
    ) -> Result<Channel<thalweg_net::Stream>, thalweg_mesh::member_dialer::DialMemberError> {
        let Way { node, via } = &self.way;
        if self.hub.0.settings.ride
            && let Ok(riding) = self.hub.0.dialer.clone().riding()
        {
            match riding.channel(node, via, Protocol::Stream).await {
                Ok(channel) => return Ok(channel),
                Err(why) => {
                    let event = Event::new("stream_does_not_ride").with("parent", &self.way);
                    self.hub.0.log.put(event.with("why", why));
                }
            }
        }
        self.hub.0.dialer.channel(node, via, Protocol::Stream).await
    }
}

impl MemberService for Streams {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        _from: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let (streams, member) = (self.clone(), Box::new(peer.member().clone()));
        Box::pin(async move {
            let socket = handle(channel.get_ref());
            let leg = Leg::new(channel, socket);
            // Revoked or broken: the other end sees its connection end.
            _ = peer.unless_revoked(streams.serve_leg(leg, Opener::Member(member))).await;
        })
    }

    fn report(&self) -> Value {
        let plan = self.0.plan.borrow().version;
        json!({
            "streams": self.status(),
            "subscribers": self.0.subscribers(),
            "plan": plan,
        })
    }
}
