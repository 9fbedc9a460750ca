//! Digest logins (RFC 7616), for servers that do not take `Basic`.
//!
//! A login is first sent as `Basic`. If the server answers 401 and accepts `Digest`, requests to it carry a response to
//! that challenge instead, for as long as its nonce holds.

use data_encoding::BASE64;
use http_auth::{ChallengeRef, DigestClient, PasswordParams, digest::Qop, parse_challenges};
use hyper::{
    HeaderMap, Request, StatusCode,
    header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE},
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use thalweg_paths::url::HttpUrl;

/// How often one request is repeated with another nonce: several paths use one nonce, and a server that counts its uses
/// may get them in another order.
pub(super) const MAX_REPEATS: u32 = 4;

/// The most servers whose challenges are kept.
const MAX_SERVERS: usize = 256;

/// The longest challenge that is read.
const MAX_CHALLENGE: usize = 8 << 10;

/// The last challenge of a server.
#[derive(Debug)]
struct Challenge {
    client: DigestClient,
    /// The server has accepted a login for this realm.
    is_accepted: bool,
}

/// The challenges of one call, by the server's origin.
#[derive(Debug, Default)]
pub(super) struct DigestLogins(Mutex<BTreeMap<String, Challenge>>);

impl DigestLogins {
    /// Replaces a `Basic` login by a response to the challenge of the server of `url`, if there was one.
    pub(super) fn sign<B>(&self, url: &HttpUrl, request: &mut Request<B>) {
        let mut servers = self.0.lock();
        let Some(Challenge { client, .. }) = servers.get_mut(&url.origin()) else { return };
        let Some((username, password)) = basic_login(request.headers()) else { return };
        let params = PasswordParams {
            username: &username,
            password: &password,
            uri: &url.target(),
            method: request.method().as_str(),
            // Only `auth` is answered.
            body: None,
        };
        let signed =
            client.respond(&params).ok().and_then(|text| HeaderValue::from_str(&text).ok());
        if let Some(mut value) = signed {
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
    }

    /// Learns from the answer to `sent`. Returns whether to repeat the request with another login.
    pub(super) fn learn<B>(
        &self,
        url: &HttpUrl,
        sent: &Request<B>,
        status: StatusCode,
        answer: &HeaderMap,
    ) -> bool {
        let Some(login) = sent.headers().get(AUTHORIZATION) else { return false };
        let sent_login = realm_and_nonce(login);
        let mut servers = self.0.lock();
        let known = servers.get_mut(&url.origin());
        if status != StatusCode::UNAUTHORIZED {
            if let (Some(known), Some((realm, _))) = (known, sent_login) {
                known.is_accepted |= realm == known.client.realm();
            }
            return false;
        }
        let Some(client) = challenge(answer) else { return false };
        let is_accepted =
            known.is_some_and(|known| known.is_accepted && known.client.realm() == client.realm());
        let is_repeated = match sent_login {
            // Many servers do not say `stale` with a new nonce, so a login that was accepted before is repeated. If
            // it never was, the server does not know the user or the password.
            Some((realm, nonce)) => {
                client.stale()
                    || realm != client.realm()
                    || (is_accepted && nonce != client.nonce())
            }
            None => basic_login(sent.headers()).is_some(),
        };
        if is_repeated {
            if servers.len() >= MAX_SERVERS {
                servers.clear();
            }
            servers.insert(url.origin(), Challenge { client, is_accepted });
        }
        is_repeated
    }
}

/// The user and the password of a request's `Basic` login; `None` if either is not UTF-8.
fn basic_login(fields: &HeaderMap) -> Option<(String, String)> {
    let value = fields.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let login = String::from_utf8(BASE64.decode(encoded.trim().as_bytes()).ok()?).ok()?;
    let (user, password) = login.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// The realm and nonce of the challenge that a sent Digest login answers.
fn realm_and_nonce(login: &HeaderValue) -> Option<(String, String)> {
    let text = str::from_utf8(login.as_bytes()).ok()?;
    let sent = parse_challenges(text).ok()?;
    let sent = sent.first().filter(|sent| sent.scheme.eq_ignore_ascii_case("digest"))?;
    let param = |name: &str| {
        let (_, value) = sent.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(value.to_unescaped())
    };
    Some((param("realm")?, param("nonce")?))
}

/// The first Digest challenge that can be answered: servers name the one they prefer first (RFC 7616 §3.7).
fn challenge(answer: &HeaderMap) -> Option<DigestClient> {
    let lines = answer.get_all(WWW_AUTHENTICATE).iter();
    let lines = lines.filter_map(|line| str::from_utf8(line.as_bytes()).ok());
    let lines: Vec<&str> = lines.filter(|line| line.len() <= MAX_CHALLENGE).collect();
    let mut challenges = lines.iter().filter_map(|line| parse_challenges(line).ok()).flatten();
    let well_formed = challenges.find_map(|challenge| client(&challenge));
    well_formed.or_else(|| {
        lines.iter().find_map(|line| client(parse_challenges(&repaired(line)?).ok()?.first()?))
    })
}

fn client(challenge: &ChallengeRef<'_>) -> Option<DigestClient> {
    DigestClient::try_from(challenge).ok().filter(|client| client.qop() & Qop::Auth)
}

/// Reads a malformed Digest challenge leniently, as curl does: commas, quotes and the realm may be missing, and a `qop`
/// without a known value is ignored. `None` if there is no Digest challenge or it has no nonce.
fn repaired(line: &str) -> Option<String> {
    let mut rest = behind_scheme(line)?;
    let mut params = BTreeMap::new();
    while let Some((name, value, behind)) = param(rest) {
        params.entry(name).or_insert(value);
        rest = behind;
    }
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let get = |name: &str| params.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let (realm, nonce) = (get("realm").unwrap_or(""), get("nonce")?);
    let mut text = format!("Digest realm=\"{}\", nonce=\"{}\"", quoted(realm), quoted(nonce));
    if let Some(opaque) = get("opaque") {
        text.push_str(&format!(", opaque=\"{}\"", quoted(opaque)));
    }
    let qops = get("qop").unwrap_or("").split([',', ' ', '\t']);
    let known = ["auth", "auth-int"]
        .into_iter()
        .find(|qop| qops.clone().any(|q| q.eq_ignore_ascii_case(qop)));
    if let Some(qop) = known {
        text.push_str(&format!(", qop=\"{qop}\""));
    }
    for name in ["algorithm", "stale", "userhash"] {
        if let Some(value) = get(name) {
            text.push_str(&format!(", {name}={value}"));
        }
    }
    Some(text)
}

/// The text after the name of the scheme, outside of quoted strings.
fn behind_scheme(line: &str) -> Option<&str> {
    const SCHEME: &str = "digest";
    let (mut is_quoted, mut is_start) = (false, true);
    for (at, c) in line.char_indices() {
        let name = line.get(at..at + SCHEME.len());
        let behind = line.get(at + SCHEME.len()..).unwrap_or("");
        if is_start
            && !is_quoted
            && name.is_some_and(|name| name.eq_ignore_ascii_case(SCHEME))
            && behind.starts_with([' ', '\t'])
        {
            return Some(behind);
        }
        is_quoted ^= c == '"';
        is_start = matches!(c, ' ' | '\t' | ',');
    }
    None
}

/// The first parameter: its name in lower case, its value, and the remaining text.
fn param(text: &str) -> Option<(String, String, &str)> {
    let (name, rest) = text.trim_start_matches([' ', '\t', ',']).split_once('=')?;
    let (name, rest) = (name.trim(), rest.trim_start());
    if !is_name(name) {
        // Another scheme begins.
        return None;
    }
    let (value, behind) = match rest.strip_prefix('"') {
        Some(quoted) => quoted_value(quoted),
        None => bare_value(rest),
    };
    Some((name.to_ascii_lowercase(), value, behind))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_*.".contains(&b))
}

/// The text up to the closing quote, which may be missing, and the remaining text.
fn quoted_value(text: &str) -> (String, &str) {
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, c) in text.char_indices() {
        match c {
            '\\' if !is_escaped => is_escaped = true,
            '"' if !is_escaped => return (value, &text[at + 1..]),
            c => {
                value.push(c);
                is_escaped = false;
            }
        }
    }
    (value, "")
}

/// The value up to a comma, or to a blank that is followed by the next parameter, and the remaining text.
fn bare_value(text: &str) -> (String, &str) {
    let end = text.find(',').unwrap_or(text.len());
    let is_next = |at: &usize| {
        let name = text[*at..].trim_start().split_once('=').map(|(name, _)| name);
        name.is_some_and(is_name)
    };
    let blanks = text[..end].match_indices([' ', '\t']).map(|(at, _)| at);
    let end = blanks.into_iter().find(is_next).unwrap_or(end);
    (text[..end].trim_end().to_owned(), &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(realm: &str, nonce: &str) -> HeaderMap {
        let challenge = format!("Digest realm=\"{realm}\", qop=\"auth\", nonce=\"{nonce}\"");
        let value = HeaderValue::from_bytes(challenge.as_bytes()).unwrap();
        HeaderMap::from_iter([(WWW_AUTHENTICATE, value)])
    }

    #[test]
    fn malformed_challenges_are_parsed_leniently() {
        for line in [
            r#"Digest realm="r" nonce="n""#,
            r#"Digest realm="r" nonce="n" qop="auth" algorithm=MD5"#,
            r#"Digest realm="r",, nonce="n", algorithm="MD5""#,
            r#"Digest realm="r", nonce="n", qop="""#,
            r#"Digest realm="r", nonce="n", qop="what""#,
            "Digest realm=r, nonce=n, qop=auth",
            "Digest realm=r nonce=n qop=auth",
            r#"Digest realm="r", nonce="n", x y, qop="auth""#,
            r#"Digest realm="r", nonce="n", what="a=b, c", qop="auth auth-int""#,
            r#"Basic realm="Digest x", Digest realm="r" nonce="n""#,
            r#"DIGEST  realm = "r" ,nonce= "n""#,
            r#"Digest realm="r", nonce="n"#,
        ] {
            let value = HeaderValue::from_str(line).unwrap();
            let client = challenge(&HeaderMap::from_iter([(WWW_AUTHENTICATE, value)]));
            let client = client.unwrap_or_else(|| panic!("{line}"));
            assert_eq!((client.realm(), client.nonce()), ("r", "n"), "{line}");
        }
        let of = |line: &'static str| {
            challenge(&HeaderMap::from_iter([(WWW_AUTHENTICATE, HeaderValue::from_static(line))]))
        };
        assert_eq!(of(r#"Digest nonce="n\"x", qop="auth""#).unwrap().nonce(), "n\"x");
        assert_eq!(of("Digest nonce=n").unwrap().realm(), "");
        assert_eq!(of("Digest realm=the realm, nonce=n").unwrap().realm(), "the realm");
        for line in [
            r#"Digest realm="r""#,
            r#"Digest realm="r" nonce="n" qop="auth-int""#,
            r#"Digest realm="r" nonce="n" algorithm=what"#,
            r#"Basic realm="r" nonce="n""#,
            "Digest",
        ] {
            assert!(of(line).is_none(), "{line}");
        }
    }

    #[test]
    fn each_realm_of_a_server_gets_its_own_login_and_a_refused_login_is_not_repeated() {
        let (logins, url) =
            (DigestLogins::default(), HttpUrl::parse("http://a.example/x").unwrap());
        let basic = Request::get("/x").header(AUTHORIZATION, "Basic dTpw").body(()).unwrap();
        let signed = || {
            let mut request = basic.clone();
            logins.sign(&url, &mut request);
            request
        };
        let learn =
            |status, realm, nonce| logins.learn(&url, &signed(), status, &answer(realm, nonce));
        let refused = StatusCode::UNAUTHORIZED;
        assert!(learn(refused, "one", "1"));
        assert!(!learn(StatusCode::PARTIAL_CONTENT, "one", "1"));
        assert!(learn(refused, "two", "2"), "another realm");
        assert!(!learn(refused, "two", "3"), "the password is wrong there");
        assert!(learn(refused, "one", "4") && !learn(StatusCode::OK, "one", "4"));
        assert!(learn(refused, "one", "5"), "it was accepted, and there is a new nonce");
        assert!(!learn(refused, "one", "5"), "the nonce was refused");
    }
}
