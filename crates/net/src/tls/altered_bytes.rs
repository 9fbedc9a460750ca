//! Distinguishes bytes altered on the path from broken connections.

use rustls::{AlertDescription, Error};
use std::{error, io};
use thiserror::Error as ThisError;

/// TLS has detected altered bytes on an established connection.
///
/// Somebody on the path, broken memory or the server itself can cause this: a server may deliberately send a record
/// that fails the check, e.g. to discredit a relay. So it only shows that this path to this server cannot be used.
#[derive(Clone, Copy, Debug, ThisError)]
#[error("bytes were altered on the way")]
struct AlteredBytes;

/// Converts an error of reading from an *established* TLS stream. If it reports altered bytes, the result is an error
/// that [`says_altered`] recognizes, even if a library keeps only its text.
pub fn name_altered(error: io::Error) -> io::Error {
    let altered = error.get_ref().is_some_and(|e| e.downcast_ref().is_some_and(is_alteration));
    if altered { io::Error::other(AlteredBytes) } else { error }
}

/// Whether `error`, or one of its sources, is [`name_altered`]'s error for altered bytes.
pub fn says_altered(error: &(dyn error::Error + 'static)) -> bool {
    // HTTP/2 passes on only the text. No server can cause an error with exactly this text.
    let text = AlteredBytes.to_string();
    std::iter::successors(Some(error), |e| e.source()).any(|e| e.to_string() == text)
}

/// Whether the error can be the effect of a wrong byte in a record: the record's check fails here, or at the server,
/// which then sends an alert; or the header is invalid, if the byte was in it.
pub(super) fn is_alteration(error: &Error) -> bool {
    let alert = |a: &AlertDescription| {
        matches!(a, AlertDescription::BadRecordMac | AlertDescription::DecryptError)
    };
    match error {
        Error::DecryptError | Error::InvalidMessage(_) | Error::PeerSentOversizedRecord => true,
        Error::AlertReceived(description) => alert(description),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_altered_bytes_are_named_so() {
        let named = |e: Error| name_altered(io::Error::new(io::ErrorKind::InvalidData, e));
        assert!(says_altered(&named(Error::DecryptError)));
        assert!(says_altered(&io::Error::other(named(Error::DecryptError).to_string())));
        assert!(!says_altered(&named(Error::AlertReceived(AlertDescription::InternalError))));
        assert!(!says_altered(&name_altered(io::ErrorKind::UnexpectedEof.into())));
    }
}
