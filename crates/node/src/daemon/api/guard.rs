//! Decides who a request on loopback comes from, and whether it may. Pure: the time is an argument.
//!
//! Any web page that the owner visits can send requests to loopback, and any user of this host can. So a request must
//! name this host itself (a page that resolves its own name to 127.0.0.1 does not), must not come from another site, and
//! must carry the token or the cookie of a session. A cookie is sent without the user's doing: with it, a request that
//! changes something must also come from our own page.
//!
//! Both can reach another user of this host: a browser sends the cookie to every server on 127.0.0.1, and a program
//! sends the token to whoever has the port while the node is down. So the token is valid only from the node's own user
//! and root, and a session only from the user that opened it.

use super::credentials::Credentials;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

/// The header by which browsers say where a request comes from (Fetch Metadata, W3C).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The node's owner, or root, over the socket.
    Owner,
    /// A program with the token.
    Token,
    /// The page, with the cookie of a session.
    Page,
    /// Nobody known.
    Stranger,
}

/// Why a request is refused whoever sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The request names another host: perhaps a page whose name was resolved to loopback.
    Host,
    /// A page of another site sent it.
    CrossSite,
    /// It would change something, has our cookie, and does not come from our page.
    Origin,
    /// It has the token, and comes from this user, who is neither the node's nor root; `None`: it cannot be found out.
    User(Option<u32>),
}

impl Denial {
    /// The status, code and message of the refusal.
    pub fn refusal(self, at: SocketAddr) -> (StatusCode, &'static str, String) {
        let (code, message) = match self {
            Self::Host => ("wrong_host", format!("this is {at}; the request names another host")),
            Self::CrossSite => {
                ("cross_site", "requests from pages of other sites are refused".to_owned())
            }
            Self::Origin => {
                let message = "with the page's cookie, only the page itself may send this request; \
                               programs send the token instead";
                ("wrong_origin", message.to_owned())
            }
            Self::User(user) => {
                let user = user.map_or("an unknown user".to_owned(), |user| format!("user {user}"));
                let message = format!(
                    "the token is valid only from programs of the user that the node runs as, and of \
                     root; this connection is of {user}"
                );
                ("wrong_user", message)
            }
        };
        (StatusCode::FORBIDDEN, code, message)
    }
}

/// What the guard reads of a request.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    pub method: &'a Method,
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
}

/// The checks of requests at one listener.
#[derive(Debug)]
pub struct Guard {
    /// What `Host` may say.
    hosts: Vec<String>,
    /// The name of the cookie. Cookies are shared by all ports of a host, and several nodes may run on one.
    cookie: String,
    /// The user that the node runs as.
    owner: u32,
}

impl Guard {
    /// Guards the listener at this address, of a node that runs as this user.
    pub fn new(at: SocketAddr, owner: u32) -> Self {
        let port = at.port();
        let mut hosts: Vec<_> =
            ["127.0.0.1", "[::1]", "localhost"].map(|host| format!("{host}:{port}")).into();
        let own = match at.ip() {
            IpAddr::V4(ip) => format!("{ip}:{port}"),
            IpAddr::V6(ip) => format!("[{ip}]:{port}"),
        };
        if !hosts.contains(&own) {
            hosts.push(own);
        }
        Self { hosts, cookie: format!("thalweg-{port}"), owner }
    }

    /// The value of `Set-Cookie` for a session.
    pub fn set_cookie(&self, session: &str) -> String {
        let age = super::credentials::SESSION_IDLE.as_secs();
        format!("{}={session}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict", self.cookie)
    }

    /// The session that the request's cookies name.
    pub fn session<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let cookies = headers.get_all(header::COOKIE).into_iter();
        let pairs = cookies.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(';'));
        let mut named = pairs.filter_map(|pair| pair.trim().split_once('='));
        named.find(|(name, _)| *name == self.cookie).map(|(_, value)| value)
    }

    /// Whether this user of the host may use the token: the node's own, or root.
    pub fn is_owner(&self, user: Option<u32>) -> bool {
        user.is_some_and(|user| [0, self.owner].contains(&user))
    }

    /// Who sent the request over a connection of this user of the host.
    ///
    /// # Errors
    /// If it is refused whoever sent it.
    pub fn check(
        &self,
        request: &Head<'_>,
        user: Option<u32>,
        credentials: &Credentials,
        now: Instant,
    ) -> Result<Caller, Denial> {
        let Head { method, uri, headers } = request;
        let host = self.host(uri, headers).ok_or(Denial::Host)?;
        let site = one(headers, &FETCH_SITE).map_err(|()| Denial::CrossSite)?;
        if site == Some("cross-site") {
            return Err(Denial::CrossSite);
        }
        if bearer(headers).is_some_and(|token| credentials.is_token(token)) {
            let is_owner = self.is_owner(user);
            return is_owner.then_some(Caller::Token).ok_or(Denial::User(user));
        }
        let session = self.session(headers);
        if !session.is_some_and(|session| credentials.use_session(session, user, now)) {
            return Ok(Caller::Stranger);
        }
        // Another port of this host is the same site, so that it gets the cookie, but it is another program's page.
        if !matches!(site, None | Some("same-origin" | "none")) {
            return Err(Denial::CrossSite);
        }
        let is_safe = [Method::GET, Method::HEAD].contains(method);
        let origin = one(headers, &header::ORIGIN).map_err(|()| Denial::Origin)?;
        let is_own = origin.and_then(|origin| origin.strip_prefix("http://")) == Some(host);
        match is_safe || is_own {
            true => Ok(Caller::Page),
            false => Err(Denial::Origin),
        }
    }

    /// The host that the request names, if it is this one.
    fn host<'a>(&self, uri: &Uri, headers: &'a HeaderMap) -> Option<&'a str> {
        let is_ours = |host: &str| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
        let named = one(headers, &header::HOST).ok()?.filter(|host| is_ours(host))?;
        // A request as proxies get it has the host in its target, too.
        let targeted = uri.authority().is_none_or(|authority| is_ours(authority.as_str()));
        targeted.then_some(named)
    }
}

