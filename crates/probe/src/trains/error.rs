//! Why a session fails.

use std::{io, net::IpAddr, time::Duration};
use thalweg_measure::train::Dishonest;
use thalweg_wire::probe::Refusal;
use thiserror::Error;

/// What came in between.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The channel.
    #[error("the connection to the member failed: {0}")]
    Channel(#[from] io::Error),
    /// It does not.
    #[error("the member refuses: {0}")]
    Refused(#[from] Refusal),
    /// It answered nothing for so long.
    #[error(
        "no answer from the member for {} s: it, or the path to it, is gone, or too slow; try again",
        .0.as_secs()
    )]
    Silent(Duration),
    /// It answered something else.
    #[error("the member does not keep to the protocol: {0}")]
    Protocol(&'static str),
    /// Datagrams do not pass.
    #[error("no datagram reaches UDP port {1} of {0}: does a firewall let it through?")]
    Shut(IpAddr, u16),
    /// This host, or the member's, cannot.
    #[error("{0}")]
    Dishonest(#[from] Dishonest),
    /// A probe is too short for what each one needs.
    #[error("probe {at} has {size} bytes; with its header it needs {least}")]
    Small {
        /// Its place.
        at: usize,
        /// Its size.
        size: u16,
        /// The least.
        least: u16,
    },
    /// It is too long to pass.
    #[error(
        "no probe of {size} bytes passes: the path's MTU is below {}; smaller probes may",
        u32::from(*.size) + .overhead
    )]
    Mtu {
        /// Its size.
        size: u16,
        /// What IP and UDP add, bytes.
        overhead: u32,
    },
    /// This host's own network.
    #[error("no probe could be sent: {0}")]
    Unsent(io::Error),
    /// The settings' bound.
    #[error("this node's bytes for measurements are used up for today (`max_bytes_per_day`)")]
    Budget,
    /// A node that was to send the train does not; what it says.
    #[error("the node of this host does not send it: {0}")]
    Node(String),
    /// Routers answer the sender alone.
    #[error("only paths from this host can be measured hop by hop")]
    Hops,
}

impl SessionError {
    /// Whether the channel is of no more use.
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Channel(_) | Self::Silent(_) | Self::Protocol(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_falls_silent_has_not_broken_the_protocol() {
        let silent = SessionError::Silent(Duration::from_secs(10));
        assert!(silent.to_string().starts_with("no answer from the member for 10 s"), "{silent}");
        assert!(silent.is_end() && !SessionError::Budget.is_end());
    }
}
