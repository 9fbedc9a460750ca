//! `thalweg proxy --transparent`, in an emulated Internet, for a program that knows no proxy.

use crate::{
    files::bytes,
    host::{text, until},
    in_lab::{lab, within},
    started::{Started, has, program, thalweg},
};
use serde_json::Value;
use std::{
    fs,
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;
use thalweg_lab::client::Lab;

const NETWORK: &str = r#"
    [host.client]
    [host.server]
    names = ["www.example"]
    [link.way]
    rate = "100 Mbit/s"
    delay = "2 ms"
    [[path]]
    from = "client"
    to = "server"
    links = ["way"]
"#;

const LENGTH: u32 = 300_000;

struct Scene {
    dir: TempDir,
    lab: Lab,
    server: Child,
}

impl Drop for Scene {
    fn drop(&mut self) {
        _ = self.server.kill();
        _ = self.server.wait();
    }
}

impl Scene {
    fn new() -> Option<Self> {
        if !["curl", "python3", "nft"].iter().all(|name| has(name)) {
            return None;
        }
        let (lab, dir) = (lab(NETWORK)?, TempDir::new().unwrap());
        fs::create_dir(dir.path().join("www")).unwrap();
        fs::write(dir.path().join("www/file"), bytes(LENGTH)).unwrap();
        let mut python = Command::new("python3");
        python.args(["-m", "http.server", "8080"]).current_dir(dir.path().join("www"));
        let mut python = within(&lab, "server", &python);
        let server = python.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let scene = Self { dir, lab, server };
        until("the server listens", || scene.curl("before").status.success());
        Some(scene)
    }

    /// A download that is told of no proxy.
    fn curl(&self, file: &str) -> Output {
        let mut curl = program("curl", self.dir.path());
        // The server listens on IPv4 alone: curl would not learn that the other family is refused.
        curl.args(["-q", "-4", "-sS", "--fail", "-m", "20", "-o", file]);
        curl.arg("http://www.example:8080/file");
        within(&self.lab, "client", &curl).output().unwrap()
    }

    fn comes_whole(&self, file: &str) {
        let output = self.curl(file);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(fs::read(self.dir.path().join(file)).unwrap() == bytes(LENGTH));
    }

    fn rules(&self) -> String {
        let mut nft = Command::new("nft");
        nft.args(["list", "ruleset"]);
        let listed = within(&self.lab, "client", &nft).output().unwrap();
        assert!(listed.status.success(), "{}", text(&listed.stderr));
        text(&listed.stdout)
    }

    fn proxy(&self) -> Started {
        let mut command = thalweg(self.dir.path());
        command.args(["proxy", "--listen", "127.0.0.1:0", "--json", "--transparent"]);
        Started::of(within(&self.lab, "client", &command))
    }
}

#[test]
fn a_program_that_knows_no_proxy_goes_by_it_and_rules_end_with_it() {
    let Some(scene) = Scene::new() else { return };
    let proxy = scene.proxy();
    assert!(scene.rules().contains("redirect to"));
    let output = scene.curl("through");
    let (events, _) = proxy.ended();
    assert!(output.status.success(), "{}: {events:?}", text(&output.stderr));
    assert!(fs::read(scene.dir.path().join("through")).unwrap() == bytes(LENGTH));
    let led: Vec<&Value> = events.iter().filter(|e| e["kind"] == "redirected").collect();
    assert_eq!(led.len(), 1, "{events:?}");
    assert!(led[0]["to"].as_str().unwrap().ends_with(":8080"), "{events:?}");
    assert!(led[0]["down_bytes"].as_u64().unwrap() > u64::from(LENGTH), "{events:?}");
    assert!(!scene.rules().contains("redirect to"));

    let killed = scene.proxy();
    assert!(scene.rules().contains("redirect to"));
    // Not even a word of farewell.
    drop(killed);
    until("the rules of a killed proxy are gone", || !scene.rules().contains("redirect to"));
    scene.comes_whole("after");
}
