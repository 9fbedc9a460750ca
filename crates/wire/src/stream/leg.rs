//! The protocol of a channel `thalweg/stream/1`: one stream from a parent to a child.
//!
//! Whoever dials sends one [`Opening`]; the other end says [`Answer`]. From then on:
//!
//! ```text
//! parent → child    Head     a frame of the stream with its bytes, or a `Said`
//! child  → parent   Word
//! ```
//!
//! Frames of a stream are numbered without gaps by its publisher's node; a parent that leaves some out says which and
//! why before the next one. Messages are `length:u32 ‖ postcard`; those of the parent have a [`Head`] in place of the
//! length. All numbers are big-endian. The local socket of a node speaks the same, and takes publishers as well.

pub use crate::object::{MessageError, decode, encode, length};

use crate::{mesh::Name, object::MAX_WHY};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, time::Duration};
use thiserror::Error;

/// The longest opening: all tracks with their labels, and room.
pub const MAX_OPENING: usize = 8 << 10;

/// The longest answer: the same, and who may subscribe.
pub const MAX_ANSWER: usize = 16 << 10;

/// The longest word of a child.
pub const MAX_WORD: usize = 1 << 10;

/// The longest message of a parent: [`MAX_LOST`] frames that do not come.
pub const MAX_SAID: usize = 16 << 10;

/// The most tracks of a stream: a ladder of eight renditions and eight sounds.
pub const MAX_TRACKS: usize = 16;

/// The most frames of one [`Said::Lost`].
pub const MAX_LOST: usize = 512;

/// The most entries of [`Accepted::allow`].
pub const MAX_ALLOW: usize = 64;

/// The longest label of a track, bytes.
pub const MAX_LABEL: usize = 32;

/// The longest frame: an intra-coded picture of 4K video at the highest quality is below 4 MiB.
pub const MAX_FRAME: u32 = 8 << 20;

/// The longest latency that can be asked for.
pub const MAX_LATENCY: Duration = Duration::from_secs(60);

/// No frame has a higher number: a thousand frames a second reach it after a hundred million years.
pub const MAX_SEQUENCE: u64 = 1 << 62;

/// How many classes of frames there are.
pub const CLASSES: usize = 5;

/// Which frames of a track are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Key frames alone, with tables and sound.
    Keys,
    /// All but those that nothing refers to.
    NoDisposable,
    /// All.
    All,
}

impl Level {
    /// All levels, the best first.
    pub const ALL: [Self; 3] = [Self::All, Self::NoDisposable, Self::Keys];

    /// Whether frames of the class (0 to 4, the most valuable first) are part of it.
    pub const fn takes(self, class: u8) -> bool {
        match self {
            Self::All => true,
            Self::NoDisposable => class <= 3,
            Self::Keys => class <= 2,
        }
    }

    /// The word for options and reports.
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

/// The text is no level.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is no level: all, no-disposable or keys")]
pub struct LevelError(String);

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let found = Self::ALL.into_iter().find(|level| level.word() == text);
        found.ok_or_else(|| LevelError(text.chars().take(32).collect()))
    }
}

/// A rendition, or what all renditions share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Track {
    /// For people, e.g. `1280x720`; at most [`MAX_LABEL`] bytes.
    pub label: String,
    /// By class, bit/s; zero: unknown, or none.
    pub rates: [u64; CLASSES],
}

/// What a channel is to be: the first message of whoever dials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// A child asks for a stream.
    Subscribe(Ask),
    /// A publisher has one.
    Publish(Announce),
    /// What is known of all streams here; for the local socket alone.
    Status,
}

/// What a child wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Which stream.
    pub stream: Name,
    /// The best level that is of use.
    pub level: Level,
    /// Tracks by their indices; empty: all. At most [`MAX_TRACKS`].
    pub tracks: Vec<u8>,
    /// From the publisher's node to the last subscriber; a frame that is older is not sent. Milliseconds.
    pub latency_ms: u32,
    /// The run and the last frame of it that is here already; none: from the newest key frame on.
    pub after: Option<(u64, u64)>,
    /// Who has the stream, for a parent that does not know it: the publisher's node.
    pub from: Option<Name>,
    /// The nodes between the subscriber and the parent, so that no ring of nodes comes about; at most 8.
    pub hops: u8,
}

/// The most nodes between a publisher's node and a subscriber's.
pub const MAX_HOPS: u8 = 8;

