//! Digest logins (RFC 7616), for servers that do not take `Basic`.
//!
//! A login is first sent as `Basic`. If the server answers 401 and accepts `Digest`, requests to it carry a response to
//! that challenge instead, for as long as its nonce holds.

use data_encoding::BASE64;
use http_auth::{DigestClient, PasswordParams, digest::Qop, parse_challenges};
use hyper::{
    HeaderMap, Request, StatusCode,
    header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE},
};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use thalweg_paths::url::HttpUrl;

/// How often one request is repeated with another nonce: several paths use one nonce, and a server that counts its uses
/// may get them in another order.
pub(super) const MAX_REPEATS: u32 = 4;

/// The most servers whose challenges are kept.
const MAX_SERVERS: usize = 256;

/// The longest challenge that is read.
const MAX_CHALLENGE: usize = 8 << 10;

/// What a server has asked for last.
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
        let mut servers = self.lock();
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
        let mut servers = self.lock();
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

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Challenge>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The user and the password of a request's `Basic` login; not if one is not UTF-8.
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

/// What a Digest login that was sent answers.
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
    let lines = lines.filter(|line| line.len() <= MAX_CHALLENGE);
    let mut challenges = lines.filter_map(|line| parse_challenges(line).ok()).flatten();
    challenges.find_map(|challenge| {
        DigestClient::try_from(&challenge).ok().filter(|client| client.qop() & Qop::Auth)
    })
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
    fn two_areas_of_one_server_get_a_login_each_and_a_refused_one_ends() {
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
