//! What the kernel counts while a transfer runs: of its connections, and of this host's interfaces. The facts for
//! [`crate::verdict`].

use crate::verdict::{InterfaceFacts, SenderFacts, TcpFacts};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fmt, fs, io,
    time::{Duration, Instant},
};
use thalweg_net::{Monitor, TcpInfo};
use thalweg_units::{ByteSize, Rate};

/// The most connections whose counters are kept. A server that closes each connection causes many; the first ones tell
/// enough.
const MOST_CONNECTIONS: usize = 64;

/// The shortest time over which the highest rate of an interface is taken.
const PEAK: Duration = Duration::from_secs(1);

/// Reads the present counters of a connection.
type ReadCounters = Box<dyn Fn() -> io::Result<TcpInfo> + Send>;

/// The connections of a transfer, by the path that they belong to, and what the kernel counts of them.
#[derive(Debug)]
pub struct WatchedConnections<K>(Mutex<Vec<WatchedConnection<K>>>);

struct WatchedConnection<K> {
    path: K,
    read: ReadCounters,
    began: Instant,
    /// When its counters were last read.
    at: Instant,
    first: TcpInfo,
    last: TcpInfo,
    /// The round trips that were seen while data arrived: their sum and number.
    trips: (Duration, u32),
    /// The same while data was acknowledged.
    sent_trips: (Duration, u32),
    window: u64,
}

impl<K> Default for WatchedConnections<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq> WatchedConnections<K> {
    /// Watches a connection that the path uses from now on.
    pub fn watch(&self, path: K, monitor: Monitor) {
        self.watch_by(path, Box::new(move || monitor.tcp_info()));
    }

    /// As [`Self::watch`], by a function that fails once the connection is closed.
    pub fn watch_by(&self, path: K, read: ReadCounters) {
        let Ok(first) = read() else { return };
        let mut all = self.0.lock();
        if all.len() < MOST_CONNECTIONS {
            let (began, none) = (Instant::now(), (Duration::ZERO, 0));
            all.push(WatchedConnection {
                path,
                read,
                began,
                at: began,
                first,
                last: first,
                trips: none,
                sent_trips: none,
                window: 0,
            });
        }
    }

    /// The paths with connections.
    pub fn paths(&self) -> Vec<K>
    where
        K: Clone,
    {
        let mut paths: Vec<K> = Vec::new();
        for one in self.0.lock().iter() {
            if !paths.contains(&one.path) {
                paths.push(one.path.clone());
            }
        }
        paths
    }

    /// Reads the counters of all open connections; a few times a second.
    pub fn look(&self) {
        let now = Instant::now();
        for one in self.0.lock().iter_mut() {
            let Ok(info) = (one.read)() else { continue };
            one.note(info, now);
        }
    }

    /// What was counted of the path's connections, as their receiver.
    pub fn received(&self, path: &K) -> Option<TcpFacts> {
        self.look();
        let all = self.0.lock();
        let of_path: Vec<_> = all.iter().filter(|one| one.path == *path).collect();
        let count = |of: fn(&TcpInfo) -> u64| of_path.iter().map(|one| one.grown(of)).sum();
        (!of_path.is_empty()).then(|| TcpFacts {
            packets: count(|info| info.data_segments),
            out_of_order: count(|info| info.out_of_order.into()),
            shortest: shortest(&of_path),
            usual: mean(of_path.iter().map(|one| one.trips)),
            window: of_path.iter().map(|one| one.window).max().unwrap_or(0),
        })
    }

    /// What was counted of the path's connections, as their sender.
    pub fn sent(&self, path: &K) -> Option<SenderFacts> {
        self.look();
        let all = self.0.lock();
        let of_path: Vec<_> = all.iter().filter(|one| one.path == *path).collect();
        let count = |of: fn(&TcpInfo) -> u64| of_path.iter().map(|one| one.grown(of)).sum();
        let time = |of: fn(&TcpInfo) -> Duration| {
            of_path.iter().map(|one| of(&one.last).saturating_sub(of(&one.first))).sum()
        };
        (!of_path.is_empty()).then(|| SenderFacts {
            bytes: count(|info| info.acknowledged),
            packets: count(|info| info.sent / u64::from(info.mss.max(1))),
            repeated: count(|info| info.retransmitted.into()),
            open: of_path.iter().map(|one| one.at - one.began).sum(),
            busy: time(|info| info.busy),
            receiver_limited: time(|info| info.receiver_limited),
            buffer_limited: time(|info| info.send_buffer_limited),
            shortest: shortest(&of_path),
            usual: mean(of_path.iter().map(|one| one.sent_trips)),
        })
    }
}

