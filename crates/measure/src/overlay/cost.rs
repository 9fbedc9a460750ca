//! What it costs to find something out of a link.

use super::{Link, Question};
use crate::Bound;
use std::time::Duration;
use thalweg_units::ByteSize;

/// How a link is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// What travels there is watched.
    Passive,
    /// Pathload's trains, in whose padding what travels there rides.
    Riding,
    /// The same, and nothing rides.
    Trains,
    /// Pathchirp's trains, with long pauses.
    Sparse,
    /// TCP, as fast as it goes.
    Bulk,
}

/// Pathload tries so many rates, each with so many probes, of this length in time each at least.
const FLEETS: f64 = 8.0;
const PROBES: f64 = 1200.0;
const GAP: Duration = Duration::from_micros(80);
const SMALLEST: f64 = 228.0;

/// Pathchirp's chirps until it says something: two windows of eleven, as its range moves once; and their probes.
const CHIRPS: f64 = 26.0;
const CHIRP: f64 = 18.0 * 1028.0;

/// A flow of TCP needs so long to tell.
const FLOW: Duration = Duration::from_secs(2);

/// Of a link of which nothing is known.
const UNKNOWN: f64 = 20e6;

/// Below this share that rides, trains are as good as bare.
const WORTH: f64 = 0.2;

/// The cheapest way that answers the question, and what it costs without what rides; `None`: there is none.
pub(super) fn cheapest(question: Question, link: &Link) -> Option<(How, ByteSize)> {
    let ways: &[How] = match question {
        Question::Rough => &[How::Sparse, How::Riding],
        Question::Range => &[How::Riding, How::Trains],
        Question::Decisive => &[How::Bulk],
    };
    let worth = |how: &How| *how != How::Riding || ridden(link) >= WORTH;
    let costs = ways.iter().filter(|how| worth(how)).map(|how| (*how, bare(*how, link)));
    costs.min_by_key(|(_, bytes)| *bytes)
}

/// What is sent for it that nobody else would have sent. Trains cost no less than those before them did.
pub fn bare(how: How, link: &Link) -> ByteSize {
    let rate = available(link);
    let pathload = FLEETS * PROBES * (rate * GAP.as_secs_f64() / 8.0).max(SMALLEST);
    let pathload = pathload.max(link.paid.as_bytes() as f64);
    let bytes = match how {
        How::Passive => 0.0,
        How::Riding => pathload * (1.0 - ridden(link)),
        How::Trains => pathload,
        How::Sparse => CHIRPS * CHIRP,
        How::Bulk => rate * FLOW.as_secs_f64() / 8.0,
    };
    ByteSize::from_bytes(bytes as u64)
}

/// What is there about, bit/s: as trains found it; else what TCP reached at the most, and no less than of a link of which
/// nothing is known where all that is known are lower bounds.
fn available(link: &Link) -> f64 {
    let tcp = [link.tcp, link.traffic].map(|rate| rate.as_bps() as f64);
    match link.known {
        Some(known) if !known.is_tcps() => known.middle().max(tcp[1]),
        Some(known) if known.bound == Bound::Exact => {
            tcp.into_iter().fold(known.middle(), f64::max)
        }
        known => tcp.into_iter().fold(known.map_or(UNKNOWN, |k| k.middle().max(UNKNOWN)), f64::max),
    }
}

/// The share of a train that is riders: what travels there while one goes at about what is available, and a header in each
/// probe.
fn ridden(link: &Link) -> f64 {
    (link.riding.as_bps() as f64 / available(link)).clamp(0.0, 1.0)
}
