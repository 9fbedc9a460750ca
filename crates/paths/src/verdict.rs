//! Names the bound that a finished transfer met, from the facts observed in it. Pure: reads no clock, file or socket.
//!
//! These are the rules for downloads; `gather`, `send` and `cast` have those for the other transfers. The first rule that applies decides. What a transfer waited for comes before what its rate is compared with, and a
//! direct observation before an inference:
//!
//! | | If | Bound |
//! |---|---|---|
//! | 1 | no byte was fetched | `small` |
//! | 2 | it waited most of all, and for 40 % of its time, for the server, its own limit, or the disk | `server`, `limit`, `disk` |
//! | 3 | its rate was its own limit | `limit` |
//! | 4 | one processor core was busy with it all the time | `cpu` |
//! | 5 | set-up was half of its time, or it was shorter than slow start | `small` |
//! | 6 | the interface was full, and a fifth of its bytes were others' | `rival` |
//! | 7 | the interface was full, and the bytes were its own | `access` |
//! | 8 | a relay announced a limit, or its rate was the relay's quota, or a clean relayed path stayed below its legs' rates | `relay` |
//! | 9 | the receive window was full in each round trip | `window` |
//! | 10 | paths together were faster than the one that carried the rest | `path` |
//! | 11 | paths together were as fast as one alone, so they share a bottleneck at one of the ends | `access` if nothing came faster to this host, `source` if something did |
//! | 12 | packets were lost, or a queue grew, on the path | `path` |
//! | 13 | no packet was lost and no queue grew: of a direct path; of a relayed one, on the leg to its relay | `source`; `path` |
//! | 14 | else | `unknown` |

mod cast;
mod gather;
mod send;

pub use cast::{CastFacts, CastReceiver, cast_verdict};
pub use gather::{GatherFacts, SharedLegs, SourceFacts, gather_verdict};
pub use send::{SendFacts, SentPath, send_verdict};

use std::time::Duration;
use thalweg_base::verdict::{Bound, Evidence, Verdict};
use thalweg_units::{ByteSize, Rate};

/// The share of its time that a transfer must have waited for one cause. Buffers before the slowest part are full almost
/// always, so that a real cause has a share near 1; below 0.4, something else was waited for longer.
const WAITED: f64 = 0.4;

/// A rate of at least this share of a limit or quota is that limit: headers and the first second take the rest.
const AT_LIMIT: f64 = 0.9;

/// The share of its time in which one core was busy. The network runs on one thread.
const BUSY: f64 = 0.9;

/// A transfer of fewer round trips is slow start. Ten segments double to 1 Gbit/s at 100 ms in ten round trips, and until
/// then its mean rate is below half of the path's.
const SLOW_START: u32 = 12;

/// Without a round trip, a transfer of fewer bytes is slow start: twenty-five initial windows.
const SMALL: u64 = 25 * 14_600;

/// The share of the time that set-up must have taken.
const SET_UP: f64 = 0.5;

/// An interface that moves this share of its capacity is full: TCP leaves some of it in every sawtooth.
const FULL: f64 = 0.85;

/// The share of an interface's bytes that must be others': less is name lookups, acknowledgements and the mesh.
const OTHERS: f64 = 0.2;

/// The same if the interface's capacity is not known.
const MANY_OTHERS: f64 = 0.4;

/// Bytes at the interface for each byte of content: headers of Ethernet, IP, TCP and TLS, and repeated packets.
const HEADERS: f64 = 1.06;

/// An older estimate of the own access link is not used; contracts and networks change.
const FRESH_CAPACITY: Duration = Duration::from_secs(7 * 24 * 3600);

/// An older estimate of a leg is not used.
const FRESH_LEGS: Duration = Duration::from_secs(3600);

/// A relayed path this many times slower than its slowest leg is limited by the relay, if nothing else shows.
const BELOW_LEGS: f64 = 1.5;

