//! The interfaces that `thalweg get` uses: rules of the settings, and backups.

use crate::{
    files::bytes,
    host::{text, until},
    in_lab::{Running, within},
    running_proxy::{has, thalweg},
    two_links::{came, came_since},
    uplinks::{Scene, ranges, settings},
};
use std::fs;
use thalweg_lab::topology::LinkChange;

const URL: &str = "http://a.example:8081/large";

fn scene() -> Option<(Scene, Vec<u8>, impl Sized)> {
    if !has("nginx") {
        return None;
    }
    let scene = Scene::new()?;
    let nginx = ranges(&scene);
    let content = bytes(6_000_000);
    fs::write(scene.path("www/large"), &content).unwrap();
    Some((scene, content, nginx))
}

/// A rule for the server applies to downloads as it does to programs behind the proxy; a rule that leaves no interface
/// is reported.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_determines_the_interface_of_a_download() {
    let Some((scene, content, _nginx)) = scene() else { return };
    let rule = |only: &str| {
        let rule = format!("destination = \"*.example\"\nonly = [\"{only}\"]\n");
        settings(&scene, &format!("[interfaces]\n[[interfaces.rule]]\n{rule}"));
    };
    rule("wan1");
    let each = scene.during(|| {
        let got = scene.thalweg(&["get", URL, "-o", "got"]);
        assert!(got.status.success(), "{}", text(&got.stderr));
    });
    assert!(fs::read(scene.path("got")).unwrap() == content);
    assert!(each[0] < 100_000 && each[1] > 5_000_000, "{each:?}");
    rule("wlan7");
    let got = scene.thalweg(&["get", URL, "-o", "none"]);
    let said = text(&got.stderr);
    assert_eq!(got.status.code(), Some(2), "{said}");
    assert!(said.contains("a rule of the settings leaves no interface for a.example"), "{said}");
}

/// A backup carries nothing while the other interface works, and the whole rest once nothing arrives by that one.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_takes_over_a_download() {
    let Some((scene, content, _nginx)) = scene() else { return };
    let backup = "name = \"wan1\"\ntier = \"backup\"\n";
    settings(&scene, &format!("[interfaces]\n[[interfaces.policy]]\n{backup}"));
    let mut command = thalweg(scene.dir.path());
    command.args(["get", URL, "-o", "got", "--connect-timeout", "2"]);
    command.env("XDG_CONFIG_HOME", scene.path("config"));
    let before = came(&scene.lab);
    let mut running = Running(within(&scene.lab, "client", &command).spawn().unwrap());
    until("it has begun", || came_since(&scene.lab, before)[0] > 1_000_000);
    let each = came_since(&scene.lab, before);
    assert!(each[1] < 100_000, "by the backup: {each:?}");
    scene.lab.set("wan0", &LinkChange::parse(&["loss=100%"]).unwrap()).unwrap();
    assert!(running.0.wait().unwrap().success());
    assert!(fs::read(scene.path("got")).unwrap() == content);
    let each = came_since(&scene.lab, before);
    assert!(each[1] > 1_000_000 && each[1] < 6_500_000, "{each:?}");
}
