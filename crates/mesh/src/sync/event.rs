//! Events about the roster, for the operator.

use crate::{ClockSkew, OracleError, RosterError, RosterFork};
use std::{fmt, time::Duration};
use thalweg_units::format_duration;
use thalweg_wire::mesh::RosterFault;

/// An event about the roster, reported as it happens. A condition that lasts is reported again every ten minutes.
#[derive(Debug)]
pub enum SyncEvent {
    /// There is a newer roster.
    Updated {
        version: u64,
        /// The number of its members.
        members: usize,
    },
    /// No oracle was reached, or it did not answer; the cached roster stays in use.
    Unreached(OracleError),
    /// An oracle answers again.
    Reached,
    /// The oracle's roster is not accepted: a rollback, a bad signature, or the disk is full.
    Rejected(RosterError),
    /// The newest roster does not follow from the one before.
    Forked(RosterFork),
    /// The newest roster does not list this host: it was revoked.
    NotListed,
    /// The roster expires soon, and no oracle has renewed it.
    NearExpiry(Duration),
    /// The roster is not valid: nobody is admitted.
    NotValid(RosterFault),
    /// The clocks differ.
    Skew(ClockSkew),
    /// `mesh.json` could not be written.
    NotKept(crate::StateError),
}

impl SyncEvent {
    /// Its name in logs (`[a-z_]+`).
    pub fn name(&self) -> &'static str {
        match self {
            Self::Updated { .. } => "roster_updated",
            Self::Unreached(_) => "oracle_unreached",
            Self::Reached => "oracle_reached",
            Self::Rejected(RosterError::Keep { .. }) => "roster_not_kept",
            Self::Rejected(_) => "roster_rejected",
            Self::Forked(_) => "roster_fork",
            Self::NotListed => "not_listed",
            Self::NearExpiry(_) => "roster_near_expiry",
            Self::NotValid(_) => "roster_not_valid",
            Self::Skew(_) => "clock_skew",
            Self::NotKept(_) => "mesh_file_not_kept",
        }
    }

    /// Whether the operator has to act.
    pub fn is_alert(&self) -> bool {
        match self {
            Self::Updated { .. } | Self::Reached => false,
            // An oracle may be absent for a while; a revocation is final.
            Self::Unreached(error) => *error == OracleError::NotAdmitted,
            _ => true,
        }
    }
}

impl fmt::Display for SyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Updated { version, members } => {
                write!(f, "roster version {version} with {members} members")
            }
            Self::Unreached(error @ OracleError::NotAdmitted) => error.fmt(f),
            Self::Unreached(error) => write!(f, "{error}; the cached roster stays in use"),
            Self::Reached => f.write_str("an oracle answers again"),
            Self::Rejected(error @ RosterError::Keep { .. }) => {
                write!(f, "{error}; the roster is in use only until this process ends")
            }
            Self::Rejected(error) => {
                write!(
                    f,
                    "the oracle's roster is not accepted: {error}; the cached one stays in \
                           use"
                )
            }
            Self::Forked(fork) => fork.fmt(f),
            Self::NotListed => f.write_str(
                "this host is no longer in the roster: it was revoked; to come back, move node.key \
                 and client.key away and run `thalweg mesh join` with a new token",
            ),
            Self::NearExpiry(left) => write!(
                f,
                "the roster expires in {}, and then no member is admitted; check that an oracle is \
                 running and can be reached",
                format_duration(Duration::from_secs(left.as_secs()))
            ),
            Self::NotValid(fault) => write!(f, "no member is admitted: {fault}"),
            Self::Skew(skew) => skew.fmt(f),
            Self::NotKept(error) => error.fmt(f),
        }
    }
}
