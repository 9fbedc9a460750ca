//! Downloads of `thalweg get` over interfaces with a cap or a rate limit.

use crate::{
    files::bytes,
    host::text,
    in_lab::within,
    running_proxy::{has, thalweg},
    uplinks::{Scene, ranges, settings},
};
use std::{
    fs,
    process::{Child, Output},
};

const URL: &str = "http://a.example:8081/large";

/// The bytes allowed beyond a cap: the longest chunk.
const CHUNK: u64 = 256 << 10;

/// Bytes that may cross an interface after its connections were closed, and that no account includes: packets in flight
/// and the answers to them.
const TRAILING_BYTES: u64 = 16 << 10;

/// A scene whose server supports ranges and has a file of `length` bytes.
fn scene(length: u32) -> Option<(Scene, Vec<u8>, impl Sized)> {
    if !has("nginx") {
        return None;
    }
    let scene = Scene::new()?;
    let nginx = ranges(&scene);
    let content = bytes(length);
    fs::write(scene.path("www/large"), &content).unwrap();
    Some((scene, content, nginx))
}

fn policies(scene: &Scene, all: &[&str]) {
    let all: String = all.iter().map(|one| format!("[[interfaces.policy]]\n{one}\n")).collect();
    settings(scene, &format!("[interfaces]\n{all}"));
}

fn get(scene: &Scene, more: &[&str]) -> Output {
    scene.thalweg(&[&["get", URL, "-o", "got", "--retry", "0"], more].concat())
}

fn assert_complete(scene: &Scene, content: &[u8]) {
    assert!(fs::read(scene.path("got")).unwrap() == content);
}

