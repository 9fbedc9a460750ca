//! Errors of sessions.

use std::{io, net::IpAddr, time::Duration};
use thalweg_measure::train::PacingError;
use thalweg_wire::probe::Refusal;
use thiserror::Error;

/// Why a session or a train failed.
#[derive(Debug, Error)]
pub enum SessionError {
    #[error("the connection to the member failed: {0}")]
    Channel(#[from] io::Error),
    #[error("the member refuses: {0}")]
    Refused(#[from] Refusal),
    /// The member did not answer for this long.
    #[error(
        "no answer from the member for {} s: the member or the path to it is down or too slow; try again",
        .0.as_secs()
    )]
    Silent(Duration),
    /// The member closed the session before it answered.
    #[error(
        "the member closed the session, perhaps because its node was restarted; try again, and look \
         at the member's log if it happens again"
    )]
    Closed,
    /// The member gave an answer that violates the protocol.
    #[error("the member violates the protocol: {0}")]
    Protocol(&'static str),
    /// No datagrams pass to this address and UDP port.
    #[error("no datagram reaches UDP port {1} of {0}; check whether a firewall blocks it")]
    Shut(IpAddr, u16),
    /// This host or the member's cannot send the train truthfully.
    #[error("{0}")]
    Pacing(#[from] PacingError),
    /// A probe is too short for its header.
    #[error("probe {at} has {size} bytes; with its header it needs at least {least}")]
    Small {
        /// The probe's index.
        at: usize,
        /// Its size, bytes.
        size: u16,
        /// The minimum size, bytes.
        least: u16,
    },
    /// The probe exceeds the path MTU.
    #[error(
        "no probe of {size} bytes passes: the path's MTU is below {}; try smaller probes",
        u32::from(*.size) + .overhead
    )]
    Mtu {
        /// Its size, bytes.
        size: u16,
        /// IP and UDP header bytes per probe.
        overhead: u32,
    },
    /// This host's network sent no probe.
    #[error("cannot send probes: {0}")]
    Unsent(io::Error),
    /// The bytes that the settings allow per day are used up.
    #[error("this node's bytes for measurements are used up for today (`max_bytes_per_day`)")]
    Budget,
    /// The node that was to send the train refused, for this reason.
    #[error("the local node refused to send the train: {0}")]
    Node(String),
    /// Routers report to the sender alone, so a train with hop limits cannot be requested.
    #[error("hop-by-hop measurement works only for paths that start at this host")]
    Hops,
}

impl SessionError {
    /// Whether the channel can no longer be used.
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Channel(_) | Self::Silent(_) | Self::Closed | Self::Protocol(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_no_protocol_error_but_ends_the_session() {
        let silent = SessionError::Silent(Duration::from_secs(10));
        assert!(silent.to_string().starts_with("no answer from the member for 10 s"), "{silent}");
        assert!(silent.is_end() && !SessionError::Budget.is_end());
    }
}
