//! Estimates of an interface's rates, round trip and loss, from traffic that moves anyway.

use std::{collections::VecDeque, time::Duration};
use thalweg_measure::{self as measure, Bound, Interface, Method, Metric, NodeIndex, Subject};
use thalweg_units::{ByteSize, Rate, Time};

/// Fewer bytes per second are background chatter of programs and say nothing about the interface.
const TELLING: u64 = 16 << 10;

/// The weight of the newest look at retransmissions: 1/8, as for round trips.
const GAIN: f64 = 0.125;

/// The best rate within this time counts: in single seconds the program or the server is the slower side.
const WINDOW: Duration = Duration::from_secs(30);

/// A rate is believed to be the interface's limit for [`WINDOW`]; after that, the believed limit doubles in this time.
const DOUBLES: Duration = Duration::from_secs(60);

/// A single connection that brings less than this fraction of the best rate is limited by its server or its program.
const LIMITED: u64 = 4;

/// The kind of traffic by an interface in one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Mostly connections that began or ended within the second: they might have moved more in a whole one.
    Passing,
    /// Mostly one connection that lasted all of it.
    One,
    /// Mostly several connections that lasted all of it.
    Several,
}

/// Passive estimates of one interface. Rates are lower bounds, because nothing tells whether a program wanted more than
/// it got.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    down: Peak,
    up: Peak,
    rtt: Option<(Duration, ObservationTime)>,
    loss: Option<(f64, ObservationTime)>,
}

/// What was known of an interface, each value with its age; zero: not known. An age of [`Duration::MAX`] means that the
/// age is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedEstimate {
    pub down: (Rate, Duration),
    pub up: (Rate, Duration),
    pub rtt: (Duration, Duration),
    /// How the rate to this host was found.
    pub by: Method,
}

/// When something was observed: `before` earlier than `at`, a time of the table's clock, which begins with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ObservationTime {
    at: Time,
    before: Duration,
}

impl ObservationTime {
    fn now(at: Time) -> Self {
        Self { at, before: Duration::ZERO }
    }

    fn age(self, now: Time) -> Duration {
        now.since(self.at).saturating_add(self.before)
    }
}

#[derive(Clone, Debug, Default)]
struct Peak(VecDeque<Sample>);

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: ObservationTime,
    rate: Rate,
    by: Method,
    /// Whether the interface was loaded, so that the rate is taken for its limit as well.
    is_full: bool,
}

impl Estimate {
    /// Restores what was kept, with its age. New samples replace it from the first one on.
    pub(super) fn restore(past: &RecordedEstimate, now: Time) -> Self {
        let moment = |before| ObservationTime { at: now, before };
        let peak = |(rate, age), by| {
            let sample = Sample { at: moment(age), rate, by, is_full: true };
            Peak((rate > Rate::ZERO).then_some(sample).into_iter().collect())
        };
        let (rtt, age) = past.rtt;
        let rtt = (!rtt.is_zero()).then_some((rtt, moment(age)));
        Self { down: peak(past.down, past.by), up: peak(past.up, Method::Passive), rtt, loss: None }
    }

    /// What is to be kept of the estimate.
    pub(super) fn recorded(&self, now: Time) -> RecordedEstimate {
        let of = |peak: &Peak| (peak.best(), peak.age(now).unwrap_or_default());
        let rtt = self.rtt.map(|(rtt, at)| (rtt, at.age(now))).unwrap_or_default();
        let by = self.down.0.back().map_or(Method::Passive, |sample| sample.by);
        RecordedEstimate { down: of(&self.down), up: of(&self.up), rtt, by }
    }

    /// This many bytes came and went by the interface, over all connections, in the time `took` that ends at `now`.
    pub fn record_traffic(
        &mut self,
        (down, up): (u64, u64),
        load: Load,
        took: Duration,
        now: Time,
    ) {
        self.down.record(down, (load, Method::Passive), took, now);
        self.up.record(up, (load, Method::Passive), took, now);
    }

    /// This many bytes of a probe arrived in the time `took` that ends at `now`. Most of that is slow start, which
    /// tells more than nothing, and less than traffic did.
    pub fn record_probe(&mut self, bytes: u64, took: Duration, now: Time) {
        let load = if self.is_known() { Load::Passing } else { Load::One };
        self.down.record(bytes, (load, Method::Transfer), took, now);
    }

    /// Whether the interface was loaded when it brought [`Self::down`]; otherwise that rate is only a lower bound.
    pub fn is_known(&self) -> bool {
        self.down.limit().is_some()
    }

    /// The rate to this host that is believed, beside other interfaces that bring `others` on average. An interface
    /// that was never loaded is taken for no worse than the others. The longer ago it was loaded, the higher its
    /// believed rate: otherwise an interface that was once believed too slow would get no connection that shows it to
    /// be faster.
    pub fn believed(&self, others: Rate, now: Time) -> Rate {
        let most = match self.down.limit() {
            None => others,
            Some(at) => {
                let minutes = at.age(now).saturating_sub(WINDOW).div_duration_f64(DOUBLES);
                let most = self.down().as_bps() as f64 * minutes.min(64.0).exp2();
                others.min(Rate::from_bps(most as u64))
            }
        };
        self.down().max(most)
    }

