//! Bytes that the path has altered, told apart from connections that merely broke.

use rustls::{AlertDescription, Error};
use std::{error, io};
use thiserror::Error as ThisError;

/// TLS has found bytes of an established connection altered.
///
/// Somebody on the way did it, or broken memory, or the server itself: it may send a record
/// that fails its check on purpose, e.g. to a relay that it wants to be blamed. So it says no
/// more than that this path to this server cannot be used.
#[derive(Clone, Copy, Debug, ThisError)]
#[error("bytes were altered on the way")]
struct Altered;

/// `error` of reading from an *established* TLS stream; if it says that bytes were altered,
/// one that [`says_altered`] knows again, also when a library keeps no more than its text.
pub fn name_altered(error: io::Error) -> io::Error {
    let altered = error.get_ref().is_some_and(|e| e.downcast_ref().is_some_and(is_alteration));
    if altered { io::Error::other(Altered) } else { error }
}

/// Whether `error`, or what caused it, came out of [`name_altered`] as an alteration.
pub fn says_altered(error: &(dyn error::Error + 'static)) -> bool {
    // HTTP/2 hands on the text alone. No server can make up an error that says only that.
    let text = Altered.to_string();
    std::iter::successors(Some(error), |e| e.source()).any(|e| e.to_string() == text)
}

/// What a wrong byte in a record leads to: its check fails here, or at the server, which
/// then says so; or, if it hit the record's head, there is no such record.
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
    fn only_what_tls_finds_altered_is_called_so() {
        let named = |e: Error| name_altered(io::Error::new(io::ErrorKind::InvalidData, e));
        assert!(says_altered(&named(Error::DecryptError)));
        assert!(says_altered(&io::Error::other(named(Error::DecryptError).to_string())));
        assert!(!says_altered(&named(Error::AlertReceived(AlertDescription::InternalError))));
        assert!(!says_altered(&name_altered(io::ErrorKind::UnexpectedEof.into())));
    }
}
