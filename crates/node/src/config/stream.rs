//! The `[stream]` section: live media.

use super::{Problem, text};
use serde::Deserialize;
use std::time::Duration;
use thalweg_stream::{Adapt, Measure, Scheduler, Settings, Transcoder};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::mesh::{MemberPattern, Name};

/// The settings of [`thalweg_stream`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamSection {
    /// Members that may publish here.
    #[serde(deserialize_with = "text::list")]
    pub publish: Vec<MemberPattern>,
    /// Members that may subscribe to streams published here.
    #[serde(deserialize_with = "text::list")]
    pub subscribe: Vec<MemberPattern>,
    /// Whether this node relays streams published elsewhere.
    pub relay: bool,
    /// Whether legs use the carrier where both ends have one.
    pub ride: bool,
    /// When probe trains measure the legs.
    pub measure: Measure,
    pub adapt: Adapt,
    /// Who chooses parents and levels.
    pub scheduler: Scheduler,
    /// The pauses between trains.
    pub pace: PaceChoice,
    /// The most that plans may have this node send of all streams together; absent: no limit.
    #[serde(deserialize_with = "text::option")]
    pub egress: Option<Rate>,
    /// The most streams at a time.
    pub max_streams: usize,
    /// The most subscribers and nodes served at a time.
    pub max_subscribers: usize,
    /// The memory for one stream's frames.
    #[serde(deserialize_with = "text::one")]
    pub memory: ByteSize,
    /// The memory for one leg's queue.
    #[serde(deserialize_with = "text::one")]
    pub leg_memory: ByteSize,
    /// A stream whose publisher disappeared ends after this time.
    #[serde(deserialize_with = "text::one")]
    pub grace: Duration,
    /// A leg without progress for this long ends.
    #[serde(deserialize_with = "text::one")]
    pub stall: Duration,
    /// Commands that make streams or renditions of others.
    pub transcoder: Vec<TranscoderSection>,
}

/// `[[stream.transcoder]]`: a command that makes a stream, or more renditions, of another one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TranscoderSection {
    /// The stream that it reads.
    pub of: Name,
    /// The stream that it makes; absent: more renditions of the stream that it reads.
    pub name: Option<Name>,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// The most transcoders, each with a process.
const MAX_TRANSCODERS: usize = 16;

/// Pathload's pauses between trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PaceChoice {
    /// One round trip (MGRP's pFAST).
    #[default]
    Fast,
    /// One round trip and nine times the train's duration, as the public tool (MGRP's pSLOW).
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
            scheduler,
            egress,
            max_streams,
            max_subscribers,
            memory,
            leg_memory,
            grace,
            stall,
            transcoders: _,
        } = Settings::default();
        Self {
            publish,
            subscribe,
            relay,
            ride,
            measure,
            adapt,
            scheduler,
            pace: PaceChoice::default(),
            egress,
            max_streams,
            max_subscribers,
            memory,
            leg_memory,
            grace,
            stall,
            transcoder: Vec::new(),
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
            scheduler: section.scheduler,
            egress: section.egress,
            max_streams: section.max_streams,
            max_subscribers: section.max_subscribers,
            memory: section.memory,
            leg_memory: section.leg_memory,
            grace: section.grace,
            stall: section.stall,
            transcoders: section.transcoder.iter().cloned().map(Transcoder::from).collect(),
        }
    }
}

impl From<TranscoderSection> for Transcoder {
    fn from(TranscoderSection { of, name, command }: TranscoderSection) -> Self {
        Self { source: of, name, command }
    }
}

/// Checks for values that are well-formed but make no sense.
pub(super) fn check(stream: &StreamSection, problems: &mut Vec<Problem>) {
    let mut wrong = |key: &str, what: &str| {
        problems.push(Problem::of(format!("stream.{key}"), what));
    };
    if stream.max_streams == 0 {
        wrong("max_streams", "0 allows no stream; remove the setting or write at least 1");
    }
    if stream.max_subscribers == 0 {
        wrong("max_subscribers", "0 serves no subscriber; to serve none, remove `subscribe`");
    }
    if stream.egress.is_some_and(|rate| rate.as_bps() == 0) {
        wrong("egress", "must be greater than 0; remove the setting for no limit");
    }
    let least = ByteSize::from_bytes(64 << 10);
    if stream.memory < least || stream.leg_memory < least {
        wrong("memory", "must be at least 64 KiB, to hold a key frame");
    }
    if stream.stall < Duration::from_secs(1) {
        wrong(
            "stall",
            "must be at least 1 s, because otherwise a short pause of the network ends \
                        a leg",
        );
    }
    if stream.transcoder.len() > MAX_TRANSCODERS {
        wrong(
            "transcoder",
            "there are more than 16 transcoders, and each runs a process; remove \
                             some",
        );
    }
    for (at, one) in stream.transcoder.iter().enumerate() {
        if one.command.is_empty() {
            wrong("transcoder", "a `command` is empty; name the program and its arguments");
        }
        if one.name.is_some() && stream.transcoder[..at].iter().any(|other| other.name == one.name)
        {
            wrong(
                "transcoder",
                "two transcoders have the same `name`, but a stream has one \
                                 publisher",
            );
        }
        if stream.transcoder.iter().any(|other| other.name.as_ref() == Some(&one.of)) {
            wrong(
                "transcoder",
                "a transcoder reads its own stream or that of another transcoder; \
                                 name a published stream",
            );
        }
    }
}
