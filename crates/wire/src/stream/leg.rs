//! The protocol of a channel `thalweg/stream/1`: one stream from a parent to a child.
//!
//! The dialling end sends one [`Opening`], and the other end replies with an [`Answer`]. From then on:
//!
//! ```text
//! parent → child    Head     followed by the bytes of a frame, or by a `ParentMessage`
//! child  → parent   `ChildMessage`
//! ```
//!
//! The publisher's node numbers the frames of a stream without gaps. A parent that drops frames reports their numbers
//! and the reason before the next frame. Messages are `length:u32 ‖ postcard`; the parent's have a [`Head`] in place of
//! the length. All numbers are big-endian. A node's local socket uses the same protocol, and also accepts publishers.

pub use crate::object::{MessageError, decode, encode, length};

use crate::{mesh::Name, object::MAX_WHY};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, time::Duration};
use thiserror::Error;

/// The longest opening, bytes: all tracks with their labels, and reserve.
pub const MAX_OPENING: usize = 8 << 10;

/// The longest answer, bytes: all tracks, and the list of allowed subscribers.
pub const MAX_ANSWER: usize = 16 << 10;

/// The longest message of a child, bytes.
pub const MAX_CHILD_MESSAGE: usize = 1 << 10;

/// The longest message of a parent, bytes: [`MAX_LOST`] lost frames.
pub const MAX_PARENT_MESSAGE: usize = 16 << 10;

/// The most tracks of a stream: a ladder of eight renditions, and eight audio tracks.
pub const MAX_TRACKS: usize = 16;

/// The most frames of one [`ParentMessage::Lost`].
pub const MAX_LOST: usize = 512;

/// The most entries of [`Accepted::allow`].
pub const MAX_ALLOW: usize = 64;

/// The longest label of a track, bytes.
pub const MAX_LABEL: usize = 32;

/// The largest frame, bytes: an intra-coded picture of 4K video at the highest quality is below 4 MiB.
pub const MAX_FRAME: u32 = 8 << 20;

/// The longest latency that a request may name.
pub const MAX_LATENCY: Duration = Duration::from_secs(60);

/// The highest number of a frame: a thousand frames a second reach it after a hundred million years.
pub const MAX_SEQUENCE: u64 = 1 << 62;

/// The latest decoding time of a frame, microseconds: 35 years after the stream's first frame. Sums and conversions to
/// ticks of such times do not overflow.
pub const MAX_TIME_US: u64 = 1 << 50;

/// The highest rate of a class, bit/s: above all that exists. Sums over all classes and tracks do not overflow.
pub const MAX_RATE: u64 = 1 << 53;

/// The number of frame classes.
pub const CLASSES: usize = 5;

/// The classes of frames that a leg carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Key frames, tables and audio.
    Keys,
    /// All frames except disposable ones.
    NoDisposable,
    All,
}

impl Level {
    /// All levels, the best first.
    pub const ALL: [Self; 3] = [Self::All, Self::NoDisposable, Self::Keys];

    /// Whether the level includes frames of the class (0 to 4, the most valuable first).
    pub const fn takes(self, class: u8) -> bool {
        match self {
            Self::All => true,
            Self::NoDisposable => class <= 3,
            Self::Keys => class <= 2,
        }
    }

    /// The name in options and reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::NoDisposable => "no-disposable",
            Self::Keys => "keys",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A text that is not the name of a level.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a level; the levels are all, no-disposable and keys")]
pub struct LevelError(String);

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let found = Self::ALL.into_iter().find(|level| level.word() == text);
        found.ok_or_else(|| LevelError(text.chars().take(32).collect()))
    }
}

/// A rendition with its tables and audio.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Track {
    /// A human-readable label, e.g. `1280x720`; at most [`MAX_LABEL`] bytes.
    pub label: String,
    /// The rate of each class, bit/s, at most [`MAX_RATE`]; zero if there is none or it is unknown.
    pub rates: [u64; CLASSES],
}

/// The purpose of a channel: the first message, from the dialling end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// A child requests a stream.
    Subscribe(SubscribeRequest),
    /// A publisher announces a stream.
    Publish(PublishRequest),
    /// Requests the status of all streams; only on the local socket.
    Status,
}

