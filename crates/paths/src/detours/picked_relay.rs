//! The relays that a download tries, each with the reason.

use serde::Serialize;
use std::fmt;
use thalweg_units::Rate;

/// Why a relay is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The mesh is small, so all relays are tried.
    All,
    /// There is no list of an oracle, so the first relays of the roster are tried.
    Unranked,
    /// Drawn by its score (UKAIRO, Algorithm 2).
    Drawn,
    /// The test detour (Algorithm 2).
    Test,
    /// Earlier downloads from this server were fast over it.
    Here,
}

/// One relay that is tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PickedRelay {
    pub relay: String,
    /// Why it is tried.
    pub reason: Reason,
    /// Its score now: a mean gain, a fraction of the direct rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The number of pairs over which the oracle's score is a mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<u64>,
    /// The number of downloads of this host in which it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried: Option<u64>,
    /// Its known rate to this server.
    #[serde(skip_serializing_if = "Option::is_none", rename = "rate_bps", serialize_with = "bps")]
    pub rate: Option<Rate>,
}

fn bps<S: serde::Serializer>(rate: &Option<Rate>, to: S) -> Result<S::Ok, S::Error> {
    rate.map(Rate::as_bps).serialize(to)
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all are tried",
            Self::Unranked => "no ranking",
            Self::Drawn => "drawn by score",
            Self::Test => "test detour",
            Self::Here => "fast to this server before",
        })
    }
}

impl fmt::Display for PickedRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.relay, self.reason)?;
        if let Some(score) = self.score {
            write!(f, ", +{:.0} %", score * 100.0)?;
        }
        match (self.tried.filter(|n| *n > 0), self.evidence) {
            (Some(n), _) => write!(f, " after {n} downloads")?,
            (None, Some(n)) => write!(f, " over {n} pairs")?,
            (None, None) => {}
        }
        if let Some(rate) = self.rate {
            write!(f, ", {rate}")?;
        }
        f.write_str(")")
    }
}
