//! Tests of `thalweg history`: showing, lifting and clearing.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
    time::{Duration, SystemTime},
};
use tempfile::TempDir;
use thalweg_paths::history::{Bound, History, PathObservation};
use thalweg_units::{Rate, WallTime};

const WWW: &str = "https://www.example.org:443";
const HOUR: Duration = Duration::from_secs(3600);

/// A state directory of its own.
struct TestState(TempDir);

impl TestState {
    fn empty() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// One relay blamed at one server, one at three; two paths, of which one was measured recently.
    fn with_blames() -> Self {
        let state = Self::empty();
        let mut history = History::open(&state.file());
        let days = |n: u32| ago(HOUR * 24 * n);
        history.quarantine("fra", WWW, "bytes 0-99 differ from the direct path's", days(3));
        for (origin, n) in [("http://a.test:80", 6), ("http://b.test:80", 5), (WWW, 1)] {
            history.quarantine("nyc", origin, "TLS refuses a record", days(n));
        }
        history.learn(WWW, &[seen("direct")], ago(HOUR * 48));
        history.learn("http://a.test:80", &[seen("nyc")], ago(HOUR));
        history.save().unwrap();
        state
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("history.json")
    }

    fn thalweg(&self, args: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.arg("history").args(args.split_whitespace()).env("THALWEG_STATE", self.0.path());
        command.env("XDG_CACHE_HOME", self.0.path().join("cache"));
        command.output().unwrap()
    }

    /// The output, with the directory's name replaced.
    fn said(&self, args: &str) -> String {
        let output = self.thalweg(args);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        let code = output.status.code().unwrap();
        let line = format!("$ thalweg history {args}");
        let all = format!("{}\n{out}--\n{err}exit {code}\n", line.trim_end());
        all.replace(&*self.0.path().to_string_lossy(), "STATE")
    }

    fn json(&self) -> Value {
        let output = self.thalweg("--json");
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Ages are shown in hours and days, so the duration of a test does not matter.
fn ago(time: Duration) -> WallTime {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    WallTime::from_unix_nanos(u64::try_from((now - time).as_nanos()).unwrap())
}

fn seen(path: &str) -> PathObservation {
    let (rate, setup) = (Rate::from_mbps(8.0), Duration::from_millis(40));
    PathObservation { path: path.to_owned(), rate, setup, bound: Bound::Exact }
}

#[test]
fn what_is_remembered_is_shown_and_lifted_and_forgotten() {
    let state = TestState::with_blames();
    let lines = ["", "show", "lift nyc", "", "lift nyc", "clear", "", "clear", "lift fra"];
    let all: Vec<_> = lines.iter().map(|line| state.said(line)).collect();
    insta::assert_snapshot!("history", all.join("\n"));
}

#[test]
fn mistakes_say_what_to_try() {
    let state = TestState::with_blames();
    let lines =
        ["lift frs", "lift fra%eth1", "lift", "--history none", "lift fra --state /nowhere"];
    let all: Vec<_> = lines.iter().map(|line| state.said(line)).collect();
    insta::assert_snapshot!("history-mistakes", all.join("\n"));
    assert_eq!(state.json()["quarantined"].as_array().unwrap().len(), 4, "all is as it was");
}

#[test]
fn json_has_the_same_content() {
    let state = TestState::with_blames();
    let all = state.json();
    let relays: Vec<_> = all["quarantined"].as_array().unwrap().iter().collect();
    let about = |b: &Value| (b["relay"].clone(), b["origin"].clone(), b["all_servers"].clone());
    assert_eq!(about(relays[0]), ("fra".into(), WWW.into(), false.into()));
    assert_eq!(about(relays[3]), ("nyc".into(), WWW.into(), true.into()));
    assert!(relays[0]["left_seconds"].as_u64().unwrap() <= 4 * 24 * 3600);
    assert!(relays[0]["found_unix_seconds"].as_u64().unwrap() > 1_700_000_000);
    let used: Vec<_> = all["paths"].as_array().unwrap().iter().map(|p| &p["used"]).collect();
    assert_eq!(used, [true, false]);

    let lifted = state.thalweg("lift nyc --json");
    let lifted: Value = serde_json::from_slice(&lifted.stdout).unwrap();
    assert_eq!(lifted["lifted"], "nyc");
    assert_eq!(lifted["origins"].as_array().unwrap().len(), 3);
    let cleared = state.thalweg("clear --json");
    let cleared: Value = serde_json::from_slice(&cleared.stdout).unwrap();
    assert_eq!((&cleared["relays"], &cleared["paths"]), (&vec!["fra"].into(), &2.into()));
    assert_eq!(state.json()["paths"], Value::Array(vec![]));
}

#[test]
fn nothing_is_created_without_a_history() {
    let state = TestState::empty();
    assert!(state.said("").contains("no relay is in quarantine"), "{}", state.said(""));
    assert!(state.thalweg("clear").status.success());
    assert_eq!(fs::read_dir(state.0.path()).unwrap().count(), 0);
}

#[test]
fn an_unusable_file_is_an_error_and_a_newer_one_is_kept() {
    let state = TestState::empty();
    let theirs = r#"{"format": 2, "names": "elsewhere"}"#;
    fs::write(state.file(), theirs).unwrap();
    for line in ["show", "clear", "lift fra"] {
        let said = state.said(line);
        assert!(said.contains("newer thalweg") && said.contains("exit 1"), "{said}");
    }
    assert_eq!(fs::read_to_string(state.file()).unwrap(), theirs);

    fs::write(state.file(), "spoilt").unwrap();
    let said = state.said("show");
    assert!(said.contains("history.json.damaged") && said.contains("exit 1"), "{said}");
    assert!(state.said("show").contains("exit 0"), "it is out of the way");
}