/// A child's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscribeRequest {
    pub stream: Name,
    /// The highest level to send.
    pub level: Level,
    /// The indices of the tracks to send; several: one of them at a time, the best that arrives in time; empty: all at
    /// once. At most [`MAX_TRACKS`].
    pub tracks: Vec<u8>,
    /// The deadline of frames from the publisher's node to the last subscriber, milliseconds; later frames are dropped.
    pub latency_ms: u32,
    /// The run and number of the last frame that the child has; `None`: begin at the newest key frame.
    pub after: Option<(u64, u64)>,
    /// The publisher's node, for a parent that does not have the stream yet.
    pub from: Option<Name>,
    /// The number of nodes between the subscriber and the parent, to detect loops; at most [`MAX_HOPS`].
    pub hops: u8,
}

/// The most nodes between a publisher's node and a subscriber's.
pub const MAX_HOPS: u8 = 8;

/// A publisher's announcement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishRequest {
    pub stream: Name,
    pub tracks: Vec<Track>,
    /// How long frames stay useful, milliseconds.
    pub latency_ms: u32,
}

/// The reply to an opening.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The request is accepted.
    Accepted(Accepted),
    /// The request is refused.
    Refused(Refusal),
    /// The reply to [`Opening::Status`]; JSON of this length in bytes follows.
    Status(u32),
    /// The request is not decided yet, and why; another answer follows. Sent only on the local socket.
    Waiting(String),
}

/// The description of an accepted stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The publisher's run; numbering restarts with each run.
    pub run: u64,
    /// The number of the first frame that may follow.
    pub start: u64,
    /// The stream's tracks; at most [`MAX_TRACKS`].
    pub tracks: Vec<Track>,
    /// How long frames stay useful according to the publisher, milliseconds.
    pub latency_ms: u32,
    /// The publisher's node.
    pub origin: Name,
    /// The members that may subscribe according to the publisher's node: names, `@TAG`, `*`; at most [`MAX_ALLOW`].
    /// Relaying nodes enforce it.
    pub allow: Vec<String>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The stream is not here and its publisher is unknown.
    #[error("the node has no stream `{0}`; name the publisher's node with --from MEMBER")]
    Unknown(Name),
    /// The publisher's node does not allow this member to subscribe.
    #[error("`[stream] subscribe` at the publisher's node does not allow you")]
    Subscribe,
    /// The node does not allow this member to publish.
    #[error("`[stream] publish` at the node does not allow you")]
    Publish,
    /// The node does not relay streams.
    #[error("the node does not relay streams: its `[stream] relay` is false")]
    NoRelay,
    /// The stream has another publisher.
    #[error("`{stream}` is published already, by {by}")]
    Taken {
        stream: Name,
        /// The publisher: a member, or a program of the host.
        by: String,
    },
    /// The node serves the maximum number.
    #[error("the node serves as many {0} as its settings allow; try again later")]
    Busy(LimitedResource),
    /// There is a loop of nodes, or too many of them.
    #[error("there are more than {MAX_HOPS} nodes between the node and the subscriber")]
    Hops,
    /// The request is malformed.
    #[error("{0}")]
    Invalid(String),
    /// The node's own parent failed.
    #[error("the node cannot get the stream from its parent: {0}")]
    Upstream(String),
}

/// A resource whose number the node's settings limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitedResource {
    /// Streams, including relayed ones.
    Streams,
    /// Subscribers, including nodes.
    Subscribers,
}

impl fmt::Display for LimitedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Streams => "streams",
            Self::Subscribers => "subscribers",
        })
    }
}

impl Refusal {
    /// Truncates the text to [`MAX_WHY`] bytes.
    pub fn cut(mut self) -> Self {
        if let Self::Invalid(text) | Self::Upstream(text) | Self::Taken { by: text, .. } = &mut self
        {
            cut(text);
        }
        self
    }

    /// Whether the same request may succeed later.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::Busy(_) | Self::Upstream(_) | Self::Taken { .. })
    }
}

fn cut(text: &mut String) {
    if let Some((at, _)) = text.char_indices().find(|(at, c)| at + c.len_utf8() > MAX_WHY) {
        text.truncate(at);
    }
}

