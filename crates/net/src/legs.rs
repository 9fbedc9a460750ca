//! Passive measurements of a relay's and a node's legs to other members, from the transfers that use them.
//!
//! The *sending* end of a leg, which is this node, observes it now and then: the growth of the kernel's counters
//! between two observations is a sample. A sample is a lower bound ([`Bound::of_passive`]) if anything but the path
//! limited it, if it contains slow start, or if several connections shared the leg. All bytes, however few, count as
//! use.

use crate::TcpInfo;
use parking_lot::{Mutex, MutexGuard};
use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};
use thalweg_measure::{Bound, LimitedTime};
use thalweg_wire::mesh::Name;
use tokio::time::Instant;

/// The most legs that are remembered: one to each member of the largest mesh, and some to former members. Further legs
/// are not watched, and bytes to further members are not counted.
const MAX_LEGS: usize = 1024;

/// The shortest sample. A shorter one shows nothing: the tail of a transfer, or a moment of it.
const MIN_TIME: Duration = Duration::from_secs(1);
/// The smallest sample, bytes, for the same reason.
const MIN_BYTES: u64 = 256 * 1024;

/// Observes both legs of a connection.
pub trait LegWatcher: Debug + Sync {
    /// Receives the kernel's present counters.
    fn record_counters(&self, client: &TcpInfo, destination: &TcpInfo);

    /// Receives the destination's counters just before its connection is closed.
    fn record_end(&self, _destination: &TcpInfo) {}

    /// Whether [`record_beginning`](Self::record_beginning) is called for each direction.
    fn wants_beginnings(&self) -> bool {
        false
    }

    /// Receives the first bytes of a direction: those that arrived together, three to twelve.
    fn record_beginning(&self, _: LegEnd, _: &[u8]) {}
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegEnd {
    /// The end that requested the connection.
    Client,
    /// The end to which the connection leads.
    Destination,
}

/// The observations of all legs to members. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Legs(Arc<Mutex<Observations>>);

/// All observations.
#[derive(Debug, Default)]
struct Observations {
    sums: BTreeMap<Name, LegObservations>,
    /// Bytes sent to each member and acknowledged since the last call of [`Legs::moved`].
    moved: BTreeMap<Name, u64>,
}

/// The observations of one leg since they were last taken.
#[derive(Clone, Debug, Default)]
struct LegObservations {
    /// The connections that share it now.
    live: usize,
    /// Bits and seconds of samples that only the path limited.
    own: (f64, f64),
    /// The highest lower bound, bit/s.
    at_least: f64,
    bytes: u64,
    newest: Option<Instant>,
}

/// An estimate of one leg from this node.
#[derive(Clone, Debug, PartialEq)]
pub struct LegEstimate {
    /// The member at its end.
    pub to: Name,
    pub bps: f64,
    /// Whether the rate is a lower bound, because something other than the path limited it.
    pub at_least: bool,
    /// The bytes of all samples.
    pub bytes: u64,
    /// The time since the newest sample.
    pub age: Duration,
}

impl Legs {
    /// Watches a connection between these ends. An end that is no member is not watched.
    pub fn watch(&self, client: Option<Name>, destination: Option<Name>) -> ConnectionObserver {
        let leg =
            |to: Option<Name>| to.and_then(|to| ObservedLeg::new(self.clone(), to)).map(Mutex::new);
        ConnectionObserver { client: leg(client), destination: leg(destination) }
    }

    /// Takes the estimates since the last call.
    pub fn take(&self) -> Vec<LegEstimate> {
        let sums = &mut self.lock().sums;
        let seen = sums.iter_mut().filter_map(|(to, sum)| sum.take(to)).collect();
        sums.retain(|_, sum| sum.live > 0);
        seen
    }

    /// The bytes sent to each member since the last call.
    pub fn moved(&self) -> BTreeMap<Name, u64> {
        std::mem::take(&mut self.lock().moved)
    }

    fn lock(&self) -> MutexGuard<'_, Observations> {
        self.0.lock()
    }
}

impl Observations {
    /// Counts bytes to a member. Without calls of [`Legs::moved`] the map is bounded like the legs.
    fn note(&mut self, to: &Name, bytes: u64) {
        if self.moved.len() < MAX_LEGS || self.moved.contains_key(to) {
            *self.moved.entry(to.clone()).or_default() += bytes;
        }
    }
}

