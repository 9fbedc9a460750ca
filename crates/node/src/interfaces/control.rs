//! Questions and orders to running processes about their interfaces: one line of JSON each way, on
//! a unix socket that the user alone can open.

use super::{Settings, Uplinks, report};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};
use thalweg_bond::{Cap, ConnectionMethod, Tier};
use thalweg_units::Rate;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    time::{sleep, timeout},
};

/// The longest question, and the longest answer: 64 decisions, 64 applications, bonds.
const MAX_ASKED: u64 = 4 << 10;
const MAX_SAID: u64 = 1 << 20;

/// The other end is on this host and has nothing to wait for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is asked of a process; each answer is its report after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// Nothing is changed.
    Show,
    /// Connections are assigned by this method from now on.
    Schedule(ConnectionMethod),
    /// An interface's policy; what is absent stays.
    Policy {
        /// The interface.
        name: String,
        /// When it is used.
        tier: Option<Tier>,
        /// Its most; zero: as fast as it is.
        rate_limit: Option<Rate>,
        /// Its most in a month; of zero bytes: without a cap.
        cap: Option<Cap>,
        /// Whether its bytes cost.
        metered: Option<bool>,
    },
}

impl Change {
    /// The settings after it.
    fn of(&self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        match self {
            Self::Show => {}
            Self::Schedule(method) => settings.schedule = *method,
            Self::Policy { name, tier, rate_limit, cap, metered } => {
                let mut policy = settings.policy(name);
                policy.tier = tier.unwrap_or(policy.tier);
                policy.metered = metered.unwrap_or(policy.metered);
                if let Some(rate) = rate_limit {
                    policy.rate_limit = Some(*rate).filter(|rate| *rate > Rate::ZERO);
                }
                if let Some(cap) = cap {
                    policy.cap = Some(*cap).filter(|cap| cap.bytes > 0);
                }
                settings.policies.insert(name.clone(), policy);
            }
        }
        settings
    }
}

/// Removes the socket when dropped.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

/// Answers in `directory`, which is made if need be, until dropped; `more` adds to the report what
/// the process alone knows.
///
/// # Errors
/// It cannot listen there.
pub async fn serve(
    directory: &Path,
    uplinks: Uplinks,
    more: &(dyn Fn(&mut Value) + Send + Sync),
) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = Socket(directory.join(format!("{}.sock", std::process::id())));
    match fs::remove_file(&path.0) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(&path.0)?;
    fs::set_permissions(&path.0, fs::Permissions::from_mode(0o600))?;
    loop {
        match listener.accept().await {
            // Who is slow waits for himself alone: the next one is answered after 5 s.
            Ok((stream, _)) => _ = timeout(PATIENCE, answer(stream, &uplinks, more)).await,
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(
    mut stream: UnixStream,
    uplinks: &Uplinks,
    more: &(dyn Fn(&mut Value) + Send + Sync),
) -> io::Result<()> {
    let mut line = String::new();
    BufReader::new((&mut stream).take(MAX_ASKED)).read_line(&mut line).await?;
    let said = match serde_json::from_str::<Change>(&line) {
        Ok(change) => {
            uplinks.change(|settings| change.of(settings));
            let mut said = report(uplinks);
            said["pid"] = json!(std::process::id());
            more(&mut said);
            said
        }
        Err(why) => json!({ "error": why.to_string() }),
    };
    stream.write_all(format!("{said}\n").as_bytes()).await
}

/// Asks all processes that answer in `directory`; those that are gone are forgotten.
///
/// # Errors
/// The directory cannot be read; that there is none is no error.
pub async fn ask(directory: &Path, change: &Change) -> io::Result<Vec<Value>> {
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut said = Vec::new();
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "sock")) {
        match timeout(PATIENCE, one(path, change)).await {
            Ok(Ok(answer)) => said.push(answer),
            // A process that was killed leaves its socket behind.
            Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionRefused => {
                _ = fs::remove_file(path);
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
    Ok(said)
}

async fn one(path: &Path, change: &Change) -> io::Result<Value> {
    let mut stream = UnixStream::connect(path).await?;
    stream.write_all(format!("{}\n", serde_json::to_string(change)?).as_bytes()).await?;
    let mut said = String::new();
    stream.take(MAX_SAID).read_to_string(&mut said).await?;
    Ok(serde_json::from_str(&said)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_bond::Policy;

    #[tokio::test]
    async fn a_running_process_shows_and_takes_changes() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("uplinks");
        assert!(ask(&at, &Change::Show).await.unwrap().is_empty());
        let uplinks = Uplinks::unkept(Settings::default());
        let more = |said: &mut Value| said["listen"] = json!("here");
        let serving = serve(&at, uplinks.clone(), &more);
        let asking = async {
            while ask(&at, &Change::Show).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            let to = Change::Schedule(ConnectionMethod::RoundRobin);
            let said = ask(&at, &to).await.unwrap();
            assert_eq!(
                (&said[0]["schedule"], &said[0]["listen"]),
                (&json!("round-robin"), &json!("here"))
            );
            let cap = Some(Cap { bytes: 5, reset_day: 2 });
            let (name, tier) = ("lte0".to_owned(), Some(Tier::Backup));
            let policy = Change::Policy { name, tier, rate_limit: None, cap, metered: None };
            ask(&at, &policy).await.unwrap();
        };
        tokio::select! {
            ended = serving => panic!("{ended:?}"),
            () = asking => {}
        }
        let expected = Policy {
            tier: Tier::Backup,
            cap: Some(Cap { bytes: 5, reset_day: 2 }),
            ..Policy::default()
        };
        assert_eq!(uplinks.table().settings().policy("lte0"), expected);
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0, "nothing is left behind");
    }
}
