//! Who may use the API on loopback: the token for programs, links that open the page once, and the page's sessions.
//!
//! Only hashes of secrets are kept in memory; `blake3::Hash` compares in constant time. Times are arguments. A session
//! belongs to the user of this host that opened it: browsers send its cookie to every server on 127.0.0.1 that they
//! visit, also to those of other users.

use blake3::Hash;
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use thalweg_base::durable;
use tokio::sync::{Notify, futures::Notified};

/// How long a link can be opened.
pub const LINK_VALIDITY: Duration = Duration::from_secs(5 * 60);

/// The most links that can be opened at a time; a new one replaces the oldest.
pub const MAX_LINKS: usize = 16;

/// How long a session lasts without a request.
pub const SESSION_IDLE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The most sessions, i.e. browsers; a new one replaces the one that was idle longest.
pub const MAX_SESSIONS: usize = 64;

/// The bytes of randomness in each secret; twice as many hexadecimal digits.
const SECRET: usize = 32;

/// The secrets of one daemon.
#[derive(Debug)]
pub struct Credentials {
    token: Mutex<Hash>,
    token_file: PathBuf,
    links: Mutex<DatedSecrets<()>>,
    sessions: Mutex<DatedSecrets<u32>>,
    revoked: Notify,
}

/// Hashes of secrets, with a time for each (when it was made or last used) and its owner.
#[derive(Debug)]
struct DatedSecrets<Owner>(Vec<DatedSecret<Owner>>);

#[derive(Debug)]
struct DatedSecret<Owner> {
    hash: Hash,
    since: Instant,
    owner: Owner,
}

impl<Owner> Default for DatedSecrets<Owner> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<Owner> DatedSecrets<Owner> {
    fn expire(&mut self, validity: Duration, now: Instant) {
        self.0.retain(|secret| now.saturating_duration_since(secret.since) < validity);
    }

    /// Adds a secret; of `most`, the oldest one gives way.
    fn add(&mut self, secret: &str, owner: Owner, most: usize, now: Instant) {
        while self.0.len() >= most {
            let oldest = self.0.iter().enumerate().min_by_key(|(_, secret)| secret.since);
            let Some((at, _)) = oldest else { break };
            self.0.swap_remove(at);
        }
        self.0.push(DatedSecret { hash: blake3::hash(secret.as_bytes()), since: now, owner });
    }

    fn position(&self, secret: &str) -> Option<usize> {
        let hash = blake3::hash(secret.as_bytes());
        self.0.iter().position(|known| known.hash == hash)
    }
}

impl Credentials {
    /// Reads the token from its file. If there is none, or if other users could have read or changed it, a new token is
    /// written, durably and with mode 0600.
    ///
    /// # Errors
    /// The system's.
    pub fn open(token_file: &Path) -> io::Result<Self> {
        let token = match stored_token(token_file)? {
            Some(token) => token,
            None => new_token(token_file)?,
        };
        Ok(Self {
            token: Mutex::new(blake3::hash(token.as_bytes())),
            token_file: token_file.to_owned(),
            links: Mutex::default(),
            sessions: Mutex::default(),
            revoked: Notify::new(),
        })
    }

    /// Removes the token, so that the next start makes another one: while the port is not ours, programs may have sent
    /// it to whoever has the port. Returns whether there was one.
    ///
    /// # Errors
    /// The system's.
    pub fn discard(token_file: &Path) -> io::Result<bool> {
        match fs::remove_file(token_file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            removed => removed?,
        }
        durable::sync_directory(token_file)?;
        Ok(true)
    }

    /// The file with the token.
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// Whether this is the token.
    pub fn is_token(&self, text: &str) -> bool {
        blake3::hash(text.as_bytes()) == *self.token.lock()
    }

    /// Creates a code that opens the page once within [`LINK_VALIDITY`].
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn new_link(&self, now: Instant) -> io::Result<String> {
        let code = random()?;
        let mut links = self.links.lock();
        links.expire(LINK_VALIDITY, now);
        links.add(&code, (), MAX_LINKS, now);
        Ok(code)
    }

