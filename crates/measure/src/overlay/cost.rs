//! The cost of measuring a link.

use super::{Link, Question};
use crate::Bound;
use std::time::Duration;
use thalweg_units::ByteSize;

/// How a link is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMethod {
    /// The link's own traffic is observed; nothing is sent.
    Passive,
    /// Pathload's trains, whose padding carries the link's own traffic.
    Riding,
    /// Pathload's trains without riders.
    Trains,
    /// Pathchirp's trains, with long pauses.
    Sparse,
    /// A TCP flow at full speed.
    Bulk,
}

/// What pathload is assumed to send: the number of rates it tries, probes per rate, the least gap between probes, and
/// the bytes of the smallest probe with its headers.
const FLEETS: f64 = 8.0;
const PROBES: f64 = 1200.0;
const GAP: Duration = Duration::from_micros(80);
const SMALLEST: f64 = 228.0;

/// Chirps until pathchirp gives a result (two windows of eleven, because its range moves once), and bytes per chirp.
const CHIRPS: f64 = 26.0;
const CHIRP: f64 = 18.0 * 1028.0;

/// The time that a TCP flow needs to show its rate.
const FLOW: Duration = Duration::from_secs(2);

/// The assumed rate of a link of which nothing is known, bit/s.
const UNKNOWN: f64 = 20e6;

/// If riders fill less than this share of the trains, trains without riders serve as well.
const MIN_RIDDEN_SHARE: f64 = 0.2;

/// The cheapest way to answer the question, and its cost without riders; `None`: there is none.
pub(super) fn cheapest(question: Question, link: &Link) -> Option<(LinkMethod, ByteSize)> {
    let ways: &[LinkMethod] = match question {
        Question::Rough => &[LinkMethod::Sparse, LinkMethod::Riding],
        Question::Range => &[LinkMethod::Riding, LinkMethod::Trains],
        Question::Decisive => &[LinkMethod::Bulk],
    };
    let worth = |how: &LinkMethod| *how != LinkMethod::Riding || ridden(link) >= MIN_RIDDEN_SHARE;
    let costs =
        ways.iter().filter(|how| worth(how)).map(|how| (*how, cost_without_riders(*how, link)));
    costs.min_by_key(|(_, bytes)| *bytes)
}

/// The bytes that a measurement sends in addition to the link's own traffic. Trains are assumed to cost at least as
/// much as the previous ones there.
pub fn cost_without_riders(how: LinkMethod, link: &Link) -> ByteSize {
    let rate = available(link);
    let pathload = FLEETS * PROBES * (rate * GAP.as_secs_f64() / 8.0).max(SMALLEST);
    let pathload = pathload.max(link.paid.as_bytes() as f64);
    let bytes = match how {
        LinkMethod::Passive => 0.0,
        LinkMethod::Riding => pathload * (1.0 - ridden(link)),
        LinkMethod::Trains => pathload,
        LinkMethod::Sparse => CHIRPS * CHIRP,
        LinkMethod::Bulk => rate * FLOW.as_secs_f64() / 8.0,
    };
    ByteSize::from_bytes(bytes as u64)
}

/// The approximate available bandwidth, bit/s: as trains found it, and at least the present traffic; otherwise the most
/// that TCP reached. If only lower bounds are known, or nothing, it is at least that of an unknown link.
fn available(link: &Link) -> f64 {
    let tcp = [link.tcp, link.traffic].map(|rate| rate.as_bps() as f64);
    match link.known {
        Some(known) if !known.is_tcp_throughput() => known.middle().max(tcp[1]),
        Some(known) if known.bound == Bound::Exact => {
            tcp.into_iter().fold(known.middle(), f64::max)
        }
        known => tcp.into_iter().fold(known.map_or(UNKNOWN, |k| k.middle().max(UNKNOWN)), f64::max),
    }
}

/// The share of a train that riders fill: the traffic that may ride, relative to a train at about the available
/// bandwidth.
fn ridden(link: &Link) -> f64 {
    (link.riding.as_bps() as f64 / available(link)).clamp(0.0, 1.0)
}
