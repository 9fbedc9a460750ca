//! Conversion of TLS errors into errors of channels.

use super::{AcceptError, ChannelError, Protocol, tls::NotAdmitted};
use rustls::{AlertDescription, CertificateError, Error};
use std::io;
use thalweg_units::NodeId;

/// Converts a TLS error into an I/O error, with [`ChannelError::NotAdmitted`] inside if the peer refused this node's
/// key.
pub(super) fn from_tls(error: Error) -> io::Error {
    if is_refusal(&error) {
        io::Error::new(io::ErrorKind::PermissionDenied, ChannelError::NotAdmitted)
    } else {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// Whether the error is an alert by which the peer refuses this node's key.
fn is_refusal(error: &Error) -> bool {
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRevoked, CertificateUnknown,
    };
    let Error::AlertReceived(alert) = error else { return false };
    let refusals =
        [AccessDenied, BadCertificate, CertificateExpired, CertificateRevoked, CertificateUnknown];
    refusals.contains(alert)
}

fn tls(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

impl ChannelError {
    pub(super) fn from_handshake(error: io::Error, server: NodeId, protocol: Protocol) -> Self {
        if Self::is_not_admitted(&error) {
            return Self::NotAdmitted;
        }
        let other = CertificateError::ApplicationVerificationFailure;
        match tls(&error) {
            Some(Error::InvalidCertificate(why)) if *why == other => Self::WrongKey(server),
            Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
                Self::NotServed(protocol)
            }
            _ => Self::Handshake(error),
        }
    }

    /// Whether another server than the intended one answered: one with another key, or one that does not speak TLS.
    pub fn is_somebody_else(&self) -> bool {
        match self {
            Self::WrongKey(_) => true,
            Self::Handshake(error) => matches!(tls(error), Some(Error::InvalidMessage(_))),
            Self::NotAdmitted | Self::NotServed(_) => false,
        }
    }

    /// Whether a channel's read or write failed because the peer does not admit this node.
    ///
    /// In TLS 1.3 a client completes the handshake before the server has verified its key, so a refusal may show only
    /// at the client's first read.
    pub fn is_not_admitted(error: &io::Error) -> bool {
        let inner = error.get_ref().and_then(|e| e.downcast_ref());
        matches!(inner, Some(Self::NotAdmitted))
    }
}

impl AcceptError {
    pub(super) fn from_handshake(error: io::Error) -> Self {
        let stranger = match tls(&error) {
            Some(Error::InvalidCertificate(CertificateError::Other(why))) => {
                why.0.downcast_ref::<NotAdmitted>()
            }
            _ => None,
        };
        match stranger {
            Some(NotAdmitted(key)) => Self::Stranger(*key),
            None => Self::Handshake(error),
        }
    }
}