/// The share of packets out of order that means loss. Receivers do not see losses; they see what arrives after a gap.
const LOSSY: f64 = 0.001;

/// Up to this share, nothing was lost that TCP would notice.
const CLEAN: f64 = 0.0002;

/// The fewest packets that shares are judged by: 1 MB.
const ENOUGH_PACKETS: u64 = 700;

/// A queue has grown if the round trip is this many times the shortest one, and by at least [`QUEUE`].
const INFLATED: f64 = 2.0;

/// See [`INFLATED`]. Less is a scheduler's or a Wi-Fi frame's delay.
const QUEUE: Duration = Duration::from_millis(20);

/// No queue has grown if the round trip is at most this many times the shortest one, and [`NO_QUEUE`].
const FLAT: f64 = 1.3;

/// See [`FLAT`].
const NO_QUEUE: Duration = Duration::from_millis(5);

/// The share of the window that a full one has.
const WINDOW: f64 = 0.85;

/// The share of the rest's bytes that one path must have carried for its rate to be compared with several.
const CARRIES: f64 = 0.9;

/// A path with a smaller share of the sampled rate shows nothing: two independent paths of 90 and 10 look like one.
const COMPARABLE: f64 = 0.25;

/// Paths that are together this many times faster than one alone have bottlenecks of their own. Sampling is in slow
/// start, so they are faster still.
const APART: f64 = 1.2;

/// Paths that are together this many times as fast as one alone share a bottleneck. [`COMPARABLE`] shares would make
/// 1.33 of two independent ones.
const TOGETHER: std::ops::RangeInclusive<f64> = 0.8..=1.15;

/// A capacity that is only the most that was seen is disproved if more arrives: see [`TOGETHER`] for the tolerance.
const MORE_THAN_SEEN: f64 = 1.15;

/// Another transfer that was this many times faster shows that the own access link can carry more.
const HEADROOM: f64 = 1.3;

/// What was observed in one transfer. Unknown facts are `None`, zero or empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// From the start to the published file.
    pub took: Duration,
    /// From the start to the first byte of content.
    pub set_up: Duration,
    /// Bytes received over the network.
    pub fetched: u64,
    /// The paths that were tried.
    pub paths: Vec<PathFacts>,
    /// The rate of all paths together in sampling; `None`: the sum of their rates.
    pub sampling: Option<Rate>,
    /// The rate of all paths together once one was chosen.
    pub rest: Option<Rate>,
    /// The interface of this host that moved the most bytes meanwhile.
    pub interface: Option<InterfaceFacts>,
    /// The fastest transfer to this host that is known, from any other source.
    pub fastest: Option<Estimate>,
    /// The time in which no byte was taken because the disk was behind.
    pub disk_wait: Duration,
    /// The time in which no byte was taken because of the own limit.
    pub limit_wait: Duration,
    /// The time in which no byte came because the server had asked to wait.
    pub server_wait: Duration,
    /// The own limit.
    pub limit: Option<Rate>,
    /// The processor time of this process meanwhile, if it ran no other transfer.
    pub cpu: Option<Duration>,
}

/// What was observed of one path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathFacts {
    pub name: String,
    /// Whether it leads through a relay.
    pub is_relayed: bool,
    /// Bytes of the file.
    pub bytes: u64,
    /// Its rate in sampling, beside the others.
    pub sampled: Option<Rate>,
    /// The part of `bytes` that it carried in sampling.
    pub sampled_bytes: u64,
    /// Its rate in the rest.
    pub rest: Option<Rate>,
    /// The time from dialling to the first byte.
    pub first_byte: Option<Duration>,
    /// The rate that was known of it before.
    pub known: Option<Estimate>,
    /// The rate of its slowest leg, if all of its legs are known.
    pub legs: Option<Estimate>,
    /// The relay's quota for this member.
    pub quota: Option<Rate>,
    /// What the relay said about a limit that it applied.
    pub notice: Option<String>,
    /// The kernel's counters of its connections.
    pub tcp: Option<TcpFacts>,
}

