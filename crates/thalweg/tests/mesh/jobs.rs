//! Jobs: transfers that a host's node runs, one after the other, and continues after it was killed.

use crate::{
    LENGTH,
    host::{Daemon, Host, text, until},
    server::{Server, Version},
};
use serde_json::Value;
use std::fs;

/// A host with a node, and a server.
struct Scene {
    host: Host,
    node: Option<Daemon>,
    server: Server,
    version: Version,
}

impl Scene {
    async fn start(settings: &str) -> Self {
        let version = Version::new(7, LENGTH);
        let server = Server::honest(&version).await;
        let host = Host::founder();
        let node = Some(host.start_with(settings, None));
        Self { host, node, server, version }
    }

    /// Queues a download to `file`. Returns the job's number.
    fn detach(&self, file: &str, more: &[&str]) -> u64 {
        let url = self.server.url();
        let download = ["get", &url, "--path", "direct", "-o", file, "--detach", "--json"];
        self.host.json(&[&download[..], more].concat())["id"].as_u64().unwrap()
    }

    fn jobs(&self) -> Vec<Value> {
        self.host.json(&["jobs", "--json"])["jobs"].as_array().unwrap().clone()
    }

    fn job(&self, id: u64) -> Value {
        self.host.json(&["jobs", "show", &id.to_string(), "--json"])["job"].clone()
    }

    fn state(&self, id: u64) -> String {
        self.job(id)["state"].as_str().unwrap().to_owned()
    }

    fn has(&self, file: &str) -> bool {
        fs::read(self.host.path(file)).is_ok_and(|bytes| bytes == self.version.bytes)
    }
}