impl<K> WatchedConnection<K> {
    fn note(&mut self, info: TcpInfo, now: Instant) {
        if info.received > self.last.received && !info.receiver_rtt.is_zero() {
            self.trips = (self.trips.0 + info.receiver_rtt, self.trips.1 + 1);
        }
        if info.acknowledged > self.last.acknowledged && !info.rtt.is_zero() {
            self.sent_trips = (self.sent_trips.0 + info.rtt, self.sent_trips.1 + 1);
        }
        self.window = self.window.max(info.offered.into());
        (self.last, self.at) = (info, now);
    }

    /// By how much a counter has grown.
    fn grown(&self, of: fn(&TcpInfo) -> u64) -> u64 {
        of(&self.last).saturating_sub(of(&self.first))
    }
}

impl<K: fmt::Debug> fmt::Debug for WatchedConnection<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedConnection").field("path", &self.path).finish_non_exhaustive()
    }
}

fn shortest<K>(all: &[&WatchedConnection<K>]) -> Duration {
    let trips = all.iter().map(|one| one.last.min_rtt);
    trips.filter(|trip| !trip.is_zero() && *trip < Duration::MAX).min().unwrap_or_default()
}

fn mean(trips: impl Iterator<Item = (Duration, u32)>) -> Duration {
    let (sum, count) =
        trips.fold((Duration::ZERO, 0), |(sum, count), (trips, more)| (sum + trips, count + more));
    sum.checked_div(count).unwrap_or_default()
}

/// The time in which at least one of a transfer's tasks waits for something.
#[derive(Debug, Default)]
pub struct WaitClock(Mutex<WaitState>);

#[derive(Debug, Default)]
struct WaitState {
    waiting: u32,
    since: Option<Instant>,
    total: Duration,
}

/// A task that waits, until it is dropped.
#[derive(Debug)]
pub struct Waiting<'a>(&'a WaitClock);

impl WaitClock {
    /// Counts the time until the guard is dropped.
    #[must_use]
    pub fn begin(&self) -> Waiting<'_> {
        let mut state = self.0.lock();
        state.waiting += 1;
        state.since.get_or_insert_with(Instant::now);
        Waiting(self)
    }

    /// The time so far.
    pub fn total(&self) -> Duration {
        let state = self.0.lock();
        state.total + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.waiting = state.waiting.saturating_sub(1);
        if state.waiting == 0 {
            let since = state.since.take();
            state.total += since.map_or(Duration::ZERO, |since| since.elapsed());
        }
    }
}

/// The direction of a transfer's data at this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To this host.
    Down,
    /// From it.
    Up,
}

/// The bytes that each interface but the loopback one has moved so far.
type InterfaceBytes = BTreeMap<String, u64>;

/// Watches the interfaces of this host during a transfer, in one direction.
#[derive(Debug)]
pub struct WatchedInterfaces {
    way: Way,
    began: Instant,
    before: InterfaceBytes,
    /// The last second's begin, and the bytes then.
    second: (Instant, InterfaceBytes),
    /// The highest rates.
    peaks: BTreeMap<String, Rate>,
}

impl WatchedInterfaces {
    /// Begins to watch.
    pub fn begin(way: Way) -> Self {
        let (began, before) = (Instant::now(), interface_bytes(way));
        let second = (began, before.clone());
        Self { way, began, before, second, peaks: BTreeMap::new() }
    }

    /// Notes the rates of the last second; to be called a few times a second.
    pub fn look(&mut self) {
        let (now, (since, before)) = (Instant::now(), &self.second);
        let passed = now.saturating_duration_since(*since);
        if passed < PEAK {
            return;
        }
        let bytes = interface_bytes(self.way);
        let grown = grown(before, &bytes);
        for (name, more) in grown {
            let peak = self.peaks.entry(name).or_insert(Rate::ZERO);
            *peak = (*peak).max(Rate::over(ByteSize::from_bytes(more), passed));
        }
        self.second = (now, bytes);
    }

