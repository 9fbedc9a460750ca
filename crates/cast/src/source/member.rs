//! The source's side of one receiver: the control channel, and the data legs that the receiver calls for.

use super::{
    event::{Event, EventSink, ParentBytes, ReceiverState},
    facts::Legs,
    plan::ReceiverPlan,
    recheck::ObjectRecheck,
    rings::Rings,
};
use crate::{
    leg::{
        self, Announcements, Leg, LegReader, LegWriter,
        parent::{self, ServeError},
    },
    ring::NodeRing,
    store::Store,
};
use parking_lot::Mutex;
use std::{io, sync::Arc, time::Duration};
use thalweg_base::rate_limit::RateLimit;
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_net::channel::Protocol;
use thalweg_wire::{
    Signable as _,
    cast::{
        Account, Fault, MAX_REPORT, Opening, ParentReport, ReceiverOutcome, Refusal, Report,
        ServiceMode, SourceMessage,
    },
    mesh::Name,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, interval, sleep, timeout},
};

/// Timeout for a silent receiver. Receivers report progress every second.
const RECEIVER_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval of the source's keep-alive messages.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// The first wait before a receiver is dialled again. It doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The maximum of that wait.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The maximum number of data legs of one receiver. One is in use; others are closing. Further calls are ignored.
const MAX_LEGS: usize = 4;

/// State shared by the tasks of all receivers.
pub struct CastContext {
    pub store: Arc<Store>,
    /// The encoded `Signed<Offer>`.
    pub offer: Vec<u8>,
    /// The encoded layout.
    pub layout: Vec<u8>,
    pub dialer: MemberDialer,
    /// The receiver of events.
    pub events: Arc<dyn EventSink>,
    /// When receivers were first dialled.
    pub began: Instant,
    /// Why the object cannot be served any longer, once that is so.
    pub broken: watch::Sender<Option<String>>,
    /// How long a receiver may be away, or refuse for now, before it is given up.
    pub patience: Duration,
    /// The limit of all data legs together.
    pub limit: Option<Arc<RateLimit>>,
    /// The number of receivers.
    pub receivers: usize,
    /// Files and directories of the object that cannot be read, and are left out.
    pub failed_files: u64,
    /// Whether the object has links that receivers may leave out.
    pub has_links_upwards: bool,
    /// The source's ring, and the terms for the other nodes' rings.
    pub rings: Rings,
    /// Receivers with several parents, to which different symbols are announced first.
    pub announcements: Arc<Announcements>,
    /// Checks whether the object is still what was described.
    pub recheck: ObjectRecheck,
    /// The source's own legs, for the verdict.
    pub legs: Arc<Legs>,
}

impl CastContext {
    /// Bytes of symbols that the source itself has sent.
    pub fn served(&self) -> u64 {
        self.store.served() + self.rings.node.ring.served()
    }
}

/// What the source knows of a receiver.
#[derive(Clone, Debug, Default)]
pub struct ReceiverStatus {
    pub standing: ReceiverState,
    /// It had the object before this process offered it.
    pub already: bool,
    /// The number of links that it left out because they could lead out of its inbox.
    pub refused_links: u64,
    /// Its last progress report.
    pub account: Account,
}

/// A receiver or relay of the cast.
pub struct Member {
    pub name: Name,
    /// Its part in the plan.
    pub part: ReceiverPlan,
    /// Its encoded `Signed<Pass>`.
    pub pass: Vec<u8>,
    known: Mutex<ReceiverStatus>,
}

/// How one conversation with a receiver ended.
enum ConversationEnd {
    Complete,
    /// The receiver's own answer.
    Failed(Refusal),
    /// The connection was lost.
    Lost(String),
}

impl Member {
    /// A member that has not been reached yet.
    pub fn new(name: Name, part: ReceiverPlan, pass: Vec<u8>) -> Self {
        Self { name, part, pass, known: Mutex::default() }
    }

    /// The current state and progress.
    pub fn known(&self) -> ReceiverStatus {
        self.known.lock().clone()
    }

