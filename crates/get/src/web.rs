//! How servers are spoken to, whatever the path, and what they are told of the user.

use hyper::{HeaderMap, header::AUTHORIZATION, header::HeaderValue};
use std::{collections::BTreeMap, fmt, sync::Arc};
use thalweg_net::{Dialer, TlsClient};
use thalweg_paths::url::{HttpUrl, basic};

/// Which versions of HTTP are spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1: one answer at a time on a connection, so that a path's connection carries
    /// nothing but its own segment.
    #[default]
    Http1,
    /// HTTP/2 over TLS if the server offers it, else HTTP/1.1.
    Http2,
}

impl HttpVersion {
    /// What TLS offers for it (ALPN, RFC 7301), the best first: for [`TlsClient::new`].
    pub const fn protocols(self) -> &'static [&'static [u8]] {
        match self {
            Self::Http1 => &[b"http/1.1"],
            Self::Http2 => &[b"h2", b"http/1.1"],
        }
    }
}

/// What all connections of a download are made with; cheap to clone.
#[derive(Clone, Default)]
pub struct Web {
    /// Makes the connections.
    pub dialer: Dialer,
    /// Proves servers' names; without it no `https` URL can be fetched.
    pub tls: Option<TlsClient>,
    /// What is spoken; `tls` must offer the same, see [`HttpVersion::protocols`].
    pub version: HttpVersion,
    /// Users and passwords by host, e.g. of a `.netrc`.
    pub credentials: Arc<Credentials>,
}

impl Web {
    /// Whether the server of `url`, as the user gave it, is shown a login; `fields` are the user's.
    pub fn logs_in(&self, url: &HttpUrl, fields: &HeaderMap) -> bool {
        self.fields_for(url, url, fields).contains_key(AUTHORIZATION)
    }

    /// The request fields that the server of `url` gets besides ours, if the user wrote
    /// `given` and `fields` for it.
    ///
    /// - `fields` go to the origin of `given` alone: scheme, host and port.
    /// - Of several authorizations the one in `fields` counts, then the user name in the
    ///   URL (sent to its own origin alone), then [`Credentials`]. If the URL has a user name without a password, the
    ///   password is that of this user in [`Credentials`].
    pub(super) fn fields_for(
        &self,
        given: &HttpUrl,
        url: &HttpUrl,
        fields: &HeaderMap,
    ) -> HeaderMap {
        let original = url.same_origin(given);
        let mut fields = if original { fields.clone() } else { HeaderMap::new() };
        let known = &self.credentials;
        let in_url = url.authorization();
        let completed = in_url.and_then(|user| known.of_user(url, user, original));
        let ours = || completed.or(in_url).or_else(|| known.of(url, original)).cloned();
        if !fields.contains_key(AUTHORIZATION)
            && let Some(value) = ours()
        {
            fields.insert(AUTHORIZATION, value);
        }
        fields
    }
}

/// Users and passwords by host, as a `.netrc` has them: without port and scheme.
///
/// Sent as `Basic` (RFC 7617): over TLS to every host that they name, redirected or not;
/// in the clear only where the user himself wrote `http://` and this very host and port.
/// So neither a redirect nor a fetched document makes a password readable on the way. Never printed.
#[derive(Clone, Default)]
pub struct Credentials {
    hosts: BTreeMap<String, HeaderValue>,
    /// By host and by the login of the user without a password.
    users: BTreeMap<(String, Vec<u8>), HeaderValue>,
    others: Option<HeaderValue>,
    /// Whether the user did not choose the server: nothing is sent in the clear.
    is_for_strangers: bool,
}

impl Credentials {
    /// Adds those for `host`, a name or an address; what was added for it first stays.
    pub fn add(&mut self, host: &str, user: &str, password: &str) {
        let host = bare(host);
        let without = basic(user.as_bytes(), b"").as_bytes().to_vec();
        let login = || basic(user.as_bytes(), password.as_bytes());
        self.users.entry((host.clone(), without)).or_insert_with(login);
        self.hosts.entry(host).or_insert_with(|| basic(user.as_bytes(), password.as_bytes()));
    }

    /// Sets those for all other hosts (a `default` entry): only ever sent to the origin of the
    /// URL that the user gave, since a redirect may lead anywhere.
    pub fn add_default(&mut self, user: &str, password: &str) {
        self.others.get_or_insert_with(|| basic(user.as_bytes(), password.as_bytes()));
    }

    /// The logins for URLs that the user did not give: those of named hosts, and these over TLS only.
    pub fn for_strangers(&self) -> Self {
        let (hosts, users) = (self.hosts.clone(), self.users.clone());
        Self { hosts, users, others: None, is_for_strangers: true }
    }

    /// Whether the user chose the server of `url`, and whether it may be shown a login.
    fn may_send(&self, url: &HttpUrl, original: bool) -> (bool, bool) {
        let is_chosen = original && !self.is_for_strangers;
        (is_chosen, is_chosen || url.is_https())
    }

