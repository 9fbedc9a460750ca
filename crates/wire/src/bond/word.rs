//! What the ends of a bond say to each other.

use crate::{mesh::Name, object::MAX_WHY};
use serde::{Deserialize, Serialize};

/// The most ranges that are acknowledged at once.
pub const MAX_RANGES: usize = 64;

/// The longest word in bytes.
pub const MAX_WORD: usize = 4 << 10;

/// The longest greeting in bytes.
pub const MAX_GREETING: usize = 1 << 10;

/// A bond, as the end that opens it names it: random, so that a link cannot join another's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BondId(pub [u8; 16]);

impl std::fmt::Debug for BondId {
    /// What lets a link in is not printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BondId(…)")
    }
}

/// The first message on a link, from the end that dialled it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The bond that it joins, or begins. Its key is that of the channel in any case.
    pub bond: BondId,
    /// The link's number in it; each is used once.
    pub link: u32,
    /// Bytes that each stream's receiver holds at this end, at first.
    pub window: u64,
    /// The bond had a link before: one that the far end does not know is over.
    pub goes_on: bool,
    /// Its bytes cost at this end: it is to carry nothing that another link carries already.
    pub is_metered: bool,
    /// It goes through relays: TCP's round trip is not that of the link.
    pub is_relayed: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Greeting {
    /// It is one of the bond's links now.
    Welcome {
        /// Bytes that each stream's receiver holds at this end, at first.
        window: u64,
    },
    /// It is not.
    Refused(Refusal),
}

/// Why a link or a stream is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// No bond by this name (any more): one that lost all its links is forgotten after a while.
    Unknown,
    /// A link of this number was there.
    Number,
    /// Too many bonds, links or streams.
    Busy,
    /// The rules do not let this peer go there.
    Forbidden(String),
    /// The far end could not reach it.
    Unreached(String),
}

impl Refusal {
    /// With no text longer than is kept of another's words.
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
            Self::Unknown => f.write_str("the bond is not known there (any more)"),
            Self::Number => f.write_str("a link of this number was there"),
            Self::Busy => f.write_str("there are too many bonds or streams"),
            Self::Forbidden(why) => write!(f, "not allowed: {why}"),
            Self::Unreached(why) => write!(f, "could not be reached: {why}"),
        }
    }
}

/// Where a stream leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// To a server, by the far end's relay: host and port as a client names them.
    Server(String, u16),
    /// To a service of the far end itself: a channel's protocol by its ALPN name.
    Service(String),
    /// To another member's service, by the far end's relay.
    Member(Name, String),
}

/// What either end says. Streams that the dialling end opened have even numbers, others odd ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// A stream begins. Its chunks may come before this word does, within the first window.
    Open {
        /// Its number, used once in a bond.
        stream: u32,
        /// Where it leads.
        to: Target,
    },
    /// It leads there.
    Opened {
        /// The stream.
        stream: u32,
    },
    /// It does not.
    Refused {
        /// The stream.
        stream: u32,
        /// Why.
        why: Refusal,
    },
    /// What has arrived of a stream.
    Acks {
        /// The stream.
        stream: u32,
        /// All before it.
        arrived: u64,
        /// Up to where may be sent; it never becomes less.
        limit: u64,
        /// And these: at most [`MAX_RANGES`].
        ranges: Vec<(u64, u64)>,
        /// The end is known, and all before it has arrived: nothing is waited for any more.
        ended: bool,
    },
    /// The sender has no more than this.
    End {
        /// The stream.
        stream: u32,
        /// Its length in bytes.
        at: u64,
    },
    /// The stream broke at this end, both ways.
    Reset {
        /// The stream.
        stream: u32,
        /// Why.
        why: String,
    },
    /// Is this link alive?
    Ping(u64),
    /// It is.
    Pong {
        /// What the ping said.
        token: u64,
        /// Bytes of chunks that came by this link.
        received: u64,
    },
    /// This link is not used any more from this end.
    Bye,
    /// Another link broke at this end: what it carried is lost.
    Gone {
        /// Its number.
        link: u32,
    },
}

impl Word {
    /// Whether its lists are in order and within their bounds.
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

    /// With no text longer than is kept of another's words.
    pub fn cut(self) -> Self {
        match self {
            Self::Refused { stream, why } => Self::Refused { stream, why: why.cut() },
            Self::Reset { stream, why } => Self::Reset { stream, why: cut(why) },
            other => other,
        }
    }
}

/// Leaves at most [`MAX_WHY`] bytes of a text.
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
    fn words_are_read_as_they_are_written() {
        let words = [
            Word::Open { stream: 2, to: Target::Server("example.org".into(), 443) },
            Word::Acks {
                stream: 2,
                arrived: 5,
                limit: 1 << 20,
                ranges: vec![(7, 9), (9, 12)],
                ended: false,
            },
            Word::Pong { token: 3, received: u64::MAX },
            Word::Bye,
            Word::Gone { link: 7 },
        ];
        for word in words {
            assert!(word.is_sound());
            assert_eq!(decode::<Word>(&encode(&word)[4..]), Ok(word));
        }
    }

    #[test]
    fn acknowledgements_out_of_order_are_not_sound() {
        let acks = |ranges| Word::Acks { stream: 0, arrived: 5, limit: 100, ranges, ended: false };
        assert!(!acks(vec![(4, 9)]).is_sound());
        assert!(!acks(vec![(9, 9)]).is_sound());
        assert!(!acks(vec![(9, 12), (11, 13)]).is_sound());
        assert!(
            !acks((3..=3 + MAX_RANGES as u64).map(|i| (2 * i, 2 * i + 1)).collect()).is_sound()
        );
        assert!(
            !Word::Acks { stream: 0, arrived: 5, limit: 4, ranges: vec![], ended: true }.is_sound()
        );
    }

    #[test]
    fn the_longest_words_fit() {
        let ranges = vec![(u64::MAX - 1, u64::MAX); MAX_RANGES];
        let acks = Word::Acks {
            stream: u32::MAX,
            arrived: u64::MAX,
            limit: u64::MAX,
            ranges,
            ended: true,
        };
        assert!(encode(&acks).len() <= MAX_WORD);
        let why = Refusal::Unreached("ä".repeat(MAX_WHY));
        let refused = Word::Refused { stream: u32::MAX, why }.cut();
        assert!(encode(&refused).len() <= MAX_WORD);
    }
}