    /// Serves the receiver until it has the object or is given up. Returns whether it has the object.
    pub async fn serve(&self, casting: &CastContext) -> bool {
        let (mut wait, mut heard) = (FIRST_WAIT, Instant::now());
        let mut reported = None;
        loop {
            let held = self.known.lock().account.held;
            let parted = self.converse(casting).await;
            if self.known.lock().account.held > held {
                (wait, heard, reported) = (FIRST_WAIT, Instant::now(), None);
            }
            if matches!(parted, ConversationEnd::Failed(Refusal::Conducted)) {
                // Another process of this source serves it, which has its own time limit.
                heard = Instant::now();
            }
            let may_wait = heard.elapsed() + wait < casting.patience;
            let receiver = self.name.clone();
            match parted {
                ConversationEnd::Complete => {
                    self.known.lock().standing = ReceiverState::Complete;
                    return true;
                }
                ConversationEnd::Failed(why) => {
                    let again = why.is_passing() && may_wait;
                    self.known.lock().standing =
                        if again { ReceiverState::Waiting } else { ReceiverState::Failed };
                    let why = why.to_string();
                    // The same message is not repeated.
                    if !again || reported.as_ref() != Some(&why) {
                        reported = Some(why.clone());
                        casting.events.event(&Event::Refused { receiver, why, again });
                    }
                    if !again {
                        return false;
                    }
                }
                ConversationEnd::Lost(why) => {
                    self.known.lock().standing =
                        if may_wait { ReceiverState::Lost } else { ReceiverState::Failed };
                    if !may_wait || reported.as_ref() != Some(&why) {
                        reported = Some(why.clone());
                        casting.events.event(&Event::Unreached { receiver, why });
                    }
                    if !may_wait {
                        return false;
                    }
                }
            }
            sleep(wait).await;
            wait = (2 * wait).min(LONGEST_WAIT);
        }
    }

    /// One connection to the receiver, from dialling to its end.
    async fn converse(&self, casting: &CastContext) -> ConversationEnd {
        let dialer = casting.dialer.clone().without_carrier();
        let channel = dialer.channel(&self.name, &[], Protocol::Cast).await;
        let channel = match channel {
            Ok(channel) => channel,
            Err(why) => return ConversationEnd::Lost(why.to_string()),
        };
        let (offer, pass) = (casting.offer.clone(), self.pass.clone());
        let opening = match casting.rings.relays.contains(&self.name) {
            true => Opening::Relay { offer, pass },
            false => Opening::Offer { offer, pass },
        };
        let leg = match leg::open(channel, &opening).await {
            Ok(Ok(leg)) => leg,
            Ok(Err(why)) => return ConversationEnd::Failed(why),
            Err(why) => return ConversationEnd::Lost(why.to_string()),
        };
        let Leg { mut reader, mut writer, .. } = leg;
        let (messages, outgoing) = mpsc::channel(4);
        let parted = tokio::select! {
            heard = self.listen(casting, &mut reader, messages) => heard,
            failed = self.speak(casting, &mut writer, outgoing) => failed,
        };
        writer.close().await;
        parted.unwrap_or_else(|why| ConversationEnd::Lost(why.to_string()))
    }

