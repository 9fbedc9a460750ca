//! Errors of URLs, without the passwords in them.

use super::MAX_TARGET;
use crate::inward_redirect::InwardRedirect;
use fluent_uri::Uri;
use thiserror::Error;

/// Why a URL cannot be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// The text is not a URI by RFC 3986, and cannot be repaired to one.
    #[error("`{0}` is not a URL; one looks like https://example.org/file")]
    Syntax(String),
    /// There is no scheme; none is guessed.
    #[error("`{0}` has no scheme; did you mean `https://{0}`?")]
    NoScheme(String),
    /// The scheme is neither http nor https.
    #[error("`{0}`: only http:// and https:// URLs can be fetched")]
    Scheme(String),
    /// There is no host, or it is neither a name nor an address.
    #[error("`{0}` has no valid host")]
    Host(String),
    /// The path and query are longer than a request can carry.
    #[error(
        "the URL is too long: its path and query have {0} bytes; at most {MAX_TARGET} are allowed"
    )]
    TooLong(usize),
    /// The last segment of the path is not a file name.
    #[error("`{0}` does not end in a file name")]
    NoName(String),
    /// A redirect leads from https to http, where anybody on the way could read and replace the file.
    #[error(
        "it leads from https to `{0}`, where the file is not protected; give that URL itself if this is intended"
    )]
    Downgrade(String),
    /// A redirect leads from the Internet into this network or host.
    #[error("{0}")]
    Inward(#[from] InwardRedirect),
}

/// Replaces a possible password in `text`.
pub(super) fn hidden(text: &str) -> String {
    let start = text.find("://").map_or(0, |i| i + 3);
    match text[start..].rfind('@') {
        Some(at) => format!("{}…{}", &text[..start], &text[start + at..]),
        None => text.to_owned(),
    }
}

/// The error for a text that is not an absolute URI, even after repair: usually only the scheme is missing.
pub(super) fn unreadable(text: &str, mended: &str) -> UrlError {
    let bare = !text.contains("://") && !text.starts_with('/') && text.contains(['.', '/']);
    match Uri::parse(format!("https://{}", mended.trim_start_matches("./"))) {
        Ok(_) if bare => UrlError::NoScheme(hidden(text)),
        _ => UrlError::Syntax(hidden(text)),
    }
}