impl SubscribeRequest {
    /// A program's request for all tracks and levels of a stream, with the default latency of one second.
    pub fn for_stream(stream: Name) -> Self {
        Self {
            stream,
            level: Level::All,
            tracks: Vec::new(),
            latency_ms: 1000,
            after: None,
            from: None,
            hops: 0,
        }
    }

    /// Checks the bounds.
    ///
    /// # Errors
    /// The refusal to answer with.
    pub fn check(&self) -> Result<(), Refusal> {
        let latency = Duration::from_millis(self.latency_ms.into());
        let wrong = match self {
            _ if self.tracks.len() > MAX_TRACKS => "the request names too many tracks",
            _ if self.latency_ms == 0 || latency > MAX_LATENCY => "the latency is 0 or above 60 s",
            _ if self.after.is_some_and(|(_, last)| last > MAX_SEQUENCE) => {
                "the number of a frame is out of range"
            }
            _ if self.hops > MAX_HOPS => return Err(Refusal::Hops),
            _ => return Ok(()),
        };
        Err(Refusal::Invalid(wrong.to_owned()))
    }
}

/// Whether the tracks are within the bounds.
fn are_sound(tracks: &[Track]) -> bool {
    let is_sound = |track: &Track| {
        track.label.len() <= MAX_LABEL && track.rates.iter().all(|rate| *rate <= MAX_RATE)
    };
    tracks.len() <= MAX_TRACKS && tracks.iter().all(is_sound)
}

impl PublishRequest {
    /// Checks the bounds.
    ///
    /// # Errors
    /// The refusal to answer with.
    pub fn check(&self) -> Result<(), Refusal> {
        let latency = Duration::from_millis(self.latency_ms.into());
        let wrong = match self {
            _ if !are_sound(&self.tracks) => {
                "there are too many tracks, a label is too long or a rate is out of range"
            }
            _ if self.latency_ms == 0 || latency > MAX_LATENCY => "the latency is 0 or above 60 s",
            _ => return Ok(()),
        };
        Err(Refusal::Invalid(wrong.to_owned()))
    }
}

impl Answer {
    /// Truncates the text to [`MAX_WHY`] bytes.
    pub fn cut(self) -> Self {
        match self {
            Self::Refused(why) => Self::Refused(why.cut()),
            Self::Waiting(mut why) => {
                cut(&mut why);
                Self::Waiting(why)
            }
            other => other,
        }
    }

    /// Whether all lengths and numbers are within the bounds.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Accepted(accepted) => {
                are_sound(&accepted.tracks)
                    && accepted.start <= MAX_SEQUENCE
                    && accepted.allow.len() <= MAX_ALLOW
                    && accepted.allow.iter().all(|pattern| pattern.len() <= 64)
            }
            Self::Refused(_) | Self::Status(_) | Self::Waiting(_) => true,
        }
    }
}

/// Why a frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// The level excludes it.
    Level,
    /// It would have missed its deadline.
    Late,
    /// The leg is too slow, and the queue is full of more valuable frames.
    Room,
    /// A frame that it depends on is missing.
    Chain,
    /// It was lost before it reached this parent.
    Upstream,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [Self; 5] = [Self::Level, Self::Late, Self::Room, Self::Chain, Self::Upstream];

    /// The name in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Level => "level",
            Self::Late => "late",
            Self::Room => "room",
            Self::Chain => "chain",
            Self::Upstream => "upstream",
        }
    }
}

/// The notice of a lost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostFrame {
    pub sequence: u64,
    pub track: u8,
    /// Its class, 0 to 4.
    pub class: u8,
    pub why: DropReason,
}

/// A message from parent to child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParentMessage {
    /// Lost frames; ascending, at most [`MAX_LOST`].
    Lost(Vec<LostFrame>),
    /// The highest level that the parent sends from now on.
    Level(Level),
    /// The changed tracks. Nodes of this version do not send it: a frame with a new track number adds the track.
    Tracks(Vec<Track>),
    /// A keep-alive, sent while the queue is empty. `quiet_ms` is the time since the publisher's node last sent a frame
    /// or keep-alive of the stream. Relays add the time since they received it, so that it grows when frames stop, and
    /// also in a loop of nodes.
    Alive {
        /// Milliseconds; zero at the publisher's node.
        quiet_ms: u32,
    },
    /// The end of the stream.
    End(Ending),
}

