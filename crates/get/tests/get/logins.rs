//! Tests of Digest logins (RFC 7616), compared with curl if it is installed.

use super::*;
use md5::{Digest as _, Md5};
use server::{Ask, Reply};
use sha2::Sha256;
use std::{
    collections::{BTreeMap, BTreeSet},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};
use thalweg_get::Credentials;

const USER: &str = "Mufasa";
const PASSWORD: &str = "Circle of \"Life\"";

fn md5(text: &str) -> String {
    format!("{:x}", Md5::digest(text))
}

fn sha256(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

/// The parameters of a login.
fn parameters(login: &str) -> Option<BTreeMap<String, String>> {
    let rest = login.strip_prefix("Digest ")?;
    let pairs = rest.split(", ").filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()));
    Some(pairs.collect())
}

/// A server that accepts only Digest logins.
#[derive(Clone)]
struct Guard {
    challenges: &'static [&'static str],
    hash: fn(&str) -> String,
    /// How often a nonce can be used.
    uses: u64,
    /// Whether the server marks an expired nonce as stale.
    says_stale: bool,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    nonce: u64,
    used: BTreeSet<String>,
    refused: usize,
}

impl Guard {
    fn new(challenges: &'static [&'static str], hash: fn(&str) -> String, uses: u64) -> Self {
        Self { challenges, hash, uses, says_stale: true, state: Arc::default() }
    }

    fn judge(&self, ask: &Ask, reply: &mut Reply) {
        let mut state = self.state.lock().unwrap();
        let login = ask.fields.get("authorization").map(|v| v.to_str().unwrap().to_owned());
        let given = login.as_deref().and_then(parameters);
        let is_right = given.as_ref().is_some_and(|given| self.is_right(ask, given));
        let is_fresh = given.as_ref().is_some_and(|given| {
            given["nonce"] == format!("n{}", state.nonce)
                && (state.used.len() as u64) < self.uses
                && state.used.insert(given["nc"].clone())
        });
        if is_right && is_fresh {
            return;
        }
        reply.status(401);
        state.refused += 1;
        state.nonce += 1;
        state.used.clear();
        for challenge in self.challenges {
            let stale = if is_right && self.says_stale { ", stale=true" } else { "" };
            let challenge = challenge.replace("NONCE", &format!("n{}", state.nonce)) + stale;
            let value = challenge.parse().unwrap();
            reply.fields.append("www-authenticate", value);
        }
    }

    fn is_right(&self, ask: &Ask, given: &BTreeMap<String, String>) -> bool {
        let hash = self.hash;
        let one = hash(&format!("{USER}:the realm:{PASSWORD}"));
        let two = hash(&format!("GET:{}", ask.path));
        let (nonce, nc, cnonce) = (&given["nonce"], &given["nc"], &given["cnonce"]);
        let expected = hash(&format!("{one}:{nonce}:{nc}:{cnonce}:auth:{two}"));
        given["username"] == USER && given["uri"] == ask.path && given["response"] == expected
    }

    fn refused(&self) -> usize {
        self.state.lock().unwrap().refused
    }
}

fn login(user: &str, password: &str) -> HttpSettings {
    let mut credentials = Credentials::default();
    credentials.add("127.0.0.1", user, password);
    HttpSettings { credentials: Arc::new(credentials), ..HttpSettings::default() }
}

/// The bytes that `curl` gets with this option for the scheme; `None` if there is no curl.
async fn by_curl(url: String, scheme: &'static str) -> Option<Vec<u8>> {
    let curl = move || {
        let user = format!("{USER}:{PASSWORD}");
        let mut curl = Command::new("curl");
        curl.args(["-q", "-s", "-f", scheme, "-u", &user, "--noproxy", "*", "--max-time", "60"]);
        curl.arg(url).stdin(Stdio::null()).output().ok()
    };
    Some(tokio::task::spawn_blocking(curl).await.unwrap()?.stdout)
}

