//! The messages about streams between nodes and the oracle, as JSON over the API.
//!
//! | Request | Who | Reply |
//! |---|---|---|
//! | `POST /v1/streams/report` with [`Report`] | members' nodes | [`Reply`] |
//! | `GET /v1/streams/plan?after=V&wait_s=S` | members' nodes | [`Plan`] once its version is above V; 204 after S s |
//!
//! A report is complete: anything that it omits has ended. The oracle keeps it in memory only and forgets it after
//! [`SILENCE`], so a node reports each second, or every few seconds while it is idle. A plan has all decisions for one
//! node, which keeps to the last one while no oracle answers.
//!
//! Source: MGRP §3. Ages are sent as durations, since hosts' clocks differ.

use super::leg::{CLASSES, Level, MAX_ALLOW, MAX_LABEL, MAX_LATENCY, MAX_TRACKS, Track};
use crate::mesh::Name;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};
use thalweg_units::serde_duration;
use thiserror::Error;

/// A node that is silent for this long is forgotten.
pub const SILENCE: Duration = Duration::from_secs(15);

/// The most bytes of one [`Report`] as JSON; an oracle accepts 64 KiB.
pub const MAX_BYTES: usize = 60_000;

/// The most streams that one node publishes.
pub const MAX_PUBLISHED: usize = 64;

/// The most subscriptions of one node.
pub const MAX_SUBSCRIPTIONS: usize = 256;

/// The most preferences of one subscription.
pub const MAX_PREFERENCES: usize = 16;

/// The most legs of one report.
pub const MAX_LEGS: usize = 256;

/// The most transcoders that one node can run.
pub const MAX_TRANSCODERS: usize = 8;

/// The most lost parents of one report.
pub const MAX_LOST: usize = 64;

/// The most legs that one reply asks to measure; a node measures one after the other.
pub const MAX_MEASURED: usize = 4;

/// The greatest age of a published stream that is reported.
pub const MAX_AGE: Duration = Duration::from_secs(366 * 24 * 3600);

/// The highest valid rate, bit/s.
pub const MAX_BPS: u64 = 100_000_000_000;

/// The greatest utility and the greatest weight.
pub const MAX_WORTH: f64 = 1000.0;

/// A part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Quality {
    /// The rendition; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub track: Option<u8>,
    /// The classes of frames.
    pub level: Level,
}

impl Quality {
    /// Whether frames of this track and class (0 to 4) are part of it. Tables and audio belong to all renditions.
    pub fn takes(self, track: u8, class: u8) -> bool {
        self.level.takes(class) && (class < 2 || self.track.is_none_or(|own| own == track))
    }
}

/// A node's report: at most [`MAX_BYTES`] of JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of the plan that it follows; 0: none.
    #[serde(default)]
    pub version: u64,
    /// Whether it relays streams published elsewhere.
    #[serde(default)]
    pub relays: bool,
    /// Transcoders that it can run, at most [`MAX_TRANSCODERS`].
    #[serde(default)]
    pub transcoders: Vec<Name>,
    /// The most that it sends of all streams together, bit/s; absent: no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_bps: Option<u64>,
    /// The streams published at it, at most [`MAX_PUBLISHED`].
    #[serde(default)]
    pub published: Vec<Published>,
    /// The subscriptions of its users, at most [`MAX_SUBSCRIPTIONS`].
    #[serde(default)]
    pub subscriptions: Vec<Subscription>,
    /// The present parents of its streams.
    #[serde(default)]
    pub parents: Vec<Parent>,
    /// The legs on which it sends, at most [`MAX_LEGS`].
    #[serde(default)]
    pub legs: Vec<LegReport>,
    /// Parents that are silent or unreachable, at most [`MAX_LOST`].
    #[serde(default)]
    pub lost: Vec<Name>,
    /// Whether it measures the legs that [`Reply::measure`] names.
    #[serde(default)]
    pub measures: bool,
    /// Whether its legs keep to the levels of its plan; otherwise it follows the plan's routes alone.
    #[serde(default)]
    pub keeps_levels: bool,
}

