//! All streams of a node, with their publishers, parents and subscribers.

use crate::{
    Chains, Clock, Counts, ParentRoute, Plan, Settings, Stream,
    adaptation::Adaptation,
    child::follow,
    io::{Leg, duplicate},
    parent::{self, Child, LegContext},
    publisher,
    status::StreamStatus,
    stream::Source,
};
use futures_util::future::BoxFuture;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    future::pending,
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

/// How long a subscriber waits for the parent's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// The delay between two attempts to reach a parent.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// How often a lost parent is tried again before the stream ends.
const MAX_RETRIES: u32 = 20;

/// The streams of a node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Streams(pub(crate) Arc<Inner>);

/// The state that all clones share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub settings: Settings,
    dialer: MemberDialer,
    pub clock: Clock,
    streams: Mutex<BTreeMap<Name, Arc<Stream>>>,
    pub plan: watch::Sender<Arc<Plan>>,
    pub adaptation: Adaptation,
    /// The number of subscriber slots in use by each member; `None`: by programs of this host.
    slots: Mutex<BTreeMap<Option<Name>, usize>>,
    counts: Counts,
    locals: AtomicU64,
    end: CancellationToken,
    log: Log,
}

/// A subscriber slot; freed on drop.
struct SubscriberSlot {
    hub: Arc<Inner>,
    /// The member that uses it; `None`: a program of this host.
    member: Option<Name>,
}

impl Drop for SubscriberSlot {
    fn drop(&mut self) {
        let mut slots = self.hub.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = slots.get_mut(&self.member) {
            *count -= 1;
            if *count == 0 {
                slots.remove(&self.member);
            }
        }
    }
}

/// An active publisher. Dropping it removes the publisher from the stream, including when the member is revoked.
struct PublishGuard {
    hub: Streams,
    stream: Arc<Stream>,
    /// How publishing ended; `None`: it was cut off.
    ended: Option<io::Result<Ending>>,
}

impl Drop for PublishGuard {
    fn drop(&mut self) {
        let cut = || Err(io::ErrorKind::ConnectionAborted.into());
        let ended = self.ended.take().unwrap_or_else(cut);
        self.hub.finish(&self.stream, ended);
    }
}

/// The peer that opened a connection.
enum Caller {
    /// A program of this host's owner.
    Local,
    /// Another member.
    Member(MeshPeer),
}

impl Caller {
    /// The member's name; `None`: a program of this host.
    fn name(&self) -> Option<Name> {
        match self {
            Self::Local => None,
            Self::Member(peer) => Some(peer.member().name.clone()),
        }
    }

    /// Waits until a newer roster changes the member so that `may` does not hold; a program of this host keeps its
    /// rights. The caller ends when the member leaves the mesh.
    async fn loses(&self, may: impl Fn(&Member) -> bool) {
        let Self::Member(peer) = self else { return pending().await };
        let mut rosters = peer.membership().subscribe();
        let lost = rosters.wait_for(|roster| {
            let entry = roster.as_ref().and_then(|roster| roster.by_key(&peer.key()));
            entry.is_some_and(|member| !may(member))
        });
        if lost.await.is_err() {
            pending().await
        }
    }
}

impl Streams {
    /// Creates the streams of the node that owns this dialler.
    pub fn new(settings: Settings, dialer: MemberDialer, log: Log) -> Self {
        Self(Arc::new(Inner {
            settings,
            dialer,
            clock: Clock::start(),
            streams: Mutex::default(),
            plan: watch::channel(Arc::default()).0,
            adaptation: Adaptation::default(),
            slots: Mutex::default(),
            counts: Counts::default(),
            locals: AtomicU64::new(0),
            end: CancellationToken::new(),
            log,
        }))
    }

    /// Registers the metrics as `thalweg_stream_…`.
    pub fn register(&self, registry: &mut Registry) {
        self.0.counts.register(registry);
    }

    /// The state of all streams.
    pub fn status(&self) -> Vec<StreamStatus> {
        let streams: Vec<_> = self.0.lock().values().cloned().collect();
        streams.iter().map(|stream| stream.status()).collect()
    }

    /// Replaces the global scheduler's plan, and ends the publishing of streams that it refuses.
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

