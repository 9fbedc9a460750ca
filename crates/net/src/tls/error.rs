//! Errors of TLS connections, with messages that say what to do.

use super::altered_bytes::is_alteration;
use httpdate::HttpDate;
use rustls::{AlertDescription, CertificateError, Error, OtherError, pki_types::UnixTime};
use std::{io, path::PathBuf, time::Duration, time::UNIX_EPOCH};
use thalweg_wire::Host;
use thiserror::Error as ThisError;

/// TLS could not be set up, or the server did not prove its name.
#[derive(Debug, ThisError)]
pub enum TlsError {
    /// The certificates of authorities cannot be read.
    #[error("the certificates in {} cannot be used: {source}", path.display())]
    Roots {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The host's name cannot be in a certificate.
    #[error("`{0}` is not a name that a certificate can prove")]
    Name(String),
    /// The server's certificate does not prove its name.
    #[error("the certificate of {host} {why}")]
    Certificate {
        /// The host that should prove its name.
        host: String,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The handshake's bytes were altered on the way.
    #[error("bytes were altered on the way to {0} (detected by TLS)")]
    Altered(String),
    /// The handshake failed: the server does not speak TLS, there is no common version, or the connection broke.
    #[error("the TLS handshake with {host} failed: {why}")]
    Handshake {
        host: String,
        why: String,
        /// Whether the connection broke, so that another attempt may succeed.
        broken: bool,
    },
    /// A thread could not be started, or the library cannot be set up.
    #[error("cannot set up TLS: {0}")]
    System(#[source] io::Error),
}

impl TlsError {
    /// Whether the connection broke, so that another attempt may succeed.
    pub fn is_broken(&self) -> bool {
        matches!(self, Self::Handshake { broken: true, .. })
    }

    /// Whether the path has altered bytes.
    pub fn is_altered(&self) -> bool {
        matches!(self, Self::Altered(_))
    }

    pub(super) fn handshake(host: &Host, error: io::Error) -> Self {
        let host = host.to_string();
        let inner = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
        let (why, broken) = match inner {
            Some(Error::InvalidCertificate(certificate)) => {
                return Self::Certificate { host, why: certificate_text(certificate) };
            }
            // An answer that never was TLS has not been altered.
            Some(Error::InvalidMessage(_)) => {
                ("the answer is not TLS; is it an http URL?".to_owned(), false)
            }
            Some(error) if is_alteration(error) => return Self::Altered(host),
            Some(Error::AlertReceived(alert)) => (alert_text(*alert), false),
            Some(error) => (error.to_string(), false),
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                ("the server closed the connection during the handshake".to_owned(), true)
            }
            None => (error.to_string(), true),
        };
        Self::Handshake { host, why, broken }
    }
}

fn alert_text(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::ProtocolVersion => {
            "the server supports neither TLS 1.2 nor TLS 1.3, only older versions, which are \
             insecure"
                .to_owned()
        }
        AlertDescription::UnrecognisedName => "the server does not know this name".to_owned(),
        AlertDescription::CertificateRequired | AlertDescription::AccessDenied => {
            "the server requires a client certificate, which is not supported".to_owned()
        }
        other => format!("the server refused the handshake ({other:?})"),
    }
}

fn certificate_text(error: &CertificateError) -> String {
    match error {
        CertificateError::ExpiredContext { time, not_after } => format!(
            "expired on {}; this computer's clock says {}: if the clock is right, the server's \
             owner must renew the certificate",
            date(*not_after),
            date(*time),
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "is valid from {} on; this computer's clock says {}: if the clock is wrong, set it",
            date(*not_before),
            date(*time),
        ),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "is not signed by an authority that this host trusts; if you trust its authority, give \
             the authority's certificate with --cacert FILE; otherwise an attacker may be \
             impersonating the server"
                .to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            format!("is not for that name; {}", names_text(presented))
        }
        CertificateError::Revoked => "was revoked by its authority".to_owned(),
        CertificateError::Other(other) if is_authoritys(other) => {
            "is an authority's own certificate, which this host does not trust; if you trust it, \
             give it with --cacert FILE; otherwise an attacker may be impersonating the server"
                .to_owned()
        }
        other => format!("is not valid: {}", Error::InvalidCertificate(other.clone())),
    }
}

/// Whether the server presented an authority's certificate as its own, for which rustls has no error of its own.
pub(super) fn is_authoritys(error: &OtherError) -> bool {
    error.0.downcast_ref::<webpki::Error>() == Some(&webpki::Error::CaUsedAsEndEntity)
}

/// Lists the names in a certificate, which webpki gives in Rust's debug notation.
fn names_text(presented: &[String]) -> String {
    /// Certificates of large sites contain hundreds of names.
    const SHOWN: usize = 5;
    let bare = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        inner.unwrap_or(name).trim_matches('"').escape_debug().to_string()
    };
    let names: Vec<String> = presented.iter().take(SHOWN).map(bare).collect();
    match presented.len() {
        0 => "it contains no names".to_owned(),
        n if n > SHOWN => format!("it is for {} and {} more", names.join(", "), n - SHOWN),
        _ => format!("it is for {}", names.join(", ")),
    }
}

fn date(time: UnixTime) -> HttpDate {
    // The date format ends with the year 9999.
    const LAST: u64 = 253_402_300_799;
    HttpDate::from(UNIX_EPOCH + Duration::from_secs(time.as_secs().min(LAST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: Error) -> String {
        let host = Host::parse("a.example").unwrap();
        TlsError::handshake(&host, io::Error::new(io::ErrorKind::InvalidData, error)).to_string()
    }

    #[test]
    fn messages_show_the_date_and_the_clock() {
        let at = |secs| UnixTime::since_unix_epoch(Duration::from_secs(secs));
        let expired = CertificateError::ExpiredContext {
            time: at(1_000_000_000),
            not_after: at(784_111_777),
        };
        let text = text(Error::InvalidCertificate(expired));
        assert!(text.contains("Sun, 06 Nov 1994 08:49:37 GMT"), "{text}");
        assert!(text.contains("Sun, 09 Sep 2001 01:46:40 GMT"), "{text}");
        assert_eq!(date(at(u64::MAX)).to_string(), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn names_are_shown_in_plain_notation() {
        let names =
            |n: usize| (0..n).map(|i| format!("DnsName(\"h{i}.example\")")).collect::<Vec<_>>();
        assert_eq!(names_text(&names(2)), "it is for h0.example, h1.example");
        assert_eq!(names_text(&["IpAddress(10.0.0.1)".into()]), "it is for 10.0.0.1");
        assert!(names_text(&names(7)).ends_with("h4.example and 2 more"));
    }

    #[test]
    fn a_closed_connection_may_be_retried_and_a_refusal_may_not() {
        let host = Host::parse("a.example").unwrap();
        let of = |kind: io::ErrorKind| TlsError::handshake(&host, kind.into());
        assert!(of(io::ErrorKind::UnexpectedEof).is_broken());
        assert!(of(io::ErrorKind::ConnectionReset).is_broken());
        let refused = Error::AlertReceived(AlertDescription::HandshakeFailure);
        let refused = io::Error::new(io::ErrorKind::InvalidData, refused);
        assert!(!TlsError::handshake(&host, refused).is_broken());
        assert!(TlsError::handshake(&host, io::Error::other(Error::DecryptError)).is_altered());
    }
}
