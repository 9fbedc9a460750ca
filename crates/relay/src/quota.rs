//! Quotas of members at a relay: connections at a time, a rate, and bytes per day. A peer is the member at the other
//! end of a channel.
//!
//! All of a peer's connections share one [`Allowance`]. It counts their bytes in the process's [`Budget`], which
//! enforces the limits. A peer is identified by its principal key, whichever of its keys opened the channel. The day is
//! the UTC day, so that an operator can say when it starts; setting the clock back does not renew a day's bytes. Counts
//! live as long as the process.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use thalweg_base::budget::{Budget, OverBudget, PeerKey, Purpose, Scope};
use thalweg_base::token_bucket::Bucket;
use thalweg_net::pump::THROTTLED_TURN;
use thalweg_net::pump::{Moved, Throttle, ThrottleFuture};
use thalweg_units::{ByteSize, NodeId};
use thalweg_wire::mesh::{Member, Quota, Roster, RosterRank};
use thiserror::Error;

/// A quota forbids the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OverQuota {
    /// The peer has as many connections as it may.
    #[error("this client may have at most {0} connections at a time; try again when one has ended")]
    Connections(u32),
    /// The day's bytes are used up.
    #[error("this client's limit of {limit} a day is used up; try again in {retry:.0?}")]
    Bytes {
        limit: ByteSize,
        /// The time until the next UTC day.
        retry: Duration,
    },
}

impl OverQuota {
    /// The label for counters, from a fixed set.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Connections(_) => "quota_connections",
            Self::Bytes { .. } => "quota_bytes",
        }
    }
}

/// The allowances of all peers of a relay.
#[derive(Debug)]
pub struct Quotas {
    budget: Arc<Budget>,
    peers: Mutex<Peers>,
}

/// The allowances: at most one for each member of the newest roster, and for each former member with connections.
#[derive(Debug, Default)]
struct Peers {
    /// The rank of the last roster.
    rank: Option<RosterRank>,
    allowances: BTreeMap<NodeId, Arc<Allowance>>,
}

impl Quotas {
    /// Creates quotas that count in `budget`.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { budget, peers: Mutex::default() }
    }

    /// Forgets peers that are no longer in the roster and have no connection. Does nothing unless this roster is newer
    /// than all given before.
    pub fn forget_former(&self, roster: &Roster) {
        let mut peers = self.lock();
        if peers.rank < Some(roster.rank()) {
            peers.rank = Some(roster.rank());
            let members: BTreeSet<_> = roster.members.iter().map(Member::principal).collect();
            let used = |allowance: &Arc<Allowance>| Arc::strong_count(allowance) > 1;
            peers.allowances.retain(|peer, allowance| members.contains(peer) || used(allowance));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock()
    }

    /// Admits one more connection of the peer with this principal key.
    ///
    /// `quota` applies from now on to all of the peer's connections. The bytes in `moved` when the
    /// [`AdmittedConnection`] is dropped are the connection's usage, even if its session was dropped before its end.
    ///
    /// # Errors
    /// [`OverQuota`].
    pub fn admit(
        &self,
        peer: NodeId,
        quota: Quota,
        moved: Arc<Moved>,
    ) -> Result<AdmittedConnection, OverQuota> {
        let mut peers = self.lock();
        let new = || Arc::new(Allowance::new(peer, Arc::clone(&self.budget)));
        let allowance = Arc::clone(peers.allowances.entry(peer).or_insert_with(new));
        drop(peers);
        allowance.admit(quota, today())?;
        let throttled = quota.rate.is_some() || quota.bytes_per_day.is_some();
        Ok(AdmittedConnection { throttled, allowance, moved })
    }
}

/// The quota and usage of one peer.
#[derive(Debug)]
pub struct Allowance {
    scope: Scope,
    budget: Arc<Budget>,
    state: Mutex<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    connections: u32,
    day: u64,
    bucket: Option<Bucket>,
}

impl Allowance {
    fn new(peer: NodeId, budget: Arc<Budget>) -> Self {
        let scope = Scope { peer: Some(PeerKey::Node(peer)), ..Scope::purpose(Purpose::Data) };
        Self { scope, budget, state: Mutex::default() }
    }

