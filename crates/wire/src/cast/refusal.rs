//! Why a node does not take or give a cast.

use crate::object::MAX_WHY;
use serde::{Deserialize, Serialize};
use thalweg_units::ByteSize;
use thiserror::Error;

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// No inbox takes anything from this member.
    #[error("its `[cast] inbox` takes nothing from you")]
    Policy,
    /// Larger than the inbox takes.
    #[error(
        "its inbox takes at most {} a cast (`max_bytes`), and this one has {}",
        size(*most),
        size(*bytes)
    )]
    TooLarge {
        /// Of the object, and 4 KiB for each file, directory and link in it.
        bytes: u64,
        /// Of the policy.
        most: u64,
    },
    /// The disk has no room.
    #[error(
        "its disk has room for {} beside what `[cast] keep_free` there keeps free and other casts \
         need, and {} are still to come with digests and names",
        size(*room),
        size(*bytes)
    )]
    Full {
        /// Still to come: the object's, those of digests, manifest and layout, and 4 KiB for each file,
        /// directory and link in it.
        bytes: u64,
        /// What is free beyond what is to stay free and what other casts need.
        room: u64,
    },
    /// Something else has the name.
    #[error(
        "its inbox has another file or directory of the name `{0}`, and a cast replaces nothing: remove it there, or cast \
         under another name (--name)"
    )]
    Exists(String),
    /// As many casts as it takes at a time.
    #[error("it takes part in as many casts at a time as its settings allow; try again later")]
    Busy,
    /// It does not know this cast (yet).
    #[error("it does not know this cast (yet)")]
    Unknown,
    /// The pass is not the source's for this member.
    #[error("the pass is not the source's, for another member, or too old")]
    Pass,
    /// It does not stream for others.
    #[error("it relays no casts: its settings say `relay = false`")]
    NoRelay,
    /// What was sent is not right.
    #[error("{0}")]
    Invalid(String),
    /// The operating system says no.
    #[error("{0}")]
    System(String),
    /// Its time is over, or its source has given it up.
    #[error(
        "its offer has ended: what was received is kept for a week, and the same cast \
             continues with it"
    )]
    Over,
    /// A process of the source's conducts it already.
    #[error("another `thalweg cast` of yours sends it this already")]
    Conducted,
    /// What came of a cast that was given up is still there.
    #[error("it could not delete what it received: {0}; its log has more")]
    Unremoved(String),
}

/// In the unit that people read.
fn size(bytes: u64) -> ByteSize {
    ByteSize::from_bytes(bytes)
}

impl Refusal {
    /// With no text longer than [`MAX_WHY`].
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

    /// Whether asking again later may help.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Busy | Self::Unknown | Self::Full { .. } | Self::System(_) | Self::Conducted
        )
    }

    /// Whether the receiver holds nothing of the cast that it refuses.
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
    fn sizes_have_units_and_the_settings_that_bound_them_are_named() {
        let full = Refusal::Full { bytes: 2_500_000, room: 0 }.to_string();
        assert!(full.contains("room for 0 B beside") && full.contains("2.5 MB are"), "{full}");
        assert!(full.contains("keep_free"), "{full}");
        let large = Refusal::TooLarge { bytes: 12_000_000, most: 10_000_000 }.to_string();
        let says = "at most 10 MB a cast (`max_bytes`), and this one has 12 MB";
        assert!(large.contains(says), "{large}");
    }
}