/// What a publisher has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announce {
    /// Its name.
    pub stream: Name,
    /// Its tracks.
    pub tracks: Vec<Track>,
    /// How long frames are of use, milliseconds.
    pub latency_ms: u32,
}

/// What the other end says to an opening.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Go on.
    Accepted(Accepted),
    /// No.
    Refused(Refusal),
    /// To [`Opening::Status`]: JSON of so many bytes follows.
    Status(u32),
}

/// What a child gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The publisher's run: frames are numbered anew in each.
    pub run: u64,
    /// The first frame that may come.
    pub start: u64,
    /// The stream's tracks; at most [`MAX_TRACKS`].
    pub tracks: Vec<Track>,
    /// How long the publisher says that frames are of use, milliseconds.
    pub latency_ms: u32,
    /// Where it is published.
    pub origin: Name,
    /// Who may subscribe, as the publisher's node has it: members, `@TAG`, `*`. At most [`MAX_ALLOW`]. Whoever hands the
    /// stream on applies it.
    pub allow: Vec<String>,
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// Nobody publishes it here, and nobody is known who does.
    #[error("it knows no stream `{0}`; `--from MEMBER` names the publisher's node")]
    Unknown(Name),
    /// The settings of the publisher's node do not let this member subscribe.
    #[error("`[stream] subscribe` at the publisher's node does not name you")]
    Subscribe,
    /// The settings do not let this member publish.
    #[error("its `[stream] publish` does not name you")]
    Publish,
    /// It hands on no streams of others.
    #[error("it hands on no streams: its settings say `relay = false`")]
    NoRelay,
    /// Somebody else publishes it.
    #[error("`{stream}` is published already, by {by}")]
    Taken {
        /// The name.
        stream: Name,
        /// Who: a member, or a program of the host.
        by: String,
    },
    /// As many as it serves.
    #[error("it serves as many {0} as its settings allow; try again later")]
    Busy(Bounded),
    /// A ring of nodes, or too many of them.
    #[error("there are more than {MAX_HOPS} nodes between it and the subscriber")]
    Hops,
    /// What was sent is not right.
    #[error("{0}")]
    Invalid(String),
    /// What it gets the stream from failed.
    #[error("its own source of the stream failed: {0}")]
    Upstream(String),
}

/// What is bounded by the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bounded {
    /// Streams.
    Streams,
    /// Children.
    Subscribers,
}

impl fmt::Display for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Streams => "streams",
            Self::Subscribers => "subscribers",
        })
    }
}

impl Refusal {
    /// With no text longer than is kept of another's words.
    pub fn cut(mut self) -> Self {
        if let Self::Invalid(text) | Self::Upstream(text) | Self::Taken { by: text, .. } = &mut self
        {
            cut(text);
        }
        self
    }

    /// Whether asking again later may help.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unknown(_) | Self::Busy(_) | Self::Upstream(_) | Self::Taken { .. })
    }
}

fn cut(text: &mut String) {
    if let Some((at, _)) = text.char_indices().find(|(at, c)| at + c.len_utf8() > MAX_WHY) {
        text.truncate(at);
    }
}

impl Ask {
    /// What is wrong with it.
    ///
    /// # Errors
    /// In words.
    pub fn check(&self) -> Result<(), Refusal> {
        let latency = Duration::from_millis(self.latency_ms.into());
        let wrong = match self {
            _ if self.tracks.len() > MAX_TRACKS => "more tracks than a stream has",
            _ if self.latency_ms == 0 || latency > MAX_LATENCY => "a latency of 0 or above 60 s",
            _ if self.after.is_some_and(|(_, last)| last > MAX_SEQUENCE) => {
                "a number that no frame has"
            }
            _ if self.hops > MAX_HOPS => return Err(Refusal::Hops),
            _ => return Ok(()),
        };
        Err(Refusal::Invalid(wrong.to_owned()))
    }
}

/// Whether a stream can have these tracks.
fn are_sound(tracks: &[Track]) -> bool {
    tracks.len() <= MAX_TRACKS && tracks.iter().all(|track| track.label.len() <= MAX_LABEL)
}

