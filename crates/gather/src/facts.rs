//! Collects the facts from which the bound of a collection, or of a `send`, is found ([`thalweg_paths::verdict`]).

use super::{SharedBottleneck, SourceTotals, Totals};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use thalweg_base::verdict::Verdict;
use thalweg_paths::{
    estimates::Estimates,
    transfer_counters::{WaitClock, WatchedConnections, WatchedInterfaces, Way},
    verdict::{
        Estimate, GatherFacts, PathFacts, SendFacts, SentPath, SharedLegs, SourceFacts,
        gather_verdict, send_verdict,
    },
};
use thalweg_units::Rate;
use thalweg_wire::mesh::Name;

/// Bytes of data in a packet of an Ethernet.
const PACKET: u64 = 1448;

/// A path: the member at its other end, and the hosts between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedPath {
    pub member: Name,
    pub via: Vec<Name>,
}

/// The connections of a collection or a `send`.
pub type Connections = WatchedConnections<WatchedPath>;

/// What is observed while data moves.
#[derive(Debug)]
pub struct TransferFacts {
    pub connections: Arc<Connections>,
    /// Time in which bytes wait for the disk: to be written, or of `send`, to be read.
    pub disk: WaitClock,
    /// Time in which bytes wait for the own limit.
    pub limit: WaitClock,
    interfaces: Mutex<WatchedInterfaces>,
}

impl TransferFacts {
    /// Begins to observe.
    pub fn begin(way: Way) -> Self {
        Self {
            connections: Arc::default(),
            disk: WaitClock::default(),
            limit: WaitClock::default(),
            interfaces: Mutex::new(WatchedInterfaces::begin(way)),
        }
    }

    /// Reads the counters; to be called a few times a second.
    pub fn look(&self) {
        self.connections.look();
        self.interfaces.lock().look();
    }

    /// The bound of a collection to `me`. The last files got their names this long after the last byte.
    pub fn of_gather(
        &self,
        totals: &Totals,
        (set_up, publication): (Duration, Duration),
        limit: Option<Rate>,
        (me, estimates): (&Name, &Estimates),
    ) -> Verdict {
        let fetched = totals.sources.iter().map(|source| source.bytes).sum();
        let facts = GatherFacts {
            took: seconds(totals.seconds),
            set_up,
            sources: totals.sources.iter().map(|one| self.source(one, me, estimates)).collect(),
            shared: totals.shared.iter().map(|set| shared_legs(set, me)).collect(),
            interface: self.interfaces.lock().facts(fetched),
            fastest: fastest(estimates, |(_, to)| to == me),
            disk_wait: self.disk.total() + publication,
            limit_wait: self.limit.total(),
            limit,
        };
        gather_verdict(&facts)
    }

    fn source(&self, totals: &SourceTotals, me: &Name, estimates: &Estimates) -> SourceFacts {
        let source = &totals.source;
        let path = |path: &WatchedPath| {
            let tcp = self.connections.received(path);
            PathFacts {
                name: path_name(path),
                is_relayed: !path.via.is_empty(),
                bytes: tcp.map_or(0, |tcp| tcp.packets * PACKET),
                tcp,
                known: leg(estimates, source, me).filter(|_| path.via.is_empty()),
                ..PathFacts::default()
            }
        };
        let paths = self.connections.paths();
        SourceFacts {
            name: source.to_string(),
            bytes: totals.bytes,
            ended: seconds(totals.seconds),
            paths: paths.iter().filter(|one| one.member == *source).map(path).collect(),
            elsewhere: fastest(estimates, |(from, to)| from == source && to != me),
        }
    }

    /// The bound of a `send` to this member.
    pub fn of_send(
        &self,
        totals: &Totals,
        (me, to): (&Name, &Name),
        limit: Option<Rate>,
        estimates: &Estimates,
    ) -> Verdict {
        let path = |path: &WatchedPath| {
            let tcp = self.connections.sent(path);
            SentPath {
                name: if path.via.is_empty() { "direct".to_owned() } else { path_name(path) },
                is_relayed: !path.via.is_empty(),
                bytes: tcp.map_or(0, |tcp| tcp.bytes),
                tcp,
                known: leg(estimates, me, to).filter(|_| path.via.is_empty()),
            }
        };
        let facts = SendFacts {
            to: to.to_string(),
            took: seconds(totals.seconds),
            set_up: Duration::ZERO,
            sent: totals.bytes,
            paths: self.connections.paths().iter().map(path).collect(),
            interface: self.interfaces.lock().facts(totals.bytes),
            read_wait: self.disk.total(),
            limit_wait: self.limit.total(),
            limit,
        };
        send_verdict(&facts)
    }
}

fn path_name(path: &WatchedPath) -> String {
    let WatchedPath { member, via } = path;
    match via.iter().map(Name::as_str).collect::<Vec<_>>().join("+") {
        none if none.is_empty() => member.to_string(),
        via => format!("{member} via {via}"),
    }
}

fn shared_legs(set: &SharedBottleneck, me: &Name) -> SharedLegs {
    let name = |host: &Name| if host == me { String::new() } else { host.to_string() };
    let legs = set.legs.iter().map(|(from, to)| (name(from), name(to))).collect();
    SharedLegs { legs, rate: Rate::from_bps(set.rate_bps) }
}

/// What was known of a leg, if its age was.
fn leg(estimates: &Estimates, from: &Name, to: &Name) -> Option<Estimate> {
    let leg = estimates.leg(from, to);
    Some(Estimate { rate: leg.rate?, age: leg.age? })
}

/// The fastest of some legs.
fn fastest(estimates: &Estimates, of: impl Fn((&Name, &Name)) -> bool) -> Option<Estimate> {
    let all = estimates.pairs().filter(|(from, to)| of((from, to)));
    all.filter_map(|(from, to)| leg(estimates, from, to)).max_by_key(|known| known.rate)
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
