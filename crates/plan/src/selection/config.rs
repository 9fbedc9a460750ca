//! The parameters of a selection, and what is known of a path beforehand.

use std::time::Duration;
use thalweg_units::Rate;

/// When sampling ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The paper's rule: every path runs until its own share is complete or [`Config::window`] has passed; then the
    /// fastest takes the rest. A fast path that is done early waits for the slowest. Only failures are acted upon, not
    /// drift or lateness.
    Paper,
    /// Our rule: sampling ends as soon as one path is clearly the best, or slow start is over on all, at the latest
    /// after the window. A path that is done early takes over the late part of the slowest's share instead of waiting.
    ///
    /// *Clearly*: each path's goodput is counted in bins of one round trip. With at least four bins after slow start,
    /// the mean less three standard errors of the best is above the mean plus three standard errors of every other. A
    /// path in slow start has no such bound: it is dismissed only if it would finish the rest later even if it doubled
    /// its rate in every round trip until the end.
    Clear,
}

/// The parameters of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// When sampling ends.
    pub ending: Ending,
    /// The longest time of sampling. 5 s: "most paths achieve TCP steady-state behaviour within 5 seconds" (UKAIRO
    /// §3.2.1).
    pub window: Duration,
    /// A path that owes bytes and delivers none for this long counts as failed for now. 5 s: longer than four of
    /// Linux's doubling retransmission timeouts at an RTT of 100 ms (0.3 + 0.6 + 1.2 + 2.4 s), so one lost tail does
    /// not cost the path.
    pub stall: Duration,
    /// A silent path counts as failed after this many times [`Config::stall`] if it is the only one left, since the
    /// only remedy is to ask the same server again over the same path. If this is above 1, the caller should repeat the
    /// request on a second connection while the answer is silent.
    pub alone: u32,
    /// Objects of at most this many bytes *per path* skip sampling. 256 kB is about five round trips of slow start from
    /// 10 segments (14.6 kB · (2⁵−1) = 450 kB): no share would leave slow start, and the set-up time decides.
    pub small: u64,
    /// A path that broke or stalled this many times without delivering [`Config::forgive`] bytes in between is given
    /// up. For the last remaining path 16 KiB are enough.
    pub strikes: u32,
    /// Bytes delivered after which earlier strikes are forgotten. So every [`Config::strikes`] failures cost the object
    /// at least this much progress, and a selection always ends.
    pub forgive: u64,
    /// The most paths that carry the rest at the same time (`--paths K`), at least 1. Further ones are used only if
    /// they improve the sum of rates: by 15 %, or by 2 % if the path has a link of this host's own for itself
    /// ([`super::Selection::leaves_by`]).
    pub lanes: u32,
    /// The most further paths that are tried alone after sampling if rates in company were no measure: see
    /// [`Reason::Shared`]. 0: sharing is not looked for.
    ///
    /// [`Reason::Shared`]: super::Reason::Shared
    pub trials: u32,
    /// The bytes are read in order while they arrive: the path that takes the rest begins with the first missing byte,
    /// at the price of a new connection. Only with one lane.
    pub in_order: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ending: Ending::Clear,
            window: Duration::from_secs(5),
            stall: Duration::from_secs(5),
            alone: 1,
            small: 256_000,
            strikes: 3,
            forgive: 1 << 20,
            lanes: 1,
            trials: 1,
            in_order: false,
        }
    }
}

/// What earlier transfers tell about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prior {
    /// The rate it reached.
    pub rate: Rate,
    /// The time from dialling to the first byte.
    pub setup: Duration,
}

impl Prior {
    /// How long `bytes` would take, in seconds.
    pub(super) fn predicts(&self, bytes: u64) -> f64 {
        self.setup.as_secs_f64() + bytes as f64 * 8.0 / (self.rate.as_bps().max(1) as f64)
    }
}
