//! Kills and failing disks in a short form; the experiment `get-faults` tests the same at length.

use super::{Tool, bytes, skip};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// Three seconds at the server's rate: two batches become durable.
const LENGTH: u32 = 6_000_000;
const RATE: &str = "rate=16Mbps";

/// The harness, which runs the trials.
fn bench() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_thalweg")).with_file_name("thalweg-bench")
}

/// A faulty server, and a directory for downloads from it.
struct Scene {
    dir: TempDir,
    server: Tool,
}

impl Scene {
    /// `None` if something is not installed; the reason is printed.
    fn new(needs: &[&str]) -> Option<Self> {
        for need in needs {
            let found = Command::new(need).arg("--version").stdout(Stdio::null()).status();
            if !found.is_ok_and(|status| status.success()) {
                skip(&format!("{need} is not installed"));
                return None;
            }
        }
        if !bench().exists() {
            skip("there is no thalweg-bench (cargo build --workspace --bins)");
            return None;
        }
        let dir = TempDir::new().unwrap();
        let www = dir.path().join("www");
        fs::create_dir(&www).unwrap();
        for (name, length) in [("a", LENGTH), ("large", 4 * LENGTH)] {
            fs::write(www.join(name), bytes(length)).unwrap();
        }
        let server = Tool::start("web-faults", &[&www])?;
        Some(Self { dir, server })
    }

    fn url(&self, fault: &str, name: &str) -> String {
        format!("http://{}/{fault}/{name}?@n", self.server.address)
    }

    fn place(&self) -> PathBuf {
        self.dir.path().join("place")
    }

    /// The command for these trials with the slow file.
    fn trials(&self, which: &str, args: &[&str]) -> Command {
        let mut command = Command::new(bench());
        command.args(["load", "get-faults", which, "--url", &self.url(RATE, "a")]);
        command.arg("--content").arg(self.dir.path().join("www/a"));
        command.arg("--dir").arg(self.place().join("here")).args(args);
        command.args(["--", "--no-relays"]);
        command.env("THALWEG_STATE", self.dir.path().join("no-mesh"));
        command
    }
}

/// The metrics of the report, after checking that no error was counted.
fn metrics(command: &mut Command) -> Value {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let metrics = report["metrics"].clone();
    for wrong in ["wrong", "litter", "exit_codes_wrong"] {
        assert_eq!(metrics[wrong]["value"], 0.0, "{wrong}: {said}");
    }
    metrics
}

#[test]
fn a_download_killed_at_given_bytes_is_continued() {
    let Some(scene) = Scene::new(&[]) else { return };
    let metrics = metrics(&mut scene.trials("kills", &["--points", "2"]));
    assert_eq!(metrics["trials"]["value"], 3.0, "and one undisturbed");
    assert!(metrics["twice_most"]["value"].as_f64().unwrap() < f64::from(LENGTH) / 1e6);
}

#[test]
fn a_download_killed_around_its_syncs_is_continued() {
    let Some(scene) = Scene::new(&["strace"]) else { return };
    let metrics = metrics(&mut scene.trials("holds", &["--most", "4"]));
    assert_eq!(metrics["killed_before"]["value"], 4.0);
    assert_eq!(metrics["killed_after"]["value"], 4.0);
    assert!(metrics["lost_most"]["value"].is_number(), "{metrics}");
}

#[test]
fn a_failed_write_or_sync_is_never_a_success() {
    let Some(scene) = Scene::new(&["strace"]) else { return };
    let short = scene.url("honest", "a");
    let args = ["--most", "1", "--short-url", &short];
    let metrics = metrics(&mut scene.trials("refusals", &args));
    assert!(metrics["calls_failed"]["value"].as_f64().unwrap() >= 6.0, "{metrics}");
}

#[test]
fn a_full_disk_is_reported_and_keeps_the_received_bytes() {
    let Some(scene) = Scene::new(&["unshare"]) else { return };
    fs::create_dir(scene.place()).unwrap();
    let place = scene.place().display().to_string();
    let large = scene.url("honest", "large");
    let trials = scene.trials("full", &["--large-url", &large]);
    let mount = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec", script, "sh", &place]);
        command
    };
    let only = "mount -t tmpfs -o size=12m none \"$1\"";
    if !mount(only).status().is_ok_and(|status| status.success()) {
        return skip("this user may not mount a file system");
    }
    let mut command = mount(&format!("{only}; shift; exec \"$@\""));
    command.arg(trials.get_program()).args(trials.get_args());
    command.env("THALWEG_STATE", scene.dir.path().join("no-mesh"));
    let metrics = metrics(&mut command);
    assert!(metrics["kept"]["value"].as_f64().unwrap() > 0.0, "{metrics}");
    assert!(metrics["fetched_too_large"]["value"].as_f64().unwrap() < 1.0, "{metrics}");
}
