//! A client with two interfaces in an emulated Internet, and servers that do not know of it:
//!
//! ```text
//! client ══ wan0, wan1 ══ server: a.example to f.example
//! ```

use crate::{
    files::bytes,
    host::{text, until},
    in_lab::{Running, lab, nginx, within},
    running_proxy::{RunningProxy, has, program, thalweg},
    two_links::{came, came_since, network, whole_files},
};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    process::{Child, Output},
};
use tempfile::TempDir;
use thalweg_lab::{client::Lab, topology::LinkChange};

const FURTHER: &str = r#"
    [host.server]
    names = ["a.example", "b.example", "c.example", "d.example", "e.example", "f.example"]
"#;

const LENGTH: u32 = 600_000;

/// The lab, the server and a file.
pub struct Scene {
    pub dir: TempDir,
    pub lab: Lab,
    pub content: Vec<u8>,
    _server: Running,
}

impl Scene {
    pub fn new() -> Option<Self> {
        if !["curl", "python3"].iter().all(|name| has(name)) {
            return None;
        }
        let lab = lab(&network(&[("server", &[])], FURTHER))?;
        let (dir, content) = (TempDir::new().unwrap(), bytes(LENGTH));
        fs::create_dir(dir.path().join("www")).unwrap();
        fs::write(dir.path().join("www/file"), &content).unwrap();
        let _server = whole_files(&lab, &dir.path().join("www"), "HTTP/1.1");
        Some(Self { dir, lab, content, _server })
    }

    /// Starts the client's proxy.
    pub fn proxy(&self, args: &[&str]) -> RunningProxy {
        let mut command = thalweg(self.dir.path());
        command.args(["proxy", "--listen", "127.0.0.1:0", "--json"]).args(args);
        command.env("XDG_CONFIG_HOME", self.dir.path().join("config"));
        RunningProxy::spawn(within(&self.lab, "client", &command))
    }

    /// Runs a command on the client.
    pub fn thalweg(&self, args: &[&str]) -> Output {
        let mut command = thalweg(self.dir.path());
        command.args(args).env("XDG_CONFIG_HOME", self.dir.path().join("config"));
        within(&self.lab, "client", &command).output().unwrap()
    }

    /// A download through the proxy: in a tunnel, or as a request in absolute form.
    pub fn curl(&self, proxy: &RunningProxy, host: &str, file: &str, tunnel: bool) -> Child {
        let mut curl = program("curl", self.dir.path());
        curl.args(["-q", "-sS", "--fail", "-x", &proxy.url(), "-o", file]);
        curl.args(tunnel.then_some("--proxytunnel"));
        curl.arg(format!("http://{host}.example:8080/file"));
        within(&self.lab, "client", &curl).spawn().unwrap()
    }

    pub fn assert_complete(&self, file: &str) {
        let got = fs::read(self.dir.path().join(file)).unwrap();
        assert!(got == self.content, "{file}: {} bytes", got.len());
    }

    /// Downloads from these hosts, one after the other or all at once, and checks the files. A lower-case letter uses a
    /// tunnel, an upper-case letter a request in absolute form over kept connections.
    pub fn download(&self, proxy: &RunningProxy, hosts: &str, at_once: bool) {
        let mut running = Vec::new();
        for (n, host) in hosts.chars().enumerate() {
            let (name, tunnel) = (host.to_lowercase().to_string(), host.is_lowercase());
            let curl = self.curl(proxy, &name, &format!("got-{n}"), tunnel);
            if at_once {
                running.push(curl);
            } else {
                self.assert_success(curl);
            }
        }
        running.into_iter().for_each(|curl| self.assert_success(curl));
        (0..hosts.len()).for_each(|n| self.assert_complete(&format!("got-{n}")));
    }

