//! The figures of a node's legs for its report to the oracle. Pure, except for the instants of the samples.

use crate::{
    StreamStatus,
    status::{ChildKind, LegStatus},
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};
use thalweg_plan::streams::{LIMITED_SECONDS, SECONDS};
use thalweg_wire::{
    mesh::Name,
    stream::{
        leg::CLASSES,
        plan::{
            LegReport, MAX_BYTES, MAX_LEGS, MAX_PUBLISHED, MAX_SUBSCRIPTIONS, Measured, Report,
        },
    },
};
use tokio::time::Instant;

/// The least time between two samples, because statuses of legs change once a second.
const SAMPLE: Duration = Duration::from_millis(900);

/// The figures of all legs to one member.
#[derive(Debug, Default)]
struct MemberLegs {
    /// Sent rates in bit/s, and whether the leg was too slow; the newest last.
    seconds: VecDeque<(u64, bool)>,
    wanted: u64,
    /// Frames dropped since the legs began, and in the last sample.
    dropped: [u64; CLASSES],
    newly_dropped: [u32; CLASSES],
    delay: Option<Duration>,
}

/// The last seconds of this node's legs, by member.
#[derive(Debug, Default)]
pub(crate) struct LegSamples {
    legs: BTreeMap<Name, MemberLegs>,
    sampled: Option<Instant>,
}

impl LegSamples {
    /// Adds the legs' present statuses, at most once a second.
    pub fn add(&mut self, now: Instant, streams: &[StreamStatus]) {
        if self.sampled.is_some_and(|at| now - at < SAMPLE) {
            return;
        }
        self.sampled = Some(now);
        let mut by_member: BTreeMap<Name, Vec<&LegStatus>> = BTreeMap::new();
        for leg in streams.iter().flat_map(|stream| &stream.legs) {
            if let (ChildKind::Member, Ok(to)) = (leg.taker, leg.to.parse()) {
                by_member.entry(to).or_default().push(leg);
            }
        }
        self.legs.retain(|to, _| by_member.contains_key(to));
        for (to, legs) in by_member {
            self.legs.entry(to).or_default().add(&legs);
        }
    }

    /// The legs' reports, including legs that were only measured and legs without a connection.
    pub fn reports(
        &self,
        mut measured: BTreeMap<Name, Measured>,
        unreachable: BTreeSet<Name>,
    ) -> Vec<LegReport> {
        let mut reports: Vec<LegReport> = self
            .legs
            .iter()
            .map(|(to, leg)| LegReport { measured: measured.remove(to), ..leg.report(to.clone()) })
            .collect();
        let unused =
            |(to, found)| LegReport { measured: Some(found), ..MemberLegs::default().report(to) };
        reports.extend(measured.into_iter().map(unused));
        // A leg that sends is connected.
        let missing = unreachable.into_iter().filter(|to| !self.legs.contains_key(to));
        reports.extend(
            missing.map(|to| LegReport { is_down: true, ..MemberLegs::default().report(to) }),
        );
        reports
    }
}

impl MemberLegs {
    fn add(&mut self, legs: &[&LegStatus]) {
        let sum = |figure: fn(&LegStatus) -> u64| legs.iter().map(|leg| figure(leg)).sum();
        self.seconds.push_back((sum(|leg| leg.sent_bps), legs.iter().any(|leg| leg.is_limited)));
        if self.seconds.len() > SECONDS {
            self.seconds.pop_front();
        }
        self.wanted = sum(|leg| leg.wanted_bps);
        let rtt = legs.iter().filter_map(|leg| leg.rtt_us).min();
        self.delay = rtt.map(|rtt| Duration::from_micros(rtt / 2)).or(self.delay);
        let mut dropped = [0; CLASSES];
        for classes in legs.iter().flat_map(|leg| leg.dropped.values()) {
            dropped.iter_mut().zip(classes).for_each(|(sum, count)| *sum += count);
        }
        for (class, count) in dropped.iter().enumerate() {
            // The sum falls when a leg ends.
            let more = count.saturating_sub(self.dropped[class]);
            self.newly_dropped[class] = u32::try_from(more).unwrap_or(u32::MAX);
        }
        self.dropped = dropped;
    }

