//! Digest logins (RFC 7616), for servers that do not take `Basic`.
//!
//! A login is first sent as `Basic`. If the server answers 401 and accepts `Digest`, requests to it carry a response to
//! that challenge instead, for as long as its nonce holds.

use data_encoding::BASE64;
use http_auth::{DigestClient, PasswordParams, digest::Qop, parse_challenges};
use hyper::{
    HeaderMap, Request,
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

/// The challenges of one call, by the server's origin.
#[derive(Debug, Default)]
pub(super) struct DigestLogins(Mutex<BTreeMap<String, DigestClient>>);

impl DigestLogins {
    /// Replaces a `Basic` login by a response to the challenge of the server of `url`, if there was one.
    pub(super) fn sign<B>(&self, url: &HttpUrl, request: &mut Request<B>) {
        let mut servers = self.lock();
        let Some(client) = servers.get_mut(&url.origin()) else { return };
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

    /// Learns the challenge in an answer to `sent`, whose status is 401. Returns whether to repeat the request.
    pub(super) fn learn<B>(&self, url: &HttpUrl, sent: &Request<B>, answer: &HeaderMap) -> bool {
        let Some(login) = sent.headers().get(AUTHORIZATION) else { return false };
        let Some(client) = challenge(answer) else { return false };
        let is_basic = basic_login(sent.headers()).is_some();
        let is_digest =
            login.as_bytes().get(..7).is_some_and(|s| s.eq_ignore_ascii_case(b"digest "));
        // Without `stale` the server does not know the user or the password.
        if !(is_basic || is_digest && client.stale()) {
            return false;
        }
        let mut servers = self.lock();
        if servers.len() >= MAX_SERVERS {
            servers.clear();
        }
        servers.insert(url.origin(), client);
        true
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, DigestClient>> {
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

/// The first Digest challenge that can be answered: servers name the one they prefer first (RFC 7616 §3.7).
fn challenge(answer: &HeaderMap) -> Option<DigestClient> {
    let lines = answer.get_all(WWW_AUTHENTICATE).iter().filter_map(|line| line.to_str().ok());
    let lines = lines.filter(|line| line.len() <= MAX_CHALLENGE);
    let mut challenges = lines.filter_map(|line| parse_challenges(line).ok()).flatten();
    challenges.find_map(|challenge| {
        DigestClient::try_from(&challenge).ok().filter(|client| client.qop() & Qop::Auth)
    })
}