    /// Exchanges a link's code for a new session of this user; `None` if the code was used, has expired or never
    /// existed.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn open_session(&self, code: &str, user: u32, now: Instant) -> io::Result<Option<String>> {
        let session = random()?;
        let mut links = self.links.lock();
        links.expire(LINK_VALIDITY, now);
        let Some(at) = links.position(code) else { return Ok(None) };
        links.0.swap_remove(at);
        drop(links);
        let mut sessions = self.sessions.lock();
        sessions.expire(SESSION_IDLE, now);
        sessions.add(&session, user, MAX_SESSIONS, now);
        Ok(Some(session))
    }

    /// Whether this is an open session of this user (`None`: unknown), which is then as new.
    pub fn use_session(&self, session: &str, user: Option<u32>, now: Instant) -> bool {
        let mut sessions = self.sessions.lock();
        sessions.expire(SESSION_IDLE, now);
        let Some(at) = sessions.position(session) else { return false };
        let session = &mut sessions.0[at];
        let is_theirs = user == Some(session.owner);
        if is_theirs {
            session.since = now;
        }
        is_theirs
    }

    /// Makes a new token and ends all links and sessions.
    ///
    /// # Errors
    /// The system's; then the old token is still valid, and links and sessions go on.
    pub fn revoke(&self) -> io::Result<()> {
        let mut token = self.token.lock();
        *token = blake3::hash(new_token(&self.token_file)?.as_bytes());
        self.links.lock().0.clear();
        self.sessions.lock().0.clear();
        drop(token);
        self.revoked.notify_waiters();
        Ok(())
    }

    /// Completes at the next [`Self::revoke`] after this call.
    pub fn revoked(&self) -> Notified<'_> {
        self.revoked.notified()
    }
}

/// Writes a new token to the file, durably and with mode 0600.
fn new_token(file: &Path) -> io::Result<String> {
    let token = random()?;
    durable::replace(file, format!("{token}\n").as_bytes())?;
    Ok(token)
}

/// The token in the file; `None` if there is none, or it is not to be used.
fn stored_token(file: &Path) -> io::Result<Option<String>> {
    let Some(bytes) = durable::read(file, 4096)? else { return Ok(None) };
    let is_private = fs::metadata(file)?.permissions().mode() & 0o077 == 0;
    let text = String::from_utf8(bytes).unwrap_or_default();
    let text = text.trim_end();
    let is_token = HEXLOWER.decode(text.as_bytes()).is_ok_and(|secret| secret.len() == SECRET);
    Ok((is_private && is_token).then(|| text.to_owned()))
}

