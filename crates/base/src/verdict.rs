//! Why a transfer took as long as it did: the bound that it met, with the evidence. `thalweg_paths::verdict` finds it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What limited a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The server, or its access link, sends no faster.
    Source,
    /// A receiver takes no faster: its access link, its disk or its processor.
    Receiver,
    /// This host's own access link.
    Access,
    /// The path between them: congestion, loss, or one of its links.
    Path,
    /// A relay's quota or limit.
    Relay,
    /// Writing had to wait for the disk.
    Disk,
    /// The limit that the user gave.
    Limit,
    /// Other flows of this host share its access link.
    Rival,
    /// The server asked to wait: 429, 503, `Retry-After`.
    Server,
    /// The transfer was too short: its set-up and slow start took most of the time.
    Small,
    /// This host's processor.
    Cpu,
    /// The receive buffer is too small for the round trip.
    Window,
    /// The facts do not tell.
    Unknown,
}

impl Bound {
    /// The name in JSON and in messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Receiver => "receiver",
            Self::Access => "access",
            Self::Path => "path",
            Self::Relay => "relay",
            Self::Disk => "disk",
            Self::Limit => "limit",
            Self::Rival => "rival",
            Self::Server => "server",
            Self::Small => "small",
            Self::Cpu => "cpu",
            Self::Window => "window",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A fact that a verdict rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// What was observed, for example the name of a path.
    pub what: String,
    /// The observed value with its unit.
    pub value: String,
    /// How old the value is, if it is from before the transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
}

/// The bound that a finished transfer met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub bound: Bound,
    /// One sentence for the user.
    pub text: String,
    /// The facts that led to it, the most important first.
    pub evidence: Vec<Evidence>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_have_the_form_of_the_api() {
        let old =
            Evidence { what: "direct".into(), value: "9.4 Mbit/s".into(), age_seconds: Some(90) };
        let new = Evidence { what: "disk".into(), value: "3 s".into(), age_seconds: None };
        let verdict =
            Verdict { bound: Bound::Path, text: "It is.".into(), evidence: vec![old, new] };
        let json = serde_json::to_string(&verdict).unwrap();
        assert_eq!(
            json,
            r#"{"bound":"path","text":"It is.","evidence":[{"what":"direct","value":"9.4 Mbit/s","age_seconds":90},{"what":"disk","value":"3 s"}]}"#
        );
        assert_eq!(serde_json::from_str::<Verdict>(&json).unwrap(), verdict);
        for bound in [Bound::Cpu, Bound::Window, Bound::Unknown, Bound::Rival] {
            assert_eq!(serde_json::to_string(&bound).unwrap(), format!("\"{bound}\""));
        }
    }
}