/// A stream that is published at the reporting node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    pub stream: Name,
    /// Its tracks with their rates by class, 1 to [`MAX_TRACKS`].
    pub tracks: Vec<Track>,
    /// The members that may subscribe: names, `@TAG`, `*`; at most [`MAX_ALLOW`].
    #[serde(default)]
    pub allow: Vec<String>,
    /// How long it has been published, at most [`MAX_AGE`]. If two members publish a name and nobody receives either
    /// stream, a new oracle leaves it to the one that has published it longest.
    #[serde(default, with = "serde_duration")]
    pub age: Duration,
}

/// A subscription of a user of the reporting node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    /// Its number at the node.
    pub id: u32,
    pub stream: Name,
    /// The preferences, the best first, 1 to [`MAX_PREFERENCES`].
    pub preferences: Vec<Preference>,
    /// Renditions of which the subscriber takes one at a time: the best that its path can deliver. The oracle knows
    /// their rates. At most [`MAX_TRACKS`]; with fewer than two, the preferences name the renditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tracks: Vec<u8>,
    /// Its weight, above 0 and up to [`MAX_WORTH`].
    #[serde(default = "default_weight")]
    pub weight: f64,
    /// The longest delay from the publisher's node to the user.
    #[serde(with = "serde_duration")]
    pub latency: Duration,
    /// The position of the preference that it gets now; absent: it gets nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gets: Option<u8>,
    /// The rendition of `tracks` that it gets now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gets_track: Option<u8>,
}

impl Subscription {
    /// Whether both request the same; what they get now is ignored.
    pub fn is_same_request(&self, other: &Self) -> bool {
        let request = |one: &Self| Self { gets: None, gets_track: None, ..one.clone() };
        request(self) == request(other)
    }
}

const fn default_weight() -> f64 {
    1.0
}

/// A quality that a user accepts (MGRP §3.1: "a series of preferred adaptations").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preference {
    /// The part of the stream, or the input of the transcoder.
    pub quality: Quality,
    /// Its utility, above 0 and up to [`MAX_WORTH`].
    pub utility: f64,
    /// The transcoder that makes a smaller stream of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcoder: Option<Transcoder>,
}

impl Preference {
    /// The default utility of a level.
    pub const fn default_utility(level: Level) -> f64 {
        match level {
            Level::All => 1.0,
            Level::NoDisposable => 0.6,
            Level::Keys => 0.2,
        }
    }

    /// All levels of all tracks, the best first.
    pub fn defaults() -> Vec<Self> {
        let preference = |level| {
            let (quality, utility) = (Quality { track: None, level }, Self::default_utility(level));
            Self { quality, utility, transcoder: None }
        };
        Level::ALL.map(preference).to_vec()
    }
}

/// An external command that makes another stream of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Transcoder {
    /// Its name in the settings of the nodes that can run it.
    pub name: Name,
    /// The rate of what it makes, bit/s.
    pub bps: u64,
}

/// The parent of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    pub stream: Name,
    pub node: Name,
    /// The publisher's node; absent in reports of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Name>,
}

/// The figures of one leg from the reporting node, for all its streams together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegReport {
    pub to: Name,
    /// The sent rate, bit/s.
    pub sent_bps: u64,
    /// The requested rate, bit/s.
    #[serde(default)]
    pub wanted_bps: u64,
    /// Whether the leg could not send what it should, beyond reasonable buffering (MGRP §3.1).
    #[serde(default)]
    pub is_limited: bool,
    /// Whether it is broken.
    #[serde(default)]
    pub is_down: bool,
    /// The dropped frames, by class.
    #[serde(default)]
    pub dropped: [u32; CLASSES],
    /// The one-way delay: half of TCP's round trip where nothing better is known.
    #[serde(default, with = "serde_duration::option", skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// The length of the reported interval.
    #[serde(with = "serde_duration")]
    pub span: Duration,
    /// How long ago it ended.
    #[serde(with = "serde_duration")]
    pub age: Duration,
    /// The newest measurement; absent: there is none since the last report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// A measurement of a leg by probe trains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The rate that is free beside all traffic including the leg's streams, bit/s, as the tool reports it.
    pub free_bps: u64,
    /// Whether more may be free.
    #[serde(default)]
    pub at_least: bool,
    /// How long it took.
    #[serde(with = "serde_duration")]
    pub took: Duration,
    /// How long ago it ended.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}

