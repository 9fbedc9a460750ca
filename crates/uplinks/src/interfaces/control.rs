//! Requests to running processes about their interfaces: one line of JSON in each direction, over a unix socket that
//! only the user can open.

use super::{Change, Uplinks, report};
use serde_json::{Value, json};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    time::{sleep, timeout},
};

/// The longest request, bytes. The rest is not read, and makes the request invalid.
const MAX_ASKED: u64 = 4 << 10;
/// The longest answer, bytes: 64 decisions, 64 applications, bonds. The rest is not read, and the asker sees an error.
const MAX_SAID: u64 = 1 << 20;

/// Time limit of one exchange: the other end is on this host and has nothing to wait for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Removes the socket when dropped.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

/// Answers requests in `directory`, which is created if need be, until dropped. `more` adds to the report what only
/// this process knows.
///
/// # Errors
/// The socket cannot be created there.
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
            // A slow client delays the next one by 5 s at most.
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
    let mut said = match serde_json::from_str::<Change>(&line) {
        Ok(change) => match changed(uplinks, &change) {
            Ok(()) => {
                let mut said = report(uplinks);
                more(&mut said);
                said
            }
            Err(why) => json!({ "error": why }),
        },
        Err(why) => json!({ "error": why.to_string() }),
    };
    said["pid"] = json!(std::process::id());
    stream.write_all(format!("{said}\n").as_bytes()).await
}

fn changed(uplinks: &Uplinks, change: &Change) -> Result<(), String> {
    match change {
        Change::Show => Ok(()),
        change => uplinks.change(|settings| change.apply_to(settings)),
    }
}

/// Asks all processes that answer in `directory`, and removes the sockets of those that are gone. For one that runs and
/// does not answer, the result has `pid` and `error`.
///
/// # Errors
/// The directory cannot be read. If it does not exist, the result is empty.
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
            Ok(Err(why)) => said.push(silent(path, &why.to_string())),
            Err(_) => {
                said.push(silent(path, &format!("no answer within {} s", PATIENCE.as_secs())))
            }
        }
    }
    Ok(said)
}

fn silent(path: &Path, why: &str) -> Value {
    let pid = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u32>().ok());
    json!({ "pid": pid, "error": why })
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
    use crate::interfaces::{PolicyChange, Settings};
    use thalweg_bond::{Cap, ConnectionMethod, Policy, Tier};
    use thalweg_units::ByteSize;

    #[tokio::test]
    async fn a_running_process_shows_and_takes_changes() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("uplinks");
        assert!(ask(&at, &Change::Show).await.unwrap().is_empty());
        let account = dir.path().join("interfaces.json");
        let uplinks = Uplinks::open(Settings::default(), Some(account)).unwrap();
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
            let change = |tier, cap: Option<u64>, reset_day: Option<u8>| {
                let (name, cap) = ("lte0".to_owned(), cap.map(ByteSize::from_bytes));
                let (price, spend) = (reset_day.map(f64::from), reset_day.map(|_| true));
                let same = PolicyChange::default();
                Change::Policy(PolicyChange { name, tier, cap, reset_day, price, spend, ..same })
            };
            ask(&at, &change(Some(Tier::Backup), Some(7), Some(2))).await.unwrap();
            // The day and the tier stay, since they are not given.
            ask(&at, &change(None, Some(5), None)).await.unwrap();
            // A process that hangs up at once is reported.
            let mute = UnixListener::bind(at.join("77.sock")).unwrap();
            let hangs_up = async { drop(mute.accept().await) };
            let (said, ()) = tokio::join!(ask(&at, &Change::Show), hangs_up);
            let said = said.unwrap();
            let mute = said.iter().find(|said| said["pid"] == json!(77)).unwrap();
            assert!(mute["error"].is_string(), "{mute}");
            assert_eq!(said.len(), 2);
            fs::remove_file(at.join("77.sock")).unwrap();
        };
        tokio::select! {
            ended = serving => panic!("{ended:?}"),
            () = asking => {}
        }
        let expected = Policy {
            tier: Tier::Backup,
            cap: Some(Cap { bytes: 5, reset_day: 2 }),
            price: 2.0,
            spend: true,
            ..Policy::default()
        };
        assert_eq!(uplinks.table().settings().policy("lte0"), expected);
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0, "nothing is left behind");
    }
    #[test]
    fn a_cap_needs_an_account() {
        let uplinks = Uplinks::without_file(Settings::default());
        let (name, cap) = ("lte0".to_owned(), Some(ByteSize::from_bytes(7)));
        let change = Change::Policy(PolicyChange { name, cap, ..PolicyChange::default() });
        let why = uplinks.change(|settings| change.apply_to(settings)).unwrap_err();
        assert!(
            why.contains("does not record usage") && uplinks.table().settings().is_plain(),
            "{why}"
        );
    }
}