/// Runs what waits for processes, beside the server.
async fn beside_server<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_download_runs_in_the_node_and_is_listed_until_it_is_forgotten() {
    let scene = Scene::start("").await;
    beside_server(move || {
        let id = scene.detach("one", &[]);
        let number = id.to_string();
        let watched = scene.host.run(&["jobs", "watch", &number]);
        assert!(watched.status.success(), "{}", text(&watched.stderr));
        assert!(scene.has("one"));
        let job = scene.job(id);
        assert_eq!((&job["state"], &job["done_bytes"]), (&"finished".into(), &LENGTH.into()));
        assert_eq!(job["exit_code"], 0);
        assert!(scene.host.ok(&["jobs"]).contains("finished"), "{}", scene.host.ok(&["jobs"]));
        let events = scene.host.json(&["jobs", "show", &number, "--json"])["events"].clone();
        assert!(events.to_string().contains("finished"), "{events}");
        scene.host.ok(&["jobs", "forget", &number]);
        assert_eq!(scene.jobs(), Vec::<Value>::new());
        assert_eq!(
            scene.detach("two", &[]),
            id + 1,
            "the number of a forgotten job is not used again"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_paused_resumed_and_cancelled() {
    let scene = Scene::start("").await;
    beside_server(move || {
        let id = scene.detach("one", &["--limit-rate", "100k"]);
        let number = id.to_string();
        until("bytes arrive", || scene.job(id)["done_bytes"].as_u64().is_some_and(|n| n > 0));
        scene.host.ok(&["jobs", "pause", &number]);
        until("it is paused", || scene.state(id) == "paused");
        scene.host.ok(&["jobs", "resume", &number]);
        until("it runs again", || scene.state(id) == "running");
        assert_eq!(scene.job(id)["attempts"], 2);
        scene.host.ok(&["jobs", "priority", &number, "high"]);
        scene.host.ok(&["jobs", "cancel", &number]);
        until("it is cancelled", || scene.state(id) == "cancelled");
        assert!(!scene.host.path("one").exists());
        let refused = scene.host.fails(1, &["jobs", "pause", &number]);
        assert!(refused.contains("was cancelled already"), "{refused}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_survive_a_node_that_is_killed_and_none_is_lost_or_runs_twice() {
    let mut scene = Scene::start("[jobs]\nparallel = 2\n").await;
    beside_server(move || {
        let names: Vec<String> = (0..6).map(|n| format!("file{n}")).collect();
        let ids: Vec<u64> =
            names.iter().map(|name| scene.detach(name, &["--limit-rate", "700k"])).collect();
        for round in 0..3 {
            until("a job runs", || scene.jobs().iter().any(|job| job["state"] == "running"));
            scene.node.take().unwrap().signal("KILL");
            scene.node = Some(scene.host.start_with("[jobs]\nparallel = 2\n", None));
            let listed = scene.jobs();
            assert_eq!(listed.len(), ids.len(), "round {round}: {listed:?}");
        }
        until("all have ended", || scene.jobs().iter().all(|job| job["ended"].is_string()));
        for (id, name) in ids.iter().zip(&names) {
            let job = scene.job(*id);
            assert_eq!(job["state"], "finished", "{job}");
            assert!(scene.has(name), "{name}");
        }
        let files = fs::read_dir(scene.host.path("")).unwrap().filter_map(Result::ok);
        let files: Vec<String> =
            files.map(|f| f.file_name().to_string_lossy().into_owned()).collect();
        let downloads = files.iter().filter(|name| name.starts_with("file")).count();
        assert_eq!(downloads, names.len(), "nothing else is left: {files:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_in_a_terminal_is_listed_and_can_be_cancelled() {
    let scene = Scene::start("").await;
    beside_server(move || {
        let url = scene.server.url();
        let args = ["get", &url, "--path", "direct", "-o", "file", "--limit-rate", "50k"];
        let terminal = scene.host.command(&args).spawn().unwrap();
        until("it is listed", || !scene.jobs().is_empty());
        let job = scene.jobs().remove(0);
        assert_eq!((&job["origin"], &job["state"]), (&"terminal".into(), &"running".into()));
        let id = job["id"].as_u64().unwrap();
        until("its bytes are shown", || {
            scene.job(id)["done_bytes"].as_u64().is_some_and(|n| n > 0)
        });
        let refused = scene.host.fails(1, &["jobs", "pause", &id.to_string()]);
        assert!(refused.contains("runs in a terminal"), "{refused}");
        scene.host.ok(&["jobs", "cancel", &id.to_string()]);
        let output = terminal.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        until("the node knows", || scene.state(id) == "cancelled");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_says_why_and_what_cannot_be_a_job_is_refused() {
    let scene = Scene::start("").await;
    beside_server(move || {
        let away = [
            "get",
            "http://127.0.0.1:1/x",
            "--path",
            "direct",
            "--retry",
            "0",
            "--detach",
            "--json",
        ];
        let id = scene.host.json(&away)["id"].as_u64().unwrap();
        until("it has failed", || scene.state(id) == "failed");
        let job = scene.job(id);
        assert!(job["error"].as_str().unwrap().contains("refuses"), "{job}");
        assert_eq!(job["exit_code"], 4);
        let watched = scene.host.run(&["jobs", "watch", &id.to_string()]);
        assert_eq!(watched.status.code(), Some(1));
        let url = scene.server.url();
        let refused = scene.host.fails(1, &["get", &url, "-o", "-", "--detach"]);
        assert!(refused.contains("a job has no standard output"), "{refused}");
        let usage = scene.host.fails(2, &["get", &url, "--at", "23:00"]);
        assert!(usage.contains("--detach"), "{usage}");
        let absent = scene.host.fails(1, &["jobs", "cancel", "99"]);
        assert!(absent.contains("there is no job 99"), "{absent}");
    })
    .await;
}

#[test]
fn without_a_node_there_are_no_jobs() {
    let host = Host::founder();
    for args in [&["jobs"][..], &["jobs", "watch"], &["get", "http://127.0.0.1:1/x", "--detach"]] {
        let refused = host.fails(4, args);
        assert!(refused.contains("no node runs on this host"), "{refused}");
    }
}
