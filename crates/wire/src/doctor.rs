//! Checks of a pair of members: the messages of the channel `doctor`, and the findings that they carry.
//!
//! ```text
//! asker ─► Request, several in turn on one channel ─► member
//! asker ◄─ Reply, one for each                     ◄─ member
//! ```
//!
//! Each message is `length:u32 ‖ postcard`, as in [`crate::object`]. Texts in replies are a peer's: they are bounded
//! here and must be escaped where they are printed.

use crate::{Destination, mesh::Name};
use serde::{Deserialize, Serialize};
use std::{net::SocketAddr, time::Duration};
use thalweg_units::{WallTime, serde_duration};

/// The most padding in one message, bytes: more than a connection's first window, so that full-sized packets are sent.
pub const MAX_PADDING: usize = 32 << 10;

/// The longest request, bytes.
pub const MAX_REQUEST: usize = MAX_PADDING + 64;

/// The longest reply, bytes: padding, or [`MAX_FINDINGS`] findings.
pub const MAX_REPLY: usize = 64 << 10;

/// The most findings in one reply.
pub const MAX_FINDINGS: usize = 32;

/// The longest text of a finding in a reply, bytes.
pub const MAX_TEXT: usize = 600;

/// What a member asks of another one about the pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Asks for the member's name, version, clock, and the address from which it sees this connection.
    Hello,
    /// Carries padding, and asks for `down` bytes of it, at most [`MAX_PADDING`].
    Echo { up: Vec<u8>, down: u32 },
    /// Asks the member to connect to the asker's addresses: those in the member's own roster, and no others.
    DialBack,
    /// Asks for the member's checks that concern both hosts.
    Findings,
}

/// The answer to a [`Request`] of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    Hello(Hello),
    Echo(Vec<u8>),
    DialBack(Vec<DialedBack>),
    Findings(Vec<Finding>),
    /// The request was not carried out, for this reason.
    Refused(String),
}

/// What a member says of itself and of the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub name: Name,
    /// The version of its program.
    pub version: String,
    /// Its clock.
    pub time: WallTime,
    /// The asker's address as this member sees it.
    pub seen_as: SocketAddr,
    /// The version of its roster.
    pub roster: u64,
}

/// The result of connecting to one of the asker's addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DialedBack {
    pub address: Destination,
    pub outcome: DialOutcome,
    /// How long it took.
    #[serde(with = "serde_duration")]
    pub took: Duration,
}

/// How an attempt to connect ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DialOutcome {
    /// The asker's node answered and proved its key.
    Reached,
    /// A TCP connection stood, but its other end proved no key: another program, or `thalweg doctor` itself.
    Open(String),
    /// A node with another key answered.
    OtherKey,
    /// The connection was refused: nothing listens, or a firewall rejects.
    Refused,
    /// Nothing answered.
    TimedOut,
    /// Something else failed.
    Failed(String),
}

/// How serious a finding is; later ones are more serious.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Checked, and in order.
    Ok,
    /// Could not be checked; `seen` says why.
    Unchecked,
    /// Worth knowing, nothing to repair.
    Note,
    /// Works, but worse than it could, or not for long.
    Warning,
    /// Something does not work.
    Error,
}

impl Severity {
    /// The word for tables and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unchecked => "unchecked",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was checked and found, such as `port.closed`; stable across versions.
    pub id: String,
    pub severity: Severity,
    /// The evidence, with numbers.
    pub seen: String,
    /// What it means for transfers; empty if `seen` says it all.
    pub means: String,
    /// A command, or else a sentence, that repairs it; empty if there is nothing to do.
    pub remedy: String,
}

impl Finding {
    /// Creates a finding without meaning and remedy.
    pub fn new(severity: Severity, id: &str, seen: impl Into<String>) -> Self {
        let (means, remedy) = Default::default();
        Self { id: id.to_owned(), severity, seen: seen.into(), means, remedy }
    }

    /// A check that found nothing wrong.
    pub fn ok(id: &str, seen: impl Into<String>) -> Self {
        Self::new(Severity::Ok, id, seen)
    }

    /// A check that could not be done.
    pub fn unchecked(id: &str, why: impl Into<String>) -> Self {
        Self::new(Severity::Unchecked, id, why)
    }

    /// Something worth knowing.
    pub fn note(id: &str, seen: impl Into<String>) -> Self {
        Self::new(Severity::Note, id, seen)
    }

    /// Something that works badly.
    pub fn warning(id: &str, seen: impl Into<String>) -> Self {
        Self::new(Severity::Warning, id, seen)
    }

    /// Something that does not work.
    pub fn error(id: &str, seen: impl Into<String>) -> Self {
        Self::new(Severity::Error, id, seen)
    }

    /// Adds what it means.
    #[must_use]
    pub fn means(self, means: impl Into<String>) -> Self {
        Self { means: means.into(), ..self }
    }

    /// Adds a remedy.
    #[must_use]
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }

    /// Cuts each text to [`MAX_TEXT`] bytes, for a reply and for what a peer sent.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        for text in [&mut self.id, &mut self.seen, &mut self.means, &mut self.remedy] {
            let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            if text.len() > end {
                text.truncate(end);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{decode, encode};
    use proptest::prelude::*;

    #[test]
    fn the_largest_messages_have_room() {
        let echo = Request::Echo { up: vec![0; MAX_PADDING], down: u32::MAX };
        assert!(encode(&echo).len() - 4 <= MAX_REQUEST);
        let text = || "é".repeat(MAX_TEXT);
        let finding = Finding::error(&text(), text()).means(text()).remedy(text()).bounded();
        assert!(finding.seen.len() <= MAX_TEXT && finding.seen.ends_with('é'));
        let short = Finding { id: "disk.full".to_owned(), ..finding };
        let all = Reply::Findings(vec![short; MAX_FINDINGS]);
        assert!(encode(&all).len() - 4 <= MAX_REPLY);
        assert_eq!(decode::<Reply>(&encode(&all)[4..]).unwrap(), all);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes: Vec<u8>) {
            if let Ok(request) = decode::<Request>(&bytes) {
                prop_assert_eq!(decode::<Request>(&encode(&request)[4..]).unwrap(), request);
            }
            _ = decode::<Reply>(&bytes);
        }
    }
}
