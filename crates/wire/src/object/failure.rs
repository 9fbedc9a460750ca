//! Failures of requests, with text of a bounded length.

use crate::mesh::Name;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest text of a failure that is sent or kept, bytes: a path and a sentence. A message has room for a thousand
/// such texts, since some replies contain thousands of failures.
pub const MAX_WHY: usize = 1024;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Failure {
    /// The node's settings do not allow it; contains the path.
    #[error("this node does not offer `{0}` to you; its `[files] offer` lists what it offers")]
    NotOffered(String),
    /// The operating system reports an error.
    #[error("{0}")]
    System(String),
    /// The file has changed since it was listed.
    #[error("the file changed since it was listed")]
    Changed,
    /// The ticket was used, has expired, or is for another member.
    #[error("the ticket is not valid, or no longer valid")]
    Ticket,
    /// The spool is full; contains the bytes needed.
    #[error("the spool has no room for {0} more bytes")]
    Full(u64),
    /// The spool has no entry with this id.
    #[error("the spool has no entry with this name")]
    NoSpool,
    /// The node to fetch from failed.
    #[error("{node}: {why}")]
    Upstream {
        /// The node to fetch from.
        node: Name,
        /// Its reply, or why it was not reached.
        why: String,
    },
    /// There are too many transfers.
    #[error("this node already serves its maximum number of transfers")]
    Busy,
}

impl Failure {
    /// Truncates its text to at most `most` bytes and adds `…`.
    pub fn cut(self, most: usize) -> Self {
        match self {
            Self::NotOffered(text) => Self::NotOffered(cut(text, most)),
            Self::System(text) => Self::System(cut(text, most)),
            Self::Upstream { node, why } => Self::Upstream { node, why: cut(why, most) },
            other => other,
        }
    }

    /// The length of its text, bytes.
    pub fn text_len(&self) -> usize {
        match self {
            Self::NotOffered(text) | Self::System(text) | Self::Upstream { why: text, .. } => {
                text.len()
            }
            _ => 0,
        }
    }
}

fn cut(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    // 0 is always a boundary. The new string frees the memory of the long one.
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{DeniedGrant, Reply};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_truncated_text_is_a_prefix(text: String, most in 0_usize..40) {
            let Failure::System(kept) = Failure::System(text.clone()).cut(most) else {
                unreachable!()
            };
            prop_assert!(kept.len() <= most + "…".len());
            prop_assert!(kept == text || text.starts_with(kept.trim_end_matches('…')));
        }
    }

    #[test]
    fn long_texts_of_replies_are_truncated() {
        let long = || Failure::System("ü".repeat(100_000));
        let node = "fra".parse().unwrap();
        let upstream = Failure::Upstream { node, why: "x".repeat(100_000) };
        let is_short = |why: &Failure| why.text_len() <= MAX_WHY + "…".len();
        for reply in [
            Reply::Failed(long()),
            Reply::Listed(vec![(b"a".to_vec(), Failure::Changed), (b"b".to_vec(), upstream)]),
            Reply::Tickets(vec![Err(DeniedGrant { read: 0, why: long() })]),
            Reply::Fetched { parts: vec![Err(long())], micros: 0, most: 0, ticket: None },
        ] {
            let short = match reply.cut() {
                Reply::Failed(why) => is_short(&why),
                Reply::Listed(unread) => unread.iter().all(|(_, why)| is_short(why)),
                Reply::Tickets(all) => {
                    all.iter().all(|t| t.as_ref().is_err_and(|d| is_short(&d.why)))
                }
                Reply::Fetched { parts, .. } => {
                    parts.iter().all(|p| p.as_ref().is_err_and(is_short))
                }
                other => panic!("{other:?}"),
            };
            assert!(short);
        }
    }
}
