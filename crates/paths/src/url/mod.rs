//! Parses the URLs that `get` can fetch.

mod error;
mod repair;

pub use error::UrlError;

use crate::inward_redirect;
use data_encoding::BASE64;
use error::{hidden, unreadable};
use fluent_uri::{
    Uri, UriRef,
    pct_enc::{
        EStr,
        encoder::{Path, Userinfo},
    },
};
use hyper::header::HeaderValue;
use repair::repaired;
use std::fmt;
use thalweg_net::{Destination, Host};
use thalweg_wire::file_name;

/// The longest path and query, in bytes: the limit of hyper's URIs. RFC 9110 §4.1 recommends at least 8000, and servers
/// accept little more.
const MAX_TARGET: usize = 65_534;

/// An absolute `http` or `https` URL, without its fragment and without credentials.
///
/// A user name and password before the host are removed and stored separately: they are sent only to this origin, and
/// never printed. Two URLs are equal if their texts are equal.
#[derive(Clone, Debug)]
pub struct HttpUrl {
    uri: Uri<String>,
    destination: Destination,
    https: bool,
    authorization: Option<HeaderValue>,
    /// The URL that the user gave, if redirects led from it to this one.
    given: Option<RedirectStart>,
}

/// The start of a chain of redirects, by which they are judged.
#[derive(Clone, Debug)]
pub struct RedirectStart {
    /// The server of the user's own URL.
    pub destination: Destination,
    https: bool,
}

impl HttpUrl {
    /// Parses an absolute URL or IRI. Characters that the grammar does not allow are percent-encoded, and a host's name
    /// becomes ASCII. A missing scheme is not guessed.
    ///
    /// # Errors
    /// [`UrlError`]; the message suggests what to write instead.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let mended = repaired(text.as_bytes());
        let uri = Uri::parse(mended.as_str()).map_err(|_| unreadable(text, &mended))?;
        let port_follows = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        match text.split_once(':') {
            // `localhost:8080/x` parses as a scheme and a path.
            Some((_, rest)) if port_follows(rest) => Err(UrlError::NoScheme(hidden(text))),
            _ => Self::new(without_dot_segments(uri)),
        }
    }

    /// Resolves a `Location` field received from this URL (RFC 3986 §5.2).
    ///
    /// # Errors
    /// As [`HttpUrl::parse`], and for forbidden redirects:
    /// - from https to http, unless the user's own URL was http: a user who gave https relies on it; one who gave http
    ///   has been redirected without TLS anyway;
    /// - to an address of this network, see [`UrlError::Inward`].
    ///
    /// A `Location` may contain any octets and is repaired as in [`HttpUrl::parse`]. A user name in it is sent to the
    /// new server, as in curl and browsers: it contains nothing that the redirecting server did not know.
    pub fn join(&self, location: impl AsRef<[u8]>) -> Result<Self, UrlError> {
        let location = location.as_ref();
        let bad = || UrlError::Syntax(hidden(&String::from_utf8_lossy(location)));
        let mended = with_two_slashes(repaired(location));
        let reference = UriRef::parse(mended.as_str()).map_err(|_| bad())?;
        let base = self.uri.strip_fragment();
        let mut to = Self::new(reference.resolve_against(&base).map_err(|_| bad())?)?;
        let given = self.given.clone().unwrap_or_else(|| self.redirect_start());
        if self.https && !to.https && given.https {
            return Err(UrlError::Downgrade(to.to_string()));
        }
        if let (Host::Ip(from), Host::Ip(ip)) = (&given.destination.host, &to.destination.host) {
            inward_redirect::check(&to.destination.host, *ip, &[*from])?;
        }
        if to.authorization.is_none() && to.same_origin(self) {
            to.authorization.clone_from(&self.authorization);
        }
        to.given = Some(given);
        Ok(to)
    }

    fn new(uri: Uri<String>) -> Result<Self, UrlError> {
        let uri = uri.strip_fragment().to_owned();
        let Some(user) = uri.authority().and_then(|a| a.userinfo()) else {
            return Self::clean(uri, None);
        };
        // The first `//` of a URI with an authority is the one before the authority.
        let text = uri.as_str().replacen(&format!("//{user}@"), "//", 1);
        let clean = Uri::parse(text).map_err(|_| UrlError::Syntax(hidden(uri.as_str())))?;
        Self::clean(clean, Some(authorization(user)))
    }

    /// Creates a URL from a URI without credentials.
    fn clean(uri: Uri<String>, authorization: Option<HeaderValue>) -> Result<Self, UrlError> {
        let text = || uri.as_str().to_owned();
        let (https, usual) = match uri.scheme().as_str().to_ascii_lowercase().as_str() {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err(UrlError::Scheme(hidden(uri.as_str()))),
        };
        let authority = uri.authority().ok_or_else(|| UrlError::Host(text()))?;
        // Host names are case-insensitive (RFC 3986 §6.2.2.1).
        let name = authority.host().to_ascii_lowercase();
        let host = Host::parse(&name).map_err(|_| UrlError::Host(text()))?;
        let port = authority.port_to_u16().map_err(|_| UrlError::Host(text()))?.unwrap_or(usual);
        if port == 0 {
            return Err(UrlError::Host(text()));
        }
        let destination = Destination { host, port };
        let url = Self { destination, uri, https, authorization, given: None };
        let target = url.target();
        if target.len() > MAX_TARGET {
            return Err(UrlError::TooLong(target.len()));
        }
        // Requests use this target later, so it must parse.
        let readable = target.parse::<hyper::Uri>().is_ok();
        if readable { Ok(url) } else { Err(UrlError::Syntax(target)) }
    }

    fn redirect_start(&self) -> RedirectStart {
        RedirectStart { destination: self.destination.clone(), https: self.https }
    }

    /// The start of the redirects that led here; `None` if the user gave this URL.
    pub fn given(&self) -> Option<&RedirectStart> {
        self.given.as_ref()
    }

    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Whether it is fetched over TLS.
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// Its scheme, host and port, such as `https://www.example:443` (RFC 6454 §6).
    pub fn origin(&self) -> String {
        format!("{}://{}", self.scheme(), self.destination)
    }

    fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }

    /// The user name and password of the URL, as the value of a field.
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// The value of the `Host` field: as in the URL, without the scheme's default port (RFC 9110 §7.2).
    pub fn host_field(&self) -> String {
        let host = self.uri.authority().map_or("", |a| a.host());
        match (self.destination.port, self.https) {
            (80, false) | (443, true) => host.to_owned(),
            (port, _) => format!("{host}:{port}"),
        }
    }

    /// The request target in origin form: path and query (RFC 9112 §3.2.1).
    pub fn target(&self) -> String {
        let path = self.uri.path().as_str();
        let path = if path.is_empty() { "/" } else { path };
        self.uri.query().map_or_else(|| path.to_owned(), |q| format!("{path}?{}", q.as_str()))
    }

    /// Whether both have the same scheme, host and port.
    pub fn same_origin(&self, other: &Self) -> bool {
        self.https == other.https && self.destination == other.destination
    }

    fn last_segment(&self) -> &EStr<Path> {
        let path = self.uri.path();
        path.rsplit_once('/').map_or(path, |(_, last)| last)
    }

    /// Whether the name suggests something other than a web page: it has an extension that web pages do not have.
    pub fn promises_no_page(&self) -> bool {
        let name = self.last_segment().as_str().to_ascii_lowercase();
        let extension = name.rsplit_once('.').map_or("", |(_, e)| e);
        const PAGES: [&str; 11] =
            ["", "html", "htm", "xhtml", "shtml", "php", "asp", "aspx", "jsp", "do", "cgi"];
        !PAGES.contains(&extension)
    }

    /// A file name from the last segment of the path, percent-decoded, and safe in any directory: see
    /// [`thalweg_wire::file_name`].
    ///
    /// # Errors
    /// [`UrlError::NoName`] if no name is left.
    pub fn file_name(&self) -> Result<String, UrlError> {
        let name = file_name::safe(&self.last_segment().decode().to_string_lossy());
        name.ok_or_else(|| UrlError::NoName(self.uri.as_str().to_owned()))
    }
}

