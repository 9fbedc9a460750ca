//! Reasons why a node does not receive or serve a cast.

use crate::object::MAX_WHY;
use serde::{Deserialize, Serialize};
use thalweg_units::ByteSize;
use thiserror::Error;

/// Why a node refuses a cast.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// No inbox accepts casts from this member.
    #[error("its `[cast] inbox` accepts nothing from you")]
    Policy,
    /// The cast is larger than the inbox allows.
    #[error(
        "its inbox accepts at most {} per cast (`max_bytes`), and this one has {}",
        size(*most),
        size(*bytes)
    )]
    TooLarge {
        /// The size of the object, plus 4 KiB for each file, directory and link, bytes.
        bytes: u64,
        /// The inbox's limit, bytes.
        most: u64,
    },
    /// The disk has too little room.
    #[error(
        "its disk has room for {} in addition to its `[cast] keep_free` and the needs of other \
         casts, but {} are still needed for this cast, its digests and its names",
        size(*room),
        size(*bytes)
    )]
    Full {
        /// Bytes still needed: for the object, digests, manifest and layout, and 4 KiB for each file, directory and
        /// link.
        bytes: u64,
        /// Free bytes beyond the reserve and the needs of other casts.
        room: u64,
    },
    /// The name is taken.
    #[error(
        "its inbox already has another file or directory named `{0}`, which a cast does not \
         replace: remove it there, or cast under another name (--name)"
    )]
    Exists(String),
    /// The node takes part in the maximum number of casts.
    #[error(
        "it already takes part in the maximum number of casts that its settings allow; try again \
         later"
    )]
    Busy,
    /// The node does not know this cast (yet).
    #[error("it does not know this cast (yet)")]
    Unknown,
    /// The pass is not signed by the source, is for another member, or has expired.
    #[error("the pass is not signed by the source, is for another member, or has expired")]
    Pass,
    /// The node does not relay casts.
    #[error("it does not relay casts: its settings have `relay = false`")]
    NoRelay,
    /// A message is invalid; contains the reason.
    #[error("{0}")]
    Invalid(String),
    /// The operating system reports an error.
    #[error("{0}")]
    System(String),
    /// The offer has expired, or the source has given the cast up.
    #[error(
        "its offer has ended: the received data is kept for a week, and the same cast continues \
         with it"
    )]
    Over,
    /// Another process of the source conducts the cast already.
    #[error("another `thalweg cast` of yours is already sending this to it")]
    Conducted,
    /// The data of a cast that was given up could not be deleted.
    #[error("it could not delete the received data: {0}; its log has more")]
    Unremoved(String),
}

/// Formats bytes with a decimal unit.
fn size(bytes: u64) -> ByteSize {
    ByteSize::from_bytes(bytes)
}

impl Refusal {
    /// Truncates its text to [`MAX_WHY`] bytes.
    pub fn cut(mut self) -> Self {
        if let Self::Exists(text)
        | Self::Invalid(text)
        | Self::System(text)
        | Self::Unremoved(text) = &mut self
        {
            super::control::cut(text, MAX_WHY);
        }
        self
    }

    /// Whether a later attempt may succeed.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Busy | Self::Unknown | Self::Full { .. } | Self::System(_) | Self::Conducted
        )
    }

    /// Whether the receiver has no data of the refused cast.
    pub fn holds_nothing(&self) -> bool {
        use Refusal as R;
        matches!(
            self,
            R::Policy
                | R::TooLarge { .. }
                | R::Full { .. }
                | R::Exists(_)
                | R::Unknown
                | R::NoRelay
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_sizes_with_units_and_name_the_settings() {
        let full = Refusal::Full { bytes: 2_500_000, room: 0 }.to_string();
        assert!(full.contains("room for 0 B in addition") && full.contains("2.5 MB are"), "{full}");
        assert!(full.contains("keep_free"), "{full}");
        let large = Refusal::TooLarge { bytes: 12_000_000, most: 10_000_000 }.to_string();
        let says = "at most 10 MB per cast (`max_bytes`), and this one has 12 MB";
        assert!(large.contains(says), "{large}");
    }
}