/// Why a report is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReportError {
    /// There are too many items.
    #[error("the report has more than {most} {what}")]
    TooMany {
        /// The kind of the items.
        what: &'static str,
        most: usize,
    },
    /// A number is out of range.
    #[error("{what} of {of} is {why}")]
    Number {
        /// The name of the number.
        what: &'static str,
        /// Its stream, subscription or leg.
        of: String,
        why: &'static str,
    },
    /// A name is in the report twice.
    #[error("{what} {of} is in the report twice")]
    Twice {
        /// The kind of the name.
        what: &'static str,
        of: String,
    },
}

impl Report {
    /// Checks the bounds.
    ///
    /// # Errors
    /// The first violated bound.
    pub fn check(&self) -> Result<(), ReportError> {
        let counts = [
            ("transcoders", self.transcoders.len(), MAX_TRANSCODERS),
            ("published streams", self.published.len(), MAX_PUBLISHED),
            ("subscriptions", self.subscriptions.len(), MAX_SUBSCRIPTIONS),
            ("parents", self.parents.len(), MAX_PUBLISHED + MAX_SUBSCRIPTIONS),
            ("legs", self.legs.len(), MAX_LEGS),
            ("lost parents", self.lost.len(), MAX_LOST),
        ];
        if let Some((what, _, most)) = counts.into_iter().find(|(_, count, most)| count > most) {
            return Err(ReportError::TooMany { what, most });
        }
        check_unique("stream", self.published.iter().map(|published| &published.stream))?;
        check_unique("subscription", self.subscriptions.iter().map(|wanted| wanted.id))?;
        check_unique("a parent of stream", self.parents.iter().map(|parent| &parent.stream))?;
        check_unique("leg to", self.legs.iter().map(|leg| &leg.to))?;
        self.published.iter().try_for_each(Published::check)?;
        self.subscriptions.iter().try_for_each(Subscription::check)?;
        self.legs.iter().try_for_each(LegReport::check)
    }
}

/// Checks that no name occurs twice.
fn check_unique<T: Ord + ToString>(
    what: &'static str,
    names: impl Iterator<Item = T>,
) -> Result<(), ReportError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if seen.contains(&name) {
            return Err(ReportError::Twice { what, of: name.to_string() });
        }
        seen.insert(name);
    }
    Ok(())
}

/// Whether the rate is valid. With this bound the sums of a stream's rates stay far below 2⁶⁴.
const fn is_rate(bps: u64) -> bool {
    bps <= MAX_BPS
}

fn is_worth(worth: f64) -> bool {
    worth > 0.0 && worth <= MAX_WORTH
}

impl Published {
    fn check(&self) -> Result<(), ReportError> {
        let wrong = match self {
            _ if self.tracks.is_empty() => ("the number of tracks", "0"),
            _ if self.tracks.len() > MAX_TRACKS => ("the number of tracks", "above 16"),
            _ if self.tracks.iter().any(|track| track.label.len() > MAX_LABEL) => {
                ("a label", "longer than 32 bytes")
            }
            _ if !self.tracks.iter().flat_map(|track| track.rates).all(is_rate) => {
                ("a rate", "above 100 Gbit/s")
            }
            _ if self.allow.len() > MAX_ALLOW => ("the number of allowed subscribers", "above 64"),
            _ if self.allow.iter().any(|pattern| pattern.len() > 64) => {
                ("the name of an allowed subscriber", "longer than 64 bytes")
            }
            _ if self.age > MAX_AGE => ("the age", "above 366 days"),
            _ => return Ok(()),
        };
        let (what, why) = wrong;
        Err(ReportError::Number { what, of: format!("stream {}", self.stream), why })
    }
}

