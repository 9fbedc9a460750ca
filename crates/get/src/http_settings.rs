//! How connections are made, and which logins servers get.

use hyper::{HeaderMap, header::AUTHORIZATION, header::HeaderValue};
use std::{collections::BTreeMap, fmt, sync::Arc};
use thalweg_net::{Dialer, TlsClient};
use thalweg_paths::url::{HttpUrl, basic};

/// The versions of HTTP that are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1: one answer at a time on a connection, so that a path's connection carries nothing but its own segment.
    #[default]
    Http1,
    /// HTTP/2 over TLS if the server offers it, else HTTP/1.1.
    Http2,
}

impl HttpVersion {
    /// The protocols to offer in TLS (ALPN, RFC 7301), the preferred one first; an argument of [`TlsClient::new`].
    pub const fn protocols(self) -> &'static [&'static [u8]] {
        match self {
            Self::Http1 => &[b"http/1.1"],
            Self::Http2 => &[b"h2", b"http/1.1"],
        }
    }
}

/// The settings for all connections of a download. Cheap to clone.
#[derive(Clone, Default)]
pub struct HttpSettings {
    pub dialer: Dialer,
    /// Verifies the servers' names; without it no `https` URL can be fetched.
    pub tls: Option<TlsClient>,
    /// The HTTP version; `tls` must offer the same, see [`HttpVersion::protocols`].
    pub version: HttpVersion,
    /// Users and passwords by host, for example from a `.netrc`.
    pub credentials: Arc<Credentials>,
}

impl HttpSettings {
    /// Whether the server of `url`, a URL that the user gave, gets a login; `fields` are the user's.
    pub fn logs_in(&self, url: &HttpUrl, fields: &HeaderMap) -> bool {
        self.fields_for(url, url, fields).contains_key(AUTHORIZATION)
    }

    /// The additional request fields for the server of `url`, if the user gave the URL `given` and the fields `fields`.
    ///
    /// - `fields` are sent only to the origin of `given`: scheme, host and port.
    /// - Of several authorizations, the one in `fields` comes first, then the user name in the URL (sent only to its
    ///   own origin), then [`Credentials`]. If the URL has a user name without a password, the password of this user in
    ///   [`Credentials`] is used.
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
        let ours = || completed.or(in_url).or_else(|| known.header_for(url, original)).cloned();
        if !fields.contains_key(AUTHORIZATION)
            && let Some(value) = ours()
        {
            fields.insert(AUTHORIZATION, value);
        }
        fields
    }
}

/// Users and passwords by host, as in a `.netrc`: without port and scheme.
///
/// Sent as `Basic` (RFC 7617): over TLS to every host with an entry, redirected or not; without TLS only if the user
/// gave `http://` and this host and port. So neither a redirect nor a fetched document exposes a password. Never
/// printed.
#[derive(Clone, Default)]
pub struct Credentials {
    hosts: BTreeMap<String, HeaderValue>,
    /// By host and by the encoded login of the user without a password.
    users: BTreeMap<(String, Vec<u8>), HeaderValue>,
    others: Option<HeaderValue>,
    /// Whether the user did not choose the server. Nothing is then sent without TLS.
    is_for_strangers: bool,
}

impl Credentials {
    /// Adds a login for `host`, a name or an address. The first login of a host is kept.
    pub fn add(&mut self, host: &str, user: &str, password: &str) {
        let host = bare(host);
        let without = basic(user.as_bytes(), b"").as_bytes().to_vec();
        let login = || basic(user.as_bytes(), password.as_bytes());
        self.users.entry((host.clone(), without)).or_insert_with(login);
        self.hosts.entry(host).or_insert_with(|| basic(user.as_bytes(), password.as_bytes()));
    }

    /// Sets the login for all other hosts (a `default` entry). It is sent only to the origin of the URL that the user
    /// gave, because a redirect may lead anywhere.
    pub fn add_default(&mut self, user: &str, password: &str) {
        self.others.get_or_insert_with(|| basic(user.as_bytes(), password.as_bytes()));
    }

    /// The logins for URLs that the user did not give: those of named hosts, over TLS only.
    pub fn for_strangers(&self) -> Self {
        let (hosts, users) = (self.hosts.clone(), self.users.clone());
        Self { hosts, users, others: None, is_for_strangers: true }
    }

    /// Whether the user chose the server of `url`, and whether it may get a login.
    fn may_send(&self, url: &HttpUrl, original: bool) -> (bool, bool) {
        let is_chosen = original && !self.is_for_strangers;
        (is_chosen, is_chosen || url.is_https())
    }

    /// The complete login for `user`, an encoded login without a password.
    fn of_user(&self, url: &HttpUrl, user: &HeaderValue, original: bool) -> Option<&HeaderValue> {
        let (_, may_send) = self.may_send(url, original);
        let host = bare(&url.destination().host.to_string());
        self.users.get(&(host, user.as_bytes().to_vec())).filter(|_| may_send)
    }

    /// The login for the server of `url`; `original`: `url` has the origin of the URL that the user gave.
    fn header_for(&self, url: &HttpUrl, original: bool) -> Option<&HeaderValue> {
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

/// Normalises a host: lower case, without brackets and without the final dot.
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

    /// The authorization that `to` gets if the user gave `given`.
    fn sent(web: &HttpSettings, given: &str, to: &str, fields: &HeaderMap) -> Option<String> {
        let fields = web.fields_for(&url(given), &url(to), fields);
        fields.get(AUTHORIZATION).map(|v| v.to_str().unwrap().to_owned())
    }

    fn web() -> HttpSettings {
        let mut credentials = Credentials::default();
        credentials.add("a.example", "Aladdin", "open sesame");
        credentials.add("A.example.", "other", "later");
        credentials.add_default("guest", "");
        HttpSettings { credentials: Arc::new(credentials), ..HttpSettings::default() }
    }

    #[test]
    fn credentials_are_sent_to_their_host_and_not_without_tls_after_a_redirect() {
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
    fn servers_that_the_user_did_not_choose_get_logins_of_named_hosts_over_tls_only() {
        let credentials = Arc::new(web().credentials.for_strangers());
        let web = HttpSettings { credentials, ..HttpSettings::default() };
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

    /// The same behaviour as curl's.
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
    fn passwords_are_not_printed() {
        let text = format!("{:?} {:?}", web().credentials, basic(b"u", b"secret"));
        assert!(text.contains("a.example") && !text.contains("Basic"), "{text}");
    }
}
