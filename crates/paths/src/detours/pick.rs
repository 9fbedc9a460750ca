//! Which relays a download tries, and why each.

use serde::Serialize;
use std::fmt;
use thalweg_units::Rate;

/// Why a relay is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The mesh is small: all are.
    All,
    /// There is no list of an oracle: the roster's first ones are.
    Unranked,
    /// Drawn by its score (UKAIRO, Algorithm 2).
    Drawn,
    /// The test detour (Algorithm 2).
    Test,
    /// Earlier downloads from this server were fast by it.
    Here,
}

/// One relay that is tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Picked {
    /// Its name.
    pub relay: String,
    /// Why.
    pub reason: Reason,
    /// Its score now: a mean gain, a fraction of the direct rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Over how many pairs the oracle's score is a mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<u64>,
    /// In how many downloads of this host it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried: Option<u64>,
    /// What it reached to this server.
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

impl fmt::Display for Picked {
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