    /// A receiver of the effective plan.
    pub fn plan(&self) -> watch::Receiver<Arc<Plan>> {
        self.0.plan.subscribe()
    }

    /// This node's name.
    pub fn me(&self) -> &Name {
        self.0.dialer.me()
    }

    /// Ends all streams, because the node stops. To be called once.
    pub fn end(&self) {
        self.0.end.cancel();
        let published: Vec<_> = self.0.lock().values().cloned().collect();
        for stream in published.iter().filter(|s| matches!(s.source(), Source::Publisher(_))) {
            stream.end(stopping());
        }
    }

    /// Serves a connection from a program of this host's owner.
    ///
    /// # Errors
    /// When the connection fails.
    pub(crate) async fn serve_local(&self, leg: Leg) -> io::Result<()> {
        self.serve_leg(leg, Caller::Local).await
    }

    async fn serve_leg(&self, mut leg: Leg, who: Caller) -> io::Result<()> {
        match (leg.read_opening().await?, &who) {
            (Opening::Subscribe(ask), _) => self.subscribe(leg, ask, who).await,
            (Opening::Publish(announce), _) => self.publish(leg, announce, who).await,
            (Opening::Status, Caller::Local) => {
                let report = self.report().to_string();
                leg.send_answer(&Answer::Status(report.len() as u32)).await?;
                leg.writer.write_all(report.as_bytes()).await
            }
            (Opening::Status, Caller::Member(_)) => {
                let why = Refusal::Invalid("only the node's owner may read its status".to_owned());
                leg.send_answer(&Answer::Refused(why)).await
            }
        }
    }

    async fn subscribe(&self, mut leg: Leg, ask: Ask, who: Caller) -> io::Result<()> {
        let admitted = self.admit(&ask, &who).await;
        let (stream, slot) = match admitted {
            Ok(admitted) => admitted,
            Err(why) => return leg.send_answer(&Answer::Refused(why.cut())).await,
        };
        let start = stream.start_after(ask.after);
        let about = Accepted { start, ..stream.about() };
        leg.send_answer(&Answer::Accepted(about)).await?;
        let right = who.loses(|member| stream.allows(member));
        let to = match &who {
            Caller::Local => Child::Local(self.0.locals.fetch_add(1, Ordering::Relaxed)),
            Caller::Member(peer) => Child::Member(peer.member().name.clone()),
        };
        let shown = match &to {
            Child::Local(number) => format!("local-{number}"),
            Child::Member(name) => name.to_string(),
        };
        let settings = &self.0.settings;
        let context = LegContext {
            stream: Arc::clone(&stream),
            ask,
            to,
            memory: usize::try_from(settings.leg_memory.as_bytes()).unwrap_or(usize::MAX),
            stall: settings.stall,
            plan: self.0.plan.subscribe(),
            clock: self.0.clock,
            counts: self.0.counts.leg(),
        };
        let ended = parent::serve(leg, context, right).await;
        drop(slot);
        let why = match &ended {
            Ok(why) => why.to_string(),
            Err(why) => why.to_string(),
        };
        let event = Event::new("stream_leg_ended").with("stream", &stream.name);
        self.0.log.put(event.with("to", shown).with("why", why));
        Ok(())
    }

    /// Returns the requested stream and a subscriber slot if the caller is allowed to subscribe.
    async fn admit(
        &self,
        ask: &Ask,
        who: &Caller,
    ) -> Result<(Arc<Stream>, SubscriberSlot), Refusal> {
        ask.check()?;
        let slot = self.0.claim_slot(who.name()).ok_or(Refusal::Busy(Bounded::Subscribers))?;
        let stream =
            match self.0.get(&ask.stream).filter(|stream| stream.progress().borrow().run > 0) {
                Some(stream) => self.check_origin(stream, ask)?,
                None => self.fetch(ask, who).await?,
            };
        if let Caller::Member(peer) = who {
            let is_ours = stream.about().origin == *self.me();
            if !is_ours && !self.0.settings.relay {
                return Err(Refusal::NoRelay);
            }
            if !stream.allows(peer.member()) {
                return Err(Refusal::Subscribe);
            }
        }
        Ok((stream, slot))
    }