/// A new secret in hexadecimal.
fn random() -> io::Result<String> {
    let mut secret = [0; SECRET];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    Ok(HEXLOWER.encode(&secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: u32 = 1000;
    const ME: Option<u32> = Some(USER);

    fn open() -> (tempfile::TempDir, Credentials) {
        let dir = tempfile::tempdir().unwrap();
        let credentials = Credentials::open(&dir.path().join("api.token")).unwrap();
        (dir, credentials)
    }

    #[test]
    fn the_token_is_made_once_and_only_its_owner_can_read_it() {
        let (dir, first) = open();
        let token = fs::read_to_string(first.token_file()).unwrap();
        assert_eq!(token.len(), 2 * SECRET + 1);
        assert_eq!(fs::metadata(first.token_file()).unwrap().permissions().mode() & 0o777, 0o600);
        let again = Credentials::open(&dir.path().join("api.token")).unwrap();
        assert!(again.is_token(token.trim()) && first.is_token(token.trim()));
        assert!(!again.is_token(&token) && !again.is_token("") && !again.is_token("a"));
    }

    #[test]
    fn a_token_that_others_could_read_or_that_is_damaged_is_replaced() {
        let (dir, first) = open();
        let file = dir.path().join("api.token");
        let token = fs::read_to_string(&file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!Credentials::open(&file).unwrap().is_token(token.trim()));
        for text in ["", "abc\n", "\u{e9}"] {
            fs::write(&file, text).unwrap();
            assert!(!Credentials::open(&file).unwrap().is_token(text.trim()), "{text}");
        }
        assert!(first.is_token(token.trim()), "a running daemon keeps its token");
    }

    #[test]
    fn a_link_opens_one_session() {
        let ((_dir, all), now) = (open(), Instant::now());
        let code = all.new_link(now).unwrap();
        assert!(!all.use_session(&code, ME, now));
        let session = all.open_session(&code, USER, now).unwrap().unwrap();
        assert!(all.use_session(&session, ME, now) && !all.is_token(&session));
        assert_eq!(all.open_session(&code, USER, now).unwrap(), None, "it was used");
        assert_eq!(all.open_session(&session, USER, now).unwrap(), None);
    }

    #[test]
    fn links_and_sessions_expire() {
        let ((_dir, all), now) = (open(), Instant::now());
        let [code, late] = [(); 2].map(|()| all.new_link(now).unwrap());
        assert_eq!(all.open_session(&late, USER, now + LINK_VALIDITY).unwrap(), None);
        assert_eq!(
            all.open_session(&code, USER, now).unwrap(),
            None,
            "expired links are forgotten"
        );
        let code = all.new_link(now).unwrap();
        let last = now + LINK_VALIDITY - Duration::from_secs(1);
        let session = all.open_session(&code, USER, last).unwrap().unwrap();
        let mut at = last;
        for _ in 0..3 {
            at += SESSION_IDLE - Duration::from_secs(1);
            assert!(all.use_session(&session, ME, at), "its last use counts");
        }
        assert!(!all.use_session(&session, ME, at + SESSION_IDLE));
    }

    #[test]
    fn links_and_sessions_are_bounded_and_the_oldest_give_way() {
        let ((_dir, all), now) = (open(), Instant::now());
        let at = |n: usize| now + Duration::from_millis(n as u64);
        let codes: Vec<_> = (0..=MAX_LINKS).map(|n| all.new_link(at(n)).unwrap()).collect();
        assert_eq!(all.open_session(&codes[0], USER, at(99)).unwrap(), None);
        assert!(all.open_session(&codes[1], USER, at(99)).unwrap().is_some());
        let open = |n: usize| {
            let code = all.new_link(at(n)).unwrap();
            all.open_session(&code, USER, at(n)).unwrap().unwrap()
        };
        let sessions: Vec<_> = (100..100 + MAX_SESSIONS).map(open).collect();
        assert!(all.use_session(&sessions[0], ME, at(500)));
        open(600);
        assert!(all.use_session(&sessions[0], ME, at(700)), "used later than the next one");
        assert!(!all.use_session(&sessions[1], ME, at(700)));
        assert_eq!(all.sessions.lock().0.len(), MAX_SESSIONS);
    }

    #[test]
    fn a_session_belongs_to_the_user_that_opened_it() {
        let ((_dir, all), now) = (open(), Instant::now());
        let code = all.new_link(now).unwrap();
        let session = all.open_session(&code, USER, now).unwrap().unwrap();
        let later = now + SESSION_IDLE - Duration::from_secs(1);
        for other in [None, Some(0), Some(USER + 1)] {
            assert!(!all.use_session(&session, other, later), "{other:?}");
        }
        assert!(!all.use_session(&session, ME, now + SESSION_IDLE), "others do not prolong it");
    }

    #[tokio::test]
    async fn after_a_revocation_nothing_old_is_valid() {
        let ((_dir, all), now) = (open(), Instant::now());
        let token = fs::read_to_string(all.token_file()).unwrap();
        let [code, link] = [(); 2].map(|()| all.new_link(now).unwrap());
        let session = all.open_session(&code, USER, now).unwrap().unwrap();
        let told = all.revoked();
        all.revoke().unwrap();
        told.await;
        assert!(!all.is_token(token.trim()) && !all.use_session(&session, ME, now));
        assert_eq!(all.open_session(&link, USER, now).unwrap(), None);
        assert!(all.is_token(fs::read_to_string(all.token_file()).unwrap().trim()));
    }

    #[test]
    fn a_discarded_token_is_not_valid_at_the_next_start() {
        let (_dir, all) = open();
        let token = fs::read_to_string(all.token_file()).unwrap();
        assert!(Credentials::discard(all.token_file()).unwrap());
        assert!(!Credentials::discard(all.token_file()).unwrap(), "there is none any more");
        assert!(!Credentials::open(all.token_file()).unwrap().is_token(token.trim()));
    }
}