    fn report(&self, to: Name) -> LegReport {
        let count = self.seconds.len().max(1) as u64;
        let limited = self.seconds.iter().filter(|(_, is_limited)| *is_limited).count();
        LegReport {
            to,
            sent_bps: self.seconds.iter().map(|(bps, _)| bps).sum::<u64>() / count,
            wanted_bps: self.wanted,
            is_limited: limited >= LIMITED_SECONDS,
            is_down: false,
            dropped: self.newly_dropped,
            delay: self.delay,
            span: Duration::from_secs(1),
            age: Duration::ZERO,
            measured: None,
        }
    }
}

/// Shortens the report to the protocol's bounds. Returns whether items were removed.
pub(crate) fn shrink_to_bounds(report: &mut Report) -> bool {
    let lengths =
        |report: &Report| (report.published.len(), report.subscriptions.len(), report.legs.len());
    let before = lengths(report);
    report.published.truncate(MAX_PUBLISHED);
    report.subscriptions.truncate(MAX_SUBSCRIPTIONS);
    report.legs.truncate(MAX_LEGS);
    while serde_json::to_vec(&report).is_ok_and(|json| json.len() > MAX_BYTES) {
        let (published, subscriptions, legs) = lengths(report);
        if published + subscriptions + legs == 0 {
            break;
        }
        report.legs.truncate(legs / 2);
        report.subscriptions.truncate(subscriptions / 2);
        report.published.truncate(if legs == 0 { published / 2 } else { published });
    }
    before != lengths(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quality;
    use thalweg_wire::stream::{leg::Track, plan::Published};

    fn status(sent_bps: u64, is_limited: bool, dropped: u64) -> StreamStatus {
        let wants = Quality::default();
        let leg = LegStatus::new("n1".to_owned(), ChildKind::Member, wants, Duration::from_secs(1));
        let dropped = [(thalweg_wire::stream::leg::DropReason::Room, [0, 0, 0, 0, dropped])].into();
        let leg = LegStatus { sent_bps, wanted_bps: 5, is_limited, dropped, ..leg };
        let local = LegStatus { to: "local-1".into(), taker: ChildKind::Local, ..leg.clone() };
        StreamStatus { legs: vec![leg.clone(), leg, local], ..StreamStatus::default() }
    }

    #[test]
    fn a_leg_is_too_slow_after_two_limited_seconds_of_three() {
        let (mut samples, began) = (LegSamples::default(), Instant::now());
        let mut second = 0;
        let mut next = |sent, is_limited, dropped| {
            second += 1;
            samples.add(began + Duration::from_secs(second), &[status(sent, is_limited, dropped)]);
            samples.add(began + Duration::from_secs(second), &[status(9, true, 99)]);
            samples.reports(BTreeMap::new(), BTreeSet::new())
        };
        assert!(!next(300, true, 4)[0].is_limited);
        let reports = next(100, true, 7);
        assert_eq!((reports.len(), reports[0].sent_bps, reports[0].wanted_bps), (1, 400, 10));
        assert!(reports[0].is_limited);
        assert_eq!(reports[0].dropped, [0, 0, 0, 0, 6], "of two streams");
        next(100, false, 7);
        assert!(!next(100, false, 7)[0].is_limited);
    }

    #[test]
    fn a_leg_that_is_only_measured_is_reported() {
        let second = Duration::from_secs(1);
        let found = Measured { free_bps: 7, at_least: false, took: second, age: second };
        let measured = [("n2".parse().unwrap(), found.clone())].into();
        let unreachable = ["n3".parse().unwrap()].into();
        let reports = LegSamples::default().reports(measured, unreachable);
        assert_eq!((reports[0].to.as_str(), &reports[0].measured), ("n2", &Some(found)));
        assert_eq!(
            (reports[1].to.as_str(), reports[1].is_down, reports[0].is_down),
            ("n3", true, false)
        );
        let report = Report { legs: reports, ..Report::default() };
        assert_eq!(report.check(), Ok(()));
    }

    #[test]
    fn a_report_is_cut_to_the_bounds() {
        let track = Track { label: "x".repeat(32), rates: [u64::from(u32::MAX); 5] };
        let published = |number: usize| Published {
            stream: format!("s{number}").parse().unwrap(),
            tracks: vec![track.clone(); 16],
            allow: vec!["@viewers".to_owned(); 64],
            age: Duration::from_secs(3),
        };
        let all =
            |count| Report { published: (0..count).map(published).collect(), ..Report::default() };
        let mut large = all(100);
        assert!(shrink_to_bounds(&mut large) && !large.published.is_empty());
        assert!(serde_json::to_vec(&large).unwrap().len() <= MAX_BYTES);
        assert!(!shrink_to_bounds(&mut all(3)));
    }
}
