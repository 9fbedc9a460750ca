//! What nodes and the oracle tell each other of streams: JSON over the API.
//!
//! | Request | Who | Reply |
//! |---|---|---|
//! | `POST /v1/streams/report` with [`Report`] | members' nodes | [`Reply`] |
//! | `GET /v1/streams/plan?after=V&wait_s=S` | members' nodes | [`Plan`] once its version is above V; 204 after S seconds |
//!
//! A report is all that a node has to say: what it leaves out has ended. The oracle keeps nothing of it on disk and
//! forgets it [`SILENCE`] after the last one, so a node reports each second, or each few seconds while nothing happens.
//! A plan is all that the oracle has decided for one node; the node goes on with the last one while no oracle answers.
//!
//! Source: MGRP §3. Ages travel as durations, since no two hosts' clocks agree.

use super::leg::{CLASSES, Level, MAX_ALLOW, MAX_LABEL, MAX_LATENCY, MAX_TRACKS, Track};
use crate::mesh::Name;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};
use thalweg_units::serde_duration;
use thiserror::Error;

/// A node that has said nothing for so long has no streams any more.
pub const SILENCE: Duration = Duration::from_secs(15);

/// The most bytes of one [`Report`] as JSON; an oracle takes 64 KiB.
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

/// The most parents that one report complains of.
pub const MAX_LOST: usize = 64;

/// The most legs that one reply asks to measure; a node measures one after the other.
pub const MAX_MEASURED: usize = 4;

/// No leg moves more, bit/s: a claim above it is a lie or a mistake.
pub const MAX_BPS: u64 = 100_000_000_000;

/// The greatest utility and the greatest weight.
pub const MAX_WORTH: f64 = 1000.0;

/// Which part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Quality {
    /// The rendition; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub track: Option<u8>,
    /// Which of its frames.
    pub level: Level,
}

impl Quality {
    /// Whether frames of this track and class (0 to 4) are part of it. Tables and sound belong to all renditions.
    pub fn takes(self, track: u8, class: u8) -> bool {
        self.level.takes(class) && (class < 2 || self.track.is_none_or(|own| own == track))
    }
}

/// What a node has to say: at most [`MAX_BYTES`] of JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of the plan that it follows; 0: none.
    #[serde(default)]
    pub version: u64,
    /// Whether it hands on streams that are published elsewhere.
    #[serde(default)]
    pub relays: bool,
    /// Transcoders that it can run, at most [`MAX_TRANSCODERS`].
    #[serde(default)]
    pub transcoders: Vec<Name>,
    /// The most that it sends of all streams together, bit/s; absent: no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_bps: Option<u64>,
    /// What is published at it, at most [`MAX_PUBLISHED`].
    #[serde(default)]
    pub published: Vec<Published>,
    /// What its users want, at most [`MAX_SUBSCRIPTIONS`].
    #[serde(default)]
    pub subscriptions: Vec<Subscription>,
    /// Where it takes streams from now.
    #[serde(default)]
    pub parents: Vec<Parent>,
    /// Legs on which it sends, at most [`MAX_LEGS`].
    #[serde(default)]
    pub legs: Vec<LegReport>,
    /// Members from whom it should get a stream and nothing comes, at most [`MAX_LOST`].
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
    /// Its name.
    pub stream: Name,
    /// Its tracks with their rates by class, 1 to [`MAX_TRACKS`].
    pub tracks: Vec<Track>,
    /// Who may subscribe: members, `@TAG`, `*`; at most [`MAX_ALLOW`].
    #[serde(default)]
    pub allow: Vec<String>,
}

/// What one user of the reporting node wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    /// Names it among its node's.
    pub id: u32,
    /// Which stream.
    pub stream: Name,
    /// The best first, 1 to [`MAX_PREFERENCES`].
    pub preferences: Vec<Preference>,
    /// How much it counts beside others, above 0 and up to [`MAX_WORTH`].
    #[serde(default = "one")]
    pub weight: f64,
    /// The longest from the publisher's node to the user.
    #[serde(with = "serde_duration")]
    pub latency: Duration,
    /// The preference that it gets now, by its position; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gets: Option<u8>,
}

impl Subscription {
    /// Whether it wants the same, whatever it gets.
    pub fn is_same_wish(&self, other: &Self) -> bool {
        let of = |one: &Self| Self { gets: None, ..one.clone() };
        of(self) == of(other)
    }
}

