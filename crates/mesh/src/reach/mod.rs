//! Keeps this node reachable where it cannot be dialled: by standing channels to relays (decision 0117).
//!
//! ```text
//! settings, dial-backs ─► needed? ─► choose by round trip ─► StandingChannel ×2 ─► numbers ─► ReverseConnection
//!                                            ▲        │                                       to the mesh's port
//!                                       ends └────────┴─► relays, told to the oracle
//! ```

mod announcement;
mod backoff;
mod dial_back;
mod relay_channel;
mod report;
mod standing_channel;

pub use report::{ReachReport, ReachView, ReachWay, StandingRelay};

use crate::{Membership, OracleClient};
use backoff::{Rests, jitter};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use relay_channel::RelayChannel;
use serde::{Deserialize, Serialize};
use standing_channel::{StandingChannel, StandingError};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use thalweg_base::log::{Event, Log};
use thalweg_net::channel::Connector;
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination,
    mesh::{MAX_REACH_RELAYS, Member, Name, Roster},
};
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

/// The most relays to which round trips are measured at once; the nearest of them are used.
const TRIED_AT_ONCE: usize = 8;

/// How long a relay's test may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long relays may answer later than the first ones that suffice.
const LATE_RELAYS: Duration = Duration::from_millis(200);

/// How often a node with addresses asks again whether it can be dialled.
const CHECK_AGAIN: Duration = Duration::from_secs(600);

/// The same while no relay has answered.
const CHECK_SOON: Duration = Duration::from_secs(60);

/// Relays of one node do not all try again at the same moment: the longest random pause.
const SPREAD: Duration = Duration::from_millis(500);

/// Whether a node keeps standing channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReachMode {
    /// If it cannot be dialled.
    #[default]
    Auto,
    /// Never: it is dialled, or not reached.
    Direct,
    /// Always.
    Relay,
}

/// A connection that this node opened because a client asked a relay for it. The client is to be served on it as on
/// an accepted connection.
#[derive(Debug)]
pub struct ReverseConnection {
    pub tcp: TcpStream,
    /// The relay's address.
    pub from: SocketAddr,
}

/// Where reverse connections go. Bounded; a relay's clients wait while it is full.
pub type ReverseConnections = mpsc::Sender<ReverseConnection>;

/// The node that is to be reached.
#[derive(Clone, Debug)]
pub struct ReachSettings {
    pub mode: ReachMode,
    /// The node's key.
    pub key: NodeId,
    /// Proves that key.
    pub connector: Connector,
    pub membership: Membership,
    /// Is told the relays.
    pub oracle: OracleClient,
}

/// The task that keeps one node reachable.
#[derive(Debug)]
pub struct ReachKeeper {
    settings: ReachSettings,
    connections: ReverseConnections,
    view: ReachView,
    log: Log,
    /// Standing channels, each with its relay.
    live: Vec<LiveRelay>,
    tasks: JoinSet<(NodeId, StandingError)>,
    rests: Rests,
    announced: watch::Sender<Option<Vec<Name>>>,
}

/// A relay with a standing channel.
#[derive(Clone, Debug)]
struct LiveRelay {
    key: NodeId,
    name: Name,
    round_trip: Duration,
}

impl ReachKeeper {
    /// Creates the task; reverse connections go to `connections`.
    pub fn new(settings: ReachSettings, connections: ReverseConnections, log: Log) -> Self {
        Self {
            view: ReachView::new(settings.mode),
            settings,
            connections,
            log,
            live: Vec::new(),
            tasks: JoinSet::new(),
            rests: Rests::default(),
            announced: watch::Sender::new(None),
        }
    }

    /// What it has achieved, for `thalweg status`.
    pub fn view(&self) -> ReachView {
        self.view.clone()
    }

    /// Runs for ever; drop the future to end it.
    pub async fn run(mut self) {
        let ReachSettings { key, membership, oracle, .. } = self.settings.clone();
        let (wanted, view) = (self.announced.subscribe(), self.view.clone());
        let announcing = announcement::announce(oracle, membership, key, wanted, view);
        tokio::select! { () = announcing => {}, () = self.keep() => {} }
    }