impl Subscription {
    fn check(&self) -> Result<(), ReportError> {
        let preferences = &self.preferences;
        let bps =
            |preference: &Preference| preference.transcoder.as_ref().map_or(0, |made| made.bps);
        let wrong = match self {
            _ if preferences.is_empty() => ("the number of preferences", "0"),
            _ if preferences.len() > MAX_PREFERENCES => ("the number of preferences", "above 16"),
            _ if self.tracks.len() > MAX_TRACKS => ("the number of renditions", "above 16"),
            _ if !preferences.iter().all(|one| is_worth(one.utility)) => {
                ("a utility", "0 or less, or above 1000")
            }
            _ if !preferences.iter().all(|one| is_rate(bps(one))) => {
                ("a transcoder's rate", "above 100 Gbit/s")
            }
            _ if !is_worth(self.weight) => ("the weight", "0 or less, or above 1000"),
            _ if self.latency.is_zero() || self.latency > MAX_LATENCY => {
                ("the latency", "0, or above 60 s")
            }
            _ => return Ok(()),
        };
        let (what, why) = wrong;
        Err(ReportError::Number { what, of: format!("subscription {}", self.id), why })
    }
}

impl LegReport {
    fn check(&self) -> Result<(), ReportError> {
        let free = self.measured.as_ref().map_or(0, |measured| measured.free_bps);
        let wrong = match self {
            _ if ![self.sent_bps, self.wanted_bps, free].into_iter().all(is_rate) => {
                ("a rate", "above 100 Gbit/s")
            }
            _ if self.span.is_zero() || self.span > SILENCE => ("the time", "0, or above 15 s"),
            _ if self.age > SILENCE => ("the age", "above 15 s"),
            _ if self.delay.is_some_and(|delay| delay > MAX_LATENCY) => ("the delay", "above 60 s"),
            _ => return Ok(()),
        };
        let (what, why) = wrong;
        Err(ReportError::Number { what, of: format!("the leg to {}", self.to), why })
    }
}

/// The member that holds a name which the reporting node publishes too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameHolder {
    pub stream: Name,
    pub node: Name,
}

/// The reply to a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The version of the newest plan; 0: there is none yet.
    pub version: u64,
    /// The newest plan, if the node does not follow it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Names that other members hold: the node refuses new publishers of them. A stream that runs already continues for
    /// its subscribers.
    #[serde(default)]
    pub held: Vec<NameHolder>,
    /// Members to whom probe trains should measure the leg, at most [`MAX_MEASURED`].
    #[serde(default)]
    pub measure: Vec<Name>,
    /// The refused parts of the report, with reasons.
    #[serde(default)]
    pub refused: Vec<String>,
}

/// The plan for one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Its version, greater than that of the plan before.
    pub version: u64,
    pub streams: Vec<StreamPlan>,
}

/// The plan for one stream at one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamPlan {
    pub stream: Name,
    /// The publisher's node; absent: nobody publishes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Name>,
    /// The parent; absent: it is published here, or nobody needs it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Name>,
    /// The transcoders to run here.
    #[serde(default)]
    pub transcoders: Vec<Transcoder>,
    #[serde(default)]
    pub children: Vec<Child>,
    /// The decisions for the node's own users.
    #[serde(default)]
    pub subscriptions: Vec<SubscriptionDecision>,
}

/// The leg to a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Child {
    pub node: Name,
    /// The parts of the stream that subscribers below need.
    pub qualities: Vec<Quality>,
    /// The outputs of transcoders here or further up.
    #[serde(default)]
    pub transcoded: Vec<Transcoder>,
    pub why: Explanation,
}

/// The decision for one subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionDecision {
    pub id: u32,
    /// The position of its preference; absent: it gets nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<u8>,
    /// The chosen rendition of [`Subscription::tracks`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub track: Option<u8>,
    pub why: Explanation,
}

