//! Keeps the roster current: polls the oracle, and continues with the cached roster while the oracle
//! is away.
//!
//! Each request waits at the oracle for a newer version (a long poll), so that a
//! revocation arrives within a round trip (decision 0016).

mod event;

pub use event::SyncEvent;

use super::{Membership, MeshFile, Oracle, OracleClient, OracleError, RosterWriter, State};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};
use thalweg_units::NodeId;
use thalweg_wire::mesh::Roster;
use tokio::time::{Instant, sleep, timeout};

/// How long a request waits at the oracle: less than the time after which NATs and firewalls forget connections. 300
/// nodes without news then send 15 requests a second.
const WAIT: Duration = Duration::from_secs(20);

/// The longest pause after a failure; the first is [`LEAST`], and each is twice the one before.
const MOST: Duration = Duration::from_secs(5);

/// The shortest pause after a failure, and the least time between two answers without news.
const LEAST: Duration = Duration::from_millis(250);

/// The answers without news after which the next oracle is asked: a minute's.
const TURN: u32 = 3;

/// How often a condition that lasts is reported again.
const AGAIN: Duration = Duration::from_secs(600);

/// A roster that expires sooner should have been renewed long ago: oracles renew it when a third of its time has
/// passed.
const NEAR: Duration = Duration::from_secs(24 * 3600);

/// Called with each event, in place, so it must not block.
pub type Reporter = Arc<dyn Fn(&SyncEvent) + Send + Sync>;

/// The task that keeps the roster of one host current.
pub struct RosterSync {
    client: OracleClient,
    membership: Membership,
    keeper: RosterWriter,
    mesh: MeshFile,
    key: NodeId,
    state: Option<State>,
    report: Reporter,
    reported: BTreeMap<&'static str, Instant>,
    failures: u32,
    /// Answers without news since the present oracle was first asked.
    without_news: u32,
}

impl RosterSync {
    /// Creates the task of the host named `mesh.name`, which asks with `key` and makes that its own key
    /// ([`Membership::set_own`]). `state` stores the oracles' addresses when they change.
    pub fn new(
        client: OracleClient,
        membership: Membership,
        (mesh, key): (MeshFile, NodeId),
        state: Option<State>,
        report: Reporter,
    ) -> Self {
        let (reported, failures, without_news) = (BTreeMap::new(), 0, 0);
        membership.set_own(key);
        let report_failure = Arc::clone(&report);
        let keeper = RosterWriter::start(membership.clone(), move |e| {
            report_failure(&SyncEvent::Rejected(e))
        });
        Self {
            client,
            membership,
            keeper,
            mesh,
            key,
            state,
            report,
            reported,
            failures,
            without_news,
        }
    }

    /// Runs for ever; drop the future to end it.
    pub async fn run(mut self) {
        if let Some(roster) = self.membership.current() {
            self.follow(&roster);
        }
        loop {
            self.check_validity();
            let pause = match self.client.oracles().is_empty() {
                true => self.wait_for_an_oracle().await,
                false => self.ask().await,
            };
            sleep(pause).await;
        }
    }

    /// Sends one request. Returns the pause before the next.
    async fn ask(&mut self) -> Duration {
        let after = self.membership.current().map(|roster| roster.rank());
        let began = Instant::now();
        match self.client.roster(after, WAIT).await {
            Ok(Some(signed)) => self.take(&signed),
            Ok(None) => {
                self.reached();
                self.take_turns();
                LEAST.saturating_sub(began.elapsed())
            }
            Err(error) => self.unreached(error),
        }
    }

    /// Asks the next oracle after some answers without news.
    fn take_turns(&mut self) {
        self.without_news += 1;
        if self.without_news >= TURN && self.client.oracles().len() > 1 {
            self.without_news = 0;
            self.client.ask_next_oracle();
        }
    }

    /// Waits if there is no other oracle: this host is the only one, or knows none.
    async fn wait_for_an_oracle(&mut self) -> Duration {
        let mut rosters = self.membership.subscribe();
        // The clock is checked after the wait; a roster that is offered meanwhile is noticed at once.
        if let Ok(Ok(())) = timeout(WAIT, rosters.changed()).await
            && let Some(roster) = self.membership.current()
        {
            self.follow(&roster);
        }
        Duration::ZERO
    }

