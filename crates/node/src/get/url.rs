//! The URLs that `get` understands.

use super::{
    http::inward::{self, Inward},
    web::basic,
};
use fluent_uri::{
    Uri, UriRef,
    pct_enc::{
        EStr,
        encoder::{Path, Userinfo},
    },
};
use hyper::header::HeaderValue;
use std::fmt;
use thalweg_net::{Destination, Host};
use thiserror::Error;

/// The longest file name taken from a URL, in bytes: of the 255 that file systems
/// allow, the temporary names beside it need 22.
const MAX_NAME: usize = 200;

/// The longest path and query, in bytes: as hyper's URIs. RFC 9110 §4.1 asks for
/// 8000 at least, and servers take little more.
const MAX_TARGET: usize = 65_534;

/// An absolute `http` or `https` URL, without its fragment and without credentials.
///
/// A user name and password in front of the host are taken out and kept aside: they are
/// sent to this origin alone, and never printed. Two URLs are equal if they read the same.
#[derive(Clone, Debug)]
pub struct HttpUrl {
    uri: Uri<String>,
    destination: Destination,
    https: bool,
    authorization: Option<HeaderValue>,
    /// What the user gave, if redirects led here from there.
    given: Option<Given>,
}

/// What redirects are judged by: the start of the chain.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) destination: Destination,
    https: bool,
}

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

