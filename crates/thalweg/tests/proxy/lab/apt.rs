//! apt with a repository in the emulated Internet.

use super::scene::{Scene, succeeds};
use crate::{apt, running_proxy::has};
use std::fs;

#[tokio::test(flavor = "multi_thread")]
async fn apt_updates_and_downloads_over_the_relays() {
    if !["apt-get", "dpkg-deb", "nginx", "openssl"].iter().all(|name| has(name)) {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    let at = scene.dir.path();
    let deb = apt::repository(at).await;
    apt::sources(at, "http://deb.example:8080/");
    let mut update = apt::apt(at, None);
    scene.run_by_proxy(update.arg("update"));
    let mut download = apt::apt(at, None);
    let said = scene.run_by_proxy(download.args(["download", "thalweg-test"]));
    assert!(fs::read(scene.path("thalweg-test_1.0_all.deb")).unwrap() == deb, "another package");
    assert!(said.contains("in ranges") && said.contains("1 by detours"), "{said}");
    let mut show = scene.program("dpkg-deb");
    succeeds({
        show.args(["--contents", "thalweg-test_1.0_all.deb"]);
        show
    });
}