    async fn keep(&mut self) {
        let mut rosters = self.settings.membership.subscribe();
        loop {
            let own = self.own_addresses();
            let (is_needed, again) = self.is_needed().await;
            match is_needed {
                true => self.stand_until(again, &own).await,
                false => {
                    self.leave();
                    let moved = rosters.wait_for(|_| self.own_addresses() != own);
                    _ = timeout(again, moved).await;
                }
            }
        }
    }

    /// The addresses at which the roster says that this node is dialled; `None`: it is not in a valid roster.
    fn own_addresses(&self) -> Option<Vec<Destination>> {
        let (_, me) = self.me()?;
        Some(me.dialled_addresses().cloned().collect())
    }

    /// Whether this node needs standing channels, and when to ask again. Errs on the side of yes: one relay that does
    /// not reach it is enough.
    async fn is_needed(&self) -> (bool, Duration) {
        match (self.settings.mode, self.me()) {
            (ReachMode::Direct, _) => (false, CHECK_AGAIN),
            // Not a member, or without a roster: that changes with the next one.
            (_, None) => (false, CHECK_SOON),
            (ReachMode::Relay, _) => (true, CHECK_AGAIN),
            (ReachMode::Auto, Some((_, me))) if !me.is_dialled() => (true, CHECK_AGAIN),
            (ReachMode::Auto, Some((roster, me))) => {
                match dial_back::test(&self.settings, &roster, &me).await {
                    Some(is_dialled) => (!is_dialled, CHECK_AGAIN),
                    None => (!self.live.is_empty(), CHECK_SOON),
                }
            }
        }
    }

    /// The roster, and this node's entry.
    fn me(&self) -> Option<(Arc<Roster>, Member)> {
        let membership = &self.settings.membership;
        let roster = membership.current().filter(|r| r.check(membership.now()).is_ok())?;
        let me = roster.by_key(&self.settings.key)?.clone();
        Some((roster, me))
    }

    /// Ends all standing channels, because the node is dialled.
    fn leave(&mut self) {
        self.leave_all();
        let is_member = self.me().is_some();
        self.view.set_relays(is_member.then_some(ReachWay::Direct), Vec::new());
        if is_member {
            self.announce(Vec::new());
        }
    }

    fn leave_all(&mut self) {
        self.tasks.abort_all();
        self.live.clear();
    }

