//! What TLS's failures mean.

use super::{AcceptError, ChannelError, Protocol, tls::NotAdmitted};
use rustls::{AlertDescription, CertificateError, Error};
use std::io;
use thalweg_units::NodeId;

/// A failure of TLS as one of input and output; [`ChannelError::NotAdmitted`] inside where it is that.
pub(super) fn from_tls(error: Error) -> io::Error {
    if is_refusal(&error) {
        io::Error::new(io::ErrorKind::PermissionDenied, ChannelError::NotAdmitted)
    } else {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// Whether the peer says that it does not want our key.
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

    /// Whether somebody else answered than who was meant: with another key, or with what is no TLS.
    pub fn is_somebody_else(&self) -> bool {
        match self {
            Self::WrongKey(_) => true,
            Self::Handshake(error) => matches!(tls(error), Some(Error::InvalidMessage(_))),
            Self::NotAdmitted | Self::NotServed(_) => false,
        }
    }

    /// Whether a channel's read or write failed because the peer does not admit us.
    ///
    /// In TLS 1.3 a client is done before the server has seen its key: a
    /// refusal may show only when it reads.
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