const fn one() -> f64 {
    1.0
}

/// One quality that a user would take (MGRP §3.1: "a series of preferred adaptations").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preference {
    /// Which part of the stream; of a transcoder, which part it reads.
    pub quality: Quality,
    /// What it is worth, above 0 and up to [`MAX_WORTH`].
    pub utility: f64,
    /// What makes something smaller of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcoder: Option<Transcoder>,
}

impl Preference {
    /// What a level is worth unless the user says otherwise.
    pub const fn default_utility(level: Level) -> f64 {
        match level {
            Level::All => 1.0,
            Level::NoDisposable => 0.6,
            Level::Keys => 0.2,
        }
    }

    /// All levels of all tracks, the best first.
    pub fn defaults() -> Vec<Self> {
        let of = |level| {
            let (quality, utility) = (Quality { track: None, level }, Self::default_utility(level));
            Self { quality, utility, transcoder: None }
        };
        Level::ALL.map(of).to_vec()
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

/// Where a stream is taken from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Which stream.
    pub stream: Name,
    /// From whom.
    pub node: Name,
}

/// What one leg from the reporting node did with all its streams together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegReport {
    /// Where it ends.
    pub to: Name,
    /// Sent, bit/s.
    pub sent_bps: u64,
    /// What should have been sent, bit/s.
    #[serde(default)]
    pub wanted_bps: u64,
    /// Whether the leg could not send what it should, beyond reasonable buffering.
    #[serde(default)]
    pub is_limited: bool,
    /// Whether it is broken: nothing is acknowledged.
    #[serde(default)]
    pub is_down: bool,
    /// Frames left out, by class.
    #[serde(default)]
    pub dropped: [u32; CLASSES],
    /// One way; half of TCP's round trip where nothing better is known.
    #[serde(default, with = "serde_duration::option", skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// The time that this speaks of.
    #[serde(with = "serde_duration")]
    pub span: Duration,
    /// How long ago it ended.
    #[serde(with = "serde_duration")]
    pub age: Duration,
    /// The newest active measurement of it; absent: none since the last report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// What probe trains found on a leg.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Free beside all that travels, the streams of the leg among it, bit/s; the lower end of a range.
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

/// Why a report is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReportError {
    /// There are more of them than a report may have.
    #[error("the report has more {what} than {most}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// The most.
        most: usize,
    },
    /// A number that cannot be.
    #[error("{what} of {of} is {why}")]
    Number {
        /// What it is meant to say.
        what: &'static str,
        /// Of which stream, subscription or leg.
        of: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The same name twice.
    #[error("{what} {of} is in the report twice")]
    Twice {
        /// What it names.
        what: &'static str,
        /// The name.
        of: String,
    },
}

impl Report {
    /// Whether it is within all bounds.
    ///
    /// # Errors
    /// The first thing that is not.
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
        once("stream", self.published.iter().map(|published| &published.stream))?;
        once("subscription", self.subscriptions.iter().map(|wanted| wanted.id))?;
        once("a parent of stream", self.parents.iter().map(|parent| &parent.stream))?;
        once("leg to", self.legs.iter().map(|leg| &leg.to))?;
        self.published.iter().try_for_each(Published::check)?;
        self.subscriptions.iter().try_for_each(Subscription::check)?;
        self.legs.iter().try_for_each(LegReport::check)
    }
}

fn once<T: Ord + ToString>(
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

/// The sums of a stream's rates stay far below 2⁶⁴.
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
            _ if self.allow.len() > MAX_ALLOW => {
                ("the number of those who may subscribe", "above 64")
            }
            _ if self.allow.iter().any(|whom| whom.len() > 64) => {
                ("a name of those who may subscribe", "longer than 64 bytes")
            }
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
            _ if !preferences.iter().all(|one| is_worth(one.utility)) => {
                ("a utility", "not above 0, or above 1000")
            }
            _ if !preferences.iter().all(|one| is_rate(bps(one))) => {
                ("a transcoder's rate", "above 100 Gbit/s")
            }
            _ if !is_worth(self.weight) => ("the weight", "not above 0, or above 1000"),
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

/// Who publishes a name that the reporting node wants to publish too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The name.
    pub stream: Name,
    /// The member.
    pub node: Name,
}

