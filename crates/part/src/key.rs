//! The identity of the object that a part contains.

use super::digest::Digest;
use serde::{Deserialize, Serialize};
use std::fmt;
use thalweg_wire::object::Snapshot;

/// The identity of the bytes that a [`super::Part`] collects.
///
/// `get` identifies them by URL and validator, `gather` by node and snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum PartKey {
    /// One representation behind a URL.
    Url {
        /// The final URL, after redirects.
        url: String,
        /// Its complete length in bytes; `None` if the server does not say.
        length: Option<u64>,
        /// Distinguishes this representation from earlier and later ones.
        validator: Option<Validator>,
        /// The digests that the user expects, in a fixed order.
        digests: Vec<Digest>,
    },
    /// A file of another node, as listed there.
    Listed {
        node: String,
        /// The listed version of its content.
        snapshot: Snapshot,
    },
}

/// A server's identifier of a representation (RFC 9110 §8.8), for byte-for-byte equality.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Validator {
    /// A strong entity tag, with its quotes.
    Etag(String),
    /// A modification date, as sent. It is weaker: two changes within a second have the same date.
    LastModified(String),
    /// A modification date and a weak entity tag, which proves nothing by itself. If either changes, it is another
    /// version.
    Dated {
        /// The date as sent.
        date: String,
        /// The tag as sent, including its `W/`.
        tag: String,
    },
}

impl Validator {
    /// The modification date, if there is one.
    pub fn date(&self) -> Option<&str> {
        match self {
            Self::Etag(_) => None,
            Self::LastModified(date) | Self::Dated { date, .. } => Some(date),
        }
    }
}

impl fmt::Display for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etag(tag) => write!(f, "entity tag {tag}"),
            Self::LastModified(date) => write!(f, "date {date}"),
            Self::Dated { date, tag } => write!(f, "date {date} with tag {tag}"),
        }
    }
}

impl PartKey {
    /// The complete length in bytes, if known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Url { length, .. } => *length,
            Self::Listed { snapshot, .. } => Some(snapshot.size),
        }
    }

    /// The digests that the complete bytes must have.
    pub fn digests(&self) -> &[Digest] {
        match self {
            Self::Url { digests, .. } => digests,
            Self::Listed { .. } => &[],
        }
    }

    /// Whether bytes collected under `earlier` may be used for this key.
    ///
    /// The length must be the same, and something must prove the bytes equal: either the same expected digests, which
    /// identify the content whatever its source (a mirror may use other validators), or the same URL and validator.
    /// Otherwise a file that changed between two sessions would be a mixture of both versions.
    pub fn continues(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            (
                Self::Url { url, length: Some(n), validator, digests },
                Self::Url { url: url0, length: Some(n0), validator: v0, digests: d0 },
            ) => {
                let same_content = !digests.is_empty() && digests == d0;
                let same_version = url == url0 && validator.is_some() && validator == v0;
                n == n0 && (same_content || same_version)
            }
            (Self::Listed { .. }, Self::Listed { .. }) => self == earlier,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(length: Option<u64>, etag: Option<&str>, digests: &[Digest]) -> PartKey {
        PartKey::Url {
            url: "http://www.example/a".into(),
            length,
            validator: etag.map(|e| Validator::Etag(e.into())),
            digests: digests.to_vec(),
        }
    }

    #[test]
    fn only_bytes_that_are_proven_equal_are_continued() {
        let digest: Digest = format!("sha256:{}", "0".repeat(64)).parse().unwrap();
        let tagged = key(Some(9), Some("\"1\""), &[]);
        assert!(tagged.continues(&tagged));
        assert!(!tagged.continues(&key(Some(9), Some("\"2\""), &[])));
        assert!(!tagged.continues(&key(Some(8), Some("\"1\""), &[])));
        assert!(!tagged.continues(&key(Some(9), None, &[])));
        let bare = key(Some(9), None, &[]);
        assert!(!bare.continues(&bare), "nothing proves it the same file");
        let known = key(Some(9), None, &[digest]);
        assert!(known.continues(&known) && !known.continues(&bare));
        assert!(!key(None, Some("\"1\""), &[]).continues(&key(None, Some("\"1\""), &[])));
    }
}
