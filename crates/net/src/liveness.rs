//! Decides when a relayed connection is dead: idle, lingering, or with a peer that is gone.
//!
//! Pure: it judges the pump's samples, and the time is an argument.

use crate::TcpInfo;
use std::{
    fmt,
    time::{Duration, Instant},
};

/// The kernel backs off zero-window probes to 120 s (TCP_RTO_MAX). A live peer with a shut window acknowledges a probe
/// within that time and, if one is lost, the time of its repetition.
const PROBE_MAX: Duration = Duration::from_secs(250);

/// The limits after which a connection is dead.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum time without progress while both directions are open.
    pub idle: Duration,
    /// Maximum time without progress after one direction has ended.
    pub linger: Duration,
    /// Maximum time with data in flight and no acknowledgement.
    pub black_hole: Duration,
}

/// Why a connection is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing moved and nothing is queued.
    Idle,
    /// Nothing moved and nothing is queued, and the connection is half-closed.
    Lingered,
    /// The client no longer acknowledges.
    ClientGone,
    /// The destination no longer acknowledges.
    DestinationGone,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Lingered => "half-closed and idle",
            Self::ClientGone => "client no longer acknowledges",
            Self::DestinationGone => "destination no longer acknowledges",
        })
    }
}

/// The state of one leg at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LegSample {
    /// Bytes received plus bytes acknowledged, which grows with any progress.
    pub progress: u64,
    /// Data was sent and is not acknowledged.
    pub in_flight: bool,
    /// Data was written and is not sent or not acknowledged.
    pub queued: bool,
    /// The time since the peer last acknowledged anything.
    pub since_ack: Duration,
}

impl From<TcpInfo> for LegSample {
    fn from(info: TcpInfo) -> Self {
        let in_flight = info.unacknowledged > 0;
        Self {
            progress: info.received.wrapping_add(info.acknowledged),
            in_flight,
            queued: in_flight || info.unsent > 0,
            since_ack: info.since_ack,
        }
    }
}

/// The history of a leg's samples.
#[derive(Clone, Copy, Debug)]
struct LegHistory {
    progress: u64,
    /// Since when a non-empty send queue has made no progress.
    stuck_since: Instant,
}

impl LegHistory {
    fn update(&mut self, leg: &LegSample, now: Instant) -> bool {
        let moved = leg.progress != self.progress;
        if moved || !leg.queued {
            self.stuck_since = now;
        }
        self.progress = leg.progress;
        moved
    }

    /// Whether the peer has been silent for the limit while data was queued for it.
    ///
    /// Both conditions are necessary: after a long pause `since_ack` alone is large, and a live reader with a shut
    /// window makes no progress either.
    fn gone(&self, leg: &LegSample, now: Instant, black_hole: Duration) -> bool {
        let limit = if leg.in_flight { black_hole } else { black_hole.max(PROBE_MAX) };
        leg.queued && leg.since_ack >= limit && now.duration_since(self.stuck_since) >= limit
    }
}

/// The liveness of one relayed connection.
#[derive(Clone, Debug)]
pub struct Liveness {
    limits: Limits,
    client: LegHistory,
    destination: LegHistory,
    last_progress: Instant,
}

impl Liveness {
    /// The state of a connection opened at `now`.
    pub fn new(limits: Limits, now: Instant) -> Self {
        let fresh = LegHistory { progress: 0, stuck_since: now };
        Self { limits, client: fresh, destination: fresh, last_progress: now }
    }

    /// How often to call [`Liveness::check`]: a quarter of the shortest limit, at most 5 s.
    pub fn interval(&self) -> Duration {
        let l = &self.limits;
        (l.idle.min(l.linger).min(l.black_hole) / 4)
            .clamp(Duration::from_millis(1), Duration::from_secs(5))
    }

    /// Restarts the count of silence, because the pump itself held bytes back until `now`.
    pub fn excuse(&mut self, now: Instant) {
        self.last_progress = now;
    }