/// What became of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The newest plan's version; 0: there is none yet.
    pub version: u64,
    /// It, if the node does not follow it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// Names that other members hold; the node must end these streams.
    #[serde(default)]
    pub held: Vec<Holder>,
    /// Members to whom probe trains should measure the leg, at most [`MAX_MEASURED`].
    #[serde(default)]
    pub measure: Vec<Name>,
    /// What was not taken of the report, and why.
    #[serde(default)]
    pub refused: Vec<String>,
}

/// What one node does with streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Greater than that of the plan before.
    pub version: u64,
    /// By name.
    pub streams: Vec<StreamPlan>,
}

/// What one node does with one stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamPlan {
    /// Which.
    pub stream: Name,
    /// The publisher's node; absent: nobody publishes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Name>,
    /// Whom to take it from; absent: it is published here, or nobody needs it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Name>,
    /// Transcoders to run here.
    #[serde(default)]
    pub transcoders: Vec<Transcoder>,
    /// Whom to send it to.
    #[serde(default)]
    pub children: Vec<Child>,
    /// What the node's own users get.
    #[serde(default)]
    pub subscriptions: Vec<Given>,
}

/// What is sent to one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Child {
    /// The node.
    pub node: Name,
    /// The parts of the stream that anybody beneath needs; together once.
    pub qualities: Vec<Quality>,
    /// Made by transcoders here or further up.
    #[serde(default)]
    pub transcoded: Vec<Transcoder>,
    /// Why these.
    pub why: Why,
}

/// What one subscription gets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Given {
    /// [`Subscription::id`].
    pub id: u32,
    /// The preference, by its position; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<u8>,
    /// Why that one.
    pub why: Why,
}

/// Why something is as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// In one word.
    pub reason: Reason,
    /// The leg that decided it, sender and receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leg: Option<(Name, Name)>,
    /// What was known of that leg when it was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// How long ago it was decided.
    #[serde(with = "serde_duration")]
    pub since: Duration,
}

/// Why something was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// It is new.
    Begun,
    /// A leg does not take what went over it.
    Lowered,
    /// A measurement found room.
    Raised,
    /// It goes another way.
    Rerouted,
    /// No way has room for it.
    Full,
    /// Nobody publishes it.
    Unpublished,
    /// The publisher's node does not let this member subscribe.
    Forbidden,
    /// The oracle has as many streams or subscriptions as it plans for.
    Busy,
}

/// What was known of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// Room for all streams together, bit/s.
    pub bps: u64,
    /// Whether trains measured it; false: the leg itself said so.
    pub is_measured: bool,
    /// How old it was then.
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
            gets: Some(2),
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
        let published =
            Published { stream: name("stage"), tracks: vec![track], allow: vec!["*".into()] };
        Report {
            published: vec![published],
            subscriptions: vec![subscription(1), subscription(2)],
            legs: vec![leg("n1"), leg("n2")],
            ..Report::default()
        }
    }

    #[test]
    fn what_is_beyond_the_bounds_is_named() {
        assert_eq!(report().check(), Ok(()));
        let wrong = |change: fn(&mut Report)| {
            let mut report = report();
            change(&mut report);
            report.check().unwrap_err().to_string()
        };
        assert_eq!(wrong(|r| r.legs[1].to = name("n1")), "leg to n1 is in the report twice");
        assert_eq!(
            wrong(|r| r.subscriptions[1].weight = 0.0),
            "the weight of subscription 2 is not above 0, or above 1000"
        );
        assert_eq!(
            wrong(|r| r.subscriptions[0].preferences[1].utility = f64::INFINITY),
            "a utility of subscription 1 is not above 0, or above 1000"
        );
        assert_eq!(
            wrong(|r| r.published[0].tracks[0].rates[2] = u64::MAX),
            "a rate of stream stage is above 100 Gbit/s"
        );
        assert_eq!(
            wrong(|r| r.subscriptions = (0..300).map(subscription).collect()),
            "the report has more subscriptions than 256"
        );
        assert_eq!(
            wrong(|r| r.legs[0].age = Duration::from_secs(16)),
            "the age of the leg to n1 is above 15 s"
        );
    }

    #[test]
    fn a_rendition_has_its_own_pictures_and_the_sound_of_all() {
        let quality = Quality { track: Some(1), level: Level::NoDisposable };
        let takes = |track, class| quality.takes(track, class);
        assert!(takes(1, 3) && !takes(1, 4) && !takes(0, 3) && takes(0, 1) && takes(0, 0));
        assert!(Quality { track: None, level: Level::Keys }.takes(5, 2));
    }
}