impl HttpUrl {
    /// Reads an absolute URL. A missing scheme is not guessed.
    ///
    /// # Errors
    /// [`UrlError`]; the message says what to write instead.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let uri = Uri::parse(text).map_err(|_| unreadable(text))?;
        let port_follows = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        match text.split_once(':') {
            // `localhost:8080/x` reads as a scheme and a path.
            Some((_, rest)) if port_follows(rest) => Err(UrlError::NoScheme(hidden(text))),
            _ => Self::new(uri.to_owned()),
        }
    }

    /// Where a `Location` field read at this URL leads (RFC 3986 §5.2).
    ///
    /// # Errors
    /// As [`HttpUrl::parse`]; and if it leads where redirects may not:
    /// - from https to http, unless the user's own URL was http: he who wrote https
    ///   counts on it, he who wrote http has been redirected in the clear anyway;
    /// - to an address of this network, see [`Inward`];
    /// - to a user name, which the server wrote and not the user.
    pub fn join(&self, location: &str) -> Result<Self, UrlError> {
        let bad = || UrlError::Syntax(hidden(location));
        let reference = UriRef::parse(location).map_err(|_| bad())?;
        let base = self.uri.strip_fragment();
        let mut to = Self::new(reference.resolve_against(&base).map_err(|_| bad())?)?;
        if to.authorization.is_some() {
            return Err(UrlError::Credentials);
        }
        let given = self.given.clone().unwrap_or_else(|| self.as_given());
        if self.https && !to.https && given.https {
            return Err(UrlError::Downgrade(to.to_string()));
        }
        if let (Host::Ip(from), Host::Ip(ip)) = (&given.destination.host, &to.destination.host) {
            inward::check(&to.destination.host, *ip, &[*from])?;
        }
        if to.same_origin(self) {
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
        // The first `//` of a URI that has an authority is the one before it.
        let text = uri.as_str().replacen(&format!("//{user}@"), "//", 1);
        let clean = Uri::parse(text).map_err(|_| UrlError::Syntax(hidden(uri.as_str())))?;
        Self::clean(clean, Some(authorization(user)))
    }

    /// From a URI that shows no credentials any more.
    fn clean(uri: Uri<String>, authorization: Option<HeaderValue>) -> Result<Self, UrlError> {
        let text = || uri.as_str().to_owned();
        let (https, usual) = match uri.scheme().as_str().to_ascii_lowercase().as_str() {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err(UrlError::Scheme(hidden(uri.as_str()))),
        };
        let authority = uri.authority().ok_or_else(|| UrlError::Host(text()))?;
        // Names are the same in any case (RFC 3986 §6.2.2.1).
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
        // What a request is made of later.
        let readable = target.parse::<hyper::Uri>().is_ok();
        if readable { Ok(url) } else { Err(UrlError::Syntax(target)) }
    }

    fn as_given(&self) -> Given {
        Given { destination: self.destination.clone(), https: self.https }
    }

    /// What the user gave, if that was another URL than this.
    pub(super) fn given(&self) -> Option<&Given> {
        self.given.as_ref()
    }

    /// The server.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Whether it is fetched over TLS.
    pub fn is_https(&self) -> bool {
        self.https
    }

    /// Its scheme, host and port, e.g. `https://www.example:443` (RFC 6454 §6).
    pub fn origin(&self) -> String {
        format!("{}://{}", self.scheme(), self.destination)
    }

    fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }

    /// The user name and password that were written in it, as a field's value.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// The `Host` field: as in the URL, without the scheme's own port (RFC 9110 §7.2).
    pub fn host_field(&self) -> String {
        let host = self.uri.authority().map_or("", |a| a.host());
        match (self.destination.port, self.https) {
            (80, false) | (443, true) => host.to_owned(),
            (port, _) => format!("{host}:{port}"),
        }
    }

    /// The request's target in origin form: path and query (RFC 9112 §3.2.1).
    pub fn target(&self) -> String {
        let path = self.uri.path().as_str();
        let path = if path.is_empty() { "/" } else { path };
        self.uri.query().map_or_else(|| path.to_owned(), |q| format!("{path}?{}", q.as_str()))
    }

    /// Whether both are served by the same scheme, host and port.
    pub fn same_origin(&self, other: &Self) -> bool {
        self.https == other.https && self.destination == other.destination
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

/// The `Authorization` that stands for `user:password` in a URL.
fn authorization(text: &EStr<Userinfo>) -> HeaderValue {
    let (user, password) = text.split_once(':').unwrap_or((text, EStr::EMPTY));
    basic(&user.decode().to_bytes(), &password.decode().to_bytes())
}

/// `text`, without what may be a password in it.
fn hidden(text: &str) -> String {
    let start = text.find("://").map_or(0, |i| i + 3);
    match text[start..].rfind('@') {
        Some(at) => format!("{}…{}", &text[..start], &text[start + at..]),
        None => text.to_owned(),
    }
}

/// Why a text is no absolute URI: most often only the scheme is missing.
fn unreadable(text: &str) -> UrlError {
    let bare = !text.contains("://") && !text.starts_with('/') && text.contains(['.', '/']);
    match Uri::parse(format!("https://{text}")) {
        Ok(_) if bare => UrlError::NoScheme(hidden(text)),
        _ => UrlError::Syntax(hidden(text)),
    }
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
    fn https_has_a_port_and_an_origin_of_its_own() {
        let u = url("HTTPS://Www.Example/a");
        assert_eq!(
            (u.origin(), u.host_field()),
            ("https://www.example:443".into(), "Www.Example".into())
        );
        assert_eq!(url("https://a:80/").host_field(), "a:80");
        assert!(u.is_https() && u.same_origin(&url("https://www.example:443/b")));
        assert!(!u.same_origin(&url("http://www.example:443/b")));
    }

    #[test]
    fn other_urls_are_refused_with_the_reason() {
        let error = |text: &str| HttpUrl::parse(text).unwrap_err();
        assert!(matches!(error("ftp://a/b"), UrlError::Scheme(_)));
        assert!(matches!(error("http://a/b c"), UrlError::Syntax(_)));
        assert!(matches!(error("file"), UrlError::Syntax(_)));
        assert!(matches!(error("http:///b"), UrlError::Host(_)));
        assert!(matches!(error("http:/b"), UrlError::Host(_)));
        assert!(matches!(error("http://a:0/b"), UrlError::Host(_)));
        assert!(matches!(error("http://a:99999/b"), UrlError::Host(_)));
        for text in ["a/b", "www.example", "localhost:8080/b", "10.0.0.1:81/b"] {
            let shown = error(text).to_string();
            assert!(shown.contains(&format!("`https://{text}`")), "{shown}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_sent_and_not_shown() {
        let u = url("https://me:s%2Fcret@a:81/b#c");
        assert_eq!((u.to_string(), u.host_field()), ("https://a:81/b".into(), "a:81".into()));
        assert_eq!(u.authorization(), Some(&basic(b"me", b"s/cret")));
        assert_eq!(u.join("/d").unwrap().authorization(), u.authorization());
        assert_eq!(u.join("https://b/d").unwrap().authorization(), None);
        assert_eq!(u.join("https://x:y@b/d"), Err(UrlError::Credentials));
        assert!(!format!("{u:?}").contains("cret"));
        for text in [
            "https://me:secret@a b/",
            "me:secret@a/b",
            "https://me:sec/ret@a/",
            "ftp://me:secret@a/",
            "https://me:secret@a:0/",
            "me:secret@a.example",
            "https://me:secret@",
        ] {
            let error = HttpUrl::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("sec"), "{error:?}");
        }
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
        assert_eq!(base.join("//u:p@h/x"), Err(UrlError::Credentials));
    }

    #[test]
    fn redirects_leave_https_only_for_who_gave_http() {
        let up = url("http://a/").join("https://a/x").unwrap();
        assert_eq!(up.join("http://b/x").unwrap().to_string(), "http://b/x");
        let error = url("https://a/").join("https://b/").unwrap().join("http://b/x").unwrap_err();
        assert_eq!(error, UrlError::Downgrade("http://b/x".into()));
    }

    #[test]
    fn redirects_do_not_lead_into_the_private_network() {
        let into = |from: &str, to: &str| url(from).join(to).map(|_| ());
        for (from, to) in [
            ("http://8.8.8.8/", "http://127.0.0.1/x"),
            ("http://8.8.8.8/", "http://[::ffff:10.0.0.1]/x"),
            ("http://10.0.0.1/", "http://169.254.169.254/x"),
        ] {
            assert!(matches!(into(from, to), Err(UrlError::Inward(_))), "{from} {to}");
        }
        assert_eq!(into("http://10.0.0.1/", "http://10.0.0.2/x"), Ok(()));
        assert_eq!(into("http://127.0.0.1/", "http://8.8.8.8/x"), Ok(()));
        let twice = url("http://8.8.8.8/").join("http://9.9.9.9/").unwrap().join("http://[::1]/");
        assert!(matches!(twice, Err(UrlError::Inward(_))));
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