impl Announce {
    /// What is wrong with it.
    ///
    /// # Errors
    /// In words.
    pub fn check(&self) -> Result<(), Refusal> {
        let latency = Duration::from_millis(self.latency_ms.into());
        let wrong = match self {
            _ if !are_sound(&self.tracks) => "too many tracks, or too long labels",
            _ if self.latency_ms == 0 || latency > MAX_LATENCY => "a latency of 0 or above 60 s",
            _ => return Ok(()),
        };
        Err(Refusal::Invalid(wrong.to_owned()))
    }
}

impl Answer {
    /// With no text longer than is kept of another's words.
    pub fn cut(self) -> Self {
        match self {
            Self::Refused(why) => Self::Refused(why.cut()),
            other => other,
        }
    }

    /// Whether nothing in it is beyond the bounds.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Accepted(accepted) => {
                are_sound(&accepted.tracks)
                    && accepted.start <= MAX_SEQUENCE
                    && accepted.allow.len() <= MAX_ALLOW
                    && accepted.allow.iter().all(|whom| whom.len() <= 64)
            }
            Self::Refused(_) | Self::Status(_) => true,
        }
    }
}

/// Why a frame does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The level leaves it out.
    Level,
    /// It would have come too late.
    Late,
    /// The leg is too slow: what is more valuable has its place.
    Room,
    /// What it refers to is missing.
    Chain,
    /// It was lost before this parent.
    Upstream,
}

impl Why {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Level, Self::Late, Self::Room, Self::Chain, Self::Upstream];

    /// The word for reports.
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

/// A frame that does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Its number.
    pub sequence: u64,
    /// Its track.
    pub track: u8,
    /// Its class, 0 to 4.
    pub class: u8,
    /// Why.
    pub why: Why,
}

/// Parent to child, besides frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// These do not come; ascending, at most [`MAX_LOST`].
    Lost(Vec<Lost>),
    /// From now on this is the best level that is sent.
    Level(Level),
    /// The tracks, which have changed.
    Tracks(Vec<Track>),
    /// Nothing new, and still there.
    Alive,
    /// It ends, for this reason.
    End(Ending),
}

impl Said {
    /// Whether nothing in it is beyond the bounds.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Lost(lost) => {
                let is_sound = |lost: &Lost| {
                    usize::from(lost.class) < CLASSES && lost.sequence <= MAX_SEQUENCE
                };
                lost.len() <= MAX_LOST && lost.iter().all(is_sound)
            }
            Self::Tracks(tracks) => are_sound(tracks),
            Self::End(Ending::Failed(why)) => why.len() <= MAX_WHY,
            Self::Level(_) | Self::Alive | Self::End(_) => true,
        }
    }
}

/// Why a stream ends.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Ending {
    /// The publisher has ended it.
    #[error("the publisher has ended the stream")]
    Over,
    /// The publisher is gone without a word.
    #[error("the publisher is gone")]
    Gone,
    /// The child took nothing for too long.
    #[error("this end took nothing for too long")]
    Stalled,
    /// The child's right has ended.
    #[error("you may not have this stream any more")]
    Revoked,
    /// Something failed.
    #[error("{0}")]
    Failed(String),
}

/// Child to parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// Each second.
    Report(Report),
    /// Something else is wanted from now on.
    Want {
        /// The best level that is of use.
        level: Level,
        /// Tracks; empty: all.
        tracks: Vec<u8>,
        /// Milliseconds.
        latency_ms: u32,
    },
    /// Nothing more is wanted.
    Bye,
}

/// What came in the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The last frame that came.
    pub received: u64,
    /// Frames by class.
    pub frames: [u32; CLASSES],
    /// Their bytes.
    pub bytes: u64,
    /// From the publisher's node to here: the median age of frames, microseconds.
    pub age_us: u32,
    /// The oldest.
    pub worst_us: u32,
    /// Frames that came too late, or were of no use as what they refer to is missing.
    pub useless: u32,
    /// Media time that waits at the child, microseconds.
    pub buffered_us: u32,
}

/// What comes next from a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A frame, whose bytes follow.
    Frame(FrameHead),
    /// A [`Said`] of so many bytes follows.
    Message(u32),
}

/// A frame without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Its number in the stream's run.
    pub sequence: u64,
    /// Its track.
    pub track: u8,
    /// Its class, 0 to 4.
    pub class: u8,
    /// When it is to be decoded, microseconds since the stream's first frame.
    pub time_us: u64,
    /// How long ago it came to the publisher's node when it was sent here, microseconds.
    pub age_us: u32,
    /// When it was sent here, by the sender's own clock, which wraps: microseconds.
    pub sent_us: u32,
    /// Its bytes, at most [`MAX_FRAME`].
    pub length: u32,
}