    /// Returns the stream unless the request names another origin.
    fn check_origin(&self, stream: Arc<Stream>, ask: &Ask) -> Result<Arc<Stream>, Refusal> {
        let origin = stream.about().origin;
        let Some(from) = ask.from.as_ref().filter(|from| *from != self.me()) else {
            return Ok(stream);
        };
        let is_parent = matches!(stream.source(), Source::Parent(route) if route.node == *from);
        if is_parent || origin == *from {
            return Ok(stream);
        }
        let name = &ask.stream;
        Err(Refusal::Invalid(format!("`{name}` comes from {origin} at this node, not from {from}")))
    }

    /// Requests a stream from its parent and waits for the answer.
    async fn fetch(&self, ask: &Ask, who: &Caller) -> Result<Arc<Stream>, Refusal> {
        if matches!(who, Caller::Member(_)) && !self.0.settings.relay {
            // Do not reveal whether another node has such a stream.
            return Err(Refusal::Unknown(ask.stream.clone()));
        }
        if ask.hops >= MAX_HOPS {
            return Err(Refusal::Hops);
        }
        let planned = self.0.plan.borrow().parent(&ask.stream).cloned();
        let named = ask.from.clone().filter(|from| from != self.me()).map(ParentRoute::direct);
        let route = planned.or(named).ok_or_else(|| Refusal::Unknown(ask.stream.clone()))?;
        // The stream outlives the request for it, and counts against the member as long as it is here.
        let slot = self.0.claim_slot(who.name()).ok_or(Refusal::Busy(Bounded::Subscribers))?;
        let (stream, is_new) = self.0.get_or_create(&ask.stream, &route.node)?;
        let (refusal, answer) = watch::channel(None);
        if is_new {
            let (hub, chains, stream) = (self.clone(), Chains::default(), Arc::clone(&stream));
            let upstream = Upstream { hub, stream, route, chains, refusal, _slot: slot };
            tokio::spawn(upstream.run(ask.clone()));
        }
        let mut head = stream.progress();
        let begun = head.wait_for(|head| head.run > 0 || head.ended.is_some());
        let is_late = timeout(ANSWER_TIMEOUT, begun).await.is_err();
        if stream.progress().borrow().run > 0 {
            return Ok(stream);
        }
        let ended = stream.progress().borrow().ended.clone();
        let why = match (answer.borrow().clone(), ended) {
            (Some(why), _) => why,
            (None, Some(why)) if !is_late => Refusal::Upstream(why.to_string()),
            _ => Refusal::Upstream("the parent did not answer in time".to_owned()),
        };
        Err(why)
    }

    async fn publish(&self, mut leg: Leg, announce: Announce, who: Caller) -> io::Result<()> {
        let (stream, shown) = match self.begin(announce, &who) {
            Ok(begun) => begun,
            Err(why) => return leg.send_answer(&Answer::Refused(why.cut())).await,
        };
        let mut guard =
            PublishGuard { hub: self.clone(), stream: Arc::clone(&stream), ended: None };
        leg.send_answer(&Answer::Accepted(stream.about())).await?;
        let event = Event::new("stream_published").with("stream", &stream.name);
        self.0.log.put(event.with("by", &shown));
        let Leg { reader, writer, .. } = &mut leg;
        let stopped = async {
            tokio::select! {
                // The plan refuses the stream, or the node stops.
                why = stream.ended() => why,
                () = who.loses(|member| self.0.settings.may_publish(member)) => Ending::Revoked,
            }
        };
        guard.ended = Some(tokio::select! {
            ended = publisher::receive(&stream, reader) => ended,
            why = stopped => {
                let bye = Head::message(&Said::End(why.clone()));
                _ = timeout(Duration::from_secs(1), writer.write_all(&bye)).await;
                Ok(why)
            }
        });
        Ok(())
    }

