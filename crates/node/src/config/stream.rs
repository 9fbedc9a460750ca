//! `[stream]`: live media.

use super::{Problem, text};
use serde::Deserialize;
use std::time::Duration;
use thalweg_mesh::Whom;
use thalweg_stream::{Adapt, Measure, Settings};
use thalweg_units::ByteSize;

/// The settings of [`thalweg_stream`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamSection {
    /// Members who may publish here.
    #[serde(deserialize_with = "text::list")]
    pub publish: Vec<Whom>,
    /// Members who may subscribe to what is published here.
    #[serde(deserialize_with = "text::list")]
    pub subscribe: Vec<Whom>,
    /// Whether this node hands on streams of others.
    pub relay: bool,
    /// Whether legs of streams go by the carrier, where both ends have one.
    pub ride: bool,
    /// When legs that streams use are measured by probe trains.
    pub measure: Measure,
    /// What holds legs back without an oracle's plan.
    pub adapt: Adapt,
    /// How fast trains follow each other.
    pub pace: PaceChoice,
    /// Streams at a time.
    pub max_streams: usize,
    /// Subscribers and nodes that are served at a time.
    pub max_subscribers: usize,
    /// What is held of one stream.
    #[serde(deserialize_with = "text::one")]
    pub memory: ByteSize,
    /// What waits for one leg.
    #[serde(deserialize_with = "text::one")]
    pub leg_memory: ByteSize,
    /// A stream whose publisher is gone without a word ends after so long.
    #[serde(deserialize_with = "text::one")]
    pub grace: Duration,
    /// A leg that takes nothing for so long ends.
    #[serde(deserialize_with = "text::one")]
    pub stall: Duration,
}

/// How long pathload pauses between its trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PaceChoice {
    /// A round trip (MGRP's pFAST).
    #[default]
    Fast,
    /// As the public tool: a round trip and nine times a train's length (MGRP's pSLOW).
    Slow,
}

impl Default for StreamSection {
    fn default() -> Self {
        let Settings {
            publish,
            subscribe,
            relay,
            ride,
            measure,
            adapt,
            max_streams,
            max_subscribers,
            memory,
            leg_memory,
            grace,
            stall,
        } = Settings::default();
        Self {
            publish,
            subscribe,
            relay,
            ride,
            measure,
            adapt,
            pace: PaceChoice::default(),
            max_streams,
            max_subscribers,
            memory,
            leg_memory,
            grace,
            stall,
        }
    }
}

impl From<&StreamSection> for Settings {
    fn from(section: &StreamSection) -> Self {
        Self {
            publish: section.publish.clone(),
            subscribe: section.subscribe.clone(),
            relay: section.relay,
            ride: section.ride,
            measure: section.measure,
            adapt: section.adapt,
            max_streams: section.max_streams,
            max_subscribers: section.max_subscribers,
            memory: section.memory,
            leg_memory: section.leg_memory,
            grace: section.grace,
            stall: section.stall,
        }
    }
}

/// What is well-formed, and yet cannot be meant.
pub(super) fn check(stream: &StreamSection, problems: &mut Vec<Problem>) {
    let mut wrong = |key: &str, what: &str| {
        problems.push(Problem::of(format!("stream.{key}"), what));
    };
    if stream.max_streams == 0 {
        wrong("max_streams", "0 means that there is no stream; leave it out");
    }
    if stream.max_subscribers == 0 {
        wrong("max_subscribers", "0 means that nobody is served; leave out `subscribe` instead");
    }
    let least = ByteSize::from_bytes(64 << 10);
    if stream.memory < least || stream.leg_memory < least {
        wrong("memory", "less than 64 KiB holds no key frame of a video; take more");
    }
    if stream.stall < Duration::from_secs(1) {
        wrong("stall", "below 1 s a leg ends at each pause of a network; take more");
    }
}