/// Resolves `.` and `..` in the URL's path (RFC 3986 §5.2.4), as curl and browsers do.
fn without_dot_segments(uri: Uri<&str>) -> Uri<String> {
    let plain = || uri.to_owned();
    if !uri.path().as_str().contains("/.") {
        return plain();
    }
    let reference = UriRef::from(uri);
    reference.resolve_against(&uri.strip_fragment()).unwrap_or_else(|_| plain())
}

/// Writes exactly two slashes after the scheme, because some servers write one or three in a `Location`.
fn with_two_slashes(location: String) -> String {
    let Some((scheme, rest)) = location.split_once(":/") else { return location };
    let is_http = ["http", "https"].iter().any(|name| scheme.eq_ignore_ascii_case(name));
    let host = rest.trim_start_matches('/');
    let is_odd = matches!(rest.len() - host.len(), 0 | 2);
    if is_http && is_odd { format!("{scheme}://{host}") } else { location }
}

/// The `Authorization` for `user:password` in a URL.
fn authorization(text: &EStr<Userinfo>) -> HeaderValue {
    let (user, password) = text.split_once(':').unwrap_or((text, EStr::EMPTY));
    basic(&user.decode().to_bytes(), &password.decode().to_bytes())
}

impl PartialEq for HttpUrl {
    fn eq(&self, other: &Self) -> bool {
        self.uri == other.uri
    }
}

impl Eq for HttpUrl {}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.uri.as_str())
    }
}

/// The value of an `Authorization` field (RFC 7617 §2); prints as `Sensitive`.
pub fn basic(user: &[u8], password: &[u8]) -> HeaderValue {
    let text = format!("Basic {}", BASE64.encode(&[user, b":", password].concat()));
    // Base64 is always a valid field value.
    let mut value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests;