    fn take(&mut self, signed: &[u8]) -> Duration {
        self.reached();
        // The roster is in force when this returns: neither a disk nor a full thread pool delays it.
        let offered = self.keeper.take(signed);
        let roster = self.membership.current();
        if let Err(error) = offered {
            self.report_condition(SyncEvent::Rejected(error));
            self.failures += 1;
            return self.pause();
        }
        self.reported.remove("roster_rejected");
        let Some(roster) = roster else { return MOST };
        let (version, members) = (roster.version, roster.members.len());
        self.report_event(&SyncEvent::Updated { version, members });
        if let Some(fork) = self.membership.fork().filter(|fork| fork.after == version) {
            self.report_condition(SyncEvent::Forked(fork));
        }
        self.follow(&roster);
        Duration::ZERO
    }

    /// Applies what the roster says of oracles and of this host.
    fn follow(&mut self, roster: &Roster) {
        if roster.by_key(&self.key).is_none() {
            self.report_condition(SyncEvent::NotListed);
        }
        let oracles = Oracle::of(roster, Some(&self.mesh.name));
        let known = self.client.oracles();
        if oracles.is_empty() || oracles == known {
            return;
        }
        self.client.set_oracles(oracles.clone());
        self.mesh.oracles = oracles;
        let kept = self.state.as_ref().map(|state| state.set_mesh(&self.mesh));
        if let Some(Err(error)) = kept {
            self.report_condition(SyncEvent::NotKept(error));
        }
    }

    fn reached(&mut self) {
        self.failures = 0;
        if self.reported.remove("oracle_unreached").is_some() {
            self.report_event(&SyncEvent::Reached);
        }
        match self.client.skew() {
            Some(skew) => self.report_condition(SyncEvent::Skew(skew)),
            None => _ = self.reported.remove("clock_skew"),
        }
    }

    fn unreached(&mut self, error: OracleError) -> Duration {
        self.failures += 1;
        self.report_condition(SyncEvent::Unreached(error));
        self.pause()
    }

    /// The pause grows with the failures in a row, and half of it is random, so that the nodes of a mesh do not return
    /// to their oracle all at once.
    fn pause(&self) -> Duration {
        let full = LEAST.saturating_mul(1 << self.failures.min(8)).min(MOST);
        let mut chance = [0; 2];
        // Without randomness the pause is the same each time.
        _ = getrandom::fill(&mut chance);
        full.mul_f64(0.5 + f64::from(u16::from_be_bytes(chance)) / f64::from(u16::MAX) / 2.0)
    }

    fn check_validity(&mut self) {
        let (Some(roster), now) = (self.membership.current(), self.membership.now()) else {
            return;
        };
        if let Err(fault) = roster.check(now) {
            return self.report_condition(SyncEvent::NotValid(fault));
        }
        self.reported.remove("roster_not_valid");
        let left = roster.expiry.as_unix_nanos().saturating_sub(now.as_unix_nanos());
        let all = roster.expiry.as_unix_nanos().saturating_sub(roster.not_before.as_unix_nanos());
        // A roster made for less than three days is near its end in its last third.
        match Duration::from_nanos(left) {
            left if left < NEAR.min(Duration::from_nanos(all / 3)) => {
                self.report_condition(SyncEvent::NearExpiry(left));
            }
            _ => _ = self.reported.remove("roster_near_expiry"),
        }
    }

    /// Reports a condition that lasts, now and every [`AGAIN`].
    fn report_condition(&mut self, event: SyncEvent) {
        let now = Instant::now();
        let lately = self.reported.get(event.name()).is_some_and(|t| now - *t < AGAIN);
        if !lately {
            self.reported.insert(event.name(), now);
            self.report_event(&event);
        }
    }

    fn report_event(&self, event: &SyncEvent) {
        (self.report)(event);
    }
}

impl fmt::Debug for RosterSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RosterSync").field("mesh", &self.mesh).finish_non_exhaustive()
    }
}
