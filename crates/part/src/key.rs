//! What a part is a part of.

use super::digest::Digest;
use serde::{Deserialize, Serialize};
use std::fmt;
use thalweg_wire::object::Snapshot;

/// The identity of the bytes that a [`super::Part`] collects.
///
/// `get` keys by URL and validators, gather by node and snapshot; cast will key by object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum PartKey {
    /// One representation behind a URL.
    Url {
        /// The final URL, after redirects.
        url: String,
        /// Its complete length in bytes; `None` if the server does not say.
        length: Option<u64>,
        /// What tells this representation from an earlier or later one.
        validator: Option<Validator>,
        /// The digests the user expects, in a fixed order.
        digests: Vec<Digest>,
    },
    /// An immutable object, named by its BLAKE3 hash.
    Object {
        /// The hash, as a digest.
        hash: Digest,
        /// Its length in bytes.
        length: u64,
    },
    /// A file of another node, as it was listed there.
    Listed {
        /// The node's name.
        node: String,
        /// The content that is meant.
        snapshot: Snapshot,
    },
}

/// What a server names a representation by (RFC 9110 §8.8), for byte-for-byte equality.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Validator {
    /// A strong entity tag, with its quotes.
    Etag(String),
    /// A modification date, as sent. Weaker: two changes within a second look alike.
    LastModified(String),
    /// A modification date beside an entity tag that proves nothing by itself: a weak one. If
    /// either changes it is another version.
    Dated {
        /// As sent.
        date: String,
        /// As sent, with its `W/`.
        tag: String,
    },
}

impl Validator {
    /// The modification date, if it is one.
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
            Self::Object { length, .. } => Some(*length),
            Self::Listed { snapshot, .. } => Some(snapshot.size),
        }
    }

    /// What the whole must hash to.
    pub fn digests(&self) -> &[Digest] {
        match self {
            Self::Url { digests, .. } => digests,
            Self::Object { hash, .. } => std::slice::from_ref(hash),
            Self::Listed { .. } => &[],
        }
    }

    /// Whether bytes collected under `earlier` may be used for this.
    ///
    /// The same length, and something that proves the bytes equal: the same expected digests,
    /// which say what the file is wherever it comes from (a mirror may name its version
    /// otherwise), or the same URL and validator. Without either, a file that changed
    /// between two sessions would be mixed from both.
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
            (Self::Object { .. }, Self::Object { .. }) => self == earlier,
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
    fn only_what_is_proven_equal_is_continued() {
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
