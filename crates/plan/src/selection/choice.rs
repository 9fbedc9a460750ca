//! Chooses the path that takes the rest: one, unless several are allowed (decision 0038).

use super::{Config, Ending, path::PathState, paths::Paths};
use std::{cmp::Reverse, fmt};
use thalweg_units::{PathId, Time};

/// The direct path is kept if it has at least this part of the best detour's rate ...
const TIE: f64 = 0.95;
/// ... or this part, if their bounds overlap, so that the difference may be noise.
const NOISE: f64 = 0.90;

/// Why a path was chosen.
///
/// With [`Ending::Paper`], a path is judged by the bytes of its share that arrived, over the time from *its own first
/// request sent* to the end of its share or of sampling: setting up the connection is not paid again. With
/// [`Ending::Clear`], it is judged by its rate after slow start, where a long download spends its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its rate was higher than that of every other path when the shares were complete.
    Fastest,
    /// Its rate was so much higher that chance cannot be the cause: see [`Ending::Clear`].
    Clear,
    /// Its rate was the highest when slow start was over on all paths.
    SlowStartOver,
    /// Its rate was the highest when [`Config::window`] had passed.
    Window,
    /// No detour has a higher rate than the direct path ("if none of the detour paths have higher bandwidth than the
    /// direct path, the download completes using the direct path", UKAIRO §3.2.1): ties go to direct. With
    /// [`Ending::Clear`], a tie is a rate of at least 95 % of the best, or 90 % if the bounds of both overlap.
    DirectNotBeaten,
    /// Several paths: their sum is better than the best alone.
    Sum,
    /// The sum of several paths turned out no better than the best alone.
    SumNotBetter,
    /// The object is small, and nothing that is known speaks against the direct path.
    Small,
    /// The object is small, and earlier transfers were clearly faster over this detour.
    History,
    /// The object is small, and this path had connected while the expected one kept waiting.
    FirstToJoin,
    /// There is no other path, or none that is alive.
    OnlyPath,
    /// The path chosen before failed; this is the next best.
    Failover,
    /// The path chosen before fell silent, and another one had to help out.
    Stalled,
    /// The path chosen before became slow; this one was better in a new sampling.
    Drift,
    /// The path became slow, but no other was better in a new sampling.
    StillBest,
    /// The paths took from each other in sampling, so their rates say little about what each gives alone: the direct
    /// path continues, on a new connection.
    Shared,
    /// Alone, the path before stayed well below all together, which had shared something; or the direct path once had
    /// nearly as much before it was in company. This path is tried alone.
    Trial,
    /// The path that was tried alone was slower than this one alone.
    BestAlone,
    /// The server asked for fewer requests: one path at a time from now on.
    Busy,
}

impl Reason {
    /// Whether this choice follows from rates that were measured side by side.
    pub const fn sampled(self) -> bool {
        use Reason::{
            Clear, DirectNotBeaten, Drift, Fastest, Shared, SlowStartOver, StillBest, Sum, Window,
        };
        let first = matches!(self, Fastest | Clear | SlowStartOver | Window | DirectNotBeaten);
        first || matches!(self, Shared | Sum | Drift | StillBest)
    }
}

/// In words for users, without the rates.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fastest => "the fastest after each path delivered its share of the sample",
            Self::Clear => "clearly the fastest",
            Self::SlowStartOver => "the fastest after slow start ended on all paths",
            Self::Window => "the fastest at the end of sampling",
            Self::DirectNotBeaten => "no detour is clearly faster",
            Self::Sum => "several paths together are faster",
            Self::SumNotBetter => "several paths together are no faster",
            Self::Small => "a small file",
            Self::History => "a small file, and this path was faster before",
            Self::FirstToJoin => "a small file: the first path to answer",
            Self::OnlyPath => "the only path",
            Self::Failover => "the next best path after a failure",
            Self::Stalled => "the previous path stopped delivering data",
            Self::Drift => "the previous path became slow",
            Self::StillBest => "slower than before, but still the fastest",
            Self::Shared => "all paths share one access link, so no single detour can be faster than the direct path",
            Self::Trial => "rates measured together say too little about this path: tried alone",
            Self::BestAlone => "the fastest of the paths tried alone",
            Self::Busy => "the server asks for fewer requests",
        })
    }
}

/// The best usable path at `now`: paths without failures before those that failed, then by rate, then direct before
/// detours, then by index. With [`Ending::Clear`], direct also wins near ties.
pub(super) fn best(config: &Config, paths: &Paths, now: Time) -> Option<(PathId, Reason)> {
    let usable: Vec<_> =
        (0u32..).map(PathId).zip(paths.iter()).filter(|(_, p)| p.is_usable(now)).collect();
    let key = |(id, p): &(PathId, &PathState)| (Reverse(p.strikes()), Reverse(*id));
    let (mut best, found) = *usable.iter().max_by(|a, b| {
        let by_rate = a.1.speed().total_cmp(&b.1.speed());
        key(a).0.cmp(&key(b).0).then(by_rate).then(key(a).1.cmp(&key(b).1))
    })?;
    if config.ending == Ending::Clear && ties(paths, found, now) {
        best = PathId::DIRECT;
    }
    let reason = match best {
        _ if usable.len() == 1 => Reason::OnlyPath,
        PathId::DIRECT => Reason::DirectNotBeaten,
        _ => Reason::Fastest,
    };
    Some((best, reason))
}

/// Whether the direct path is as good as `best`, as far as both were measured.
fn ties(paths: &Paths, best: &PathState, now: Time) -> bool {
    let Some(direct) = paths.direct() else { return false };
    let (Some((own, _)), Some((other, _))) = (direct.judged, best.judged) else { return false };
    let overlap = match (direct.gauge.bounds(), best.gauge.bounds()) {
        (Some((_, high)), Some((low, _))) => high >= low,
        _ => true,
    };
    let near = own >= TIE * other || (own >= NOISE * other && overlap);
    near && direct.is_usable(now) && direct.strikes() <= best.strikes()
}