/// The text of a header that may occur once.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).into_iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(drop),
        (Some(_), Some(_)) => Err(()),
    }
}

/// The token in `Authorization: Bearer TOKEN` (RFC 6750 §2.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = one(headers, &header::AUTHORIZATION).ok()??;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    struct Scene {
        guard: Guard,
        credentials: Credentials,
        token: String,
        cookie: String,
        /// The user of the connection; `None`: the user to whom the request's credential belongs.
        user: Option<u32>,
        now: Instant,
        _dir: tempfile::TempDir,
    }

    /// The user that the node runs as.
    const OWNER: u32 = 500;
    /// The user that opened the session.
    const BROWSER: u32 = 1000;

    impl Scene {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let credentials = Credentials::open(&dir.path().join("api.token")).unwrap();
            let token = std::fs::read_to_string(credentials.token_file()).unwrap();
            let token = format!("Bearer {}", token.trim());
            let now = Instant::now();
            let code = credentials.new_link(now).unwrap();
            let session = credentials.open_session(&code, BROWSER, now).unwrap().unwrap();
            let guard = Guard::new("127.0.0.1:7374".parse().unwrap(), OWNER);
            let cookie = format!("thalweg-7374={session}");
            let user = None;
            Self { guard, credentials, token, cookie, user, now, _dir: dir }
        }

        fn check(
            &self,
            method: Method,
            headers: &[(&'static str, &str)],
        ) -> Result<Caller, Denial> {
            let target = Uri::from_static("/v1/jobs");
            self.check_target(method, &target, headers)
        }

        fn check_target(
            &self,
            method: Method,
            target: &Uri,
            headers: &[(&'static str, &str)],
        ) -> Result<Caller, Denial> {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, HeaderValue::from_str(value).unwrap());
            }
            let by_credential = if map.contains_key("authorization") { OWNER } else { BROWSER };
            let user = self.user.or(Some(by_credential));
            let head = Head { method: &method, uri: target, headers: &map };
            self.guard.check(&head, user, &self.credentials, self.now)
        }
    }

    const HOST: (&str, &str) = ("host", "127.0.0.1:7374");

    #[test]
    fn only_names_of_this_host_are_served() {
        let scene = Scene::new();
        let token = ("authorization", scene.token.as_str());
        for host in ["127.0.0.1:7374", "[::1]:7374", "localhost:7374", "LocalHost:7374"] {
            assert_eq!(scene.check(Method::GET, &[("host", host), token]), Ok(Caller::Token));
        }
        for host in [
            "evil.example:7374",
            "evil.example",
            "127.0.0.1",
            "127.0.0.1:80",
            "localhost.evil.example:7374",
            "127.0.0.1:7374.evil.example",
            "",
        ] {
            let denied = scene.check(Method::GET, &[("host", host), token]);
            assert_eq!(denied, Err(Denial::Host), "{host}");
        }
        assert_eq!(scene.check(Method::GET, &[token]), Err(Denial::Host));
        let two = [HOST, ("host", "evil.example:7374"), token];
        assert_eq!(scene.check(Method::GET, &two), Err(Denial::Host));
        let target = Uri::from_static("http://evil.example:7374/v1/jobs");
        let denied = scene.check_target(Method::GET, &target, &[HOST, token]);
        assert_eq!(denied, Err(Denial::Host));
    }

    #[test]
    fn another_loopback_address_is_named_by_itself() {
        let guard = Guard::new("127.0.0.9:80".parse().unwrap(), OWNER);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("127.0.0.9:80"));
        assert!(guard.host(&Uri::from_static("/"), &headers).is_some());
    }

    #[test]
    fn without_the_token_or_a_session_a_caller_is_a_stranger() {
        let scene = Scene::new();
        let stranger = Ok(Caller::Stranger);
        assert_eq!(scene.check(Method::GET, &[HOST]), stranger);
        for value in ["Bearer ", "Bearer 00", "Basic YTpi", &scene.token[..20], &scene.token[7..]] {
            assert_eq!(scene.check(Method::POST, &[HOST, ("authorization", value)]), stranger);
        }
        let twice = ("authorization", scene.token.as_str());
        assert_eq!(scene.check(Method::GET, &[HOST, twice, twice]), stranger);
        let (name, value) = scene.cookie.split_once('=').unwrap();
        for cookie in [value.to_owned(), format!("thalweg-7375={value}"), format!("{name}=0")] {
            assert_eq!(scene.check(Method::GET, &[HOST, ("cookie", &cookie)]), stranger);
        }
        let lower = scene.token.replace("Bearer", "bearer");
        let token = ("authorization", lower.as_str());
        assert_eq!(scene.check(Method::DELETE, &[HOST, token]), Ok(Caller::Token));
    }

    #[test]
    fn another_user_of_the_host_is_refused_with_the_token_and_a_stranger_with_the_cookie() {
        let mut scene = Scene::new();
        for (user, by_token, by_cookie) in [
            (OWNER, Ok(Caller::Token), Ok(Caller::Stranger)),
            (0, Ok(Caller::Token), Ok(Caller::Stranger)),
            (BROWSER, Err(Denial::User(Some(BROWSER))), Ok(Caller::Page)),
            (65_534, Err(Denial::User(Some(65_534))), Ok(Caller::Stranger)),
        ] {
            scene.user = Some(user);
            let token = scene.check(Method::GET, &[HOST, ("authorization", &*scene.token)]);
            assert_eq!(token, by_token, "{user}");
            let cookie = scene.check(Method::GET, &[HOST, ("cookie", &*scene.cookie)]);
            assert_eq!(cookie, by_cookie, "{user}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:7374"));
        headers.insert(header::COOKIE, HeaderValue::from_str(&scene.cookie).unwrap());
        let target = Uri::from_static("/");
        let unknown = |headers: &HeaderMap| {
            let head = Head { method: &Method::GET, uri: &target, headers };
            scene.guard.check(&head, None, &scene.credentials, scene.now)
        };
        assert_eq!(unknown(&headers), Ok(Caller::Stranger));
        headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&scene.token).unwrap());
        assert_eq!(unknown(&headers), Err(Denial::User(None)));
    }

    #[test]
    fn with_the_cookie_only_our_page_can_change_something() {
        let scene = Scene::new();
        let cookies = format!("theme=dark; {}; x=y", scene.cookie);
        let cookie = ("cookie", cookies.as_str());
        let page = Ok(Caller::Page);
        assert_eq!(scene.check(Method::GET, &[HOST, cookie]), page);
        assert_eq!(scene.check(Method::HEAD, &[HOST, cookie]), page);
        let ours = ("origin", "http://127.0.0.1:7374");
        assert_eq!(scene.check(Method::POST, &[HOST, cookie, ours]), page);
        for origin in [
            "http://evil.example",
            "null",
            "http://127.0.0.1:8080",
            // Ours by another name: its cookie is another one.
            "http://localhost:7374",
            "https://127.0.0.1:7374",
            "http://127.0.0.1:7374/",
        ] {
            let denied = scene.check(Method::POST, &[HOST, cookie, ("origin", origin)]);
            assert_eq!(denied, Err(Denial::Origin), "{origin}");
        }
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
            assert_eq!(scene.check(method, &[HOST, cookie]), Err(Denial::Origin));
        }
        assert_eq!(scene.check(Method::POST, &[HOST, cookie, ours, ours]), Err(Denial::Origin));
    }

    #[test]
    fn requests_from_other_sites_are_refused() {
        let scene = Scene::new();
        let (token, cookie) = (("authorization", &*scene.token), ("cookie", &*scene.cookie));
        let from = |site| ("sec-fetch-site", site);
        let get = |headers: &[(&'static str, &str)]| scene.check(Method::GET, headers);
        assert_eq!(get(&[HOST, token, from("cross-site")]), Err(Denial::CrossSite));
        assert_eq!(get(&[HOST, from("cross-site")]), Err(Denial::CrossSite));
        assert_eq!(get(&[HOST, cookie, from("same-site")]), Err(Denial::CrossSite));
        assert_eq!(get(&[HOST, cookie, from("something-new")]), Err(Denial::CrossSite));
        assert_eq!(get(&[HOST, cookie, from("same-origin")]), Ok(Caller::Page));
        assert_eq!(get(&[HOST, cookie, from("none")]), Ok(Caller::Page));
        assert_eq!(get(&[HOST, token, from("same-site")]), Ok(Caller::Token));
    }

    #[test]
    fn a_cookie_is_kept_from_scripts_and_other_sites() {
        let text = Scene::new().guard.set_cookie("abc");
        assert!(text.starts_with("thalweg-7374=abc; Path=/; Max-Age=2592000; "), "{text}");
        assert!(text.contains("; HttpOnly") && text.contains("; SameSite=Strict"), "{text}");
    }
}
