//! Light probes of interfaces of which no traffic tells, in an emulated Internet:
//!
//! ```text
//! client ══ wan0, wan1 ══ server
//! ```

use crate::{
    files::bytes,
    host::until,
    in_lab::{lab, within},
    started::{Started, has, thalweg},
    two_links::{came, network, whole_files},
};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;
use thalweg_lab::client::Lab;

const FURTHER: &str = "[host.server]\nnames = [\"speed.example\"]\n";

/// More than a probe takes.
const LENGTH: u32 = 3_000_000;

fn shown(lab: &Lab, dir: &TempDir) -> Value {
    let mut command = thalweg(dir.path());
    command.args(["bond", "status", "--json"]).env("XDG_CONFIG_HOME", dir.path().join("config"));
    let output = within(lab, "client", &command).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// A proxy with these settings, once its status is as wanted; the status, and bytes that came by each
/// interface.
async fn probed(
    settings: &str,
    is_as_wanted: impl Fn(&Value) -> bool,
) -> Option<(Value, [u64; 2])> {
    if !has("python3") {
        return None;
    }
    let lab = lab(&network(&[("server", &[])], FURTHER))?;
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("www")).unwrap();
    fs::write(dir.path().join("www/file"), bytes(LENGTH)).unwrap();
    let _server = whole_files(&lab, &dir.path().join("www"), "HTTP/1.1");
    fs::create_dir_all(dir.path().join("config/thalweg")).unwrap();
    fs::write(dir.path().join("config/thalweg/config.toml"), settings).unwrap();
    let mut command = thalweg(dir.path());
    command.args(["proxy", "--listen", "127.0.0.1:0", "--json"]);
    command.env("XDG_CONFIG_HOME", dir.path().join("config"));
    let proxy = Started::of(within(&lab, "client", &command));
    let mut last = Value::Null;
    until("the status is as wanted", || {
        last = shown(&lab, &dir);
        is_as_wanted(&last["processes"][0])
    });
    let came = came(&lab);
    proxy.end().await;
    Some((last["processes"][0].take(), came))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_traffic_tells_of_is_told_by_a_light_probe_unless_it_costs() {
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
    // The server knows no ranges: what was on its way came as well.
    assert!((256 << 10..1_500_000).contains(&came[0]) && came[1] < 20_000, "{came:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interface_that_answers_with_something_else_is_left_out_and_says_why() {
    let settings = "[interfaces]\nprobe = [\"http://speed.example:8080/none\"]\n";
    let is_told = |said: &Value| {
        let of = said["interfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
        of.len() == 2 && of.iter().all(|one| one["probe_failure"].is_string())
    };
    let Some((said, _)) = probed(settings, is_told).await else { return };
    let why = said["interfaces"][0]["probe_failure"].as_str().unwrap();
    assert!(why.contains("404") && why.contains("portal"), "{why}");
    assert_eq!(said["interfaces"][0]["doubted"], true, "{said}");
}