    pub fn assert_success(&self, curl: Child) {
        let output = curl.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    /// The bytes that arrived by each interface during `work`.
    pub fn during(&self, work: impl FnOnce()) -> [u64; 2] {
        let before = came(&self.lab);
        work();
        let each = came_since(&self.lab, before);
        println!("{each:?} bytes by the interfaces");
        each
    }

    /// The bytes that crossed a link, in both directions.
    pub fn both_ways(&self, link: &str) -> u64 {
        let stats = self.lab.stats(false).unwrap();
        let (there, back) = (format!("{link}.fwd"), format!("{link}.rev"));
        let halves = stats.links.iter().filter(|l| [&there, &back].contains(&&l.name));
        halves.map(|l| l.bytes).sum()
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        Path::new(self.dir.path()).join(name)
    }
}

const FILE: u64 = LENGTH as u64;

#[tokio::test(flavor = "multi_thread")]
async fn without_settings_connections_of_programs_use_both_interfaces() {
    let Some(scene) = Scene::new() else { return };
    let proxy = scene.proxy(&[]);
    let each = scene.during(|| scene.download(&proxy, "aBcDeF", true));
    assert!(each.iter().all(|bytes| *bytes > 2 * FILE), "{each:?}");
    // Sessions that are bound to an address stay on their interface.
    let each = scene.during(|| scene.download(&proxy, "aAaa", false));
    assert!(each.iter().any(|bytes| *bytes < FILE / 2), "{each:?}");
    proxy.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_connection_is_retried_over_the_other_interface() {
    let Some(scene) = Scene::new() else { return };
    let proxy = scene.proxy(&[]);
    scene.download(&proxy, "aB", true);
    scene.lab.set("wan0", &LinkChange::parse(&["loss=100%"]).unwrap()).unwrap();
    let each = scene.during(|| scene.download(&proxy, "cDeF", true));
    assert!(each[1] > 4 * FILE, "{each:?}");
    scene.lab.set("wan0", &LinkChange::parse(&["loss=0%"]).unwrap()).unwrap();
    proxy.end().await;
    // The records are saved for the next proxy.
    let kept = fs::read_to_string(scene.path("cache/thalweg/interfaces.json")).unwrap();
    assert!(kept.contains("\"curl\"") && kept.contains("wan1"), "{kept}");
}

pub fn settings(scene: &Scene, text: &str) {
    fs::create_dir_all(scene.path("config/thalweg")).unwrap();
    fs::write(scene.path("config/thalweg/config.toml"), text).unwrap();
}

/// The status of the only process.
pub fn status(scene: &Scene) -> Value {
    let said = scene.thalweg(&["interfaces", "status", "--json"]);
    let said: Value = serde_json::from_str(&text(&said.stdout)).unwrap();
    said["processes"][0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_has_reasons_and_settings_can_change_at_run_time() {
    let Some(scene) = Scene::new() else { return };
    settings(&scene, "[interfaces]\nschedule = \"round-robin\"\naffinity = \"0 s\"\n");
    let proxy = scene.proxy(&[]);
    let each = scene.during(|| scene.download(&proxy, "aBcd", false));
    assert!(each.iter().all(|bytes| *bytes > FILE), "in turn: {each:?}");
    let said = status(&scene);
    let interfaces = said["interfaces"].as_array().unwrap();
    assert_eq!(interfaces.len(), 2);
    assert!(interfaces.iter().all(|i| i["used_bytes"].as_u64() > Some(FILE)), "{said}");
    assert!(interfaces.iter().all(|i| i["rtt_seconds"].as_f64() > Some(0.019)), "{said}");
    let program = &said["applications"][0];
    assert_eq!((&program["process"], &program["port"]), (&json!("curl"), &json!(8080)));
    assert!(program["demand_bytes"].as_u64() >= Some(FILE), "{said}");
    let newest = &said["connections"][0];
    assert_eq!((&newest["to"], &newest["why"]), (&json!("d.example"), &json!("its turn")));

    let changed = scene.thalweg(&["interfaces", "schedule", "only-one"]);
    assert!(changed.status.success(), "{}", text(&changed.stderr));
    let each = scene.during(|| scene.download(&proxy, "aBcD", false));
    assert!(each.iter().any(|bytes| *bytes < FILE / 2), "one alone: {each:?}");
    let one = status(&scene)["connections"][0]["interface"].as_str().unwrap().to_owned();
    assert!(scene.thalweg(&["interfaces", "allow", &one, "--tier", "never"]).status.success());
    let before = scene.during(|| scene.download(&proxy, "aBcD", false));
    assert_eq!(before[0] > FILE, each[0] < FILE, "by the other: {before:?}");
    let ok = |args: &[&str]| {
        let output = scene.thalweg(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    assert!(
        ok(&["interfaces", "allow", &one, "--tier", "primary"])
            .contains("until these processes end")
    );
    ok(&["interfaces", "rule", "--process", "curl", "--only", "wan1"]);
    ok(&["interfaces", "rule", "--port", "22", "--avoid", "wan0", "--at", "1"]);
    ok(&["interfaces", "set", "--affinity", "1 min", "--near", "true"]);
    let each = scene.during(|| scene.download(&proxy, "aBcD", false));
    assert!(each[0] < FILE / 2 && each[1] > 3 * FILE, "by the rule: {each:?}");
    let said = status(&scene);
    assert_eq!(said["rules"][1], json!({ "process": "curl", "only": ["wan1"] }), "{said}");
    assert_eq!((&said["affinity_seconds"], &said["near"]), (&json!(60.0), &json!(true)));
    assert!(!scene.thalweg(&["interfaces", "rule", "--remove", "3"]).status.success());
    ok(&["interfaces", "rule", "--remove", "2"]);
    ok(&["interfaces", "allow", &one, "--tier", "never"]);
    let shown = text(&scene.thalweg(&["interfaces", "status"]).stdout);
    assert!(shown.contains("RULE"), "{shown}");
    assert!(shown.contains("never") && shown.contains("curl") && shown.contains("only-one"));
    proxy.end().await;
    assert!(
        text(&scene.thalweg(&["interfaces", "status"]).stdout).contains("no thalweg process runs")
    );
    assert!(!scene.thalweg(&["interfaces", "schedule", "only-one"]).status.success());
}

/// Downloads until the cap ends them, through proxies that are killed in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn a_cap_is_never_exceeded_even_by_killed_proxies() {
    let Some(scene) = Scene::new() else { return };
    let cap = 3_000_000;
    settings(
        &scene,
        "[interfaces]\n[[interfaces.policy]]\nname = \"wan0\"\ncap = \"3 MB\"\n\
         [[interfaces.policy]]\nname = \"wan1\"\ntier = \"never\"\n",
    );
    let before = scene.both_ways("wan0");
    let went = || scene.both_ways("wan0") - before;
    for _ in 0..2 {
        // Killed when dropped.
        let proxy = scene.proxy(&[]);
        let mut curl = scene.curl(&proxy, "a", "part", true);
        let then = went();
        until("half of it is there", || went() > then + FILE / 2);
        drop(proxy);
        curl.wait().unwrap();
    }
    let proxy = scene.proxy(&[]);
    let mut done = 0;
    for n in 0..10 {
        let output = scene.curl(&proxy, "a", "part", n % 2 == 0).wait_with_output().unwrap();
        done += u64::from(output.status.success());
    }
    println!("{} bytes of a cap of {cap} in both directions, {done} downloads", went());
    assert!((2..5).contains(&done), "{done}");
    assert!(went() <= cap, "{} bytes", went());
    let said = status(&scene);
    let shown = &said["interfaces"][0];
    assert!(shown["used_bytes"].as_u64() <= Some(cap), "{said}");
    let refused = scene.curl(&proxy, "a", "part", false).wait_with_output().unwrap();
    let (events, _) = proxy.end().await;
    assert!(!refused.status.success());
    let why = events.iter().rfind(|e| e["event"] == "refused").unwrap();
    assert!(why["why"].as_str().unwrap().contains("settings leave no interface"), "{why}");
    assert!(came(&scene.lab)[1] < FILE / 2, "nothing goes by what is never used");
}

/// A server on another port that supports ranges; ended when dropped.
pub fn ranges(scene: &Scene) -> Running {
    let http = format!("server {{ listen 8081; root {}; }}", scene.path("www").display());
    nginx(&scene.lab, scene.dir.path(), &http, 8081)
}

/// Uses both interfaces while both work; when one fails, the rest arrives over the other.
#[tokio::test(flavor = "multi_thread")]
async fn get_uses_both_interfaces_and_continues_over_either() {
    if !has("nginx") {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    let _nginx = ranges(&scene);
    let content = bytes(6_000_000);
    fs::write(scene.path("www/large"), &content).unwrap();
    let url = "http://a.example:8081/large";
    let assert_complete =
        |file: &str| assert!(fs::read(scene.path(file)).unwrap() == content, "{file}");
    let each = scene.during(|| {
        let got = scene.thalweg(&["get", url, "-o", "whole"]);
        assert!(got.status.success(), "{}", text(&got.stderr));
    });
    assert_complete("whole");
    assert!(each.iter().all(|bytes| *bytes > 1_500_000), "{each:?}");

    let mut command = thalweg(scene.dir.path());
    command.args(["get", url, "-o", "broken"]);
    let mut running = Running(within(&scene.lab, "client", &command).spawn().unwrap());
    let before = came(&scene.lab);
    until("both carry it", || came_since(&scene.lab, before).iter().all(|b| *b > 500_000));
    scene.lab.set("wan1", &LinkChange::parse(&["loss=100%"]).unwrap()).unwrap();
    assert!(running.0.wait().unwrap().success());
    assert_complete("broken");
    scene.lab.set("wan1", &LinkChange::parse(&["loss=0%"]).unwrap()).unwrap();

    let metered = "[interfaces]\n[[interfaces.policy]]\nname = \"wan0\"\nmetered = true\n";
    settings(&scene, metered);
    let each = scene.during(|| {
        let got = scene.thalweg(&["get", url, "-o", "thrifty"]);
        assert!(got.status.success(), "{}", text(&got.stderr));
    });
    assert_complete("thrifty");
    assert!(each[0] < 100_000, "by what is metered: {each:?}");
}

/// The program does not notice the change.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxied_download_continues_over_the_other_interface_if_its_own_fails() {
    if !has("nginx") {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    let _nginx = ranges(&scene);
    let content = bytes(6_000_000);
    fs::write(scene.path("www/large"), &content).unwrap();
    let proxy = scene.proxy(&[]);
    let mut curl = program("curl", scene.dir.path());
    curl.args(["-q", "-sS", "--fail", "-m", "60", "-x", &proxy.url(), "-o", "large"]);
    curl.arg("http://a.example:8081/large");
    let before = came(&scene.lab);
    let curl = within(&scene.lab, "client", &curl).spawn().unwrap();
    let each = || came_since(&scene.lab, before);
    until("a third of it is there", || each().iter().any(|bytes| *bytes > 2_000_000));
    let own = if each()[0] > each()[1] { "wan0" } else { "wan1" };
    scene.lab.set(own, &LinkChange::parse(&["loss=100%"]).unwrap()).unwrap();
    scene.assert_success(curl);
    assert!(fs::read(scene.path("large")).unwrap() == content);
    assert!(each().iter().all(|bytes| *bytes > 1_000_000), "{:?}", each());
    let (events, _) = proxy.end().await;
    let asked: Vec<&Value> = events.iter().filter(|e| e["event"] == "request").collect();
    assert!(asked.len() == 1 && asked[0]["complete"] == json!(true), "{events:?}");
}

/// If the free interface alone meets the deadline, nothing is paid; otherwise only the missing part is paid for.
#[tokio::test(flavor = "multi_thread")]
async fn a_priced_interface_is_used_only_as_far_as_the_deadline_needs_it() {
    if !has("nginx") {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    let _nginx = ranges(&scene);
    let content = bytes(12_000_000);
    fs::write(scene.path("www/large"), &content).unwrap();
    settings(&scene, "[interfaces]\n[[interfaces.policy]]\nname = \"wan0\"\nprice = \"5 / GB\"\n");
    let get = |within: &str| {
        let url = "http://a.example:8081/large";
        let got = scene.thalweg(&["get", url, "-o", within, "--within", within]);
        assert!(got.status.success(), "{}", text(&got.stderr));
        assert!(fs::read(scene.path(within)).unwrap() == content, "{within}");
    };
    let each = scene.during(|| get("10min"));
    assert!(each[0] < 100_000, "nothing need be paid: {each:?}");
    // The free interface alone takes 13 s.
    let each = scene.during(|| get("10s"));
    assert!(each[0] > 1_000_000 && each[1] > each[0], "{each:?}");
}
