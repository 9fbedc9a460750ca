//! Limits on the work that callers can cause at a time.

use crate::{JoinLimits, Refusal, connection_limit::ConnectionBounds};
use governor::{
    Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
    state::{InMemoryState, NotKeyed, keyed::DefaultKeyedStateStore},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    time::Duration,
};
use thalweg_units::NodeId;
use thalweg_wire::mesh::Roster;

/// The longest body of a request, bytes: addresses and tags at their bounds take 5 kB.
pub(crate) const BODY: usize = 64 * 1024;
/// The time limit for a request's head; head and body each fit in a few packets.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(10);
/// The time limit for a request's body.
pub(crate) const BODY_TIME: Duration = Duration::from_secs(10);
/// The longest wait for a newer roster, below the idle times of most middleboxes.
pub(crate) const WAIT: Duration = Duration::from_secs(60);
/// Requests that wait for a roster: [`Roster::MAX_MEMBERS`] and a third more for commands and for connections that
/// broke unnoticed. About 20 kB each.
pub(crate) const WAITING: usize = 13_400;
/// Waiting requests of one member: its daemon, its commands, and connections that broke unnoticed.
pub(crate) const WAITING_EACH: u8 = 8;
/// Connections for joining: enough for a rack that joins at once, even from behind one address, since each takes
/// milliseconds.
pub(crate) const STRANGERS: ConnectionBounds = ConnectionBounds { all: 64, each: 8, once: true };
/// Connections beyond [`STRANGERS`] that are answered with a refusal: the same number again.
pub(crate) const TURNED_AWAY: ConnectionBounds = STRANGERS;
/// Connections of members. Each member may have its daemon's, its commands', and some that broke unnoticed, of about 20
/// kB each. The total is that times the most members, so no member can take another's.
pub(crate) const MEMBERS: ConnectionBounds =
    ConnectionBounds { all: 16 * Roster::MAX_MEMBERS, each: 16, once: false };
/// The time limit for the head of a request on a connection for joining, and for its body.
pub(crate) const FIRST_TIME: Duration = Duration::from_secs(5);
/// How long an evicted connection may take to write its last answer.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// The longest duration of a connection for joining.
pub(crate) const STRANGER_TIME: Duration = Duration::from_secs(30);
/// Open tokens: more than the most members.
pub(crate) const OPEN_TOKENS: u64 = 16_384;

/// Requests of one member in a second. A member's daemon sends a few; the proxies of a busy host ask for candidates
/// more often, and each answer serves them for a while.
const REQUESTS: NonZeroU32 = NonZeroU32::new(200).unwrap();
/// Requests of one member at once: a few milliseconds of one processor.
const REQUESTS_AT_ONCE: NonZeroU32 = NonZeroU32::new(50).unwrap();

/// Addresses whose requests to join are counted separately. Beyond that, only the limit for all applies.
const ADDRESSES: usize = 4096;

type Keyed = RateLimiter<IpAddr, DefaultKeyedStateStore<IpAddr>, DefaultClock>;
type Direct = RateLimiter<NotKeyed, InMemoryState, DefaultClock>;

/// Limits requests to join, by address and in total.
pub(crate) struct JoinGate {
    each: Keyed,
    all: Direct,
    clock: DefaultClock,
}

impl fmt::Debug for JoinGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinGate({} addresses)", self.each.len())
    }
}

fn quota(every: Duration, burst: NonZeroU32) -> Quota {
    let least = Duration::from_nanos(1);
    Quota::with_period(every.max(least))
        .unwrap_or(Quota::per_second(NonZeroU32::MIN))
        .allow_burst(burst)
}

impl JoinGate {
    pub fn new(limits: &JoinLimits) -> Self {
        Self {
            each: RateLimiter::keyed(quota(limits.every, limits.burst)),
            all: RateLimiter::direct(quota(limits.every_of_all, limits.burst_of_all)),
            clock: DefaultClock::default(),
        }
    }

    /// Whether one more request from this address is served. The address's own limit is checked first, so that one
    /// source cannot exhaust the common one.
    pub fn pass(&self, from: IpAddr) -> Result<(), Refusal> {
        let limited = |wait: Duration| Refusal::RateLimited(wait.max(Duration::from_secs(1)));
        if self.has_room() {
            let counted = self.each.check_key(&network(from));
            counted.map_err(|not| limited(not.wait_time_from(self.clock.now())))?;
        }
        self.all.check().map_err(|not| limited(not.wait_time_from(self.clock.now())))
    }

    /// Whether the table has room for another address. Drops addresses without recent requests if it is full.
    fn has_room(&self) -> bool {
        if self.each.len() >= ADDRESSES {
            self.each.retain_recent();
        }
        self.each.len() < ADDRESSES
    }

    #[cfg(test)]
    fn addresses(&self) -> usize {
        self.each.len()
    }
}

/// Changes of one member's relays: one in this time, after a few at once. Each change is a roster for all members.
const CHANGE: Duration = Duration::from_secs(10);
/// Changes of one member at once: its relays fail one after the other.
const CHANGES_AT_ONCE: NonZeroU32 = NonZeroU32::new(6).unwrap();

/// Limits how often each member changes its relays.
pub(crate) struct ChangeRate {
    each: RateLimiter<NodeId, DefaultKeyedStateStore<NodeId>, DefaultClock>,
    clock: DefaultClock,
}