    async fn listen(
        &self,
        casting: &CastContext,
        reader: &mut LegReader,
        messages: mpsc::Sender<SourceMessage>,
    ) -> io::Result<ConversationEnd> {
        let mut legs = JoinSet::new();
        let (mut is_first, mut is_described) = (true, false);
        loop {
            let heard = timeout(RECEIVER_TIMEOUT, reader.read_message::<Report>(MAX_REPORT)).await;
            let heard = heard.map_err(|_| {
                io::Error::other(format!("no message from the receiver for {RECEIVER_TIMEOUT:?}"))
            })?;
            while legs.try_join_next().is_some() {}
            match heard?.cut() {
                Report::Needs { manifest, layout } => {
                    is_described = !manifest;
                    for message in [
                        manifest.then_some(SourceMessage::Manifest),
                        layout.then_some(SourceMessage::Layout),
                    ] {
                        let Some(message) = message else { continue };
                        messages.send(message).await.map_err(io::Error::other)?;
                    }
                    self.known.lock().standing = ReceiverState::Receiving;
                }
                Report::RequestLeg(how) if legs.len() < MAX_LEGS => {
                    let (dialer, name) = (casting.dialer.clone(), self.name.clone());
                    legs.spawn(self.leg_server(casting).serve(dialer, how, name));
                }
                Report::RequestLeg(_) => {}
                Report::Account(account) => {
                    let held_bytes = account.held;
                    self.known.lock().account = account;
                    if std::mem::take(&mut is_first) {
                        let receiver = self.name.clone();
                        casting.events.event(&Event::Accepted { receiver, held_bytes });
                    }
                }
                Report::Left { name, fault, why } => {
                    if name.is_none() && fault == Fault::Corrupt {
                        casting.recheck.start(&casting.store, &casting.broken);
                    }
                    let parent = name.unwrap_or_else(|| casting.dialer.me().clone());
                    let receiver = self.name.clone();
                    casting.events.event(&Event::ParentLeft { receiver, parent, fault, why });
                }
                Report::Ended(ReceiverOutcome::Complete { micros }, account) => {
                    self.complete(casting, micros, account, is_first && is_described);
                    self.read_left_out(casting, reader).await;
                    return Ok(ConversationEnd::Complete);
                }
                Report::Ended(ReceiverOutcome::Failed(why), account) => {
                    self.known.lock().account = account;
                    return Ok(ConversationEnd::Failed(why));
                }
                report @ (Report::OwnersIgnored(_) | Report::LinksRefused { .. }) => {
                    self.report_left_out(casting, report);
                }
                // Sent only in answer to a dry run.
                Report::Uncompared | Report::InboxRules(_) => {}
            }
        }
    }

    /// Reads which links the receiver has left out, if it may leave out any: that report follows the end.
    async fn read_left_out(&self, casting: &CastContext, reader: &mut LegReader) {
        if !casting.has_links_upwards {
            return;
        }
        // Receivers of earlier versions report their progress instead, or nothing.
        let heard = timeout(2 * SIGN_OF_LIFE, reader.read_message::<Report>(MAX_REPORT)).await;
        if let Ok(Ok(report)) = heard {
            self.report_left_out(casting, report.cut());
        }
    }

    /// Reports what the receiver does not keep.
    fn report_left_out(&self, casting: &CastContext, report: Report) {
        let receiver = self.name.clone();
        let event = match report {
            Report::OwnersIgnored(count) => Event::OwnersIgnored { receiver, count },
            Report::LinksRefused { count, first } => {
                self.known.lock().refused_links = count;
                Event::LinksRefused { receiver, count, first }
            }
            _ => return,
        };
        casting.events.event(&event);
    }

    /// The resources that serve a leg of this receiver.
    fn leg_server(&self, casting: &CastContext) -> LegServer {
        let node = Arc::clone(&casting.rings.node);
        let announcements = (self.part.at_once > 1).then(|| Arc::clone(&casting.announcements));
        let (broken, legs) = (casting.broken.clone(), Arc::clone(&casting.legs));
        let limit = casting.limit.clone();
        LegServer { node, announcements, broken, legs, limit }
    }

    /// Records that the receiver has the object. `is_known`: it reported so before it requested anything.
    fn complete(&self, casting: &CastContext, micros: u64, account: Account, is_known: bool) {
        // A receiver that had to read its copy first has reported its progress before.
        let has_bytes = casting.store.known.offer.length > 0;
        let was_there = has_bytes && micros == 0 && account.received == 0;
        let already = is_known || was_there;
        // Set before the event, so that observers of the event see it.
        let mut known = self.known.lock();
        known.standing = ReceiverState::Complete;
        known.already = already;
        drop(known);
        self.tell_complete(casting, micros, &account, already);
        self.known.lock().account = account;
    }