    /// Keeps standing channels for this long, or until the roster's addresses of this node change.
    async fn stand_until(&mut self, again: Duration, own: &Option<Vec<Destination>>) {
        let until = Instant::now() + again;
        let mut rosters = self.settings.membership.subscribe();
        rosters.mark_unchanged();
        while Instant::now() < until {
            if self.live.len() < MAX_REACH_RELAYS {
                self.fill().await;
            }
            self.show();
            let next =
                self.rests.next(Instant::now()).filter(|_| self.live.len() < MAX_REACH_RELAYS);
            let wake = next.unwrap_or(until).min(until) + jitter(SPREAD);
            tokio::select! {
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    match ended {
                        Ok((relay, why)) => self.lose(relay, &why),
                        // Which one it was is not known.
                        Err(failed) if failed.is_panic() => self.leave_all(),
                        // One that was aborted has left `live` already.
                        Err(_) => {}
                    }
                    sleep(jitter(SPREAD)).await;
                }
                _ = rosters.changed() => {
                    let roster = self.settings.membership.current();
                    let is_relay = |key: &NodeId| {
                        roster.as_ref().is_some_and(|r| r.relays().any(|m| m.node == Some(*key)))
                    };
                    self.rests.retain(is_relay);
                    if self.own_addresses() != *own {
                        return;
                    }
                }
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Opens channels to relays, and keeps the nearest ones.
    async fn fill(&mut self) {
        let Some((roster, me)) = self.me() else { return };
        let now = Instant::now();
        let is_free = |relay: &&Member| {
            relay.node.is_some_and(|key| {
                me.node != Some(key)
                    && self.live.iter().all(|live| live.key != key)
                    && !self.rests.rests(&key, now)
            })
        };
        let mut relays: Vec<Member> = roster.relays().filter(is_free).cloned().collect();
        backoff::shuffle(&mut relays);
        relays.truncate(TRIED_AT_ONCE);
        let mut testing: FuturesUnordered<_> =
            relays.iter().map(|relay| self.test(relay)).collect();
        let mut found = Vec::new();
        let mut failed = Vec::new();
        let wanted = MAX_REACH_RELAYS - self.live.len();
        loop {
            // Once there are enough, the others have a moment: one that answers later is farther away.
            let next = match found.len() >= wanted {
                true => timeout(LATE_RELAYS, testing.next()).await.unwrap_or(None),
                false => testing.next().await,
            };
            match next {
                Some((relay, Ok(channel))) => found.push((relay, channel)),
                Some((relay, Err(why))) => failed.push((relay, why)),
                None => break,
            }
        }
        drop(testing);
        for (relay, why) in failed {
            self.rest(&relay, &why.to_string());
        }
        found.sort_by_key(|(_, channel)| channel.round_trip);
        for (relay, channel) in found {
            if self.live.len() < MAX_REACH_RELAYS {
                self.stand(&relay, channel).await;
            }
        }
    }

    async fn test(&self, relay: &Member) -> (Member, Result<RelayChannel, StandingError>) {
        let opened = RelayChannel::open(&self.settings.connector, relay, TEST_TIMEOUT).await;
        (relay.clone(), opened)
    }

    async fn stand(&mut self, relay: &Member, channel: RelayChannel) {
        let (round_trip, name) = (channel.round_trip, relay.name.clone());
        let connector = self.settings.connector.clone();
        let standing = StandingChannel::open(channel, connector, relay.clone()).await;
        let standing = match standing {
            Ok(standing) => standing,
            Err(why) => return self.rest(relay, &why.to_string()),
        };
        let key = standing.relay();
        let event = Event::new("reach_stands").with("relay", &name);
        self.log.put(event.with_number("round_trip_ms", round_trip.as_millis()));
        let removed = self.settings.membership.wait_for_removal(key);
        let connections = self.connections.clone();
        self.tasks.spawn(async move {
            let why = tokio::select! {
                why = standing.serve(connections) => why,
                () = removed => StandingError::Removed,
            };
            (key, why)
        });
        self.live.push(LiveRelay { key, name, round_trip });
        self.live.sort_by_key(|live| live.round_trip);
    }

    /// Notes that a standing channel has ended.
    fn lose(&mut self, relay: NodeId, why: &StandingError) {
        let Some(at) = self.live.iter().position(|live| live.key == relay) else { return };
        let lost = self.live.remove(at);
        self.log.put(Event::new("reach_ended").with("relay", &lost.name).with("why", why));
        self.view.trouble(format!("relay {}: {why}", lost.name));
        self.rests.note(relay, Instant::now());
    }

    fn rest(&mut self, relay: &Member, why: &str) {
        let Some(key) = relay.node else { return };
        if self.rests.note(key, Instant::now()) {
            let event = Event::new("reach_failed").with("relay", &relay.name);
            self.log.put(event.with("why", why));
        }
        self.view.trouble(format!("relay {}: {why}", relay.name));
    }

    /// Shows the standing channels, and has the oracle told.
    fn show(&mut self) {
        for live in &self.live {
            self.rests.succeed(&live.key);
        }
        let shown = |live: &LiveRelay| StandingRelay {
            name: live.name.clone(),
            round_trip: live.round_trip,
        };
        let relays: Vec<_> = self.live.iter().map(shown).collect();
        self.view.set_relays(Some(ReachWay::Relayed), relays);
        // Others keep the last relays while there are none: they may return before the roster would.
        if !self.live.is_empty() {
            self.announce(self.live.iter().map(|live| live.name.clone()).collect());
        }
    }

    fn announce(&self, relays: Vec<Name>) {
        self.announced.send_if_modified(|last| {
            let is_new = last.as_ref() != Some(&relays);
            *last = Some(relays);
            is_new
        });
    }
}
