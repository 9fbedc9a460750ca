//! The first message on a channel, and the reply to it.

use super::{CastId, Refusal, ServiceMode};
use serde::{Deserialize, Serialize};

/// The longest opening, bytes: an offer, a pass, and reserve.
pub const MAX_OPENING: usize = 8 << 10;

/// The longest answer, bytes.
pub const MAX_ANSWER: usize = 4 << 10;

/// The purpose of a channel: the first message, from the dialling end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// From the source to a receiver: opens the control channel.
    Offer {
        /// A `Signed<Offer>`.
        offer: Vec<u8>,
        /// A `Signed<Pass>` for the receiver.
        pass: Vec<u8>,
    },
    /// From a child to a parent: opens a data leg.
    Hello {
        /// The id of the cast.
        cast: CastId,
        /// The child's own `Signed<Pass>`.
        pass: Vec<u8>,
        /// How the child wants to be served.
        want: ServiceMode,
    },
    /// From the source to a receiver that requested it ([`super::Report::RequestLeg`]): opens a data leg on which the
    /// source is the parent.
    Serve {
        /// The id of the cast.
        cast: CastId,
        /// How the source serves.
        how: ServiceMode,
    },
    /// From the source to a relay, which forwards the cast and stores nothing: opens the control channel.
    Relay {
        /// A `Signed<Offer>`.
        offer: Vec<u8>,
        /// A `Signed<Pass>` for the node.
        pass: Vec<u8>,
    },
    /// From the source to a receiver or relay: asks whether it would accept the cast (dry run). `Accepted` means yes;
    /// `Uncompared` may follow, then `InboxRules`, and the channel ends. The receiver stores nothing.
    DryRun {
        /// A `Signed<Offer>`.
        offer: Vec<u8>,
        /// A `Signed<Pass>` for the receiver.
        pass: Vec<u8>,
        /// Whether the node is asked to be a relay.
        relays: bool,
    },
}

/// The reply to an [`Opening`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The channel is accepted.
    Accepted {
        /// Whether GO and clear bytes follow.
        open: bool,
    },
    /// The channel is refused.
    Refused(Refusal),
}

impl Answer {
    /// Truncates the text of a refusal.
    pub fn cut(self) -> Self {
        match self {
            Self::Refused(why) => Self::Refused(why.cut()),
            accepted => accepted,
        }
    }
}