impl ParentMessage {
    /// Whether all lengths and numbers are within the bounds.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Lost(lost) => {
                let is_sound = |lost: &LostFrame| {
                    usize::from(lost.class) < CLASSES && lost.sequence <= MAX_SEQUENCE
                };
                lost.len() <= MAX_LOST && lost.iter().all(is_sound)
            }
            Self::Tracks(tracks) => are_sound(tracks),
            Self::End(Ending::Failed(why)) => why.len() <= MAX_WHY,
            Self::Level(_) | Self::Alive { .. } | Self::End(_) => true,
        }
    }
}

/// Why a stream ends.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Ending {
    /// The publisher ended it.
    #[error("the publisher has ended the stream")]
    Over,
    #[error("the publisher has disappeared")]
    Gone,
    /// The child stopped reading.
    #[error("the subscriber stopped reading for too long")]
    Stalled,
    /// The child's permission was revoked.
    #[error("you are no longer allowed to subscribe to this stream")]
    Revoked,
    #[error("{0}")]
    Failed(String),
}

/// A message from child to parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildMessage {
    /// Statistics of the last second.
    Report(ReceptionReport),
    /// A changed request.
    Want {
        /// The highest level to send.
        level: Level,
        /// The tracks to send; empty: all.
        tracks: Vec<u8>,
        /// The deadline of frames, milliseconds.
        latency_ms: u32,
    },
    /// The child leaves.
    Bye,
}

/// What a child received in the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceptionReport {
    /// The number of the newest frame received.
    pub newest: u64,
    /// Frames received, by class.
    pub frames: [u32; CLASSES],
    /// Bytes of frames received.
    pub bytes: u64,
    /// The median age of frames since the publisher's node, microseconds.
    pub age_us: u32,
    /// The maximum age of frames, microseconds.
    pub worst_us: u32,
    /// Frames that could not be decoded because frames that they depend on are missing.
    pub useless: u32,
}

/// The head of a frame or message from a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A frame; its bytes follow.
    Frame(FrameHead),
    /// A message; a [`ParentMessage`] of this length in bytes follows.
    Message(u32),
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Its number in the stream's run.
    pub sequence: u64,
    pub track: u8,
    /// Its class, 0 to 4.
    pub class: u8,
    /// Its decoding time since the stream's first frame, microseconds, at most [`MAX_TIME_US`].
    pub time_us: u64,
    /// Its age since the publisher's node when it was sent, microseconds.
    pub age_us: u32,
    /// When it was sent, by the sender's clock, microseconds; wraps.
    pub sent_us: u32,
    /// Its length in bytes, at most [`MAX_FRAME`].
    pub length: u32,
}

/// The length of a head, bytes.
pub const HEAD: usize = 31;

const MESSAGE: u8 = 0;
const FRAME: u8 = 1;

/// Why bytes are not a valid head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeadError {
    /// The kind is unknown, or a message has non-zero unused bytes.
    #[error("the head is not that of a frame or a message")]
    Kind,
    /// The class does not exist.
    #[error("the frame's class {0} does not exist")]
    Class(u8),
    /// The number is out of range.
    #[error("the frame's number {0} is out of range")]
    Sequence(u64),
    /// The decoding time is out of range.
    #[error("the frame's time of {0} µs is out of range")]
    Time(u64),
    /// The frame or message is too long.
    #[error("a frame or message of {0} bytes is too long")]
    Length(u32),
}

impl Head {
    /// Encodes `kind:u8 ‖ sequence:u64 ‖ track:u8 ‖ class:u8 ‖ time:u64 ‖ age:u32 ‖ sent:u32 ‖ length:u32`. A message
    /// has zeros except in its kind and length.
    pub fn encode(self) -> [u8; HEAD] {
        let mut head = [MESSAGE; HEAD];
        let length = match self {
            Self::Message(length) => length,
            Self::Frame(frame) => {
                head[0] = FRAME;
                head[1..9].copy_from_slice(&frame.sequence.to_be_bytes());
                (head[9], head[10]) = (frame.track, frame.class);
                head[11..19].copy_from_slice(&frame.time_us.to_be_bytes());
                head[19..23].copy_from_slice(&frame.age_us.to_be_bytes());
                head[23..27].copy_from_slice(&frame.sent_us.to_be_bytes());
                frame.length
            }
        };
        head[27..].copy_from_slice(&length.to_be_bytes());
        head
    }

