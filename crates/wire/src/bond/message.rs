//! The messages between the ends of a bond.

use crate::{mesh::Name, object::MAX_WHY};
use serde::{Deserialize, Serialize};

/// The maximum number of ranges in one acknowledgement.
pub const MAX_RANGES: usize = 64;

/// The longest [`BondMessage`], bytes.
pub const MAX_MESSAGE: usize = 4 << 10;

/// The longest [`Greeting`], bytes.
pub const MAX_GREETING: usize = 1 << 10;

/// The id of a bond, chosen at random by the opening end, so that a link cannot join a bond of another client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BondId(pub [u8; 16]);

impl std::fmt::Debug for BondId {
    /// The id authorises links, so it is not printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BondId(…)")
    }
}

/// The first message on a link, from the end that dialled it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The bond that the link joins or begins. A bond belongs to the key of the channel.
    pub bond: BondId,
    /// The link's number in the bond; each number is used once.
    pub link: u32,
    /// The initial receive window of each stream at this end, bytes.
    pub window: u64,
    /// Whether the bond had a link before. If so and the far end does not know the bond, the bond has ended.
    pub goes_on: bool,
    /// Whether this end's traffic is metered. A metered link must not carry copies of data sent on other links.
    pub is_metered: bool,
    /// Whether the link passes relays: then TCP's round-trip time is not that of the link.
    pub is_relayed: bool,
}

/// The reply to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Greeting {
    /// The link has joined the bond.
    Welcome {
        /// The initial receive window of each stream at this end, bytes.
        window: u64,
    },
    /// The link is refused.
    Refused(Refusal),
}

/// Why a link or a stream is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The bond is unknown: a bond without links is forgotten after a while.
    Unknown,
    /// A link with this number was there before.
    Number,
    /// There are too many bonds, links or streams.
    Busy,
    /// The rules do not allow this peer to connect there; contains the reason.
    Forbidden(String),
    /// The far end could not reach the target; contains the reason.
    Unreached(String),
}

impl Refusal {
    /// Truncates its text to [`MAX_WHY`] bytes.
    pub fn cut(self) -> Self {
        match self {
            Self::Forbidden(why) => Self::Forbidden(cut(why)),
            Self::Unreached(why) => Self::Unreached(cut(why)),
            other => other,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown => {
                f.write_str("the far end does not know the bond, or no longer knows it")
            }
            Self::Number => f.write_str("the bond already had a link with this number"),
            Self::Busy => f.write_str("there are too many bonds or streams"),
            Self::Forbidden(why) => write!(f, "not allowed: {why}"),
            Self::Unreached(why) => write!(f, "the target could not be reached: {why}"),
        }
    }
}

/// The target of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// A server, through the far end's relay: host and port as a client names them.
    Server(String, u16),
    /// A service of the far end itself: the ALPN name of a channel's protocol.
    Service(String),
    /// A service of another member, through the far end's relay.
    Member(Name, String),
}

/// A message from either end. Streams opened by the dialling end have even numbers, the others odd ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BondMessage {
    /// Opens a stream. Its chunks may arrive before this message, within the initial window.
    Open {
        /// The stream's number, used once in a bond.
        stream: u32,
        to: Target,
    },
    /// The stream is connected to its target.
    Opened { stream: u32 },
    /// The stream is refused.
    Refused { stream: u32, why: Refusal },
    /// Acknowledges the data of a stream.
    Acks {
        stream: u32,
        /// All bytes before this offset have arrived.
        arrived: u64,
        /// The offset up to which the sender may send; it never decreases.
        limit: u64,
        /// Ranges beyond `arrived` that have arrived too; at most [`MAX_RANGES`].
        ranges: Vec<(u64, u64)>,
        /// Whether the whole stream has arrived, up to its announced end.
        ended: bool,
    },
    /// The sender announces the end of the stream.
    End {
        stream: u32,
        /// The length of the stream, bytes.
        at: u64,
    },
    /// The stream broke at this end, in both directions.
    Reset { stream: u32, why: String },
    /// Asks whether this link is alive; contains a token.
    Ping(u64),
    /// The reply to a ping.
    Pong {
        /// The token of the ping.
        token: u64,
        /// The bytes of chunks received on this link.
        received: u64,
    },
    /// This end does not use this link any more.
    Bye,
    /// Another link broke at this end; the data in flight on it is lost.
    Gone {
        /// The number of that link.
        link: u32,
    },
}

impl BondMessage {
    /// Whether its lists are ordered and within their bounds.
    pub fn is_sound(&self) -> bool {
        let Self::Acks { arrived, limit, ranges, .. } = self else { return true };
        let mut end = *arrived;
        let mut is_next = |&(from, to): &(u64, u64)| {
            let is_next = from >= end && to > from;
            end = to;
            is_next
        };
        arrived <= limit && ranges.len() <= MAX_RANGES && ranges.iter().all(&mut is_next)
    }

    /// Truncates its text to [`MAX_WHY`] bytes.
    pub fn cut(self) -> Self {
        match self {
            Self::Refused { stream, why } => Self::Refused { stream, why: why.cut() },
            Self::Reset { stream, why } => Self::Reset { stream, why: cut(why) },
            other => other,
        }
    }
}

/// Truncates a text to [`MAX_WHY`] bytes.
fn cut(mut text: String) -> String {
    let end = (0..=MAX_WHY.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{decode, encode};

    #[test]
    fn messages_round_trip() {
        let messages = [
            BondMessage::Open { stream: 2, to: Target::Server("example.org".into(), 443) },
            BondMessage::Acks {
                stream: 2,
                arrived: 5,
                limit: 1 << 20,
                ranges: vec![(7, 9), (9, 12)],
                ended: false,
            },
            BondMessage::Pong { token: 3, received: u64::MAX },
            BondMessage::Bye,
            BondMessage::Gone { link: 7 },
        ];
        for message in messages {
            assert!(message.is_sound());
            assert_eq!(decode::<BondMessage>(&encode(&message)[4..]), Ok(message));
        }
    }

    #[test]
    fn invalid_acknowledgements_are_not_sound() {
        let acks =
            |ranges| BondMessage::Acks { stream: 0, arrived: 5, limit: 100, ranges, ended: false };
        assert!(!acks(vec![(4, 9)]).is_sound());
        assert!(!acks(vec![(9, 9)]).is_sound());
        assert!(!acks(vec![(9, 12), (11, 13)]).is_sound());
        assert!(
            !acks((3..=3 + MAX_RANGES as u64).map(|i| (2 * i, 2 * i + 1)).collect()).is_sound()
        );
        assert!(
            !BondMessage::Acks { stream: 0, arrived: 5, limit: 4, ranges: vec![], ended: true }
                .is_sound()
        );
    }

    #[test]
    fn the_longest_messages_are_within_the_bounds() {
        let ranges = vec![(u64::MAX - 1, u64::MAX); MAX_RANGES];
        let acks = BondMessage::Acks {
            stream: u32::MAX,
            arrived: u64::MAX,
            limit: u64::MAX,
            ranges,
            ended: true,
        };
        assert!(encode(&acks).len() <= MAX_MESSAGE);
        let why = Refusal::Unreached("ä".repeat(MAX_WHY));
        let refused = BondMessage::Refused { stream: u32::MAX, why }.cut();
        assert!(encode(&refused).len() <= MAX_MESSAGE);
    }
}