const MD5: &str = "Digest realm=\"the realm\", qop=\"auth\", nonce=\"NONCE\", opaque=\"5ccc\"";
const SHA256: &str =
    "Digest realm=\"the realm\", qop=\"auth, auth-int\", algorithm=SHA-256, nonce=\"NONCE\"";
const UNKNOWN: &str = "Digest realm=\"the realm\", qop=\"auth\", algorithm=SHA-1, nonce=\"NONCE\"";
const BASIC: &str = "Basic realm=\"the realm\"";

#[tokio::test(flavor = "multi_thread")]
async fn digest_logins_are_answered() {
    for (challenges, hash, uses, by_curl_too) in [
        (&[MD5][..], md5 as fn(&str) -> String, u64::MAX, true),
        (&[SHA256], sha256, u64::MAX, true),
        (&[SHA256, MD5], sha256, u64::MAX, true),
        (&[BASIC, MD5], md5, u64::MAX, true),
        (&[UNKNOWN, MD5], md5, u64::MAX, false),
        // A nonce is valid for two requests.
        (&[MD5], md5, 2, true),
    ] {
        let version = Version::new(1, LENGTH);
        let guard = Guard::new(challenges, hash, uses);
        let judge = guard.clone();
        let server = Server::start(&version, move |ask, reply| judge.judge(ask, reply)).await;
        let mut trial = Trial::new(&server, &[]);
        trial.request.web = login(USER, PASSWORD);
        trial.gets(&version).await;
        let asks = server.asks().len();
        assert!(asks > 1);
        if uses == u64::MAX {
            assert_eq!(guard.refused(), 1, "{challenges:?}: one challenge serves all requests");
        }
        for scheme in ["--digest", "--anyauth"] {
            if let (true, Some(got)) = (by_curl_too, by_curl(server.url(), scheme).await) {
                assert!(got == version.bytes, "{challenges:?}: not even curl {scheme} gets it");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_nonce_is_used_even_if_the_server_does_not_mark_the_old_one_stale() {
    for uses in [1, 2] {
        let version = Version::new(1, LENGTH);
        let guard = Guard { says_stale: false, ..Guard::new(&[MD5], md5, uses) };
        let judge = guard.clone();
        let server = Server::start(&version, move |ask, reply| judge.judge(ask, reply)).await;
        let mut trial = Trial::new(&server, &[]).in_segments();
        trial.request.web = login(USER, PASSWORD);
        trial.gets(&version).await;
        assert!(uses > 1 || guard.refused() > 1, "the nonce was used up");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_tried_once() {
    let version = Version::new(1, LENGTH);
    let guard = Guard::new(&[MD5], md5, u64::MAX);
    let judge = guard.clone();
    let server = Server::start(&version, move |ask, reply| judge.judge(ask, reply)).await;
    let mut trial = Trial::new(&server, &[]);
    trial.request.web = login(USER, "wrong");
    let why = trial.fails().await;
    assert!(why.contains("401") && why.contains("Digest"), "{why}");
    let digests = server.asks().into_iter().filter(|ask| {
        let login = ask.fields.get("authorization");
        login.is_some_and(|login| login.as_bytes().starts_with(b"Digest"))
    });
    let digests = digests.count();
    assert!((1..=3).contains(&digests), "with a range, without, and bare: {digests}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_digest_is_sent_without_a_login_or_in_place_of_the_users_own_field() {
    for own in [None, Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")] {
        let version = Version::new(1, LENGTH);
        let guard = Guard::new(&[MD5], md5, u64::MAX);
        let server = Server::start(&version, move |ask, reply| guard.judge(ask, reply)).await;
        let mut trial = Trial::new(&server, &[]);
        if let Some(own) = own {
            trial.request.fields.insert("authorization", own.parse().unwrap());
        }
        trial.fails().await;
        let login = |ask: &Ask| Some(ask.fields.get("authorization")?.to_str().unwrap().to_owned());
        assert!(server.asks().iter().all(|ask| login(ask).as_deref() == own));
    }
}