/// A rate that was known before the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    pub rate: Rate,
    pub age: Duration,
}

/// What the kernel counted of a path's connections, as the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFacts {
    /// Packets with data.
    pub packets: u64,
    /// Packets that arrived after a gap.
    pub out_of_order: u64,
    /// The shortest round trip; zero: not known.
    pub shortest: Duration,
    /// The usual round trip while data arrived, as the receiver sees it; zero: not known.
    pub usual: Duration,
    /// The largest window that the peer was offered, bytes; zero: not known.
    pub window: u64,
}

/// What the kernel counted of a path's connections, as the sender. Times are sums over the connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderFacts {
    /// Bytes that the peer acknowledged.
    pub bytes: u64,
    /// Packets with data.
    pub packets: u64,
    /// Packets that were sent again.
    pub repeated: u64,
    /// The time in which they were open.
    pub open: Duration,
    /// The part of it in which there was data to send.
    pub busy: Duration,
    /// The part of `busy` in which the peer's receive window was full.
    pub receiver_limited: Duration,
    /// The part of `busy` in which this host's send buffer was too small.
    pub buffer_limited: Duration,
    /// The shortest round trip; zero: not known.
    pub shortest: Duration,
    /// The usual round trip while data was acknowledged; zero: not known.
    pub usual: Duration,
}

/// What was observed of an interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InterfaceFacts {
    pub name: String,
    /// Bytes that it received while it was observed, of all flows; of a transfer from this host, those that it sent.
    pub received: u64,
    /// Bytes of this transfer meanwhile.
    pub own: u64,
    /// How long it was observed.
    pub during: Duration,
    /// The highest rate over a second; `None`: not observed.
    pub peak: Option<Rate>,
    pub capacity: Option<Capacity>,
}

/// What an interface can carry to this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    pub estimate: Estimate,
    /// Whether it was measured as such. Otherwise it is the most that was seen, and a lower bound.
    pub is_measured: bool,
}

/// The bound that the transfer met.
pub fn verdict(facts: &Facts) -> Verdict {
    let rules: [fn(&Facts) -> Option<Verdict>; 11] = [
        nothing_fetched,
        waits,
        own_limit,
        processor,
        short,
        interface,
        relay,
        window,
        several_paths,
        congestion,
        clean,
    ];
    rules.iter().find_map(|rule| rule(facts)).unwrap_or_else(|| unknown(facts))
}

fn nothing_fetched(facts: &Facts) -> Option<Verdict> {
    (facts.fetched == 0).then(|| {
        let text = "Nothing was fetched: the file was there already.".to_owned();
        Verdict { bound: Bound::Small, text, evidence: Vec::new() }
    })
}

fn waits(facts: &Facts) -> Option<Verdict> {
    let all = [
        (facts.server_wait, Bound::Server, "the server asked to wait"),
        (facts.limit_wait, Bound::Limit, "the rate limit of this command was waited for"),
        (facts.disk_wait, Bound::Disk, "the disk was waited for"),
    ];
    let (wait, bound, what) = all.into_iter().max_by_key(|(wait, ..)| *wait)?;
    if share(wait, facts.took) < WAITED {
        return None;
    }
    let percent = percent(share(wait, facts.took));
    let text = match bound {
        Bound::Server => format!("The server asked this host to wait for {percent} of the time."),
        Bound::Disk => format!(
            "The disk took the bytes more slowly than they came: it was waited for in {percent} of the time."
        ),
        _ => match facts.limit {
            Some(limit) => format!("The limit given to this command, {limit}, was reached."),
            None => "The limit given to this command was reached.".to_owned(),
        },
    };
    let mut evidence =
        vec![observed(what, seconds(wait)), observed("the whole time", seconds(facts.took))];
    evidence.extend(rate_of(facts).map(|rate| observed("rate", rate.to_string())));
    Some(Verdict { bound, text, evidence })
}