    /// The login of the user whose login without a password is `user`.
    fn of_user(&self, url: &HttpUrl, user: &HeaderValue, original: bool) -> Option<&HeaderValue> {
        let (_, may_send) = self.may_send(url, original);
        let host = bare(&url.destination().host.to_string());
        self.users.get(&(host, user.as_bytes().to_vec())).filter(|_| may_send)
    }

    /// What the server of `url` is shown; `original`: it is that of the URL the user gave.
    fn of(&self, url: &HttpUrl, original: bool) -> Option<&HeaderValue> {
        let (is_chosen, may_send) = self.may_send(url, original);
        if !may_send {
            return None;
        }
        let named = self.hosts.get(&bare(&url.destination().host.to_string()));
        named.or_else(|| self.others.as_ref().filter(|_| is_chosen))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.hosts.keys()).finish()
    }
}

/// A host as a key: without case, brackets, and the root's dot.
fn bare(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::BASE64;

    fn url(text: &str) -> HttpUrl {
        HttpUrl::parse(text).unwrap()
    }

    /// The authorization that `to` gets if the user wrote `given`.
    fn sent(web: &Web, given: &str, to: &str, fields: &HeaderMap) -> Option<String> {
        let fields = web.fields_for(&url(given), &url(to), fields);
        fields.get(AUTHORIZATION).map(|v| v.to_str().unwrap().to_owned())
    }

    fn web() -> Web {
        let mut credentials = Credentials::default();
        credentials.add("a.example", "Aladdin", "open sesame");
        credentials.add("A.example.", "other", "later");
        credentials.add_default("guest", "");
        Web { credentials: Arc::new(credentials), ..Web::default() }
    }

    #[test]
    fn credentials_go_to_their_host_and_never_in_the_clear_by_a_redirect() {
        let web = web();
        let none = HeaderMap::new();
        let rfc = Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".to_owned());
        let guest = Some(format!("Basic {}", BASE64.encode(b"guest:")));
        for (given, to, expected) in [
            ("https://a.example/x", "https://a.example/x", &rfc),
            ("http://a.example/x", "http://a.example/y", &rfc),
            ("http://b.example/x", "https://a.example:8443/x", &rfc),
            ("https://a.example/x", "http://a.example/x", &None),
            ("http://a.example/x", "http://a.example:81/x", &None),
            ("https://b.example/x", "https://b.example/x", &guest),
            ("https://b.example/x", "https://c.example/x", &None),
        ] {
            assert_eq!(&sent(&web, given, to, &none), expected, "{given} {to}");
        }
    }

    #[test]
    fn servers_that_a_document_names_get_the_logins_of_named_hosts_over_tls_alone() {
        let credentials = Arc::new(web().credentials.for_strangers());
        let web = Web { credentials, ..Web::default() };
        let none = HeaderMap::new();
        for (given, to, is_sent) in [
            ("https://a.example/x", "https://a.example/x", true),
            ("http://a.example/x", "http://a.example/x", false),
            ("http://a.example/x", "https://a.example/x", true),
            ("https://a.example/x", "http://a.example/x", false),
            ("https://b.example/x", "https://b.example/x", false),
            ("http://b.example/x", "http://b.example/x", false),
        ] {
            assert_eq!(sent(&web, given, to, &none).is_some(), is_sent, "{given} {to}");
        }
    }

    #[test]
    fn the_users_own_field_and_url_come_first() {
        let mut fields = HeaderMap::new();
        let given = "https://me:pw@a.example/x";
        let in_url = Some(format!("Basic {}", BASE64.encode(b"me:pw")));
        assert_eq!(sent(&web(), given, given, &fields), in_url);
        fields.insert(AUTHORIZATION, HeaderValue::from_static("Bearer t"));
        assert_eq!(sent(&web(), given, given, &fields), Some("Bearer t".to_owned()));
        assert_eq!(sent(&web(), given, "https://b.example/", &fields), None);
    }

    /// As in curl.
    #[test]
    fn the_password_of_the_urls_user_is_looked_up() {
        let login = |text: &str| Some(format!("Basic {}", BASE64.encode(text.as_bytes())));
        for (given, expected) in [
            ("http://other@a.example/x", login("other:later")),
            ("http://Aladdin@a.example/x", login("Aladdin:open sesame")),
            ("http://stranger@a.example/x", login("stranger:")),
            ("http://other@b.example/x", login("other:")),
            ("http://other:own@a.example/x", login("other:own")),
        ] {
            assert_eq!(sent(&web(), given, given, &HeaderMap::new()), expected, "{given}");
        }
        let to = "http://other@a.example/x";
        let led = sent(&web(), "http://b.example/x", to, &HeaderMap::new());
        assert_eq!(led, login("other:"), "a redirect learns no password");
    }

    #[test]
    fn no_password_is_printed() {
        let text = format!("{:?} {:?}", web().credentials, basic(b"u", b"secret"));
        assert!(text.contains("a.example") && !text.contains("Basic"), "{text}");
    }
}