/// Bytes of a head.
pub const HEAD: usize = 31;

const MESSAGE: u8 = 0;
const FRAME: u8 = 1;

/// The bytes are no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeadError {
    /// Neither a frame nor a message.
    #[error("neither a frame nor a message")]
    Kind,
    /// Of a class that there is not.
    #[error("a frame of class {0}")]
    Class(u8),
    /// Of a number that there is not.
    #[error("a frame with the number {0}")]
    Sequence(u64),
    /// Longer than there are.
    #[error("a frame or message of {0} bytes")]
    Length(u32),
}

impl Head {
    /// `kind:u8 ‖ sequence:u64 ‖ track:u8 ‖ class:u8 ‖ time:u64 ‖ age:u32 ‖ sent:u32 ‖ length:u32`; a message has zeros
    /// but for its kind and length.
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

    /// Reads it.
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
            MESSAGE if length as usize > MAX_SAID => Err(HeadError::Length(length)),
            MESSAGE => Ok(Self::Message(length)),
            FRAME if usize::from(head[10]) >= CLASSES => Err(HeadError::Class(head[10])),
            FRAME if long(1) > MAX_SEQUENCE => Err(HeadError::Sequence(long(1))),
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

    /// A whole message.
    pub fn message(said: &Said) -> Vec<u8> {
        let body = encode(said);
        let body = &body[4..];
        // At most MAX_SAID, by the bounds on what is said.
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

    fn ask() -> Ask {
        Ask {
            stream: name("stage"),
            level: Level::All,
            tracks: Vec::new(),
            latency_ms: 500,
            after: Some((1, 2)),
            from: Some(name("studio")),
            hops: 1,
        }
    }

    #[test]
    fn openings_go_both_ways_and_what_cannot_be_is_refused() {
        let tracks = vec![Track { label: "720p".to_owned(), rates: [1, 2, 3, 4, 5] }];
        let announce = Announce { stream: name("stage"), tracks, latency_ms: 500 };
        for opening in
            [Opening::Subscribe(ask()), Opening::Publish(announce.clone()), Opening::Status]
        {
            assert_eq!(decode::<Opening>(&encode(&opening)[4..]), Ok(opening));
        }
        assert_eq!((ask().check(), announce.check()), (Ok(()), Ok(())));
        assert!(Ask { tracks: vec![0; MAX_TRACKS + 1], ..ask() }.check().is_err());
        assert!(Ask { latency_ms: 0, ..ask() }.check().is_err());
        assert!(Ask { latency_ms: 60_001, ..ask() }.check().is_err());
        assert_eq!(Ask { hops: MAX_HOPS + 1, ..ask() }.check(), Err(Refusal::Hops));
        let many = vec![Track::default(); MAX_TRACKS + 1];
        assert!(Announce { tracks: many, ..announce }.check().is_err());
    }

    #[test]
    fn heads_go_both_ways() {
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
        let said = Said::Lost(vec![Lost { sequence: 5, track: 0, class: 4, why: Why::Room }]);
        let message = Head::message(&said);
        let head = message.first_chunk().unwrap();
        assert_eq!(Head::decode(head), Ok(Head::Message((message.len() - HEAD) as u32)));
        assert_eq!(decode::<Said>(&message[HEAD..]), Ok(said));
    }

    #[test]
    fn the_most_that_a_parent_says_has_room() {
        let lost = Lost { sequence: MAX_SEQUENCE, track: 255, class: 4, why: Why::Upstream };
        let most = Said::Lost(vec![lost; MAX_LOST]);
        assert!(most.is_sound() && Head::message(&most).len() <= HEAD + MAX_SAID);
        let track = Track { label: "x".repeat(MAX_LABEL), rates: [u64::MAX; CLASSES] };
        let tracks = vec![track; MAX_TRACKS];
        assert!(Head::message(&Said::Tracks(tracks.clone())).len() <= HEAD + MAX_SAID);
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
            _ = decode::<Said>(&bytes);
            _ = decode::<Word>(&bytes);
            if let Ok(decoded) = Head::decode(&head) {
                prop_assert_eq!(decoded.encode(), head);
            }
        }
    }
}