fn own_limit(facts: &Facts) -> Option<Verdict> {
    let (limit, rate) = (facts.limit?, rate_of(facts)?);
    (ratio(rate, limit) >= AT_LIMIT).then(|| Verdict {
        bound: Bound::Limit,
        text: format!("The limit given to this command, {limit}, was reached."),
        evidence: vec![observed("rate", rate.to_string()), observed("limit", limit.to_string())],
    })
}

fn processor(facts: &Facts) -> Option<Verdict> {
    let busy = share(facts.cpu?, facts.took);
    (busy >= BUSY).then(|| Verdict {
        bound: Bound::Cpu,
        text: format!("One processor core was busy with it for {} of the time.", percent(busy)),
        evidence: vec![
            observed("processor time", seconds(facts.cpu.unwrap_or_default())),
            observed("the whole time", seconds(facts.took)),
        ],
    })
}

fn short(facts: &Facts) -> Option<Verdict> {
    let set_up = share(facts.set_up, facts.took);
    let moved = facts.took.saturating_sub(facts.set_up);
    let trip = main_path(facts).and_then(round_trip);
    let is_slow_start = match trip {
        Some(trip) => moved < trip.saturating_mul(SLOW_START),
        None => facts.fetched < SMALL,
    };
    if set_up < SET_UP && !is_slow_start {
        return None;
    }
    let text = if set_up >= SET_UP {
        format!("It was short: {} of its time passed before the first byte.", percent(set_up))
    } else {
        "It was short: TCP had not reached the path's rate when it ended.".to_owned()
    };
    let mut evidence = vec![
        observed("fetched", ByteSize::from_bytes(facts.fetched).to_string()),
        observed("until the first byte", seconds(facts.set_up)),
        observed("the whole time", seconds(facts.took)),
    ];
    evidence.extend(trip.map(|trip| observed("round trip", seconds(trip))));
    Some(Verdict { bound: Bound::Small, text, evidence })
}

fn interface(facts: &Facts) -> Option<Verdict> {
    let interface = facts.interface.as_ref()?;
    let total = Rate::over(ByteSize::from_bytes(interface.received), interface.during);
    let own = (interface.own as f64 * HEADERS).min(interface.received as f64);
    let others = 1.0 - own / (interface.received as f64).max(1.0);
    let is_congested = facts.paths.iter().any(is_congested);
    let capacity = interface.capacity.filter(|known| {
        let is_disproved = ratio(total, known.estimate.rate) > MORE_THAN_SEEN;
        known.estimate.age <= FRESH_CAPACITY && (known.is_measured || !is_disproved)
    });
    let (is_full, least) = match capacity {
        // The most that was seen may be less than the link can carry: then a queue has to show that it is full.
        Some(known) => {
            let is_full = ratio(total, known.estimate.rate) >= FULL;
            (is_full && (known.is_measured || is_congested), OTHERS)
        }
        None => (is_congested, MANY_OTHERS),
    };
    let is_shared = others >= least;
    if !is_full || (!is_shared && capacity.is_none()) {
        return None;
    }
    let mut evidence = vec![observed(&format!("{} in all", interface.name), total.to_string())];
    evidence.extend(rate_of(facts).map(|rate| observed("rate", rate.to_string())));
    evidence.extend(capacity.map(|known| {
        let what = if known.is_measured { "capacity" } else { "fastest that was seen" };
        let Estimate { rate, age } = known.estimate;
        aged(&format!("{}: {what}", interface.name), rate.to_string(), age)
    }));
    let name = &interface.name;
    let (bound, text) = if is_shared {
        let text = format!(
            "Other flows of this host took {} of what its access link {name} carried.",
            percent(others)
        );
        (Bound::Rival, text)
    } else {
        (Bound::Access, format!("This host's access link {name} was full."))
    };
    Some(Verdict { bound, text, evidence })
}