    /// Ends publishing: at once if the publisher ended the stream, after `grace` if it disappeared.
    fn finish(&self, stream: &Arc<Stream>, ended: io::Result<Ending>) {
        let event = Event::new("stream_publisher_left").with("stream", &stream.name);
        stream.clear_source();
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
                    // There is no runtime when the process ends.
                    Err(_) => stream.end(Ending::Gone),
                }
            }
        }
    }

    /// Ends the stream unless a publisher returns within `grace`.
    async fn expire(self, stream: Arc<Stream>) {
        sleep(self.0.settings.grace).await;
        if stream.source() == Source::Absent {
            stream.end(Ending::Gone);
            self.0.remove(&stream);
        }
    }

    /// Begins or resumes a stream for this publisher. Returns the stream and the publisher's display name.
    fn begin(&self, announce: Announce, who: &Caller) -> Result<(Arc<Stream>, String), Refusal> {
        announce.check()?;
        let shown = match who {
            Caller::Local => "a program of this host".to_owned(),
            Caller::Member(peer) => peer.member().name.to_string(),
        };
        if let Caller::Member(peer) = who
            && !self.0.settings.may_publish(peer.member())
        {
            return Err(Refusal::Publish);
        }
        let planned = self.0.plan.borrow().streams.get(&announce.stream).cloned();
        if let Some(by) = planned.and_then(|planned| planned.refused) {
            return Err(Refusal::Taken { stream: announce.stream, by });
        }
        let (stream, _) = self.0.get_or_create(&announce.stream, self.me())?;
        let by = match stream.source() {
            Source::Absent => None,
            Source::Publisher(who) => Some(who),
            Source::Parent(route) => Some(route.node.to_string()),
        };
        let taken = |by| Refusal::Taken { stream: announce.stream.clone(), by };
        if let Some(by) = by {
            return Err(taken(by));
        }
        let allow = self.0.settings.subscribe.iter().take(MAX_ALLOW).map(ToString::to_string);
        let about = Accepted {
            run: new_run(),
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

/// The ending of all streams of a node that stops.
fn stopping() -> Ending {
    Ending::Failed("the node is stopping".to_owned())
}

/// A random identifier for a new run.
fn new_run() -> u64 {
    let mut bytes = [0; 8];
    // If there is no randomness, two runs across a restart of the node may look like one.
    _ = getrandom::fill(&mut bytes);
    u64::from_be_bytes(bytes).max(1)
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Arc<Stream>>> {
        // The map is consistent at every point that could panic.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, name: &Name) -> Option<Arc<Stream>> {
        self.lock().get(name).cloned()
    }

    /// Returns the stream of this name, and whether it was created.
    fn get_or_create(&self, name: &Name, origin: &Name) -> Result<(Arc<Stream>, bool), Refusal> {
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

    /// Claims a subscriber slot if one is free. A member may hold at most half of `max_streams`.
    fn claim_slot(self: &Arc<Self>, member: Option<Name>) -> Option<SubscriberSlot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, own) = (slots.values().sum::<usize>(), slots.get(&member).copied());
        let most = self.settings.max_streams.div_ceil(2);
        let is_full = member.is_some() && own.unwrap_or(0) >= most;
        if is_full || all >= self.settings.max_subscribers {
            return None;
        }
        *slots.entry(member.clone()).or_default() += 1;
        Some(SubscriberSlot { hub: Arc::clone(self), member })
    }

    fn subscribers(&self) -> usize {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

/// Receives a stream from another node.
struct Upstream {
    hub: Streams,
    stream: Arc<Stream>,
    route: ParentRoute,
    chains: Chains,
    /// Why the parent could not be reached.
    refusal: watch::Sender<Option<Refusal>>,
    /// The slot of the member that requested it.
    _slot: SubscriberSlot,
}

impl Upstream {
    /// Runs until the stream ends or nobody subscribes to it any more.
    async fn run(mut self, ask: Ask) {
        let hub = self.hub.clone();
        let end = hub.0.end.clone();
        let ended = tokio::select! {
            // The children may find another parent.
            () = end.cancelled() => stopping(),
            ended = self.keep_following(ask) => ended,
        };
        self.stream.clear_source();
        self.stream.end(ended);
        hub.0.remove(&self.stream);
    }

    /// Opens legs to the planned parent, again after each loss, until the stream ends.
    async fn keep_following(&mut self, mut ask: Ask) -> Ending {
        ask.hops += 1;
        let mut tries = 0;
        loop {
            let leg = match self.open(&ask).await {
                Ok(opened) => opened,
                Err(why) => {
                    let is_begun = self.stream.progress().borrow().run > 0;
                    tries += 1;
                    if !is_begun || tries > MAX_RETRIES || !why.is_passing() {
                        self.refusal.send_replace(Some(why.clone()));
                        return Ending::Failed(why.to_string());
                    }
                    sleep(RETRY_DELAY).await;
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
            self.stream.clear_source();
            self.update(&mut ask);
        }
    }

    /// Receives frames until the leg ends or the plan names another parent.
    async fn follow(&mut self, leg: Leg) -> io::Result<Option<Ending>> {
        let (clock, route, name) = (self.hub.0.clock, self.route.clone(), self.stream.name.clone());
        let mut plan = self.hub.plan();
        let moved = plan.wait_for(|plan| plan.parent(&name).is_some_and(|other| *other != route));
        let followed = tokio::select! {
            ended = follow(&self.stream, leg, &mut self.chains, clock) => ended,
            _ = moved => Ok(Some(Ending::Failed("the plan names another parent".to_owned()))),
        };
        if let Err(why) = &followed {
            let event = Event::new("stream_parent_lost").with("stream", &self.stream.name);
            self.hub.0.log.put(event.with("parent", &self.route).with("why", why));
        }
        followed
    }

    /// Updates the request to the present plan, position and demand.
    fn update(&mut self, ask: &mut Ask) {
        if let Some(route) = self.hub.0.plan.borrow().parent(&self.stream.name) {
            self.route = route.clone();
        }
        let head = self.stream.progress().borrow().clone();
        ask.after = head.next.checked_sub(1).map(|last| (head.run, last));
        let wanted = self.stream.demand().borrow().clone();
        if wanted.legs > 0 {
            (ask.level, ask.tracks) = (wanted.level, wanted.tracks);
            ask.latency_ms = u32::try_from(wanted.latency.as_millis()).unwrap_or(u32::MAX);
        }
    }

    /// Opens a leg to the parent.
    async fn open(&self, ask: &Ask) -> Result<Leg, Refusal> {
        let upstream = |why: String| Refusal::Upstream(format!("{}: {why}", self.route));
        let channel = self.channel().await.map_err(|why| upstream(why.to_string()))?;
        let socket = channel.get_ref().tcp().and_then(duplicate);
        let mut leg = Leg::new(channel, socket);
        match leg.open(&Opening::Subscribe(ask.clone())).await {
            Ok(Answer::Accepted(accepted)) if accepted.origin == *self.hub.me() => {
                Err(upstream("it names this node as the stream's origin".to_owned()))
            }
            Ok(Answer::Accepted(accepted)) => {
                let start = accepted.start;
                let is_begun =
                    self.stream.begin(accepted, Source::Parent(self.route.clone()), start);
                is_begun.then_some(leg).ok_or_else(|| upstream("it starts out of range".to_owned()))
            }
            Ok(Answer::Refused(why)) => Err(why),
            Ok(Answer::Status(_)) => Err(upstream("it sent an unexpected answer".to_owned())),
            Err(why) => Err(upstream(why.to_string())),
        }
    }

    /// Opens a channel to the parent, over the carrier if `ride` is set and both ends have one.
    async fn channel(
        &self,
    ) -> Result<Channel<thalweg_net::Stream>, thalweg_mesh::member_dialer::DialMemberError> {
        let ParentRoute { node, via } = &self.route;
        if self.hub.0.settings.ride
            && let Ok(riding) = self.hub.0.dialer.clone().riding()
        {
            match riding.channel(node, via, Protocol::Stream).await {
                Ok(channel) => return Ok(channel),
                Err(why) => {
                    let event = Event::new("stream_does_not_ride").with("parent", &self.route);
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
        let streams = self.clone();
        Box::pin(async move {
            let socket = duplicate(channel.get_ref());
            let leg = Leg::new(channel, socket);
            // If the member is revoked or the connection fails, the peer sees the connection end.
            _ = peer.unless_revoked(streams.serve_leg(leg, Caller::Member(peer.clone()))).await;
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
