//! Tests of `thalweg paths`: with an oracle, without one, and with broken files.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use serde_json::Value;
use std::{
    fs,
    net::Ipv4Addr,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};
use tempfile::TempDir;
use thalweg_lab::port::Port;
use thalweg_paths::detours::KnownPaths;
use thalweg_units::WallTime;
use thalweg_wire::mesh::measure::PathsReply;

/// The founder of a mesh, with its own state directory.
struct Host {
    dir: TempDir,
    address: String,
    _port: Port,
}

impl Host {
    fn founder() -> Self {
        let _port = Port::reserve(Ipv4Addr::LOCALHOST).unwrap();
        let address = format!("127.0.0.1:{}", _port.number());
        let host = Self { dir: TempDir::new().unwrap(), address, _port };
        let made = host.run(&["mesh", "init", "--name", "fra", "--address", &host.address]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        host
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(args).env("THALWEG_STATE", self.state());
        command.env("XDG_CONFIG_HOME", self.dir.path().join("config"));
        command.env("XDG_CACHE_HOME", self.dir.path().join("cache"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a command that must fail with exit code 1. Returns standard error.
    fn fails(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("panicked"));
        text(&output.stderr)
    }

    /// Stores an answer of the oracle that is an hour old.
    fn keep_paths(&self) {
        let leg = r#"{"from":0,"to":1,"bps":2.5e7,"spread_bps":null,"method":"transfer","at_least":false,"age":"60 s"}"#;
        let reply =
            format!(r#"{{"nodes":["fra","nyc"],"legs":[{leg}],"down":[],"disagreements":[]}}"#);
        let reply: PathsReply = serde_json::from_str(&reply).unwrap();
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .saturating_sub(Duration::from_secs(3600));
        let asked = WallTime::from_unix_nanos(u64::try_from(since.as_nanos()).unwrap());
        KnownPaths::new(reply, asked).keep(&self.file("paths")).unwrap();
    }

    fn file(&self, kind: &str) -> PathBuf {
        self.state().join(format!("history.{kind}.json"))
    }
}

/// A daemon; killed when dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn without_the_oracle_the_stored_answer_is_shown_with_its_age() {
    let fra = Host::founder();
    let said = fra.fails(&["paths"]);
    assert!(said.contains("nothing is known of paths yet: no oracle could be reached"), "{said}");
    fra.keep_paths();
    let shown = fra.run(&["paths"]);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    assert!(text(&shown.stderr).contains("no new answer from the oracle"));
    let out = text(&shown.stdout);
    assert!(out.contains("2 nodes, 1 of 2 ordered pairs measured (50 %)\n1 h 1 min old"), "{out}");
    let json: Value = serde_json::from_slice(&fra.run(&["paths", "--json"]).stdout).unwrap();
    assert_eq!(json["oracle"]["answered"], false);
    assert!(json["oracle"]["paths_age_seconds"].as_u64().unwrap() >= 3600);
    assert_eq!(json["paths"]["legs"][0]["bps"], 2.5e7);
}

#[test]
fn mistakes_are_explained() {
    let fra = Host::founder();
    fra.keep_paths();
    assert!(fra.fails(&["paths", "--to", "nyk"]).contains("did you mean `nyc`?"));
    assert!(fra.fails(&["paths", "a b"]).contains("is neither a URL nor HOST[:PORT]"));
    let two = fra.run(&["paths", "--advise", "--to", "nyc"]);
    assert_eq!(two.status.code(), Some(2), "{}", text(&two.stderr));
    let elsewhere = fra.dir.path().join("elsewhere").display().to_string();
    let said = fra.fails(&["paths", "--state", &elsewhere]);
    assert!(said.contains("thalweg mesh join") || said.contains("elsewhere"), "{said}");
}

#[test]
fn broken_files_are_set_aside_and_reported() {
    let fra = Host::founder();
    for kind in ["paths", "detours"] {
        fs::write(fra.file(kind), "{\"format\":1").unwrap();
    }
    let said = fra.fails(&["paths"]);
    assert_eq!(said.matches("was corrupt").count(), 2, "{said}");
    assert!(fra.state().join("history.paths.json.damaged").exists());
    fs::write(fra.file("paths"), "{\"format\":9}").unwrap();
    assert!(fra.fails(&["paths"]).contains("newer thalweg (format 9)"));
}

/// The oracle is this host's own daemon: nothing is measured in a mesh of one.
#[test]
fn the_answer_of_the_oracle_is_stored() {
    let fra = Host::founder();
    let mut daemon = fra.command(&["node", "--listen", &fra.address]);
    let child = daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _daemon = Daemon(child);
    let until = std::time::Instant::now() + Duration::from_secs(60);
    let answered = loop {
        let json: Value =
            serde_json::from_slice(&fra.run(&["paths", "--json"]).stdout).unwrap_or(Value::Null);
        if json["oracle"]["answered"] == true {
            break json;
        }
        assert!(std::time::Instant::now() < until, "the oracle never answered: {json}");
        std::thread::yield_now();
    };
    assert_eq!(answered["oracle"]["trouble"], Value::Null);
    assert!(answered["paths"]["legs"].as_array().unwrap().is_empty());
    assert!(fra.file("paths").exists() && fra.file("detours").exists());
}