    /// Judges the connection by a sample of both legs. `now` never decreases.
    pub fn check(
        &mut self,
        client: &LegSample,
        destination: &LegSample,
        half_closed: bool,
        now: Instant,
    ) -> Option<Verdict> {
        let client_moved = self.client.update(client, now);
        let moved = self.destination.update(destination, now) || client_moved;
        if moved || client.queued || destination.queued {
            self.last_progress = now;
        }
        let silent = now.duration_since(self.last_progress);
        let black_hole = self.limits.black_hole;
        if self.client.gone(client, now, black_hole) {
            Some(Verdict::ClientGone)
        } else if self.destination.gone(destination, now, black_hole) {
            Some(Verdict::DestinationGone)
        } else if half_closed && silent >= self.limits.linger {
            Some(Verdict::Lingered)
        } else if silent >= self.limits.idle {
            Some(Verdict::Idle)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: LegSample =
        LegSample { progress: 1, in_flight: false, queued: false, since_ack: Duration::ZERO };
    const HOUR: Duration = Duration::from_secs(3600);

    /// Checks every second with the result of `sample`. Returns the verdict and its second.
    fn run(
        half_closed: bool,
        sample: impl Fn(u64) -> (LegSample, LegSample),
    ) -> (Option<Verdict>, Option<u64>) {
        let start = Instant::now();
        let limits = Limits {
            idle: Duration::from_secs(600),
            linger: Duration::from_secs(60),
            black_hole: Duration::from_secs(30),
        };
        let mut liveness = Liveness::new(limits, start);
        for second in 0..3600 {
            let (client, destination) = sample(second);
            let now = start + Duration::from_secs(second);
            if let Some(verdict) = liveness.check(&client, &destination, half_closed, now) {
                return (Some(verdict), Some(second));
            }
        }
        (None, None)
    }

    #[test]
    fn a_half_closed_connection_ends_sooner_when_silent() {
        assert_eq!(run(false, |_| (QUIET, QUIET)), (Some(Verdict::Idle), Some(600)));
        assert_eq!(run(true, |_| (QUIET, QUIET)), (Some(Verdict::Lingered), Some(60)));
    }

    #[test]
    fn any_byte_in_either_direction_restarts_the_limit() {
        // One byte arrives at 50 s and one at 100 s, then none.
        let trickle = |s: u64| (QUIET, LegSample { progress: 1 + s.min(100) / 50, ..QUIET });
        assert_eq!(run(true, trickle), (Some(Verdict::Lingered), Some(160)));
        let steady = |s: u64| (LegSample { progress: s / 59, ..QUIET }, QUIET);
        assert_eq!(run(true, steady), (None, None));
    }

    #[test]
    fn a_slow_reader_that_lives_is_kept_for_hours() {
        // The reader's window is shut; every probe is acknowledged, and they are up to 120 s apart.
        let shut = |s: u64| {
            let since_ack = Duration::from_secs(s % 120);
            (LegSample { queued: true, since_ack, ..QUIET }, QUIET)
        };
        assert_eq!(run(false, shut), (None, None));
        assert_eq!(run(true, shut), (None, None));
    }

    #[test]
    fn a_pause_because_of_a_quota_is_not_silence() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let limits = Limits {
            idle: Duration::from_secs(600),
            linger: Duration::from_secs(60),
            black_hole: Duration::from_secs(30),
        };
        let mut liveness = Liveness::new(limits, start);
        for second in 0..3600 {
            liveness.excuse(at(second));
            assert_eq!(liveness.check(&QUIET, &QUIET, true, at(second)), None);
        }
        assert_eq!(liveness.check(&QUIET, &QUIET, true, at(3658)), None);
        assert_eq!(liveness.check(&QUIET, &QUIET, true, at(3659)), Some(Verdict::Lingered));
    }

    #[test]
    fn a_peer_that_acknowledges_nothing_is_gone() {
        let silent = |s: u64| LegSample {
            in_flight: s >= 100,
            queued: s >= 100,
            since_ack: HOUR + Duration::from_secs(s),
            ..QUIET
        };
        // The silence before does not count: the limit begins with the data at 100 s.
        let verdict = run(false, |s| (silent(s), QUIET));
        assert_eq!(verdict, (Some(Verdict::ClientGone), Some(129)));
        let verdict = run(false, |s| (QUIET, silent(s)));
        assert_eq!(verdict, (Some(Verdict::DestinationGone), Some(129)));
    }

    #[test]
    fn unanswered_probes_of_a_shut_window_end_the_connection() {
        let shut = |s: u64| LegSample { queued: true, since_ack: Duration::from_secs(s), ..QUIET };
        assert_eq!(run(false, |s| (shut(s), QUIET)), (Some(Verdict::ClientGone), Some(250)));
    }
}
