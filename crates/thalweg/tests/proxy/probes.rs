//! Light probes of interfaces without traffic, in an emulated Internet:
//!
//! ```text
//! client ══ wan0, wan1 ══ server
//! ```

use crate::{
    files::bytes,
    host::until,
    in_lab::{Running, lab, within},
    running_proxy::{RunningProxy, has, thalweg},
    two_links::{came, network, whole_files},
};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;
use thalweg_lab::client::Lab;

const FURTHER: &str = "[host.server]\nnames = [\"speed.example\"]\n";

/// More than a probe fetches.
const LENGTH: u32 = 3_000_000;

fn shown(lab: &Lab, dir: &TempDir) -> Value {
    let mut command = thalweg(dir.path());
    command
        .args(["interfaces", "status", "--json"])
        .env("XDG_CONFIG_HOME", dir.path().join("config"));
    let output = within(lab, "client", &command).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// A client with these settings, and the server.
fn scene(settings: &str) -> Option<(Lab, TempDir, Running)> {
    if !has("python3") {
        return None;
    }
    let lab = lab(&network(&[("server", &[])], FURTHER))?;
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("www")).unwrap();
    fs::write(dir.path().join("www/file"), bytes(LENGTH)).unwrap();
    let server = whole_files(&lab, &dir.path().join("www"), "HTTP/1.1");
    fs::create_dir_all(dir.path().join("config/thalweg")).unwrap();
    fs::write(dir.path().join("config/thalweg/config.toml"), settings).unwrap();
    Some((lab, dir, server))
}

fn proxy(lab: &Lab, dir: &TempDir) -> RunningProxy {
    let mut command = thalweg(dir.path());
    command.args(["proxy", "--listen", "127.0.0.1:0", "--json"]);
    command.env("XDG_CONFIG_HOME", dir.path().join("config"));
    RunningProxy::spawn(within(lab, "client", &command))
}

/// Runs a proxy with these settings until its status matches. Returns the status, and the bytes that arrived by each
/// interface.
async fn probed(
    settings: &str,
    is_as_wanted: impl Fn(&Value) -> bool,
) -> Option<(Value, [u64; 2])> {
    let (lab, dir, _server) = scene(settings)?;
    let proxy = proxy(&lab, &dir);
    let mut last = Value::Null;
    until("the status is as wanted", || {
        last = shown(&lab, &dir);
        is_as_wanted(&last["processes"][0])
    });
    let came = came(&lab);
    proxy.end().await;
    Some((last["processes"][0].take(), came))
}

/// The daily budget is shared by all processes; a process that finds it used up reports that.
#[tokio::test(flavor = "multi_thread")]
async fn two_proxies_share_a_daily_budget() {
    let settings = "
        [interfaces]
        probe = [\"http://speed.example:8080/file\"]
        probe_budget = \"400 kB\"
    ";
    let Some((lab, dir, _server)) = scene(settings) else { return };
    let both = [proxy(&lab, &dir), proxy(&lab, &dir)];
    let mut last = Value::Null;
    until("each interface of each is probed, or is not for want of budget", || {
        last = shown(&lab, &dir);
        let said = last["processes"].as_array().into_iter().flatten();
        let all: Vec<_> = said.filter_map(|one| one["interfaces"].as_array()).flatten().collect();
        let is_over =
            |of: &Value| of["probe_failure"].as_str().is_some_and(|s| s.contains("budget"));
        all.len() == 4 && all.iter().all(|of| of["down_bps"].is_u64() || is_over(of))
    });
    let came = came(&lab);
    println!("{came:?} bytes");
    // One probe was paid for; data in flight arrived as well.
    assert!(came.iter().sum::<u64>() < 1_500_000, "{came:?}: {last}");
    assert_eq!(last["processes"][0]["spent_on_probes_bytes"], 320 << 10, "{last}");
    for proxy in both {
        proxy.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interface_without_traffic_is_probed_unless_it_has_a_price() {
    let settings = "
        [interfaces]
        probe = [\"http://speed.example:8080/file\"]
        [[interfaces.policy]]
        name = \"wan1\"
        price = \"5 / GB\"
    ";
    let is_known = |said: &Value| said["interfaces"][0]["down_bps"].is_u64();
    let Some((said, came)) = probed(settings, is_known).await else { return };
    let rate = said["interfaces"][0]["down_bps"].as_u64().unwrap();
    println!("{rate} bit/s of 8 Mbit/s, {came:?} bytes");
    assert!((1_000_000..8_500_000).contains(&rate), "{said}");
    assert!(said["interfaces"][0]["rtt_seconds"].as_f64().unwrap() >= 0.02, "{said}");
    assert!(said["interfaces"][1]["down_bps"].is_null(), "{said}");
    assert_eq!(said["spent_on_probes_bytes"], 320 << 10);
    // The server does not support ranges: data in flight arrived as well.
    assert!((256 << 10..1_500_000).contains(&came[0]) && came[1] < 20_000, "{came:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_answer_to_a_probe_raises_no_doubt_about_an_interface() {
    let settings = "[interfaces]\nprobe = [\"http://speed.example:8080/none\"]\n";
    let is_told = |said: &Value| {
        let of = said["interfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
        of.len() == 2 && of.iter().all(|one| one["probe_failure"].is_string())
    };
    let Some((said, _)) = probed(settings, is_told).await else { return };
    let why = said["interfaces"][0]["probe_failure"].as_str().unwrap();
    assert!(why.contains("404") && why.contains("portal"), "{why}");
    let doubted = |at: usize| &said["interfaces"][at]["doubted"];
    assert!(doubted(0) == false && doubted(1) == false, "{said}");
}
