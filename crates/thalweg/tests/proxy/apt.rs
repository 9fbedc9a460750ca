//! apt with a flat repository of one package, and with its own settings in a directory of its own.

use crate::{
    files::Files,
    running_proxy::{RunningProxy, has, program, succeeds},
};
use sha2::{Digest as _, Sha256};
use std::{fs, path::Path, process::Command};
use tempfile::TempDir;

/// Creates a repository of one package in `dir/www`, and the files that apt needs in `dir`. Returns the package.
pub async fn repository(dir: &Path) -> Vec<u8> {
    for made in [
        "www",
        "apt/etc/apt/preferences.d",
        "apt/var/lib/apt/lists/partial",
        "apt/var/cache/apt/archives/partial",
        "apt/etc/apt/apt.conf.d",
    ] {
        fs::create_dir_all(dir.join(made)).unwrap();
    }
    let deb = package(dir).await;
    let sum: String = Sha256::digest(&deb).iter().map(|b| format!("{b:02x}")).collect();
    let more = format!("Filename: ./thalweg-test.deb\nSize: {}\nSHA256: {sum}\n", deb.len());
    fs::write(dir.join("www/Packages"), control(&more)).unwrap();
    fs::write(dir.join("status"), "").unwrap();
    deb
}

/// Makes apt look for packages at `url`.
pub fn sources(dir: &Path, url: &str) {
    fs::write(dir.join("sources.list"), format!("deb [trusted=yes arch=amd64] {url} ./\n"))
        .unwrap();
}

/// Builds a package of one file with dpkg-deb. Returns it.
async fn package(dir: &Path) -> Vec<u8> {
    fs::create_dir_all(dir.join("tree/DEBIAN")).unwrap();
    fs::create_dir_all(dir.join("tree/opt/thalweg-test")).unwrap();
    fs::write(dir.join("tree/opt/thalweg-test/data"), crate::files::bytes(2_000_000)).unwrap();
    fs::write(dir.join("tree/DEBIAN/control"), control("")).unwrap();
    let mut build = program("dpkg-deb", dir);
    build.args(["-Znone", "--root-owner-group", "--build", "tree", "www/thalweg-test.deb"]);
    succeeds(build).await;
    fs::read(dir.join("www/thalweg-test.deb")).unwrap()
}

fn control(more: &str) -> String {
    format!(
        "Package: thalweg-test\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example>\n\
         {more}Description: for a test\n"
    )
}

/// apt-get for that repository, through this proxy or the one in its environment.
pub fn apt(dir: &Path, proxy: Option<String>) -> Command {
    let mut apt = program("apt-get", dir);
    let by = proxy.map(|url| ("Acquire::http::Proxy", url));
    for (setting, value) in [
        ("Dir", dir.join("apt").display().to_string()),
        ("Dir::Etc::sourcelist", dir.join("sources.list").display().to_string()),
        ("Dir::Etc::sourceparts", "-".to_owned()),
        ("Dir::State::status", dir.join("status").display().to_string()),
        ("APT::Sandbox::User", String::new()),
        ("APT::Get::AllowUnauthenticated", "true".to_owned()),
        ("Acquire::Languages", "none".to_owned()),
        ("Acquire::Retries", "0".to_owned()),
        ("APT::Architecture", "amd64".to_owned()),
    ]
    .into_iter()
    .chain(by)
    {
        apt.arg("-o").arg(format!("{setting}={value}"));
    }
    apt
}

#[tokio::test]
async fn apt_updates_and_downloads() {
    if !has("apt-get") || !has("dpkg-deb") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let at = dir.path();
    let deb = repository(at).await;
    let proxy = RunningProxy::new(at, &[]);
    let files = Files::serve(&at.join("www"), "127.0.0.1:0").await;
    sources(at, &files.url(""));

    let mut update = apt(at, Some(proxy.url()));
    update.arg("update");
    succeeds(update).await;
    let mut download = apt(at, Some(proxy.url()));
    download.args(["download", "thalweg-test"]);
    succeeds(download).await;
    let found = fs::read(at.join("thalweg-test_1.0_all.deb")).unwrap();
    assert!(found == deb, "another package");
    assert_eq!(files.asks().len(), files.by_proxy());
    assert!(files.asks().iter().any(|ask| ask.path.ends_with("thalweg-test.deb")));
}
