//! Why a text is no URL that can be fetched, without the passwords in it.

use super::MAX_TARGET;
use crate::inward::Inward;
use fluent_uri::Uri;
use thiserror::Error;

/// A URL that cannot be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// Not a URI in the form of RFC 3986.
    #[error("`{0}` is not a URL; characters beyond ASCII and spaces must be written as %XX")]
    Syntax(String),
    /// No scheme, and none is guessed.
    #[error("`{0}` does not say how to fetch it; did you mean `https://{0}`?")]
    NoScheme(String),
    /// Neither http nor https.
    #[error("`{0}`: only http:// and https:// URLs can be fetched")]
    Scheme(String),
    /// A server wants us to log in elsewhere as somebody.
    #[error("a user name in a redirect is not sent; give the final URL instead")]
    Credentials,
    /// No host, or one that is no name and no address.
    #[error("`{0}` names no usable host")]
    Host(String),
    /// More than an HTTP request can carry here.
    #[error(
        "the URL is too long: {0} bytes of path and query; at most {MAX_TARGET} can be asked for"
    )]
    TooLong(usize),
    /// The last segment of the path is no file name.
    #[error("`{0}` does not end in a file name")]
    NoName(String),
    /// From https to http: anybody on the way could then read and replace the file.
    #[error(
        "it leads from https to `{0}`, where nothing protects the file; give that URL itself if that is well"
    )]
    Downgrade(String),
    /// From the Internet into this network or host.
    #[error("{0}")]
    Inward(#[from] Inward),
}

/// `text`, without what may be a password in it.
pub(super) fn hidden(text: &str) -> String {
    let start = text.find("://").map_or(0, |i| i + 3);
    match text[start..].rfind('@') {
        Some(at) => format!("{}…{}", &text[..start], &text[start + at..]),
        None => text.to_owned(),
    }
}

/// Why a text is no absolute URI: most often only the scheme is missing.
pub(super) fn unreadable(text: &str) -> UrlError {
    let bare = !text.contains("://") && !text.starts_with('/') && text.contains(['.', '/']);
    match Uri::parse(format!("https://{text}")) {
        Ok(_) if bare => UrlError::NoScheme(hidden(text)),
        _ => UrlError::Syntax(hidden(text)),
    }
}