    fn admit(&self, quota: Quota, (day, rest): (u64, Duration)) -> Result<(), OverQuota> {
        let mut state = self.lock();
        if let Some(most) = quota.connections.filter(|most| state.connections >= *most) {
            return Err(OverQuota::Connections(most));
        }
        self.begin(&mut state, day);
        self.budget.set_limit(self.scope, quota.bytes_per_day);
        if let Err(over) = self.budget.check(self.scope, ByteSize::from_bytes(1)) {
            return Err(OverQuota::Bytes { limit: over.limit, retry: rest });
        }
        match (&mut state.bucket, quota.rate) {
            (Some(bucket), Some(rate)) => bucket.set_rate(rate, Instant::now()),
            (bucket, rate) => {
                *bucket = rate.map(|rate| Bucket::new(rate, THROTTLED_TURN, Instant::now()))
            }
        }
        state.connections += 1;
        Ok(())
    }

    /// Renews the bytes if this is a new day.
    fn begin(&self, state: &mut Usage, day: u64) {
        if day > state.day {
            state.day = day;
            self.budget.renew(self.scope);
        }
    }

    /// Accounts for moved bytes. Returns how long to wait before more are moved.
    fn settle(&self, bytes: usize, day: u64, now: Instant) -> Result<Duration, OverBudget> {
        let mut state = self.lock();
        self.begin(&mut state, day);
        self.budget.settle(self.scope, ByteSize::from_bytes(bytes as u64))?;
        Ok(state.bucket.as_mut().map(|b| b.take(bytes as u64, now)).unwrap_or_default())
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        self.state.lock()
    }
}

/// One admitted connection. It counts towards the peer's quota until it is dropped.
pub struct AdmittedConnection {
    allowance: Arc<Allowance>,
    throttled: bool,
    moved: Arc<Moved>,
}

impl AdmittedConnection {
    /// The throttle for the pump; `None` if the peer has neither a rate nor a daily number of bytes.
    pub fn throttle(&self) -> Option<&dyn Throttle> {
        self.throttled.then_some(self as &dyn Throttle)
    }

    /// Counts the bytes of a connection without a throttle. With one, [`Throttle::take`] has counted them already.
    fn account(&self) {
        if !self.throttled {
            let [up, down] = [&self.moved.up, &self.moved.down].map(|n| n.load(Ordering::Relaxed));
            let bytes = ByteSize::from_bytes(up.saturating_add(down));
            self.allowance.budget.charge(self.allowance.scope, bytes);
        }
    }
}

impl fmt::Debug for AdmittedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdmittedConnection({})", self.allowance.scope)
    }
}

impl Throttle for AdmittedConnection {
    fn take(&self, bytes: usize) -> ThrottleFuture<'_> {
        let paid = self.allowance.settle(bytes, today().0, Instant::now());
        Box::pin(async move {
            let wait = paid?;
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            Ok(())
        })
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        self.account();
        self.allowance.lock().connections -= 1;
    }
}

