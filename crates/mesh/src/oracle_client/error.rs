//! Errors of requests to an oracle.

use std::{fmt, time::Duration};
use thalweg_net::Destination;
use thalweg_wire::mesh::ApiError;
use thiserror::Error;

/// Why no oracle did what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OracleError {
    /// No oracle answered at any of the addresses.
    #[error("no oracle could be reached: {}", list(.0))]
    Unreachable(Vec<Attempt>),
    /// The oracle does not know this host's key.
    #[error(
        "the oracle does not admit this host: it was revoked, or the oracle no longer belongs to \
         this mesh; to come back, move node.key and client.key away and run `thalweg mesh join` \
         with a new token"
    )]
    NotAdmitted,
    /// The oracle refused, for this reason.
    #[error("{}", thalweg_console::field(&.0.message))]
    Refused(ApiError),
    /// The oracle failed without a reason.
    #[error("the oracle answered with status {0} and no reason; its log has more")]
    Status(u16),
    /// The oracle accepted the request, and did not answer.
    #[error("the oracle did not answer within {0:?}")]
    Silent(Duration),
    /// The connection broke, or the answer cannot be read.
    #[error("the oracle's answer is incomplete or cannot be read: {0}")]
    Broken(String),
}

/// An address that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub address: Destination,
    pub why: String,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Most reasons begin with the address already.
        let address = self.address.to_string();
        match self.why.starts_with(&address) {
            true => f.write_str(&self.why),
            false => write!(f, "{address}: {}", self.why),
        }
    }
}

fn list(attempts: &[Attempt]) -> String {
    let all: Vec<String> = attempts.iter().map(ToString::to_string).collect();
    match all.is_empty() {
        true => "no oracle's address is known; ask an admin for a new token and join again".into(),
        false => all.join("; "),
    }
}

impl From<OracleError> for ApiError {
    /// The error as the local API passes it on.
    fn from(error: OracleError) -> Self {
        let code = match error {
            OracleError::Refused(refused) => return refused,
            OracleError::Unreachable(_) => "oracle_unreachable",
            OracleError::NotAdmitted => "not_admitted",
            OracleError::Silent(_) => "oracle_silent",
            OracleError::Status(_) | OracleError::Broken(_) => "oracle_broken",
        };
        Self { code: code.to_owned(), message: error.to_string() }
    }
}
