//! The URLs that `get` understands.

use fluent_uri::{
    Uri, UriRef,
    pct_enc::{EStr, encoder::Path},
};
use std::fmt;
use thalweg_net::{Destination, Host};
use thiserror::Error;

/// The longest file name taken from a URL, in bytes: of the 255 that file systems
/// allow, the temporary names beside it need 22.
const MAX_NAME: usize = 200;

/// The longest path and query, in bytes: as hyper's URIs. RFC 9110 §4.1 asks for
/// 8000 at least, and servers take little more.
const MAX_TARGET: usize = 65_534;

/// An absolute `http` URL, without its fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    uri: Uri<String>,
    destination: Destination,
}

/// A URL that cannot be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// Not a URI in the form of RFC 3986.
    #[error("`{0}` is not a URL; characters beyond ASCII and spaces must be written as %XX")]
    Syntax(String),
    /// TLS is not built yet.
    #[error(
        "`{0}`: https is not supported yet; it comes with a later version, until then use http"
    )]
    Https(String),
    /// Neither http nor https.
    #[error("`{0}`: only http:// URLs can be fetched")]
    Scheme(String),
    /// A user name or password in the URL.
    #[error("a user name in the URL is not sent; use --header 'Authorization: …' instead")]
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
}

impl HttpUrl {
    /// Reads an absolute URL. A missing scheme is not guessed.
    ///
    /// # Errors
    /// [`UrlError`]; the message says what to write instead.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let uri = Uri::parse(text).map_err(|_| UrlError::Syntax(text.to_owned()))?;
        Self::new(uri.to_owned())
    }

    /// Where a `Location` field read at this URL leads (RFC 3986 §5.2).
    ///
    /// # Errors
    /// As [`HttpUrl::parse`].
    pub fn join(&self, location: &str) -> Result<Self, UrlError> {
        let bad = || UrlError::Syntax(location.to_owned());
        let reference = UriRef::parse(location).map_err(|_| bad())?;
        let base = self.uri.strip_fragment();
        Self::new(reference.resolve_against(&base).map_err(|_| bad())?)
    }

    fn new(uri: Uri<String>) -> Result<Self, UrlError> {
        let uri = uri.strip_fragment().to_owned();
        let text = || uri.as_str().to_owned();
        match uri.scheme().as_str().to_ascii_lowercase().as_str() {
            "http" => {}
            "https" => return Err(UrlError::Https(text())),
            _ => return Err(UrlError::Scheme(text())),
        }
        let authority = uri.authority().ok_or_else(|| UrlError::Host(text()))?;
        if authority.userinfo().is_some() {
            return Err(UrlError::Credentials);
        }
        let host = Host::parse(authority.host()).map_err(|_| UrlError::Host(text()))?;
        let port = authority.port_to_u16().map_err(|_| UrlError::Host(text()))?.unwrap_or(80);
        if port == 0 {
            return Err(UrlError::Host(text()));
        }
        let url = Self { destination: Destination { host, port }, uri };
        let target = url.target();
        if target.len() > MAX_TARGET {
            return Err(UrlError::TooLong(target.len()));
        }
        // What a request is made of later.
        let readable = target.parse::<hyper::Uri>().is_ok();
        if readable { Ok(url) } else { Err(UrlError::Syntax(target)) }
    }

    /// The server.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// The `Host` field: as in the URL, without the port if it is 80 (RFC 9110 §7.2).
    pub fn host_field(&self) -> String {
        let host = self.uri.authority().map_or("", |a| a.host());
        match self.destination.port {
            80 => host.to_owned(),
            port => format!("{host}:{port}"),
        }
    }

    /// The request's target in origin form: path and query (RFC 9112 §3.2.1).
    pub fn target(&self) -> String {
        let path = self.uri.path().as_str();
        let path = if path.is_empty() { "/" } else { path };
        self.uri.query().map_or_else(|| path.to_owned(), |q| format!("{path}?{}", q.as_str()))
    }

    /// Whether both are served by the same host and port.
    pub fn same_origin(&self, other: &Self) -> bool {
        self.destination == other.destination
    }

    fn last_segment(&self) -> &EStr<Path> {
        let path = self.uri.path();
        path.rsplit_once('/').map_or(path, |(_, last)| last)
    }

    /// Whether the name promises something else than a web page: it has an
    /// extension, and not one that pages have.
    pub(super) fn promises_no_page(&self) -> bool {
        let name = self.last_segment().as_str().to_ascii_lowercase();
        let extension = name.rsplit_once('.').map_or("", |(_, e)| e);
        const PAGES: [&str; 11] =
            ["", "html", "htm", "xhtml", "shtml", "php", "asp", "aspx", "jsp", "do", "cgi"];
        !PAGES.contains(&extension)
    }

    /// A file name from the last segment of the path, safe in any directory.
    ///
    /// Percent signs are decoded. Separators, control characters and whatever
    /// is not UTF-8 become `_`, as do a dot or a dash in front: no download
    /// shall leave its directory, hide itself, replace a hidden file, or look
    /// like an option. Cut to 200 bytes.
    ///
    /// # Errors
    /// [`UrlError::NoName`] if nothing is left.
    pub fn file_name(&self) -> Result<String, UrlError> {
        let text = self.last_segment().decode().to_string_lossy();
        let bad = |c: char| c.is_control() || matches!(c, '/' | '\\' | char::REPLACEMENT_CHARACTER);
        let mut name: String = text.chars().map(|c| if bad(c) { '_' } else { c }).collect();
        if name.starts_with(['.', '-']) {
            name.replace_range(..1, "_");
        }
        while name.len() > MAX_NAME {
            name.pop();
        }
        if name.trim().is_empty() {
            return Err(UrlError::NoName(self.uri.as_str().to_owned()));
        }
        Ok(name)
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.uri.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn url(text: &str) -> HttpUrl {
        HttpUrl::parse(text).unwrap()
    }

    #[test]
    fn a_url_gives_what_a_request_needs() {
        let u = url("http://www.example:8080/a/b?c=d#e");
        assert_eq!(u.destination().to_string(), "www.example:8080");
        assert_eq!((u.host_field(), u.target()), ("www.example:8080".into(), "/a/b?c=d".into()));
        let u = url("http://[::1]");
        assert_eq!((u.host_field(), u.target()), ("[::1]".into(), "/".into()));
        assert_eq!(u.destination().to_string(), "[::1]:80");
    }

    #[test]
    fn other_urls_are_refused_with_the_reason() {
        let error = |text: &str| HttpUrl::parse(text).unwrap_err();
        assert!(matches!(error("https://a/b"), UrlError::Https(_)));
        assert!(matches!(error("ftp://a/b"), UrlError::Scheme(_)));
        assert!(matches!(error("a/b"), UrlError::Syntax(_)));
        assert!(matches!(error("http://a/b c"), UrlError::Syntax(_)));
        assert!(matches!(error("http:///b"), UrlError::Host(_)));
        assert!(matches!(error("http://a:0/b"), UrlError::Host(_)));
        assert!(matches!(error("http://a:99999/b"), UrlError::Host(_)));
        assert_eq!(error("http://u:p@a/b"), UrlError::Credentials);
    }

    #[test]
    fn a_url_that_no_request_can_carry_is_refused() {
        let long = |n: usize| format!("http://a/{}", "b".repeat(n - 1));
        assert!(HttpUrl::parse(&long(MAX_TARGET)).is_ok());
        assert_eq!(HttpUrl::parse(&long(MAX_TARGET + 1)), Err(UrlError::TooLong(MAX_TARGET + 1)));
        assert!(matches!(url("http://b/").join(&long(70_000)), Err(UrlError::TooLong(70_000))));
    }

    #[test]
    fn redirects_are_resolved_against_the_url() {
        let base = url("http://a/b/c?d");
        for (location, to) in [
            ("/x", "http://a/x"),
            ("x", "http://a/b/x"),
            ("../x", "http://a/x"),
            ("?y", "http://a/b/c?y"),
            ("//h:81/x", "http://h:81/x"),
            ("http://h/x#f", "http://h/x"),
        ] {
            assert_eq!(base.join(location).unwrap().to_string(), to, "{location}");
        }
        assert!(matches!(base.join("https://h/x"), Err(UrlError::Https(_))));
    }

    #[test]
    fn file_names_stay_inside_their_directory() {
        for (text, name) in [
            ("http://a/b/c.iso?x=/y", "c.iso"),
            ("http://a/%2e%2e%2fetc%2fpasswd", "_._etc_passwd"),
            ("http://a/..%5Cx", "_._x"),
            ("http://a/.bashrc", "_bashrc"),
            ("http://a/-rf", "_rf"),
            ("http://a/a%00%0ab", "a__b"),
            ("http://a/%C3%A9", "é"),
            ("http://a/%FF", "_"),
            ("http://a/100%25%zz", "100%%zz"),
        ] {
            let Ok(u) = HttpUrl::parse(text) else { continue };
            assert_eq!(u.file_name().unwrap(), name, "{text}");
        }
        assert!(matches!(url("http://a/").file_name(), Err(UrlError::NoName(_))));
        assert!(matches!(url("http://a/b/%20").file_name(), Err(UrlError::NoName(_))));
    }

    proptest! {
        #[test]
        fn no_segment_gives_an_unsafe_name(segment in "([a-z.~-]|%[0-9A-F]{2}){0,120}") {
            let Ok(u) = HttpUrl::parse(&format!("http://a/{segment}")) else { return Ok(()) };
            let Ok(name) = u.file_name() else { return Ok(()) };
            prop_assert!(!name.contains(['/', '\0', '\n']) && !name.starts_with(['.', '-']));
            prop_assert!((1..=MAX_NAME).contains(&name.len()));
        }
    }
}
