//! Why nothing came from another node.

use crate::land::LandError;
use std::io;
use thalweg_net::{Route, channel::ChannelError};
use thalweg_wire::{mesh::Name, object::Failure};
use thiserror::Error;

/// A transfer failed.
#[derive(Debug, Error)]
pub enum RemoteError {
    /// The other node says no to this request; the channel goes on.
    #[error("node {node}: {why}")]
    Refused {
        /// Which.
        node: Name,
        /// Why.
        #[source]
        why: Failure,
    },
    /// The bytes are not those that the other node sent; the channel goes on.
    #[error("node {node}: the bytes that came do not match their hash; they are fetched again")]
    Damaged {
        /// Which.
        node: Name,
    },
    /// The bytes could not be kept here. After [`LandError::File`] the channel goes on.
    #[error(transparent)]
    Land(#[from] LandError),
    /// The channel is of no more use.
    #[error("node {node} ({route}): {why}")]
    Lost {
        /// Which.
        node: Name,
        /// By which way.
        route: Box<Route>,
        /// What happened.
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

    /// Whether this file will not come, however it is asked for: it changed, is not offered or
    /// cannot be read.
    pub fn is_final(&self) -> bool {
        let Self::Refused { why, .. } = self else { return false };
        matches!(why, Failure::NotOffered(_) | Failure::System(_) | Failure::Changed)
    }
}