impl LegObservations {
    fn add(&mut self, bytes: u64, seconds: f64, bound: Bound, now: Instant) {
        let bits = bytes as f64 * 8.0;
        match bound {
            Bound::Exact => self.own = (self.own.0 + bits, self.own.1 + seconds),
            Bound::AtLeast => self.at_least = self.at_least.max(bits / seconds),
        }
        self.bytes += bytes;
        self.newest = Some(now);
    }

    fn take(&mut self, to: &Name) -> Option<LegEstimate> {
        let newest = self.newest?;
        let own = if self.own.1 > 0.0 { self.own.0 / self.own.1 } else { 0.0 };
        // A lower bound above the mean is more informative than the mean.
        let at_least = self.at_least > own;
        let seen = LegEstimate {
            to: to.clone(),
            bps: own.max(self.at_least),
            at_least,
            bytes: self.bytes,
            age: newest.elapsed(),
        };
        *self = Self { live: self.live, ..Self::default() };
        Some(seen)
    }
}

/// The observer of one connection.
#[derive(Debug)]
pub struct ConnectionObserver {
    client: Option<Mutex<ObservedLeg>>,
    destination: Option<Mutex<ObservedLeg>>,
}

impl LegWatcher for ConnectionObserver {
    fn record_counters(&self, client: &TcpInfo, destination: &TcpInfo) {
        let now = Instant::now();
        for (leg, info) in [(&self.client, client), (&self.destination, destination)] {
            if let Some(leg) = leg {
                leg.lock().observe(info, now);
            }
        }
    }
}

/// One leg of one connection.
#[derive(Debug)]
struct ObservedLeg {
    legs: Legs,
    to: Name,
    last: Option<(Instant, TcpInfo)>,
    /// The bytes acknowledged at the last observation, whether it was a sample or not.
    counted: u64,
    /// Whether a sample was taken already. The first one contains slow start.
    begun: bool,
}

impl ObservedLeg {
    fn new(legs: Legs, to: Name) -> Option<Self> {
        let mut all = legs.lock();
        if all.sums.len() >= MAX_LEGS && !all.sums.contains_key(&to) {
            return None;
        }
        all.sums.entry(to.clone()).or_default().live += 1;
        drop(all);
        Some(Self { legs, to, last: None, counted: 0, begun: false })
    }

    fn observe(&mut self, info: &TcpInfo, now: Instant) {
        let Some((then, before)) = self.last else {
            (self.last, self.counted) = (Some((now, *info)), info.acknowledged);
            return;
        };
        self.count(info);
        let total = now.saturating_duration_since(then);
        let bytes = info.acknowledged.saturating_sub(before.acknowledged);
        if total < MIN_TIME {
            return;
        }
        self.last = Some((now, *info));
        let is_first = !self.begun;
        self.begun |= bytes > 0;
        if bytes < MIN_BYTES {
            return;
        }
        let mut legs = self.legs.lock();
        let Some(sum) = legs.sums.get_mut(&self.to) else { return };
        let bound = match is_first || sum.live > 1 {
            true => Bound::AtLeast,
            false => Bound::of_passive(&limited(&before, info, total)),
        };
        sum.add(bytes, total.as_secs_f64(), bound, now);
    }

    fn count(&mut self, info: &TcpInfo) {
        let more = info.acknowledged.saturating_sub(self.counted);
        self.counted += more;
        if more > 0 {
            self.legs.lock().note(&self.to, more);
        }
    }
}

impl Drop for ObservedLeg {
    fn drop(&mut self) {
        if let Some(sum) = self.legs.lock().sums.get_mut(&self.to) {
            sum.live = sum.live.saturating_sub(1);
        }
    }
}

