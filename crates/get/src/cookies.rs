//! The cookies of one call (RFC 6265): sites set them on a redirect and expect them back at its target.
//!
//! They are kept in memory until the call ends. There is no list of public suffixes: a server may set cookies for a
//! parent domain unless that domain looks public (`org`, `co.uk`).

use hyper::{
    HeaderMap,
    header::{COOKIE, HeaderValue, SET_COOKIE},
};
use parking_lot::{Mutex, MutexGuard};
use std::net::IpAddr;
use thalweg_paths::url::HttpUrl;
use thalweg_units::WallTime;
use thalweg_wire::retry_after::http_date;

/// The most cookies that are kept; RFC 6265 §6.1 asks browsers for 3,000. The oldest is dropped first.
const MAX_COOKIES: usize = 300;

/// The most cookies that one answer may set.
const MAX_IN_ANSWER: usize = 50;

/// The greatest length of name and value together (RFC 6265 §6.1).
const MAX_COOKIE: usize = 4096;

/// The longest `Cookie` field that is sent: servers accept lines of 8 kB.
const MAX_FIELD: usize = 8000;

/// The cookies of a call.
#[derive(Debug, Default)]
pub(super) struct Cookies(Mutex<Vec<Cookie>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cookie {
    name: String,
    value: String,
    /// The domain, in lower case.
    domain: String,
    /// Whether only the host that set the cookie receives it.
    is_host_only: bool,
    path: String,
    is_secure: bool,
    /// The end of its life; `None`: the end of the call.
    expires: Option<WallTime>,
}

impl Cookies {
    /// Stores the cookies that the server of `url` sets in the `fields` of an answer.
    pub(super) fn learn(&self, url: &HttpUrl, fields: &HeaderMap, now: WallTime) {
        for line in fields.get_all(SET_COOKIE).iter().take(MAX_IN_ANSWER) {
            let Ok(text) = std::str::from_utf8(line.as_bytes()) else { continue };
            if let Some(cookie) = Cookie::read(text, url, now) {
                set(&mut self.lock(), cookie, url, now);
            }
        }
    }

    /// Adds the cookies for `url` to a request's `fields`, after the user's own. A server's cookie replaces a cookie
    /// of the user with the same name.
    pub(super) fn add_to(&self, fields: &mut HeaderMap, url: &HttpUrl, now: WallTime) {
        let mut cookies: Vec<Cookie> =
            self.lock().iter().filter(|c| c.is_for(url, now)).cloned().collect();
        if cookies.is_empty() {
            return;
        }
        // Longer paths first, then the order of arrival (RFC 6265 §5.4).
        cookies.sort_by_key(|c| std::cmp::Reverse(c.path.len()));
        let lines = fields.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
        let pairs = lines.flat_map(|line| line.split(';')).map(|pair| pair.trim().to_owned());
        let is_replaced = |pair: &String| {
            let name = pair.split_once('=').map_or("", |(name, _)| name.trim());
            cookies.iter().any(|cookie| cookie.name == name)
        };
        let mut pairs: Vec<String> = pairs.filter(|p| !p.is_empty() && !is_replaced(p)).collect();
        let mut length: usize = pairs.iter().map(|pair| pair.len() + 2).sum();
        for cookie in cookies {
            let pair = cookie.pair();
            length += pair.len() + 2;
            if length <= MAX_FIELD {
                pairs.push(pair);
            }
        }
        if let Ok(mut value) = HeaderValue::try_from(pairs.join("; ")) {
            value.set_sensitive(true);
            fields.insert(COOKIE, value);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Cookie>> {
        self.0.lock()
    }
}

/// Stores `cookie` and replaces one with the same name, domain and path. An expired cookie only removes the old one.
fn set(cookies: &mut Vec<Cookie>, cookie: Cookie, url: &HttpUrl, now: WallTime) {
    let is_shadowed = |other: &Cookie| {
        other.is_secure
            && other.name == cookie.name
            && (is_within(&other.domain, &cookie.domain)
                || is_within(&cookie.domain, &other.domain))
    };
    // A cookie received without TLS does not replace a `Secure` cookie.
    if !url.is_https() && cookies.iter().any(is_shadowed) {
        return;
    }
    cookies
        .retain(|c| !(c.name == cookie.name && c.domain == cookie.domain && c.path == cookie.path));
    if cookie.is_expired(now) {
        return;
    }
    if cookies.len() == MAX_COOKIES {
        cookies.remove(0);
    }
    cookies.push(cookie);
}

impl Cookie {
    /// Reads a `Set-Cookie` field from `url` (RFC 6265 §5.2, §5.3); `None` if that server may not set it.
    fn read(text: &str, url: &HttpUrl, now: WallTime) -> Option<Self> {
        let (pair, attributes) = text.split_once(';').unwrap_or((text, ""));
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim(), value.trim());
        let is_bad = |c: char| c.is_ascii_control() || !c.is_ascii();
        if name.is_empty() || name.len() + value.len() > MAX_COOKIE || pair.contains(is_bad) {
            return None;
        }
        let host = host(url);
        let mut cookie = Self {
            name: name.to_owned(),
            value: value.to_owned(),
            domain: host.clone(),
            is_host_only: true,
            path: default_path(url),
            is_secure: false,
            expires: None,
        };
        let mut max_age = None;
        let mut has_root = false;
        for attribute in attributes.split(';') {
            let (key, value) = attribute.split_once('=').unwrap_or((attribute, ""));
            let value = value.trim();
            match key.trim().to_ascii_lowercase().as_str() {
                "domain" => cookie.set_domain(value, &host)?,
                "path" if value.starts_with('/') => {
                    has_root = value == "/";
                    cookie.path = value.to_owned();
                }
                "secure" => cookie.is_secure = true,
                "max-age" => max_age = expiry(value, now).or(max_age),
                "expires" => cookie.expires = date(value).or(cookie.expires),
                _ => {}
            }
        }
        cookie.expires = max_age.or(cookie.expires);
        let prefix =
            |prefix: &str| name.get(..prefix.len()).is_some_and(|n| n.eq_ignore_ascii_case(prefix));
        let is_allowed = (url.is_https() || !cookie.is_secure)
            && (!prefix("__Secure-") || cookie.is_secure)
            && (!prefix("__Host-") || (cookie.is_secure && cookie.is_host_only && has_root));
        is_allowed.then_some(cookie)
    }

    /// Applies a `Domain` attribute; `None` if the host may not set cookies for that domain.
    fn set_domain(&mut self, value: &str, host: &str) -> Option<()> {
        let domain = value.strip_prefix('.').unwrap_or(value).to_ascii_lowercase();
        if domain.is_empty() || domain == host {
            self.is_host_only = domain.is_empty() || is_public(&domain) || is_address(host);
            return Some(());
        }
        if is_address(host) || !is_within(host, &domain) || is_public(&domain) {
            return None;
        }
        (self.domain, self.is_host_only) = (domain, false);
        Some(())
    }

    fn is_expired(&self, now: WallTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Whether requests for `url` carry the cookie.
    fn is_for(&self, url: &HttpUrl, now: WallTime) -> bool {
        let host = host(url);
        let matches = host == self.domain || (!self.is_host_only && is_within(&host, &self.domain));
        matches
            && (url.is_https() || !self.is_secure)
            && !self.is_expired(now)
            && is_below(&path(url), &self.path)
    }

    fn pair(&self) -> String {
        format!("{}={}", self.name, self.value)
    }
}

/// The host in lower case, without a final dot.
fn host(url: &HttpUrl) -> String {
    let host = url.destination().host.to_string().to_ascii_lowercase();
    host.strip_suffix('.').map(str::to_owned).unwrap_or(host)
}

fn is_address(host: &str) -> bool {
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

/// Whether `host` is `domain` or lies below it (RFC 6265 §5.1.3).
fn is_within(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether a domain looks public, with names of different owners below it: one label, or two short ones like `co.uk`.
fn is_public(domain: &str) -> bool {
    match domain.rsplit_once('.') {
        None => true,
        Some((second, top)) => top.len() == 2 && second.len() <= 3 && !second.contains('.'),
    }
}

/// The path of a URL without its query.
fn path(url: &HttpUrl) -> String {
    let target = url.target();
    target.split_once('?').map_or(target.clone(), |(path, _)| path.to_owned())
}

/// The directory of a URL (RFC 6265 §5.1.4).
fn default_path(url: &HttpUrl) -> String {
    let path = path(url);
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/".to_owned(),
        Some((directory, _)) => directory.to_owned(),
    }
}

/// Whether `path` is `of` or lies below it (RFC 6265 §5.1.4).
fn is_below(path: &str, of: &str) -> bool {
    path.strip_prefix(of)
        .is_some_and(|rest| rest.is_empty() || of.ends_with('/') || rest.starts_with('/'))
}

/// The time at which a `Max-Age` ends (RFC 6265 §5.2.2).
fn expiry(value: &str, now: WallTime) -> Option<WallTime> {
    let digits = value.strip_prefix('-').unwrap_or(value);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let seconds = if digits.len() < value.len() { 0 } else { digits.parse().unwrap_or(u64::MAX) };
    let nanos = seconds.saturating_mul(1_000_000_000);
    Some(WallTime::from_unix_nanos(now.as_unix_nanos().saturating_add(nanos)))
}

/// Parses an `Expires` date in any of the common formats (RFC 6265 §5.1.1).
fn date(value: &str) -> Option<WallTime> {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    let is_delimiter = |c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && c != ':';
    for token in value.split(is_delimiter).filter(|token| !token.is_empty()) {
        let number = token.parse::<u16>().ok();
        let named = token.get(..3).map(str::to_ascii_lowercase);
        let found = named.and_then(|name| MONTHS.iter().position(|m| *m == name));
        match number {
            None if time.is_none() && token.contains(':') => time = clock(token),
            Some(n) if day.is_none() && token.len() <= 2 => day = Some(n),
            None if month.is_none() && found.is_some() => month = found,
            Some(n) if year.is_none() => year = Some(n),
            _ => {}
        }
    }
    let year = match year? {
        n @ 70..=99 => n + 1900,
        n @ 0..=69 => n + 2000,
        n => n,
    };
    let mut name = MONTHS.get(month?)?.to_string();
    name[..1].make_ascii_uppercase();
    if year < 1970 {
        return Some(WallTime::from_unix_nanos(0));
    }
    let (day, time) = (day?, time?);
    // The parser rejects a wrong day of the week, but cookie dates ignore it; so every day is tried.
    let days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    days.iter().find_map(|d| http_date(&format!("{d}, {day:02} {name} {year:04} {time} GMT")))
}

/// Normalises a time to `HH:MM:SS`.
fn clock(token: &str) -> Option<String> {
    let parts: Vec<u8> = token.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    match parts[..] {
        [h, m, s] => Some(format!("{h:02}:{m:02}:{s:02}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime::from_unix_nanos(1_700_000_000_000_000_000);

    fn url(text: &str) -> HttpUrl {
        HttpUrl::parse(text).unwrap()
    }

    /// The cookies that `to` receives after `from` has set these, with the user's own field.
    fn sent(from: &str, lines: &[&str], to: &str, own: Option<&'static str>) -> String {
        let cookies = Cookies::default();
        let mut fields = HeaderMap::new();
        for line in lines {
            fields.append(SET_COOKIE, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        cookies.learn(&url(from), &fields, NOW);
        let mut request = HeaderMap::new();
        own.map(|own| request.insert(COOKIE, HeaderValue::from_static(own)));
        cookies.add_to(&mut request, &url(to), NOW);
        assert!(request.get_all(COOKIE).iter().count() <= 1);
        request.get(COOKIE).map_or(String::new(), |v| v.to_str().unwrap().to_owned())
    }

    /// The URL that sets a cookie, the cookie, the URL of the next request, and whether that request carries the
    /// cookie.
    const CASES: &[(&str, &str, &str, bool)] = &[
        ("http://a.example/x/f", "s=1", "http://a.example/x/g", true),
        ("http://a.example/x/f", "s=1", "https://a.example:8443/x/y/g", true),
        ("http://a.example/x/f", "s=1", "http://A.example./x", true),
        ("http://a.example/x/f", "s=1", "http://a.example/y", false),
        ("http://a.example/x/f", "s=1", "http://a.example/xy", false),
        ("http://a.example/x/f", "s=1; Path=/", "http://a.example/y?q", true),
        ("http://a.example/x/f", "s=1; Path=y", "http://a.example/y", false),
        ("http://a.example/x/f", "s=1; path=/y", "http://a.example/y/", true),
        ("http://a.example/f", "s=1", "http://b.a.example/f", false),
        ("http://a.example/f", "s=1", "http://example/f", false),
        ("http://a.b.example/f", "s=1; Domain=b.example", "http://c.b.example/f", true),
        ("http://a.b.example/f", "s=1; Domain=.B.example", "http://b.example/f", true),
        ("http://a.b.example/f", "s=1; Domain=b.example", "http://cb.example/f", false),
        ("http://a.b.example/f", "s=1; Domain=c.example", "http://c.example/f", false),
        ("http://a.b.example/f", "s=1; Domain=c.example", "http://a.b.example/f", false),
        ("http://a.example/f", "s=1; Domain=b.a.example", "http://b.a.example/f", false),
        ("http://a.example/f", "s=1; Domain=example", "http://b.example/f", false),
        ("http://a.co.uk/f", "s=1; Domain=co.uk", "http://b.co.uk/f", false),
        ("http://a.co.uk/f", "s=1; Domain=a.co.uk", "http://b.a.co.uk/f", true),
        ("http://10.0.0.1/f", "s=1; Domain=0.0.1", "http://20.0.0.1/f", false),
        ("http://10.0.0.1/f", "s=1; Domain=10.0.0.1", "http://10.0.0.1:81/f", true),
        ("http://[::1]/f", "s=1", "http://[::1]:81/f", true),
        ("https://a.example/f", "s=1; Secure", "https://a.example/f", true),
        ("https://a.example/f", "s=1; Secure", "http://a.example/f", false),
        ("http://a.example/f", "s=1; Secure", "https://a.example/f", false),
        ("https://a.example/f", "__Host-s=1; Secure; Path=/", "https://a.example/f", true),
        (
            "https://a.example/f",
            "__Host-s=1; Secure; Path=/; Domain=b.a.example",
            "https://a.example/f",
            false,
        ),
        ("https://a.example/f", "__Host-s=1; Path=/", "https://a.example/f", false),
        ("https://a.example/f", "__secure-s=1", "https://a.example/f", false),
        (
            "http://a.example/f",
            "s=1; Max-Age=9; Expires=Thu, 01 Jan 1970 00:00:00 GMT",
            "http://a.example/f",
            true,
        ),
        ("http://a.example/f", "s=1; Max-Age=0", "http://a.example/f", false),
        ("http://a.example/f", "s=1; Max-Age=-5", "http://a.example/f", false),
        ("http://a.example/f", "s=1; Max-Age=x", "http://a.example/f", true),
        (
            "http://a.example/f",
            "s=1; Expires=Wed, 09-Jun-2021 10:18:14 GMT",
            "http://a.example/f",
            false,
        ),
        (
            "http://a.example/f",
            "s=1; Expires=Wed, 9 Jun 27 1:18:14 GMT",
            "http://a.example/f",
            true,
        ),
        (
            "http://a.example/f",
            "s=1; Expires=Tue, 1 Jan 1901 00:00:00 GMT",
            "http://a.example/f",
            false,
        ),
        ("http://a.example/f", "s=1; Expires=never", "http://a.example/f", true),
        ("http://a.example/f", "s", "http://a.example/f", false),
        ("http://a.example/f", "=1", "http://a.example/f", false),
        ("http://a.example/f", " s = 1 ;HttpOnly; x=y", "http://a.example/f", true),
    ];

    #[test]
    fn a_cookie_is_sent_only_where_its_domain_path_and_scheme_match() {
        for &(from, line, to, goes) in CASES {
            let got = sent(from, &[line], to, None);
            let name = line.split('=').next().unwrap().trim();
            assert_eq!(
                got,
                if goes { format!("{name}=1") } else { String::new() },
                "{from} {line} {to}"
            );
        }
    }

    #[test]
    fn cookies_share_one_field_and_the_newest_of_a_name_counts() {
        let at = "http://a.example/x/f";
        let lines = ["a=1", "b=2; Path=/", "c=3", "a=4"];
        assert_eq!(sent(at, &lines, at, None), "c=3; a=4; b=2");
        assert_eq!(sent(at, &lines, at, Some("a=0; d=5;")), "d=5; c=3; a=4; b=2");
        assert_eq!(sent(at, &["a=1", "a=; Max-Age=0"], at, Some("a=0")), "a=0");
        assert_eq!(sent(at, &[], at, Some("a=0; d=5;")), "a=0; d=5;");
    }

    #[test]
    fn a_cookie_set_without_tls_does_not_replace_a_secure_cookie() {
        let cookies = Cookies::default();
        let learn = |from: &str, line: &'static str| {
            let mut fields = HeaderMap::new();
            fields.insert(SET_COOKIE, HeaderValue::from_static(line));
            cookies.learn(&url(from), &fields, NOW);
        };
        learn("https://a.b.example/f", "s=1; Secure; Domain=b.example");
        learn("http://a.b.example/f", "s=2");
        learn("http://c.b.example/f", "s=3; Max-Age=0; Domain=b.example");
        let mut fields = HeaderMap::new();
        cookies.add_to(&mut fields, &url("https://a.b.example/f"), NOW);
        assert_eq!(fields[COOKIE], "s=1");
    }

    #[test]
    fn the_number_and_length_of_cookies_are_bounded() {
        let (cookies, at) = (Cookies::default(), url("http://a.example/f"));
        for answer in 0..20 {
            let mut fields = HeaderMap::new();
            for i in 0..100 {
                let line = format!("n{answer}-{i}={}", "v".repeat(4000));
                fields.append(SET_COOKIE, HeaderValue::try_from(line).unwrap());
            }
            cookies.learn(&at, &fields, NOW);
        }
        assert_eq!(cookies.lock().len(), MAX_COOKIES);
        let mut fields = HeaderMap::new();
        cookies.add_to(&mut fields, &at, NOW);
        assert!(fields[COOKIE].len() <= MAX_FIELD);
        let long = format!("n={}", "v".repeat(5000));
        assert_eq!(sent("http://a.example/f", &[&long], "http://a.example/f", None), "");
    }
}