/// Why the oracle decided so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The kind of the reason.
    pub reason: Reason,
    /// The leg that decided it, sender and receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leg: Option<(Name, Name)>,
    /// The estimate of that leg at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// The time since the decision.
    #[serde(with = "serde_duration")]
    pub since: Duration,
}

/// The kind of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The subscription or leg is new.
    Begun,
    /// A leg could not carry what was planned.
    Lowered,
    /// A measurement found free bandwidth.
    Raised,
    /// Another route is better.
    Rerouted,
    /// No route has enough free bandwidth.
    Full,
    Unpublished,
    /// The publisher's node does not let this member subscribe.
    Forbidden,
    /// The oracle has as many streams or subscriptions as it plans for.
    Busy,
}

/// The estimate of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// The rate for all streams together, bit/s.
    pub bps: u64,
    /// Whether trains measured it; otherwise the leg achieved it.
    pub is_measured: bool,
    /// Its age at that time.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn subscription(id: u32) -> Subscription {
        Subscription {
            id,
            stream: name("stage"),
            preferences: Preference::defaults(),
            weight: 1.0,
            latency: Duration::from_secs(1),
            tracks: Vec::new(),
            gets: Some(2),
            gets_track: None,
        }
    }

    fn leg(to: &str) -> LegReport {
        LegReport {
            to: name(to),
            sent_bps: 1_000_000,
            wanted_bps: 1_160_000,
            is_limited: true,
            is_down: false,
            dropped: [0, 0, 0, 0, 7],
            delay: Some(Duration::from_millis(20)),
            span: Duration::from_secs(1),
            age: Duration::ZERO,
            measured: None,
        }
    }

    fn report() -> Report {
        let track = Track { label: String::new(), rates: [0, 0, 216_000, 488_000, 456_000] };
        let published = Published {
            stream: name("stage"),
            tracks: vec![track],
            allow: vec!["*".into()],
            age: Duration::ZERO,
        };
        Report {
            published: vec![published],
            subscriptions: vec![subscription(1), subscription(2)],
            legs: vec![leg("n1"), leg("n2")],
            ..Report::default()
        }
    }

    #[test]
    fn a_violated_bound_is_named() {
        assert_eq!(report().check(), Ok(()));
        let wrong = |change: fn(&mut Report)| {
            let mut report = report();
            change(&mut report);
            report.check().unwrap_err().to_string()
        };
        assert_eq!(wrong(|r| r.legs[1].to = name("n1")), "leg to n1 is in the report twice");
        assert_eq!(
            wrong(|r| r.subscriptions[1].weight = 0.0),
            "the weight of subscription 2 is 0 or less, or above 1000"
        );
        assert_eq!(
            wrong(|r| r.subscriptions[0].preferences[1].utility = f64::INFINITY),
            "a utility of subscription 1 is 0 or less, or above 1000"
        );
        assert_eq!(
            wrong(|r| r.published[0].tracks[0].rates[2] = u64::MAX),
            "a rate of stream stage is above 100 Gbit/s"
        );
        assert_eq!(
            wrong(|r| r.published[0].age = MAX_AGE + Duration::from_nanos(1)),
            "the age of stream stage is above 366 days"
        );
        assert_eq!(
            wrong(|r| r.subscriptions = (0..300).map(subscription).collect()),
            "the report has more than 256 subscriptions"
        );
        assert_eq!(
            wrong(|r| r.legs[0].age = Duration::from_secs(16)),
            "the age of the leg to n1 is above 15 s"
        );
    }

    #[test]
    fn a_rendition_has_its_own_video_and_the_shared_audio() {
        let quality = Quality { track: Some(1), level: Level::NoDisposable };
        let takes = |track, class| quality.takes(track, class);
        assert!(takes(1, 3) && !takes(1, 4) && !takes(0, 3) && takes(0, 1) && takes(0, 0));
        assert!(Quality { track: None, level: Level::Keys }.takes(5, 2));
    }
}