    /// The interface that moved the most bytes, of which `own` were the transfer's.
    pub fn facts(&self, own: u64) -> Option<InterfaceFacts> {
        let during = self.began.elapsed();
        let all = grown(&self.before, &interface_bytes(self.way)).into_iter();
        let (name, received) =
            all.filter(|(_, bytes)| *bytes > 0).max_by_key(|(_, bytes)| *bytes)?;
        let peak = self.peaks.get(&name).copied();
        Some(InterfaceFacts { name, received, own, during, peak, capacity: None })
    }
}

/// By how much the bytes of each interface have grown.
fn grown(before: &InterfaceBytes, now: &InterfaceBytes) -> Vec<(String, u64)> {
    let more = |(name, bytes): (&String, &u64)| {
        Some((name.clone(), bytes.checked_sub(*before.get(name)?)?))
    };
    now.iter().filter_map(more).collect()
}

fn interface_bytes(way: Way) -> InterfaceBytes {
    let text = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    parse_bytes(&text, way)
}

/// The columns of proc_net_dev(5): received bytes are the first, sent ones the ninth.
fn parse_bytes(text: &str, way: Way) -> InterfaceBytes {
    let column = match way {
        Way::Down => 0,
        Way::Up => 8,
    };
    let counts = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let bytes = counts.split_whitespace().nth(column)?.parse().ok()?;
        Some((name.trim().to_owned(), bytes))
    };
    text.lines().filter_map(counts).filter(|(name, _)| name != "lo").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_net::{Dialer, Route};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    #[test]
    fn interfaces_are_read_without_the_loopback() {
        let text = "Inter-|   Receive\n face |bytes    packets\n    lo: 100 1\n  \
                    eth0:12345 9 0 0 0 0 0 0 678 5 0 0 0 0 0 0\n";
        let eth0 = |bytes| BTreeMap::from([("eth0".to_owned(), bytes)]);
        assert_eq!(parse_bytes(text, Way::Down), eth0(12_345));
        assert_eq!(parse_bytes(text, Way::Up), eth0(678));
        let here = interface_bytes(Way::Down);
        assert!(!here.contains_key("lo"), "{here:?}");
    }

    #[test]
    fn waits_of_several_tasks_at_once_count_once() {
        let clock = WaitClock::default();
        assert_eq!(clock.total(), Duration::ZERO);
        let (one, other) = (clock.begin(), clock.begin());
        drop(one);
        assert!(clock.0.lock().since.is_some());
        drop(other);
        let state = clock.0.lock();
        assert_eq!((state.waiting, state.since), (0, None));
    }

    #[test]
    fn only_interfaces_that_were_there_before_are_compared() {
        let of = |all: &[(&str, u64)]| -> InterfaceBytes {
            all.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
        };
        let found = grown(&of(&[("a", 5), ("b", 9)]), &of(&[("a", 7), ("b", 1), ("c", 4)]));
        assert_eq!(found, [("a".to_owned(), 2)]);
    }

    #[tokio::test]
    async fn the_kernels_counters_of_a_paths_connections_are_added() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap().into();
        let (here, there) = (WatchedConnections::default(), WatchedConnections::default());
        assert_eq!(here.received(&0), None);
        for _ in 0..2 {
            let mut near = Dialer::default().dial(&Route::direct(), &to).await.unwrap();
            let (mut far, _) = listener.accept().await.unwrap();
            here.watch(0, near.monitor());
            let back = Dialer::default().dial(&Route::direct(), &to).await.unwrap();
            let (mut sink, _) = listener.accept().await.unwrap();
            there.watch(0, back.monitor());
            let mut back = back;
            far.write_all(&[7; 300_000]).await.unwrap();
            near.read_exact(&mut [0; 300_000]).await.unwrap();
            let (sent, read) = tokio::join!(back.write_all(&[7; 300_000]), async {
                sink.read_exact(&mut vec![0; 300_000]).await
            });
            sent.unwrap();
            read.unwrap();
            here.look();
            there.look();
            // Counters of closed connections are kept.
            drop((near, back));
        }
        let facts = here.received(&0).unwrap();
        assert!(facts.packets >= 10, "{facts:?}");
        assert!(facts.out_of_order <= facts.packets, "{facts:?}");
        assert_eq!(here.received(&1), None);
        let facts = there.sent(&0).unwrap();
        assert!(facts.packets >= 1 && (1..=600_000).contains(&facts.bytes), "{facts:?}");
        assert!(facts.busy <= facts.open, "{facts:?}");
    }
}
