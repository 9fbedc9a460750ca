//! Which path takes the rest.

use super::path::PathState;
use std::{cmp::Reverse, fmt};
use thalweg_units::{PathId, Rate, Time};

/// Why a path was chosen.
///
/// The rate a path is judged by is the bytes of its share that arrived, over
/// the time from *its own first request sent* to the end of its share or of
/// sampling. From the request, not from the first byte: the time to the first
/// byte is paid again by each request of the completion phase, and a path that
/// delivered a single burst would have an unbounded rate. Setting up the
/// connection does not count; it is not paid again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its rate was higher than that of every other path.
    Fastest,
    /// No detour had a higher rate than the direct path ("if none of the detour
    /// paths have higher bandwidth than the direct path, the download completes
    /// using the direct path", UKAIRO §3.2.1): ties go to direct.
    DirectNotBeaten,
    /// The object is small; this path answered first.
    Small,
    /// There is no other path, or none that is alive.
    OnlyPath,
    /// The path chosen before failed; this is the next best.
    Failover,
}

impl Reason {
    /// Rates that were measured side by side led to this choice.
    pub const fn sampled(self) -> bool {
        matches!(self, Self::Fastest | Self::DirectNotBeaten)
    }
}

/// In words for users, without the rates.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fastest => "the fastest",
            Self::DirectNotBeaten => "no detour is faster",
            Self::Small => "a small file: the first path to answer",
            Self::OnlyPath => "the only path",
            Self::Failover => "the next best after a failure",
        })
    }
}

/// The best usable path at `now`: unblemished paths before those that failed
/// before, then by rate, then direct before detours, then by index.
pub(super) fn best(paths: &[PathState], now: Time) -> Option<(PathId, Reason)> {
    let usable: Vec<_> = (0u32..).map(PathId).zip(paths).filter(|(_, p)| p.is_usable()).collect();
    let rate = |p: &PathState| p.sample.rate(now).unwrap_or(Rate::ZERO);
    let key = |(id, p): &(PathId, &PathState)| (Reverse(p.strikes()), rate(p), Reverse(*id));
    let (best, _) = *usable.iter().max_by_key(|entry| key(entry))?;
    let reason = match best {
        _ if usable.len() == 1 => Reason::OnlyPath,
        PathId::DIRECT => Reason::DirectNotBeaten,
        _ => Reason::Fastest,
    };
    Some((best, reason))
}