fn limited(before: &TcpInfo, now: &TcpInfo, total: Duration) -> LimitedTime {
    let grown = |of: fn(&TcpInfo) -> Duration| of(now).saturating_sub(of(before));
    LimitedTime {
        application: total.saturating_sub(grown(|i| i.busy)),
        receiver: grown(|i| i.receiver_limited),
        send_buffer: grown(|i| i.send_buffer_limited),
        total,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const SECOND: Duration = Duration::from_secs(1);

    /// The counters when this many megabytes are acknowledged, after this many busy seconds.
    fn info(megabytes: u64, busy: u64) -> TcpInfo {
        let acknowledged = megabytes * 1_000_000;
        TcpInfo { acknowledged, busy: SECOND * busy as u32, ..TcpInfo::default() }
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_leg_shows_its_rate_after_slow_start() {
        let legs = Legs::default();
        let watched = legs.watch(Some(name("lap")), None);
        let idle = TcpInfo::default();
        watched.record_counters(&info(0, 0), &idle);
        advance(5 * SECOND).await;
        watched.record_counters(&info(2, 5), &idle);
        let first = legs.take();
        assert_eq!((first[0].bps, first[0].at_least, first[0].bytes), (3.2e6, true, 2_000_000));
        advance(5 * SECOND).await;
        watched.record_counters(&info(12, 10), &idle);
        advance(5 * SECOND).await;
        watched.record_counters(&info(22, 15), &idle);
        advance(2 * SECOND).await;
        let second = legs.take();
        let seen = LegEstimate {
            to: name("lap"),
            bps: 16e6,
            at_least: false,
            bytes: 20_000_000,
            age: 2 * SECOND,
        };
        assert_eq!(second, [seen]);
        assert_eq!(legs.take(), [], "once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sample_that_the_path_did_not_limit_is_a_lower_bound() {
        let legs = Legs::default();
        let watched = legs.watch(None, Some(name("nyc")));
        let idle = TcpInfo::default();
        for (megabytes, busy) in [(0, 0), (10, 5), (20, 9)] {
            watched.record_counters(&idle, &info(megabytes, busy));
            advance(5 * SECOND).await;
        }
        // For a fifth of the second sample's time there was nothing to send.
        assert!(legs.take()[0].at_least);
        let beside = legs.watch(Some(name("nyc")), None);
        watched.record_counters(&idle, &info(30, 14));
        assert!(legs.take()[0].at_least, "two share the leg");
        drop((watched, beside));
        assert_eq!(legs.take(), []);
        assert!(legs.lock().sums.is_empty(), "nothing is kept of legs that are gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_or_short_sample_shows_nothing() {
        let legs = Legs::default();
        let watched = legs.watch(Some(name("a")), Some(name("b")));
        let idle = TcpInfo::default();
        watched.record_counters(&idle, &idle);
        advance(SECOND / 2).await;
        watched.record_counters(&info(5, 1), &info(5, 1));
        advance(SECOND).await;
        let little = TcpInfo { acknowledged: 1000, ..idle };
        watched.record_counters(&little, &little);
        assert_eq!(legs.take(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn even_few_bytes_are_counted_as_use_once() {
        let legs = Legs::default();
        let watched = legs.watch(Some(name("a")), None);
        let idle = TcpInfo::default();
        // Bytes acknowledged before the first observation belong to the handshake.
        let acknowledged = |acknowledged| TcpInfo { acknowledged, ..idle };
        for bytes in [500, 900, 1700] {
            watched.record_counters(&acknowledged(bytes), &idle);
            advance(SECOND / 4).await;
        }
        assert_eq!(legs.moved(), [(name("a"), 1200)].into());
        assert_eq!(legs.moved(), [].into(), "once");
        assert_eq!(legs.take(), [], "it shows nothing of the path");
        watched.record_counters(&acknowledged(1800), &idle);
        drop(watched);
        assert_eq!(legs.moved(), [(name("a"), 100)].into(), "also of connections that are gone");
    }

    #[test]
    fn the_number_of_legs_is_bounded() {
        let legs = Legs::default();
        let all: Vec<_> =
            (0..MAX_LEGS + 9).map(|i| legs.watch(Some(name(&format!("n{i}"))), None)).collect();
        assert_eq!(legs.lock().sums.len(), MAX_LEGS);
        drop(all);
        (0..MAX_LEGS + 9).for_each(|i| legs.lock().note(&name(&format!("n{i}")), 1));
        assert_eq!(legs.moved().len(), MAX_LEGS);
    }
}
