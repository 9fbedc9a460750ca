//! wget, aria2 and git through the proxy.

use crate::{
    files::{Files, bytes},
    running_proxy::{RunningProxy, has, program, succeeds},
};
use std::{fs, path::Path, process::Command};
use tempfile::TempDir;

struct Scene {
    dir: TempDir,
    content: Vec<u8>,
    proxy: RunningProxy,
    files: Files,
}

impl Scene {
    async fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let content = bytes(6_000_000);
        fs::create_dir(dir.path().join("www")).unwrap();
        fs::write(dir.path().join("www/a.bin"), &content).unwrap();
        let proxy = RunningProxy::new(dir.path(), &[]);
        let files = Files::serve(&dir.path().join("www"), "127.0.0.1:0").await;
        Self { dir, content, proxy, files }
    }

    /// The program with the proxy in its environment.
    fn program(&self, name: &str) -> Command {
        let mut command = program(name, self.dir.path());
        command.env("http_proxy", self.proxy.url()).env("HOME", self.dir.path());
        command
    }

    fn assert_complete(&self, name: &str) {
        assert!(fs::read(self.dir.path().join(name)).unwrap() == self.content, "{name}");
        assert_eq!(self.files.asks().len(), self.files.by_proxy(), "all came by the proxy");
    }
}

#[tokio::test]
async fn wget_downloads_and_continues() {
    if !has("wget") {
        return;
    }
    let scene = Scene::new().await;
    let url = scene.files.url("a.bin");
    let mut wget = scene.program("wget");
    wget.args(["--no-config", "-q", "-O", "b.bin", &url]);
    succeeds(wget).await;
    scene.assert_complete("b.bin");
    fs::write(scene.dir.path().join("a.bin"), &scene.content[..1_000_000]).unwrap();
    let mut wget = scene.program("wget");
    wget.args(["--no-config", "-q", "-c", &url]);
    succeeds(wget).await;
    scene.assert_complete("a.bin");
}

#[tokio::test]
async fn aria2_downloads_over_several_connections() {
    if !has("aria2c") {
        return;
    }
    let scene = Scene::new().await;
    let mut aria = scene.program("aria2c");
    aria.args(["--no-conf", "-q", "-x", "4", "-s", "4", "-k", "1M", "-o", "c.bin"]);
    aria.arg(scene.files.url("a.bin"));
    succeeds(aria).await;
    scene.assert_complete("c.bin");
    assert!(scene.files.asks().len() > 1, "one connection only");
}

/// git without the settings and identity of the user who runs the tests.
fn git(mut command: Command, at: &Path, args: &[&str]) -> Command {
    command.arg("-C").arg(at).args(args);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "a").env(format!("GIT_{who}_EMAIL"), "a@example");
    }
    command
}

#[tokio::test]
async fn git_clones() {
    if !has("git") {
        return;
    }
    let scene = Scene::new().await;
    let (dir, bare) = (scene.dir.path(), scene.dir.path().join("www/r.git"));
    let source = dir.join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), &scene.content[..100_000]).unwrap();
    for args in [&["init", "-q"][..], &["add", "file"], &["commit", "-q", "-m", "one"]] {
        succeeds(git(program("git", dir), &source, args)).await;
    }
    let clone = ["clone", "-q", "--bare", "source", "www/r.git"];
    succeeds(git(program("git", dir), dir, &clone)).await;
    succeeds(git(program("git", dir), &bare, &["update-server-info"])).await;
    let url = scene.files.url("r.git");
    succeeds(git(scene.program("git"), dir, &["clone", "-q", &url, "cloned"])).await;
    let cloned = fs::read(dir.join("cloned/file")).unwrap();
    assert!(cloned == scene.content[..100_000]);
    assert!(scene.files.by_proxy() > 0);
    assert_eq!(scene.files.asks().len(), scene.files.by_proxy());
}