fn relay(facts: &Facts) -> Option<Verdict> {
    let main = main_path(facts)?;
    let rate = path_rate(facts, main)?;
    // A faster relay that stopped for its limit counts too.
    let would_win =
        |path: &PathFacts| path.sampled.is_some_and(|sampled| ratio(sampled, rate) >= APART);
    let limited = |path: &&PathFacts| {
        path.notice.is_some() && path.is_relayed && (path.name == main.name || would_win(path))
    };
    if let Some(path) = facts.paths.iter().find(limited) {
        let notice = path.notice.clone().unwrap_or_default();
        return Some(Verdict {
            bound: Bound::Relay,
            text: format!("The relay of the path {} limited it: {notice}.", path.name),
            evidence: vec![
                observed(&path.name, path_rate(facts, path).unwrap_or(Rate::ZERO).to_string()),
                observed("relay", notice),
            ],
        });
    }
    if !main.is_relayed {
        return None;
    }
    let mut evidence = vec![observed(&main.name, rate.to_string())];
    if let Some(quota) = main.quota.filter(|quota| ratio(rate, *quota) >= AT_LIMIT) {
        evidence.push(observed("quota", quota.to_string()));
        let text = format!("The relay of the path {} gives this host {quota}.", main.name);
        return Some(Verdict { bound: Bound::Relay, text, evidence });
    }
    let legs = main.legs.filter(|legs| legs.age <= FRESH_LEGS)?;
    let is_slower = ratio(legs.rate, rate) >= BELOW_LEGS && is_clean(main);
    // If the direct path was as fast, the server sends no faster.
    let has_equal = facts.paths.iter().any(|path| {
        path.name != main.name && path.sampled.is_some_and(|sampled| ratio(sampled, rate) >= FULL)
    });
    (is_slower && !has_equal).then(|| {
        evidence.push(aged("its slowest leg", legs.rate.to_string(), legs.age));
        let text = format!(
            "The relay of the path {} forwarded more slowly than its legs can carry.",
            main.name
        );
        Verdict { bound: Bound::Relay, text, evidence }
    })
}

fn window(facts: &Facts) -> Option<Verdict> {
    let main = main_path(facts)?;
    let (rate, tcp) = (path_rate(facts, main)?, main.tcp?);
    let trip = Some(tcp.usual).filter(|trip| !trip.is_zero())?;
    let under_way = rate.bytes_in(trip).as_bytes();
    let is_full = tcp.window > 0 && under_way as f64 >= WINDOW * tcp.window as f64;
    (is_full && is_clean(main)).then(|| Verdict {
        bound: Bound::Window,
        text: format!(
            "The receive buffer of this host, {}, was full in each round trip of {}.",
            ByteSize::from_bytes(tcp.window),
            seconds(trip)
        ),
        evidence: vec![
            observed(&main.name, rate.to_string()),
            observed("receive window", ByteSize::from_bytes(tcp.window).to_string()),
            observed("round trip", seconds(trip)),
        ],
    })
}