    /// Records the round trip of a connection, smoothed by an eighth (RFC 6298 §2).
    pub fn record_round_trip(&mut self, rtt: Duration, now: Time) {
        let rtt = self.rtt.map_or(rtt, |(old, _)| (old * 7 + rtt) / 8);
        self.rtt = Some((rtt, ObservationTime::now(now)));
    }

    /// Records how many of the bytes that TCP sent it sent again.
    pub fn record_retransmissions(&mut self, (again, all): (u64, u64), now: Time) {
        if all > 0 {
            let share = (again as f64 / all as f64).min(1.0);
            let loss = self.loss.map_or(share, |(old, _)| old + (share - old) * GAIN);
            self.loss = Some((loss, ObservationTime::now(now)));
        }
    }

    /// The share of sent bytes that were sent again, from 0 to 1; `None`: not known. TCP does not tell a receiver the
    /// loss of what it receives.
    pub fn loss(&self) -> Option<f64> {
        self.loss.map(|(loss, _)| loss)
    }

    /// The age of the newest rate sample, including time before this process; [`Duration::MAX`]: the age is not known.
    /// `None`: there is no sample.
    pub fn age(&self, now: Time) -> Option<Duration> {
        let ages = [self.down.age(now), self.up.age(now)];
        ages.into_iter().flatten().min()
    }

    /// How that sample was taken: [`Method::Passive`], or [`Method::Transfer`] by a light probe.
    pub fn newest_method(&self, now: Time) -> Option<Method> {
        let newest = [&self.down, &self.up].into_iter().filter_map(|peak| peak.0.back());
        newest.min_by_key(|sample| sample.at.age(now)).map(|sample| sample.by)
    }

    /// The estimates in the mesh's form, each with its unit, age and method. Rates are [`Bound::AtLeast`]. Values of
    /// unknown age are left out.
    pub fn measured(&self, at: Interface, now: Time) -> Vec<measure::Estimate> {
        let (from, to) = (Subject::Egress(at), Subject::Ingress(at));
        let of = |subject, metric, value, (method, age)| measure::Estimate {
            subject,
            metric,
            value,
            spread: None,
            method,
            age,
            reporter: NodeIndex(0),
            bound: if metric == Metric::Throughput { Bound::AtLeast } else { Bound::Exact },
        };
        let rate = |subject, peak: &Peak| {
            let newest = peak.0.back()?;
            let how = (newest.by, newest.at.age(now));
            Some(of(subject, Metric::Throughput, peak.best().as_bps() as f64, how))
        };
        let told = |metric, value, at: ObservationTime| {
            of(from, metric, value, (Method::TcpInfo, at.age(now)))
        };
        let rtt = self.rtt.map(|(rtt, at)| told(Metric::RoundTrip, rtt.as_secs_f64(), at));
        let loss = self.loss.map(|(loss, at)| told(Metric::Loss, loss, at));
        let all = [rate(to, &self.down), rate(from, &self.up), rtt, loss];
        all.into_iter().flatten().filter(|one| one.age < Duration::MAX).collect()
    }

    /// The rate to this host; zero: not known.
    pub fn down(&self) -> Rate {
        self.down.best()
    }

    /// The rate from this host; zero: not known.
    pub fn up(&self) -> Rate {
        self.up.best()
    }

    /// The smoothed round trip of connections; zero: not known.
    pub fn rtt(&self) -> Duration {
        self.rtt.map(|(rtt, _)| rtt).unwrap_or_default()
    }
}

impl Peak {
    /// Old samples are forgotten only when there is a new one.
    fn record(&mut self, bytes: u64, (load, by): (Load, Method), took: Duration, now: Time) {
        if bytes < TELLING || took.is_zero() {
            return;
        }
        let rate = Rate::over(ByteSize::from_bytes(bytes), took);
        let is_limited = rate.as_bps() < self.best().as_bps() / LIMITED;
        let mut is_full = load == Load::Several || (load == Load::One && !is_limited);
        if !is_full && rate <= self.best() {
            // It is already known that the interface brings this much, and the sample tells no more.
            return;
        }
        while self.0.front().is_some_and(|old| old.at.age(now) > WINDOW) {
            self.0.pop_front();
        }
        // A smaller sample before a greater one never counts again.
        while let Some(less) = self.0.back().filter(|less| less.rate <= rate) {
            is_full |= less.is_full;
            self.0.pop_back();
        }
        self.0.push_back(Sample { at: ObservationTime::now(now), rate, by, is_full });
    }

    /// The age of the newest sample.
    fn age(&self, now: Time) -> Option<Duration> {
        self.0.back().map(|sample| sample.at.age(now))
    }

    fn best(&self) -> Rate {
        self.0.front().map_or(Rate::ZERO, |sample| sample.rate)
    }