/// If an interface with a cap is the only one, a download ends when the cap is used up, and continues when the cap is
/// raised, also if the user names the interface. Usage is recorded even without a history.
#[tokio::test(flavor = "multi_thread")]
async fn a_download_ends_at_the_cap() {
    let Some((scene, content, _nginx)) = scene(6_000_000) else { return };
    let cap = 3_000_000;
    let allow = |cap: u64| {
        let own = format!("name = \"wan0\"\ncap = \"{cap} B\"");
        policies(&scene, &[&own, "name = \"wan1\"\ntier = \"never\""]);
    };
    allow(cap);
    let before = scene.both_ways("wan0");
    let got = get(&scene, &[]);
    let said = text(&got.stderr);
    assert!(!got.status.success() && said.contains("the cap of wan0"), "{said}");
    let went = scene.both_ways("wan0") - before;
    println!("{went} bytes of a cap of {cap} in both directions");
    assert!((cap / 2..cap + CHUNK).contains(&went), "{went} bytes");
    for more in [&[][..], &["--interface", "wan0"], &["--interface", "wan0", "--history", "none"]] {
        let got = get(&scene, more);
        assert!(!got.status.success(), "there is nothing left: {more:?}");
        println!("{more:?}: {}", text(&got.stderr));
    }
    // Usage before the host had a state directory counts there, too.
    fs::create_dir(scene.path("no-mesh")).unwrap();
    let got = get(&scene, &[]);
    let said = text(&got.stderr);
    assert!(!got.status.success() && said.contains("leave no interface"), "{said}");
    assert!(scene.path("no-mesh/interfaces.json").exists());
    let went = scene.both_ways("wan0") - before;
    assert!(went < cap + CHUNK, "{went} bytes");
    allow(4 * cap);
    let got = get(&scene, &[]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    assert_complete(&scene, &content);
    assert!(scene.both_ways("wan0") - before < 4 * cap);
}

/// Several processes share a cap: together they exceed it by no more than one would. Another reset day in the settings
/// frees nothing.
#[tokio::test(flavor = "multi_thread")]
async fn three_concurrent_downloads_respect_one_cap() {
    let Some((scene, _, _nginx)) = scene(6_000_000) else { return };
    let cap = 4_000_000;
    let allow = |reset_day: u8| {
        let own = format!("name = \"wan0\"\ncap = \"{cap} B\"\nreset_day = {reset_day}");
        policies(&scene, &[&own, "name = \"wan1\"\ntier = \"never\""]);
    };
    allow(1);
    let before = scene.both_ways("wan0");
    let one = |n: usize| {
        let mut command = thalweg(scene.dir.path());
        command.args(["get", URL, "--retry", "0", "-o", &format!("got-{n}")]);
        command.env("XDG_CONFIG_HOME", scene.path("config"));
        within(&scene.lab, "client", &command).spawn().unwrap()
    };
    let all: Vec<Child> = (0..3).map(one).collect();
    for (n, child) in all.into_iter().enumerate() {
        let got = child.wait_with_output().unwrap();
        println!("{n}: {}", text(&got.stderr));
    }
    let went = scene.both_ways("wan0") - before;
    println!("{went} bytes of a cap of {cap} in both directions");
    assert!((cap / 4..cap + CHUNK).contains(&went), "{went} bytes");
    for reset_day in [8, 15, 22, 29] {
        allow(reset_day);
        _ = get(&scene, &[]);
    }
    let went = scene.both_ways("wan0") - before;
    println!("{went} bytes after the settings had other days");
    assert!(went < cap + CHUNK, "{went} bytes");
}

/// If usage cannot be recorded, an interface with a cap is not used, and the command reports it at once; received data
/// is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_download_ends_with_a_message_if_usage_cannot_be_recorded() {
    let Some((scene, content, _nginx)) = scene(3_000_000) else { return };
    policies(&scene, &["name = \"wan0\"\ncap = \"1 GB\"", "name = \"wan1\"\ntier = \"never\""]);
    let account = scene.path("cache/thalweg/interfaces.json.new");
    fs::create_dir_all(account.join("in the way")).unwrap();
    let before = scene.both_ways("wan0");
    let got = get(&scene, &[]);
    let said = text(&got.stderr);
    assert!(!got.status.success() && said.contains("interfaces.json"), "{said}");
    assert!(said.contains("cannot be enforced"), "{said}");
    let went = scene.both_ways("wan0") - before;
    assert!(went < CHUNK, "{went} bytes");
    fs::remove_dir_all(&account).unwrap();
    let got = get(&scene, &[]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    assert_complete(&scene, &content);
}

/// An interface with a cap that may be spent is used up to its cap; the rest arrives over the other one.
#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_cap_the_rest_uses_the_other_interface() {
    let Some((scene, content, _nginx)) = scene(8_000_000) else { return };
    let cap = 2_000_000;
    policies(&scene, &["name = \"wan0\"\ncap = \"2 MB\"\nspend = true"]);
    let before = scene.both_ways("wan0");
    let got = get(&scene, &[]);
    assert!(got.status.success(), "{}", text(&got.stderr));
    assert_complete(&scene, &content);
    let went = scene.both_ways("wan0") - before;
    println!("{went} bytes of a cap of {cap} in both directions");
    assert!((cap / 3..cap + CHUNK).contains(&went), "{went} bytes");
    let said = text(&scene.thalweg(&["interfaces", "status", "--json"]).stdout);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let used = said["kept"]["interfaces"][0]["used_bytes"].as_u64().unwrap();
    assert!(used + TRAILING_BYTES >= went && used <= cap + CHUNK, "{used} of {went}: {said}");
}

/// A limited interface brings less than the other one, whatever its link could.
#[tokio::test(flavor = "multi_thread")]
async fn a_download_respects_a_rate_limit() {
    let Some((scene, content, _nginx)) = scene(6_000_000) else { return };
    policies(&scene, &["name = \"wan0\"\nrate_limit = \"1 Mbit/s\""]);
    let each = scene.during(|| {
        let got = get(&scene, &[]);
        assert!(got.status.success(), "{}", text(&got.stderr));
    });
    assert_complete(&scene, &content);
    assert!(each[0] > 100_000 && each[0] < each[1] / 3, "{each:?}");
}