fn several_paths(facts: &Facts) -> Option<Verdict> {
    let main = main_path(facts)?;
    let alone = path_rate(facts, main)?;
    let in_rest = |path: &PathFacts| path.bytes.saturating_sub(path.sampled_bytes);
    let all: u64 = facts.paths.iter().map(in_rest).sum();
    if (in_rest(main) as f64) < CARRIES * all as f64 {
        return None;
    }
    let sampled = || facts.paths.iter().filter_map(|path| Some((path, path.sampled?)));
    let sum: Rate = sampled().map(|(_, rate)| rate).sum();
    let comparable = sampled().filter(|(_, rate)| ratio(*rate, sum) >= COMPARABLE).count();
    let sum = facts.sampling.unwrap_or(sum);
    if comparable < 2 {
        return None;
    }
    let mut evidence = vec![observed(&main.name, alone.to_string())];
    evidence.push(observed("all paths together", sum.to_string()));
    evidence.extend(
        sampled()
            .map(|(path, rate)| observed(&format!("{}, sampled", path.name), rate.to_string())),
    );
    let together = ratio(sum, alone);
    if together >= APART {
        let text = format!(
            "The path {} was the limit: all paths together were {together:.1} times as fast.",
            main.name
        );
        return Some(Verdict { bound: Bound::Path, text, evidence });
    }
    if !TOGETHER.contains(&together) {
        return None;
    }
    let fastest = facts.fastest.filter(|fastest| fastest.age <= FRESH_CAPACITY)?;
    evidence.push(aged("fastest from another source", fastest.rate.to_string(), fastest.age));
    let (bound, text) = if ratio(fastest.rate, alone) >= HEADROOM {
        (
            Bound::Source,
            "The source sends no faster: several paths together brought no more than one.",
        )
    } else {
        let text = "This host's access link was full: several paths together brought no more than one, \
            and no other source was faster.";
        (Bound::Access, text)
    };
    Some(Verdict { bound, text: text.to_owned(), evidence })
}

fn congestion(facts: &Facts) -> Option<Verdict> {
    let main = main_path(facts)?;
    if !is_congested(main) {
        return None;
    }
    let (rate, tcp) = (path_rate(facts, main)?, main.tcp?);
    let mut evidence = vec![
        observed(&main.name, rate.to_string()),
        observed("packets after a gap", percent(out_of_order(&tcp))),
        observed(
            "round trip",
            format!("{}, at least {}", seconds(tcp.usual), seconds(tcp.shortest)),
        ),
    ];
    evidence.extend(known(main));
    let what = if is_lossy(&tcp) { "lost packets" } else { "had a long queue" };
    let text = format!("The path {} was the limit: it {what}.", main.name);
    Some(Verdict { bound: Bound::Path, text, evidence })
}

fn clean(facts: &Facts) -> Option<Verdict> {
    let main = main_path(facts)?;
    if !is_clean(main) {
        return None;
    }
    let rate = path_rate(facts, main)?;
    let mut evidence = vec![observed(&main.name, rate.to_string())];
    evidence
        .extend(main.tcp.map(|tcp| observed("packets after a gap", percent(out_of_order(&tcp)))));
    evidence.extend(
        facts.fastest.map(|fastest| {
            aged("fastest from another source", fastest.rate.to_string(), fastest.age)
        }),
    );
    evidence.extend(known(main));
    let (bound, text) = if main.is_relayed {
        // The kernel's counters are of the leg to the relay alone.
        let text = format!("The path {} was the limit, beyond its leg to this host.", main.name);
        (Bound::Path, text)
    } else {
        let text = "The source sends no faster: no packet was lost and no queue grew on the path.";
        (Bound::Source, text.to_owned())
    };
    Some(Verdict { bound, text, evidence })
}

fn unknown(facts: &Facts) -> Verdict {
    let mut evidence: Vec<Evidence> =
        rate_of(facts).map(|rate| observed("rate", rate.to_string())).into_iter().collect();
    let sampled = facts.paths.iter().filter_map(|path| Some((path, path.sampled?)));
    evidence.extend(
        sampled.map(|(path, rate)| observed(&format!("{}, sampled", path.name), rate.to_string())),
    );
    evidence.extend(main_path(facts).and_then(known));
    let text = "What limited it does not show: the path, the source or this host's access link."
        .to_owned();
    Verdict { bound: Bound::Unknown, text, evidence }
}

/// The path that carried the most bytes.
fn main_path(facts: &Facts) -> Option<&PathFacts> {
    facts.paths.iter().filter(|path| path.bytes > 0).max_by_key(|path| path.bytes)
}