    /// Decodes a head.
    ///
    /// # Errors
    /// [`HeadError`].
    pub fn decode(head: &[u8; HEAD]) -> Result<Self, HeadError> {
        let long =
            |at: usize| head[at..at + 8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let word =
            |at: usize| head[at..at + 4].iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        let length = word(27);
        match head[0] {
            MESSAGE if head[1..27].iter().any(|byte| *byte != 0) => Err(HeadError::Kind),
            MESSAGE if length as usize > MAX_PARENT_MESSAGE => Err(HeadError::Length(length)),
            MESSAGE => Ok(Self::Message(length)),
            FRAME if usize::from(head[10]) >= CLASSES => Err(HeadError::Class(head[10])),
            FRAME if long(1) > MAX_SEQUENCE => Err(HeadError::Sequence(long(1))),
            FRAME if long(11) > MAX_TIME_US => Err(HeadError::Time(long(11))),
            FRAME if length > MAX_FRAME => Err(HeadError::Length(length)),
            FRAME => Ok(Self::Frame(FrameHead {
                sequence: long(1),
                track: head[9],
                class: head[10],
                time_us: long(11),
                age_us: word(19),
                sent_us: word(23),
                length,
            })),
            _ => Err(HeadError::Kind),
        }
    }

    /// Encodes a message with its head.
    pub fn encode_message(message: &ParentMessage) -> Vec<u8> {
        let body = encode(message);
        let body = &body[4..];
        // At most MAX_PARENT_MESSAGE, by the bounds on messages.
        let mut out = Self::Message(body.len() as u32).encode().to_vec();
        out.extend(body);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn subscribe_request() -> SubscribeRequest {
        let (after, from) = (Some((1, 2)), Some(name("studio")));
        SubscribeRequest {
            latency_ms: 500,
            after,
            from,
            hops: 1,
            ..SubscribeRequest::for_stream(name("stage"))
        }
    }

    #[test]
    fn openings_round_trip_and_invalid_requests_are_refused() {
        let tracks = vec![Track { label: "720p".to_owned(), rates: [1, 2, 3, 4, 5] }];
        let request = PublishRequest { stream: name("stage"), tracks, latency_ms: 500 };
        for opening in [
            Opening::Subscribe(subscribe_request()),
            Opening::Publish(request.clone()),
            Opening::Status,
        ] {
            assert_eq!(decode::<Opening>(&encode(&opening)[4..]), Ok(opening));
        }
        assert_eq!((subscribe_request().check(), request.check()), (Ok(()), Ok(())));
        assert!(
            SubscribeRequest { tracks: vec![0; MAX_TRACKS + 1], ..subscribe_request() }
                .check()
                .is_err()
        );
        assert!(SubscribeRequest { latency_ms: 0, ..subscribe_request() }.check().is_err());
        assert!(SubscribeRequest { latency_ms: 60_001, ..subscribe_request() }.check().is_err());
        assert_eq!(
            SubscribeRequest { hops: MAX_HOPS + 1, ..subscribe_request() }.check(),
            Err(Refusal::Hops)
        );
        let many = vec![Track::default(); MAX_TRACKS + 1];
        assert!(PublishRequest { tracks: many, ..request.clone() }.check().is_err());
        let with_rate =
            |rate| vec![Track { rates: [rate; CLASSES], ..Track::default() }; MAX_TRACKS];
        assert!(PublishRequest { tracks: with_rate(u64::MAX), ..request.clone() }.check().is_err());
        assert!(!ParentMessage::Tracks(with_rate(MAX_RATE + 1)).is_sound());
        let fastest = with_rate(MAX_RATE);
        let mut rates = fastest.iter().flat_map(|track| &track.rates);
        assert!(rates.try_fold(0_u64, |sum, rate| sum.checked_add(*rate)).is_some());
        assert_eq!(PublishRequest { tracks: fastest, ..request }.check(), Ok(()));
    }

    #[test]
    fn heads_round_trip() {
        let frame = FrameHead {
            sequence: 1 << 40,
            track: 2,
            class: 4,
            time_us: 3 << 35,
            age_us: 70_000,
            sent_us: u32::MAX,
            length: MAX_FRAME,
        };
        assert_eq!(Head::decode(&Head::Frame(frame).encode()), Ok(Head::Frame(frame)));
        let long = FrameHead { length: MAX_FRAME + 1, ..frame };
        let decoded = Head::decode(&Head::Frame(long).encode());
        assert_eq!(decoded, Err(HeadError::Length(MAX_FRAME + 1)));
        let odd = FrameHead { class: 5, ..frame };
        assert_eq!(Head::decode(&Head::Frame(odd).encode()), Err(HeadError::Class(5)));
        let late = FrameHead { sequence: MAX_SEQUENCE + 1, ..frame };
        let decoded = Head::decode(&Head::Frame(late).encode());
        assert_eq!(decoded, Err(HeadError::Sequence(MAX_SEQUENCE + 1)));
        for (time_us, decoded) in [
            (MAX_TIME_US, Ok(Head::Frame(FrameHead { time_us: MAX_TIME_US, ..frame }))),
            (MAX_TIME_US + 1, Err(HeadError::Time(MAX_TIME_US + 1))),
            (u64::MAX / 2, Err(HeadError::Time(u64::MAX / 2))),
        ] {
            let head = Head::Frame(FrameHead { time_us, ..frame }).encode();
            assert_eq!(Head::decode(&head), decoded);
        }
        let losses = ParentMessage::Lost(vec![LostFrame {
            sequence: 5,
            track: 0,
            class: 4,
            why: DropReason::Room,
        }]);
        let message = Head::encode_message(&losses);
        let head = message.first_chunk().unwrap();
        assert_eq!(Head::decode(head), Ok(Head::Message((message.len() - HEAD) as u32)));
        assert_eq!(decode::<ParentMessage>(&message[HEAD..]), Ok(losses));
    }

    #[test]
    fn the_longest_messages_are_within_the_bounds() {
        let lost =
            LostFrame { sequence: MAX_SEQUENCE, track: 255, class: 4, why: DropReason::Upstream };
        let most = ParentMessage::Lost(vec![lost; MAX_LOST]);
        assert!(most.is_sound() && Head::encode_message(&most).len() <= HEAD + MAX_PARENT_MESSAGE);
        let track = Track { label: "x".repeat(MAX_LABEL), rates: [MAX_RATE; CLASSES] };
        let tracks = vec![track; MAX_TRACKS];
        assert!(
            Head::encode_message(&ParentMessage::Tracks(tracks.clone())).len()
                <= HEAD + MAX_PARENT_MESSAGE
        );
        let accepted = Accepted {
            run: u64::MAX,
            start: MAX_SEQUENCE,
            tracks,
            latency_ms: u32::MAX,
            origin: name(&"x".repeat(63)),
            allow: vec!["x".repeat(64); MAX_ALLOW],
        };
        let answer = Answer::Accepted(accepted);
        assert!(answer.is_sound() && encode(&answer).len() <= 4 + MAX_ANSWER);
        let why = Answer::Refused(Refusal::Upstream("ü".repeat(10_000))).cut();
        assert!(encode(&why).len() <= 4 + MAX_ANSWER);
    }

    #[test]
    fn levels_nest() {
        let taken = |level: Level| (0..5).filter(|class| level.takes(*class)).count();
        assert_eq!(Level::ALL.map(taken), [5, 4, 3]);
        for level in Level::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert!("some".parse::<Level>().is_err() && Level::All > Level::Keys);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes: Vec<u8>, head: [u8; HEAD]) {
            if let Ok(opening) = decode::<Opening>(&bytes) {
                prop_assert_eq!(decode::<Opening>(&encode(&opening)[4..]), Ok(opening));
            }
            _ = decode::<Answer>(&bytes);
            _ = decode::<ParentMessage>(&bytes);
            _ = decode::<ChildMessage>(&bytes);
            if let Ok(decoded) = Head::decode(&head) {
                prop_assert_eq!(decoded.encode(), head);
            }
        }
    }
}
