//! Errors of transfers with another node.

use crate::land::LandError;
use std::io;
use thalweg_net::{Route, channel::ChannelError};
use thalweg_wire::{mesh::Name, object::Failure};
use thiserror::Error;

/// A transfer failed.
#[derive(Debug, Error)]
pub enum RemoteError {
    /// The other node refused this request; the channel remains usable.
    #[error("node {node}: {why}")]
    Refused {
        node: Name,
        #[source]
        why: Failure,
    },
    /// The received bytes do not match the other node's hash; the channel remains usable.
    #[error("node {node}: the received bytes do not match their hash; they are fetched again")]
    Damaged { node: Name },
    /// The bytes could not be written here. After [`LandError::File`] the channel remains usable.
    #[error(transparent)]
    Land(#[from] LandError),
    /// The channel is unusable.
    #[error("node {node} ({route}): {why}")]
    Lost {
        node: Name,
        /// The route of the channel.
        route: Box<Route>,
        #[source]
        why: io::Error,
    },
}

impl RemoteError {
    pub(super) fn lost(node: &Name, route: &Route, why: io::Error) -> Self {
        let why = match ChannelError::is_not_admitted(&why) {
            true => io::Error::new(io::ErrorKind::PermissionDenied, ChannelError::NotAdmitted),
            false => why,
        };
        Self::Lost { node: node.clone(), route: Box::new(route.clone()), why }
    }

    /// Whether another request may follow on the same channel.
    pub fn leaves_channel(&self) -> bool {
        !matches!(self, Self::Lost { .. } | Self::Land(LandError::All { .. }))
    }

    /// Whether a retry cannot succeed: the file changed, is not offered, or cannot be read.
    pub fn is_final(&self) -> bool {
        let Self::Refused { why, .. } = self else { return false };
        matches!(why, Failure::NotOffered(_) | Failure::System(_) | Failure::Changed)
    }
}