impl fmt::Debug for ChangeRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChangeRate({} members)", self.each.len())
    }
}

impl Default for ChangeRate {
    fn default() -> Self {
        let each = RateLimiter::keyed(quota(CHANGE, CHANGES_AT_ONCE));
        Self { each, clock: DefaultClock::default() }
    }
}

impl ChangeRate {
    /// Counts a change of this member, or says how long it has to wait before the next one.
    pub fn pass(&self, member: &NodeId) -> Result<(), Duration> {
        if self.each.len() > Roster::MAX_MEMBERS {
            self.each.retain_recent();
        }
        let counted = self.each.check_key(member);
        counted.map_err(|not| not.wait_time_from(self.clock.now()))
    }
}

/// Spaces the requests of each member, so that one member's requests cannot delay those of others.
pub(crate) struct RequestRate {
    each: RateLimiter<NodeId, DefaultKeyedStateStore<NodeId>, DefaultClock>,
    clock: DefaultClock,
}

impl fmt::Debug for RequestRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestRate({} members)", self.each.len())
    }
}

impl Default for RequestRate {
    fn default() -> Self {
        let quota = Quota::per_second(REQUESTS).allow_burst(REQUESTS_AT_ONCE);
        Self { each: RateLimiter::keyed(quota), clock: DefaultClock::default() }
    }
}

impl RequestRate {
    /// Counts a request of this member, or says how long it has to wait before it asks again.
    pub fn pass(&self, member: &NodeId) -> Result<(), Duration> {
        if self.each.len() > Roster::MAX_MEMBERS {
            self.each.retain_recent();
        }
        self.each.check_key(member).map_err(|not| not.wait_time_from(self.clock.now()))
    }
}

/// Counts concurrent requests for each key. The limit on all requests bounds its size.
#[derive(Debug, Default)]
pub(crate) struct KeyCounts(Mutex<HashMap<NodeId, u8>>);

impl KeyCounts {
    /// Counts one more request, unless there are `most` already. Returns whether it was counted.
    pub fn enter(&self, key: NodeId, most: u8) -> bool {
        let mut counts = self.0.lock();
        let count = counts.entry(key).or_default();
        let free = *count < most;
        *count += u8::from(free);
        free
    }

    /// Counts one request less.
    pub fn leave(&self, key: &NodeId) {
        let mut counts = self.0.lock();
        if let Some(count) = counts.get_mut(key) {
            *count = count.saturating_sub(1);
        }
        if counts.get(key) == Some(&0) {
            counts.remove(key);
        }
    }
}

/// The network that counts as one party: an IPv4 address, or an IPv6 /64, in which a host chooses addresses freely.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::Ipv4Addr, time::Instant};

    const HOUR: Duration = Duration::from_secs(3600);

    fn gate(burst: u32, of_all: u32) -> JoinGate {
        JoinGate::new(&JoinLimits {
            burst: NonZeroU32::new(burst).unwrap(),
            every: HOUR,
            burst_of_all: NonZeroU32::new(of_all).unwrap(),
            every_of_all: HOUR,
        })
    }

    #[test]
    fn one_address_cannot_exhaust_the_common_limit() {
        let gate = gate(2, 3);
        let [a, b]: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        assert_eq!([gate.pass(a), gate.pass(a)], [Ok(()), Ok(())]);
        for _ in 0..10 {
            let Err(Refusal::RateLimited(wait)) = gate.pass(a) else { panic!("passed") };
            assert!(wait > HOUR / 2 && wait <= HOUR * 2, "{wait:?}");
        }
        assert_eq!(gate.pass(b), Ok(()));
        assert!(gate.pass(b).is_err(), "the fourth of all");
    }

    #[test]
    fn a_network_of_one_party_counts_as_one() {
        let gate = gate(1, 10);
        assert!(gate.pass("2001:db8::1".parse().unwrap()).is_ok());
        assert!(gate.pass("2001:db8::2".parse().unwrap()).is_err());
        assert!(gate.pass("2001:db8:0:1::1".parse().unwrap()).is_ok());
        assert!(gate.pass("10.0.0.1".parse().unwrap()).is_ok());
        assert!(gate.pass("::ffff:10.0.0.1".parse().unwrap()).is_err());
    }

    #[test]
    fn the_requests_of_one_member_are_spaced_and_others_pass() {
        let (rate, began) = (RequestRate::default(), Instant::now());
        let [a, b] = [1, 2].map(|n| NodeId::from_bytes([n; 32]));
        let passed = (0..1000).filter(|_| rate.pass(&a).is_ok()).count() as f64;
        let most = f64::from(REQUESTS_AT_ONCE.get())
            + f64::from(REQUESTS.get()) * began.elapsed().as_secs_f64();
        assert!(passed >= 50.0 && passed <= most.ceil(), "{passed} of at most {most}");
        assert_eq!(rate.pass(&b), Ok(()));
    }

    #[test]
    fn many_addresses_take_bounded_memory() {
        let gate = gate(1, 1_000_000);
        for n in 0..3 * ADDRESSES as u32 {
            assert_eq!(gate.pass(Ipv4Addr::from_bits(n).into()), Ok(()));
        }
        assert!(gate.addresses() <= ADDRESSES);
    }
}