    /// When the rate was last taken for the limit.
    fn limit(&self) -> Option<ObservationTime> {
        self.0.iter().rev().find(|sample| sample.is_full).map(|sample| sample.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    #[test]
    fn the_best_sample_of_the_window_counts_until_there_is_a_new_one() {
        let mut seen = Estimate::default();
        seen.record_traffic((1_000_000, 0), Load::One, SECOND, at(1));
        seen.record_traffic((250_000, 0), Load::One, SECOND, at(2));
        assert_eq!((seen.down(), seen.up()), (Rate::from_mbps(8.0), Rate::ZERO));
        seen.record_traffic((1000, 1000), Load::Several, SECOND, at(100));
        assert_eq!(seen.down(), Rate::from_mbps(8.0), "chatting is no news");
        seen.record_traffic((125_000, 0), Load::Several, SECOND, at(101));
        assert_eq!(seen.down(), Rate::from_mbps(1.0));
    }

    #[test]
    fn short_or_server_limited_connections_do_not_lower_the_rate() {
        let mut seen = Estimate::default();
        seen.record_traffic((2_500_000, 0), Load::One, SECOND, at(1));
        seen.record_traffic((600_000, 0), Load::Passing, SECOND, at(100));
        seen.record_traffic((32_000, 0), Load::One, SECOND, at(200));
        assert_eq!(seen.down(), Rate::from_mbps(20.0));
        seen.record_traffic((1_250_000, 0), Load::One, SECOND, at(300));
        assert_eq!(seen.down(), Rate::from_mbps(10.0), "it became slower");
        seen.record_traffic((32_000, 0), Load::Several, SECOND, at(400));
        assert_eq!(seen.down(), Rate::from_mbps(0.256), "much slower, and several say so");
    }

    #[test]
    fn an_interface_that_was_never_loaded_is_taken_for_no_worse() {
        let (mut seen, others) = (Estimate::default(), Rate::from_mbps(20.0));
        seen.record_traffic((600_000, 0), Load::Passing, SECOND, at(1));
        assert_eq!((seen.is_known(), seen.down()), (false, Rate::from_mbps(4.8)));
        assert_eq!(seen.believed(others, at(1)), others);
        assert_eq!(seen.believed(Rate::from_mbps(1.0), at(1)), Rate::from_mbps(4.8));
        seen.record_traffic((600_000, 0), Load::One, SECOND, at(2));
        assert_eq!(seen.believed(others, at(32)), Rate::from_mbps(4.8));
        // It is tried again gradually: the old limit may no longer hold.
        assert_eq!(seen.believed(others, at(92)), Rate::from_mbps(9.6));
        assert_eq!(seen.believed(others, at(1_000_000)), others);
    }

    #[test]
    fn a_kept_estimate_keeps_its_age() {
        let (rate, others) = (Rate::from_mbps(1.0), Rate::from_mbps(20.0));
        let of = |age| {
            let none = (Rate::ZERO, Duration::ZERO);
            let (down, rtt) = ((rate, age), Default::default());
            Estimate::restore(
                &RecordedEstimate { down, up: none, rtt, by: Method::Transfer },
                at(7),
            )
        };
        assert_eq!(of(SECOND).age(at(9)), Some(SECOND * 3));
        assert_eq!(of(SECOND).believed(others, at(9)), rate);
        assert_eq!(of(SECOND * 150).believed(others, at(7)), Rate::from_mbps(4.0));
        assert_eq!(of(Duration::MAX).believed(others, at(8)), others);
        let mut seen = of(SECOND * 150);
        assert_eq!(seen.newest_method(at(8)), Some(Method::Transfer));
        assert_eq!(seen.recorded(at(8)).down, (rate, SECOND * 151));
        seen.record_traffic((62_500, 0), Load::One, SECOND, at(9));
        assert_eq!(
            (seen.newest_method(at(9)), seen.down()),
            (Some(Method::Passive), Rate::from_mbps(0.5))
        );
    }

    #[test]
    fn estimates_are_told_with_age_and_method() {
        let mut seen = Estimate::default();
        seen.record_probe(125_000, SECOND, at(1));
        seen.record_round_trip(SECOND / 10, at(2));
        seen.record_retransmissions((1, 4), at(3));
        let told = seen.measured(Interface { node: NodeIndex(0), interface: 1 }, at(4));
        let all: Vec<_> =
            told.iter().map(|of| (of.metric, of.value, of.method, of.age.as_secs())).collect();
        let (rate, tcp) = ((Metric::Throughput, 1e6, Method::Transfer, 3), Method::TcpInfo);
        assert_eq!(all, [rate, (Metric::RoundTrip, 0.1, tcp, 2), (Metric::Loss, 0.25, tcp, 1)]);
        assert!(told.iter().all(|of| of.check().is_ok()) && told[0].bound == Bound::AtLeast);
    }

    #[test]
    fn round_trips_are_smoothed() {
        let mut seen = Estimate::default();
        assert_eq!(seen.rtt(), Duration::ZERO);
        seen.record_round_trip(Duration::from_millis(80), at(1));
        seen.record_round_trip(Duration::from_millis(160), at(2));
        assert_eq!(seen.rtt(), Duration::from_millis(90));
    }
}