/// The rate of the transfer, without its set-up.
fn rate_of(facts: &Facts) -> Option<Rate> {
    let moving = facts.took.saturating_sub(facts.set_up);
    let mean = Rate::over(ByteSize::from_bytes(facts.fetched), moving);
    facts.rest.or(Some(mean)).filter(|rate| *rate > Rate::ZERO)
}

/// The rate of a path: in the rest, or else the one in sampling; of the only one, the transfer's.
fn path_rate(facts: &Facts, path: &PathFacts) -> Option<Rate> {
    let own = path.rest.or(path.sampled).filter(|rate| *rate > Rate::ZERO);
    own.or_else(|| if facts.paths.len() == 1 { rate_of(facts) } else { None })
}

/// The shortest round trip of a path. Without the kernel's, half of the time to the first byte: one round trip opens the
/// connection, another one is the request's.
fn round_trip(path: &PathFacts) -> Option<Duration> {
    let shortest = path.tcp.map(|tcp| tcp.shortest).filter(|trip| !trip.is_zero());
    shortest.or_else(|| path.first_byte.map(|first| first / 2)).filter(|trip| !trip.is_zero())
}

fn out_of_order(tcp: &TcpFacts) -> f64 {
    tcp.out_of_order as f64 / (tcp.packets as f64).max(1.0)
}

fn is_lossy(tcp: &TcpFacts) -> bool {
    out_of_order(tcp) >= LOSSY
}

/// Whether packets were lost or a queue grew on the path.
fn is_congested(path: &PathFacts) -> bool {
    let Some(tcp) = path.tcp.filter(|tcp| tcp.packets >= ENOUGH_PACKETS) else { return false };
    is_lossy(&tcp) || has_queue(&tcp)
}

/// Whether a queue grew.
fn has_queue(tcp: &TcpFacts) -> bool {
    is_inflated(tcp.usual, tcp.shortest)
}

/// Whether the usual round trip shows a queue, compared with the shortest one.
fn is_inflated(usual: Duration, shortest: Duration) -> bool {
    !shortest.is_zero()
        && times(usual, shortest) >= INFLATED
        && usual >= shortest.saturating_add(QUEUE)
}

/// Whether neither a loss nor a queue shows on the path. Without round trips, nothing shows.
fn is_clean(path: &PathFacts) -> bool {
    let Some(tcp) = path.tcp.filter(|tcp| tcp.packets >= ENOUGH_PACKETS) else { return false };
    let is_flat = !tcp.usual.is_zero()
        && (times(tcp.usual, tcp.shortest) <= FLAT
            || tcp.usual <= tcp.shortest.saturating_add(NO_QUEUE));
    out_of_order(&tcp) <= CLEAN && is_flat
}

/// What was known of a path before.
fn known(path: &PathFacts) -> Option<Evidence> {
    let known = path.known?;
    Some(aged(&format!("{}, before", path.name), known.rate.to_string(), known.age))
}

fn share(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
}

fn times(one: Duration, other: Duration) -> f64 {
    if other.is_zero() { f64::INFINITY } else { one.as_secs_f64() / other.as_secs_f64() }
}

fn ratio(one: Rate, other: Rate) -> f64 {
    one.as_bps() as f64 / (other.as_bps() as f64).max(1.0)
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 1.0 {
        format!("{percent:.2} %")
    } else {
        format!("{percent:.0} %")
    }
}

fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        time if time < 1.0 => format!("{:.0} ms", time * 1000.0),
        time => format!("{time:.1} s"),
    }
}

/// A fact of this transfer.
fn observed(what: &str, value: String) -> Evidence {
    Evidence { what: what.to_owned(), value, age_seconds: None }
}

/// A fact from before it.
fn aged(what: &str, value: String, age: Duration) -> Evidence {
    Evidence { what: what.to_owned(), value, age_seconds: Some(age.as_secs()) }
}

#[cfg(test)]
mod tests;