    /// `already`: the receiver had the object before it was offered.
    fn tell_complete(&self, casting: &CastContext, micros: u64, account: &Account, already: bool) {
        let seconds = micros as f64 / 1e6;
        let new = account.received.saturating_sub(account.beyond);
        let rate_bps = if micros > 0 { (new as f64 * 8.0 / seconds) as u64 } else { 0 };
        casting.events.event(&Event::Received {
            receiver: self.name.clone(),
            already,
            received_bytes: account.received,
            duplicate_bytes: account.beyond,
            served_bytes: account.served,
            parents: account.parents.iter().map(|from| parent_bytes(casting, from)).collect(),
            seconds,
            rate_bps,
            after_seconds: casting.began.elapsed().as_secs_f64(),
        });
    }

    async fn speak(
        &self,
        casting: &CastContext,
        writer: &mut LegWriter,
        mut messages: mpsc::Receiver<SourceMessage>,
    ) -> io::Result<ConversationEnd> {
        let candidates = self.part.candidates.clone();
        if let Some(terms) = casting.rings.terms.get(&self.name) {
            writer.write_message(&SourceMessage::Ring(*terms)).await?;
        }
        writer
            .write_message(&SourceMessage::Parents { candidates, at_once: self.part.at_once })
            .await?;
        writer
            .write_message(&SourceMessage::Expectation(self.part.expected(casting.receivers)))
            .await?;
        let mut ticks = interval(SIGN_OF_LIFE);
        loop {
            let message = tokio::select! {
                Some(message) = messages.recv() => message,
                _ = ticks.tick() => SourceMessage::KeepAlive,
            };
            writer.write_message(&message).await?;
            match message {
                SourceMessage::Manifest => {
                    let mut bytes = Vec::new();
                    casting.store.known.manifest.encode(&mut bytes);
                    writer.write_bytes(&bytes).await?;
                }
                SourceMessage::Layout => writer.write_bytes(&casting.layout).await?,
                _ => {}
            }
        }
    }
}

fn parent_bytes(casting: &CastContext, from: &ParentReport) -> ParentBytes {
    let name = from.name.clone().unwrap_or_else(|| casting.dialer.me().clone());
    ParentBytes { name, bytes: from.bytes }
}

/// What a data leg is served from.
struct LegServer {
    node: Arc<NodeRing>,
    /// The announcements of this cast, if the receiver has other parents, too.
    announcements: Option<Arc<Announcements>>,
    broken: watch::Sender<Option<String>>,
    legs: Arc<Legs>,
    limit: Option<Arc<RateLimit>>,
}

impl LegServer {
    /// Opens and serves a data leg that the receiver called for. If that fails, the receiver calls again.
    async fn serve(self, dialer: MemberDialer, how: ServiceMode, name: Name) {
        let dialer = leg::dialer_for(how, dialer);
        let Ok(channel) = dialer.channel(&name, &[], Protocol::Cast).await else { return };
        let opening = Opening::Serve { cast: self.node.store.known.id, how };
        if let Ok(Ok(mut leg)) = leg::open(channel, &opening).await {
            if let Some(read) = leg.counters() {
                self.legs.watch_by(name, Box::new(read));
            }
            self.limit.iter().for_each(|limit| leg.writer.set_limit(Arc::clone(limit)));
            // Other failures of the leg are reported by the receiver on its control channel.
            if let Err(ServeError::Disk(why)) = self.give(leg, how).await {
                self.broken.send_replace(Some(why.to_string()));
            }
        }
    }

    async fn give(&self, leg: Leg, how: ServiceMode) -> Result<(), ServeError> {
        if how == ServiceMode::Stream {
            return self.node.serve(leg).await;
        }
        let round_trip = leg.round_trip().unwrap_or_default();
        let own =
            self.announcements.as_ref().map(|announcements| announcements.add_child(round_trip));
        parent::serve(Arc::clone(&self.node.store), leg, own).await
    }
}