/// The number of UTC days since 1970, and the time left until the next one.
pub fn today() -> (u64, Duration) {
    const DAY: u64 = 86_400;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    (seconds / DAY, Duration::from_secs(DAY - seconds % DAY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_units::Rate;

    const PEER: NodeId = NodeId::from_bytes([7; 32]);

    #[test]
    fn connections_are_counted_for_each_peer_and_given_back() {
        let quotas = Quotas::new(Arc::default());
        let two = Quota { connections: Some(2), ..Quota::default() };
        let first = quotas.admit(PEER, two, Arc::default()).unwrap();
        let _second = quotas.admit(PEER, two, Arc::default()).unwrap();
        assert_eq!(quotas.admit(PEER, two, Arc::default()).unwrap_err(), OverQuota::Connections(2));
        assert!(quotas.admit(NodeId::from_bytes([8; 32]), two, Arc::default()).is_ok());
        assert!(first.throttle().is_none(), "connections alone slow nobody down");
        drop(first);
        assert!(quotas.admit(PEER, two, Arc::default()).is_ok());
    }

    #[test]
    fn used_up_bytes_end_a_connection_until_the_next_day() {
        let allowance = Allowance::new(PEER, Arc::default());
        let quota = Quota { bytes_per_day: Some(ByteSize::from_bytes(100)), ..Quota::default() };
        let (now, rest) = (Instant::now(), Duration::from_secs(60));
        allowance.admit(quota, (10, rest)).unwrap();
        assert_eq!(allowance.settle(100, 10, now), Ok(Duration::ZERO));
        let over = allowance.settle(1, 10, now).unwrap_err();
        assert_eq!((over.limit.as_bytes(), over.spent.as_bytes()), (100, 101));
        let refused = allowance.admit(quota, (10, rest)).unwrap_err();
        let limit = ByteSize::from_bytes(100);
        assert_eq!(refused, OverQuota::Bytes { limit, retry: rest });
        assert!(refused.to_string().contains("try again in 60s"), "{refused}");
        // A clock that is set back does not start a new day.
        assert!(allowance.admit(quota, (9, rest)).is_err());
        allowance.admit(quota, (11, rest)).unwrap();
        assert_eq!(allowance.settle(100, 11, now), Ok(Duration::ZERO));
    }

    #[test]
    fn a_rate_is_shared_by_all_connections_of_a_peer() {
        let allowance = Allowance::new(PEER, Arc::default());
        let quota = Quota { rate: Some(Rate::from_bps(8_000_000)), ..Quota::default() };
        allowance.admit(quota, (1, Duration::ZERO)).unwrap();
        allowance.admit(quota, (1, Duration::ZERO)).unwrap();
        let now = Instant::now();
        // At a megabyte per second, four payments of a megabyte each wait a second longer than the one before, except
        // for the burst.
        let waits = [(); 4].map(|()| allowance.settle(1_000_000, 1, now).unwrap());
        assert!(waits.windows(2).all(|w| w[1] == w[0] + Duration::from_secs(1)), "{waits:?}");
    }

    #[test]
    fn only_a_rate_or_daily_bytes_throttle_the_pump() {
        let quotas = Quotas::new(Arc::default());
        let asked = |quota| quotas.admit(PEER, quota, Arc::default()).unwrap().throttle().is_some();
        assert!(asked(Quota { rate: Some(Rate::from_bps(8)), ..Quota::default() }));
        let bytes_per_day = Some(ByteSize::from_bytes(8));
        assert!(asked(Quota { bytes_per_day, ..Quota::default() }));
        assert!(!asked(Quota::default()));
    }

    #[test]
    fn bytes_without_a_throttle_are_counted_too() {
        let budget = Arc::new(Budget::new());
        let quotas = Quotas::new(Arc::clone(&budget));
        let moved: Arc<Moved> = Arc::default();
        let ticket = quotas.admit(PEER, Quota::default(), Arc::clone(&moved)).unwrap();
        moved.up.store(40, Ordering::Relaxed);
        moved.down.store(2, Ordering::Relaxed);
        drop(ticket);
        let scope = Scope { peer: Some(PeerKey::Node(PEER)), ..Scope::purpose(Purpose::Data) };
        assert_eq!(budget.spent(scope).as_bytes(), 42);
    }

    #[test]
    fn a_former_member_is_forgotten_once_it_has_no_connection() {
        let quotas = Quotas::new(Arc::default());
        let date = thalweg_units::WallTime::from_unix_nanos(0);
        let empty = |version| Roster {
            version,
            not_before: date,
            expiry: date,
            members: Vec::new(),
            rules: Vec::new(),
            endorsement: None,
            predecessor: None,
        };
        let ticket = quotas.admit(PEER, Quota::default(), Arc::default()).unwrap();
        quotas.forget_former(&empty(1));
        assert_eq!(quotas.lock().allowances.len(), 1);
        drop(ticket);
        quotas.forget_former(&empty(2));
        assert!(quotas.lock().allowances.is_empty());
    }
}
