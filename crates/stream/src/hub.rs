//! All streams of a node, with their publishers, parents and subscribers.

use crate::{
    Clock, Counts, NoRoute, ParentRoute, Plan, Settings, Stream,
    adaptation::Adaptation,
    io::{Leg, LegReader, duplicate, end_leg},
    oracle_link::{CONFIRM_TIMEOUT, OracleLink, PlanRequestGuard},
    parent::{self, Child, LegContext},
    publisher,
    renditions::{self, LadderContext},
    slots::{Slot, Slots},
    status::StreamStatus,
    stream::Source,
    table::{Connection, StreamTable, publisher_name},
    upstream,
};
use futures_util::future::BoxFuture;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::{
    future::pending,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use thalweg_base::{
    live_settings::LiveSettings,
    log::{Event, Log},
};
use thalweg_mesh::{MeshPeer, member_dialer::MemberDialer, service::MemberService};
use thalweg_net::channel::Channel;
use thalweg_wire::{
    mesh::{Member, Name},
    stream::leg::{
        Accepted, Answer, Ending, LimitedResource, MAX_ALLOW, MAX_HOPS, Opening, PublishRequest,
        Refusal, SubscribeRequest,
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

/// How often a waiting program gets an answer with the reason. It gives up after 10 s of silence.
const WAITING_INTERVAL: Duration = Duration::from_secs(1);

/// The streams of a node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Streams(pub(crate) Arc<Inner>);

/// The state that all clones share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub settings: LiveSettings<Settings>,
    pub dialer: MemberDialer,
    pub clock: Clock,
    pub streams: StreamTable,
    pub plan: watch::Sender<Arc<Plan>>,
    pub adaptation: Adaptation,
    pub link: OracleLink,
    slots: Arc<Slots>,
    counts: Counts,
    locals: AtomicU32,
    pub end: CancellationToken,
    pub log: Log,
}

/// An active publisher. Dropping it removes the publisher from the stream, including when the member is revoked.
struct PublishGuard {
    hub: Streams,
    connection: Arc<Connection>,
    /// How publishing ended; `None` if the task was cancelled.
    ended: Option<io::Result<Ending>>,
}

impl Drop for PublishGuard {
    fn drop(&mut self) {
        let cut = || Err(io::ErrorKind::ConnectionAborted.into());
        let ended = self.ended.take().unwrap_or_else(cut);
        self.hub.finish(&self.connection, ended);
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

    /// Waits until `may` is false for the member in a newer roster. Never returns for a program of this host, or if the
    /// member leaves the mesh, which ends the channel.
    async fn wait_until_denied(&self, may: impl Fn(&Member) -> bool) {
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
    /// Applies these settings to publishers, legs and subscribers that come from now on. The bounds of the table, the
    /// memory of streams and the transcoders stay as they are.
    pub fn set_settings(&self, settings: Settings) {
        self.0.settings.set(settings);
    }

    /// Creates the streams of the node that owns this dialler.
    pub fn new(settings: Settings, dialer: MemberDialer, log: Log) -> Self {
        let (clock, link, slots) = (Clock::start(), OracleLink::default(), Slots::new(&settings));
        Self(Arc::new(Inner {
            streams: StreamTable::new(&settings, clock, &slots, &link.news),
            settings: LiveSettings::new(settings),
            dialer,
            clock,
            plan: watch::channel(Arc::default()).0,
            adaptation: Adaptation::default(),
            link,
            slots,
            counts: Counts::default(),
            locals: AtomicU32::new(0),
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
        self.all().iter().map(|stream| stream.status()).collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Stream>> {
        self.0.streams.all()
    }

    /// Replaces the global scheduler's plan.
    pub fn set_plan(&self, plan: Plan) {
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
        for stream in self.all().iter().filter(|s| matches!(s.source(), Source::Publisher(_))) {
            stream.end(stopping_ending());
        }
    }

    /// Serves a connection from a program of this host's owner.
    ///
    /// # Errors
    /// When the connection fails.
    pub(crate) async fn serve_local(&self, leg: Leg) -> io::Result<()> {
        self.serve_leg(leg, Caller::Local).await
    }

    async fn serve_leg(&self, mut leg: Leg, caller: Caller) -> io::Result<()> {
        match (leg.read_opening().await?, &caller) {
            (Opening::Subscribe(request), _) => self.subscribe(leg, request, caller).await,
            (Opening::Publish(request), _) => self.publish(leg, request, caller).await,
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

    async fn subscribe(
        &self,
        mut leg: Leg,
        request: SubscribeRequest,
        caller: Caller,
    ) -> io::Result<()> {
        let number = self.0.locals.fetch_add(1, Ordering::Relaxed);
        let admitted = self.admit(&request, &caller, number);
        let admitted = match caller {
            Caller::Local => self.answer_while_waiting(&mut leg, &request.stream, admitted).await?,
            Caller::Member(_) => admitted.await,
        };
        let (stream, slot, plan_request) = match admitted {
            Ok(admitted) => admitted,
            Err(why) => return leg.send_answer(&Answer::Refused(why.cut())).await,
        };
        let start = stream.start_after(request.after);
        let about = Accepted { start, ..stream.about() };
        leg.send_answer(&Answer::Accepted(about)).await?;
        let right = caller.wait_until_denied(|member| stream.allows(member));
        let to = match &caller {
            Caller::Local => Child::Local(number.into()),
            Caller::Member(peer) => Child::Member(peer.member().name.clone()),
        };
        let child_name = to.to_string();
        let settings = self.0.settings.get();
        let context = LegContext {
            stream: Arc::clone(&stream),
            request,
            to,
            memory: usize::try_from(settings.leg_memory.as_bytes()).unwrap_or(usize::MAX),
            stall: settings.stall,
            plan: self.0.plan.subscribe(),
            clock: self.0.clock,
            counts: self.0.counts.leg(),
        };
        let ended = parent::serve(leg, context, right).await;
        drop((slot, plan_request));
        let why = match &ended {
            Ok(why) => why.to_string(),
            Err(why) => why.to_string(),
        };
        let event = Event::new("stream_leg_ended").with("stream", &stream.name);
        self.0.log.put(event.with("to", child_name).with("why", why));
        Ok(())
    }

    /// Sends a program of this host the reason of the delay each second until its request is admitted or refused.
    async fn answer_while_waiting<T>(
        &self,
        leg: &mut Leg,
        stream: &Name,
        admitted: impl Future<Output = T>,
    ) -> io::Result<T> {
        let mut admitted = pin!(admitted);
        loop {
            if let Ok(admitted) = timeout(WAITING_INTERVAL, &mut admitted).await {
                return Ok(admitted);
            }
            let why = match self.0.plan.borrow().parent(stream) {
                None => "its route is being planned".to_owned(),
                Some(parent) => format!("{parent} has not answered yet"),
            };
            leg.send_answer(&Answer::Waiting(why)).await?;
        }
    }

    /// Requests a plan for a program of this host, or for a member that needs a stream that this node does not have.
    /// A member that names the stream's origin already follows a plan, and needs no request here.
    fn plan_request_for(
        &self,
        request: &SubscribeRequest,
        caller: &Caller,
        number: u32,
    ) -> Option<PlanRequestGuard> {
        let is_known = || {
            let here = self.0.streams.get(&request.stream);
            let is_planned = self.0.plan.borrow().parent(&request.stream).is_some();
            is_planned || here.is_some_and(|stream| stream.progress().borrow().run > 0)
        };
        let is_wanted = match caller {
            Caller::Local => true,
            Caller::Member(_) => {
                let names_us = request.from.as_ref().is_none_or(|from| from == self.me());
                self.0.settings.get().relay && names_us && !is_known()
            }
        };
        is_wanted.then(|| self.request_plan(number, request))
    }

    /// Returns the requested stream, a subscriber slot and the plan request if the caller is allowed to subscribe.
    /// `number`: the number of the plan request.
    async fn admit(
        &self,
        request: &SubscribeRequest,
        caller: &Caller,
        number: u32,
    ) -> Result<(Arc<Stream>, Slot, Option<PlanRequestGuard>), Refusal> {
        request.check()?;
        let slot =
            self.0.slots.claim(caller.name()).ok_or(Refusal::Busy(LimitedResource::Subscribers))?;
        let plan_request = self.plan_request_for(request, caller, number);
        let live = self.0.streams.get(&request.stream);
        let live = live.filter(|stream| stream.progress().borrow().run > 0);
        let stream = match live {
            Some(stream) => self.check_origin(stream, request)?,
            None => self.check_origin(self.fetch(request, caller, number).await?, request)?,
        };
        if let Caller::Member(peer) = caller {
            if matches!(stream.source(), Source::Parent(route) if route.node == peer.member().name)
            {
                // This may be temporary, while both nodes change to a new plan.
                return Err(Refusal::Upstream("you are its parent for this stream".to_owned()));
            }
            let is_ours = stream.about().origin == *self.me();
            if !is_ours && !self.0.settings.get().relay {
                return Err(Refusal::NoRelay);
            }
            if !stream.allows(peer.member()) {
                return Err(Refusal::Subscribe);
            }
        }
        Ok((stream, slot, plan_request))
    }

    /// Returns the stream unless the request names another origin.
    fn check_origin(
        &self,
        stream: Arc<Stream>,
        request: &SubscribeRequest,
    ) -> Result<Arc<Stream>, Refusal> {
        let origin = stream.about().origin;
        let Some(from) = request.from.as_ref().filter(|from| *from != self.me()) else {
            return Ok(stream);
        };
        // A parent's statement about the origin is trusted if it is the origin, or the plan names it for this origin.
        let is_it = match stream.source() {
            // The plan may have moved the stream to another parent since.
            _ if stream.has_come_from(from) => true,
            Source::Parent(route) if route.node == *from => true,
            Source::Parent(route) if origin == *from => {
                let plan = self.0.plan.borrow().clone();
                route.node == origin || plan.parent_of(&request.stream, from) == Some(&route)
            }
            Source::Parent(_) => false,
            Source::Publisher(_) | Source::Absent => origin == *from,
        };
        if is_it {
            return Ok(stream);
        }
        let name = &request.stream;
        let why = format!(
            "this node receives `{name}` from {origin} and cannot confirm that it comes from {from}"
        );
        Err(Refusal::Upstream(why))
    }

    /// Requests a stream from its parent and waits for the answer.
    async fn fetch(
        &self,
        request: &SubscribeRequest,
        caller: &Caller,
        number: u32,
    ) -> Result<Arc<Stream>, Refusal> {
        if matches!(caller, Caller::Member(_)) && !self.0.settings.get().relay {
            // Do not reveal whether another node has such a stream.
            return Err(Refusal::Unknown(request.stream.clone()));
        }
        if request.hops >= MAX_HOPS {
            return Err(Refusal::Hops);
        }
        let route = self.route(request, caller, number).await?;
        // The stream outlives the request, so its slot is held until the stream ends.
        let slot =
            self.0.slots.claim(caller.name()).ok_or(Refusal::Busy(LimitedResource::Subscribers))?;
        let is_owners = matches!(caller, Caller::Local);
        let (stream, is_new) =
            self.0.streams.get_or_relay(&request.stream, &route.node, is_owners)?;
        let upstream = || upstream::start(self.clone(), Arc::clone(&stream), route, slot, request);
        let refusal = is_new.then(upstream);
        let mut head = stream.progress();
        let begun = head.wait_for(|head| head.run > 0 || head.ended.is_some());
        let is_late = timeout(ANSWER_TIMEOUT, begun).await.is_err();
        if stream.progress().borrow().run > 0 {
            return Ok(stream);
        }
        let ended = stream.progress().borrow().ended.clone();
        let refusal = refusal.and_then(|refusal| refusal.borrow().clone());
        let why = match (refusal, ended) {
            (Some(why), _) => why,
            (None, Some(why)) if !is_late => Refusal::Upstream(why.to_string()),
            _ => Refusal::Upstream("the parent did not answer in time".to_owned()),
        };
        Err(why)
    }

    /// The route to the stream's parent: the planned one, unless the request names another origin; else the named one.
    async fn route(
        &self,
        request: &SubscribeRequest,
        caller: &Caller,
        number: u32,
    ) -> Result<ParentRoute, Refusal> {
        let plan = self.0.plan.borrow().clone();
        let Some(from) = request.from.as_ref().filter(|from| *from != self.me()) else {
            let planned = plan.parent(&request.stream).cloned().map(Ok);
            let planned = match planned {
                Some(planned) => planned,
                None => {
                    let is_local = matches!(caller, Caller::Local);
                    self.planned_route(&request.stream, number, is_local).await
                }
            };
            return planned.map_err(|why| match (why, caller) {
                (NoRoute::Unknown, _) => Refusal::Unknown(request.stream.clone()),
                (NoRoute::Forbidden, Caller::Local) => Refusal::Subscribe,
                (NoRoute::Forbidden, Caller::Member(_)) => {
                    let relay = "`[stream] subscribe` at the publisher's node does not allow it";
                    Refusal::Upstream(relay.to_owned())
                }
                (NoRoute::Full, _) => {
                    Refusal::Upstream("no path has enough free bandwidth for it".to_owned())
                }
                (NoRoute::Undecided, _) => {
                    let why = "the oracle is still planning its route; try again later";
                    Refusal::Upstream(why.to_owned())
                }
            });
        };
        let planned = plan.parent_of(&request.stream, from).cloned();
        Ok(planned.unwrap_or_else(|| ParentRoute::direct(from.clone())))
    }

    async fn publish(
        &self,
        mut leg: Leg,
        request: PublishRequest,
        caller: Caller,
    ) -> io::Result<()> {
        let connection = match self.begin(request, &caller) {
            Ok(connection) => Arc::new(connection),
            Err(why) => return leg.send_answer(&Answer::Refused(why.cut())).await,
        };
        let mut guard =
            PublishGuard { hub: self.clone(), connection: Arc::clone(&connection), ended: None };
        let stream = &connection.stream;
        let taken =
            |other: Name| Refusal::Taken { stream: stream.name.clone(), by: other.to_string() };
        let mut holder = pin!(self.holder_of(stream));
        let answer = timeout(CONFIRM_TIMEOUT, &mut holder).await;
        let is_undecided = answer.is_err();
        if let Ok(Some(other)) = answer {
            guard.ended = Some(Ok(Ending::Failed(taken(other.clone()).to_string())));
            return leg.send_answer(&Answer::Refused(taken(other))).await;
        }
        leg.send_answer(&Answer::Accepted(stream.about())).await?;
        let event = Event::new("stream_published").with("stream", &stream.name);
        self.0.log.put(event.with("by", publisher_name(caller.name().as_ref())));
        let Leg { reader, writer, .. } = &mut leg;
        let stopped = async {
            tokio::select! {
                // The node stops.
                why = stream.ended() => why,
                () = caller.wait_until_denied(|member| self.0.settings.get().may_publish(member)) => Ending::Revoked,
                () = connection.displaced.cancelled() => displaced_ending(),
                Some(other) = &mut holder, if is_undecided => Ending::Failed(taken(other).to_string()),
            }
        };
        let stopped = tokio::select! {
            why = stopped => why,
            ended = self.receive(&connection, reader) => {
                guard.ended = Some(ended);
                return Ok(());
            }
        };
        guard.ended = Some(Ok(stopped.clone()));
        drop(guard);
        end_leg(reader, writer, &stopped).await;
        Ok(())
    }

    /// The other member that holds the name of a new stream, by the oracle. A stream that runs keeps its publisher.
    async fn holder_of(&self, stream: &Stream) -> Option<Name> {
        let is_new = stream.progress().borrow().next == 0;
        if is_new { self.holder_elsewhere(&stream.name).await } else { None }
    }

    /// Receives the publisher's frames, with the renditions that this node's commands make of them.
    async fn receive(&self, connection: &Connection, reader: &mut LegReader) -> io::Result<Ending> {
        let Inner { settings, clock, log, .. } = &*self.0;
        let (settings, stream) = (settings.get(), &connection.stream);
        let commands = settings.rendition_commands(&stream.name);
        if commands.is_empty() {
            let take = |frame| {
                // The frames of the connection that replaced this one follow another clock.
                if !connection.displaced.is_cancelled() {
                    stream.add_published(frame, clock.now());
                }
            };
            return publisher::receive(reader, take).await;
        }
        let context = LadderContext {
            stream: Arc::clone(stream),
            commands,
            latency: Duration::from_millis(stream.about().latency_ms.into()),
            memory: usize::try_from(settings.leg_memory.as_bytes()).unwrap_or(usize::MAX),
            clock: *clock,
            log: log.clone(),
        };
        renditions::receive(context, reader).await
    }

    /// Ends publishing: at once if the publisher ended the stream, after `grace` if it disappeared. A connection that was
    /// replaced ends nothing.
    fn finish(&self, connection: &Arc<Connection>, ended: io::Result<Ending>) {
        let event = Event::new("stream_publisher_left").with("stream", &connection.stream.name);
        match ended {
            Ok(why) => {
                self.0.log.put(event.with("why", &why));
                self.0.streams.end_published(connection, why);
            }
            Err(why) => {
                self.0.log.put(event.with("why", why));
                if self.0.streams.leave(connection) {
                    self.expire_later(connection);
                }
            }
        }
    }

    /// Ends the stream unless its publisher returns within `grace`.
    fn expire_later(&self, connection: &Arc<Connection>) {
        let (hub, connection) = (Arc::clone(&self.0), Arc::clone(connection));
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                let grace = hub.settings.get().grace;
                sleep(grace).await;
                hub.streams.expire(&connection);
            })),
            // There is no runtime when the process ends.
            Err(_) => hub.streams.expire(&connection),
        }
    }

    /// Begins or resumes a stream for this publisher.
    fn begin(&self, request: PublishRequest, caller: &Caller) -> Result<Connection, Refusal> {
        request.check()?;
        if let Caller::Member(peer) = caller
            && !self.0.settings.get().may_publish(peer.member())
        {
            return Err(Refusal::Publish);
        }
        let settings = self.0.settings.get();
        let allow = settings.subscribe.iter().take(MAX_ALLOW).map(ToString::to_string);
        let about = Accepted {
            run: random_run(),
            start: 0,
            tracks: request.tracks,
            latency_ms: request.latency_ms,
            origin: self.me().clone(),
            allow: allow.collect(),
        };
        self.0.streams.publish(&request.stream, caller.name(), about)
    }
}

/// The ending of all streams of a node that stops.
pub(crate) fn stopping_ending() -> Ending {
    Ending::Failed("the node is stopping".to_owned())
}

/// The ending for a publisher's connection that another one has replaced.
fn displaced_ending() -> Ending {
    Ending::Failed("another connection of this publisher has replaced this one".to_owned())
}

/// A random identifier for a new run.
fn random_run() -> u64 {
    let mut bytes = [0; 8];
    // If there is no randomness, two runs across a restart of the node may look like one.
    _ = getrandom::fill(&mut bytes);
    u64::from_be_bytes(bytes).max(1)
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
            "subscribers": self.0.slots.count(),
            "plan": plan,
            "oracle": self.0.link.report(),
        })
    }
}
