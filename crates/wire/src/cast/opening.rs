//! The first message on a channel, and its answer.

use super::{CastId, Refusal, Want};
use serde::{Deserialize, Serialize};

/// The longest opening: an offer, a pass, and room.
pub const MAX_OPENING: usize = 8 << 10;

/// The longest answer.
pub const MAX_ANSWER: usize = 4 << 10;

/// What a channel is to be: the first message of whoever dials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// The source to a receiver: its control channel.
    Offer {
        /// A `Signed<Offer>`.
        offer: Vec<u8>,
        /// A `Signed<Pass>` for the receiver.
        pass: Vec<u8>,
    },
    /// A child to a parent: a data leg.
    Hello {
        /// Which cast.
        cast: CastId,
        /// The child's own `Signed<Pass>`.
        pass: Vec<u8>,
        /// How it wants to be served.
        want: Want,
    },
    /// The source to a receiver that has called for it: a data leg on which the source is the
    /// parent.
    Serve {
        /// Which cast.
        cast: CastId,
        /// How it serves.
        how: Want,
    },
    /// The source to a node that is to hand it on and keep nothing: its control channel.
    Relay {
        /// A `Signed<Offer>`.
        offer: Vec<u8>,
        /// A `Signed<Pass>` for the node.
        pass: Vec<u8>,
    },
    /// The source to a receiver: would it take this? `Accepted` says so, perhaps `Uncompared` follows,
    /// then `InboxRules`, and the channel ends; nothing is kept of it.
    Ask {
        /// A `Signed<Offer>`.
        offer: Vec<u8>,
        /// A `Signed<Pass>` for the receiver.
        pass: Vec<u8>,
        /// It is to hand it on and keep nothing.
        relays: bool,
    },
}

/// What the other end says to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Go on.
    Accepted {
        /// GO follows, and clear bytes.
        open: bool,
    },
    /// No.
    Refused(Refusal),
}

impl Answer {
    /// With no text longer than is kept of another's words.
    pub fn cut(self) -> Self {
        match self {
            Self::Refused(why) => Self::Refused(why.cut()),
            accepted => accepted,
        }
    }
}
