//! Jobs: transfers that a host's node runs, one after the other, and continues after it was killed.

use crate::{
    LENGTH,
    host::{Daemon, Host, text, until},
    server::{Server, Version},
};
use serde_json::Value;
use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
};

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

    /// Waits until this job has received bytes. Returns its process.
    fn process(&self, id: u64) -> u32 {
        until("bytes arrive", || self.job(id)["done_bytes"].as_u64().is_some_and(|n| n > 0));
        self.job(id)["pid"].as_u64().unwrap().try_into().unwrap()
    }

    /// Starts the node again and waits until the job has finished and its file is complete.
    fn finishes_after_restart(&mut self, id: u64, file: &str) {
        self.node = Some(self.host.start());
        until("it has finished", || self.state(id) == "finished");
        assert!(self.has(file), "{file}");
        assert_eq!(self.job(id)["attempts"], 2, "{}", self.job(id));
    }

    fn has(&self, file: &str) -> bool {
        fs::read(self.host.path(file)).is_ok_and(|bytes| bytes == self.version.bytes)
    }
}

/// Sends a signal to all of these processes at once.
fn signal(name: &str, processes: &[u32]) {
    let numbers = processes.iter().map(ToString::to_string);
    let status = Command::new("kill").args(["-s", name]).args(numbers).status().unwrap();
    assert!(status.success(), "{processes:?}");
}

/// The children of a process.
fn children(process: u32) -> Vec<u32> {
    let file = format!("/proc/{process}/task/{process}/children");
    let text = fs::read_to_string(file).unwrap();
    text.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// Whether a process runs, i.e. neither is gone nor waits for its parent to notice.
fn runs(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, which may contain anything, stands in parentheses.
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
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

/// Ctrl-C in the terminal of the node, and the order of a service manager that signals the node alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_told_to_end_ends_its_jobs_and_continues_them_later() {
    for name in ["INT", "TERM"] {
        let mut scene = Scene::start("").await;
        beside_server(move || {
            let id = scene.detach("one", &["--limit-rate", "200k"]);
            let process = scene.process(id);
            let all = [&children(process)[..], &[process]].concat();
            assert_eq!(all.len(), 2, "the job's process, and the command");
            let node = scene.node.take().unwrap();
            node.signal(name);
            node.ended();
            assert!(!all.iter().any(|process| runs(*process)), "{name}: {all:?}");
            scene.finishes_after_restart(id, "one");
        })
        .await;
    }
}

/// What systemd does to a control group (KillMode=control-group, and then SIGKILL): all processes get the signal at the
/// same time, the jobs' as well.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_are_ended_together_with_the_node_continue_later() {
    for name in ["TERM", "KILL"] {
        let mut scene = Scene::start("").await;
        beside_server(move || {
            let id = scene.detach("one", &["--limit-rate", "200k"]);
            let process = scene.process(id);
            let mut node = scene.node.take().unwrap();
            let all = [&children(process)[..], &[process, node.id()]].concat();
            signal(name, &all);
            match name {
                "TERM" => drop(node.ended()),
                _ => node.wait(),
            }
            until("all have ended", || !all.iter().any(|process| runs(*process)));
            scene.finishes_after_restart(id, "one");
        })
        .await;
    }
}

/// Signals to a job from outside, while the node goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_told_to_end_waits_and_one_that_is_killed_has_failed() {
    let scene = Scene::start("").await;
    beside_server(move || {
        let [killed, command, told] =
            ["a", "b", "c"].map(|file| scene.detach(file, &["--limit-rate", "200k"]));
        let process = scene.process(killed);
        let its_command = children(process);
        signal("KILL", &[process]);
        until("it has failed", || scene.state(killed) == "failed");
        // Its command was told to end by that, and its last message is the reason that is known.
        assert!(scene.job(killed)["error"].is_string(), "{}", scene.job(killed));
        until("its command ends with it", || !its_command.iter().any(|process| runs(*process)));

        signal("KILL", &children(scene.process(command)));
        until("it has failed", || scene.state(command) == "failed");
        assert!(scene.job(command)["error"].is_string(), "{}", scene.job(command));

        // A service manager that ends the node begins like this: no job starts anew for some seconds.
        signal("INT", &children(scene.process(told)));
        until("it waits", || scene.state(told) == "queued");
        assert_eq!(scene.job(told)["attempts"], 1);
        for id in [killed, command] {
            scene.host.ok(&["jobs", "resume", &id.to_string()]);
        }
        let all = [(killed, "a"), (command, "b"), (told, "c")];
        until("all have finished", || all.iter().all(|(id, _)| scene.state(*id) == "finished"));
        assert!(all.iter().all(|(_, file)| scene.has(file)));
    })
    .await;
}

/// The directory of the queue is a small file system of its own, which is filled.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_new_jobs_while_running_ones_go_on() {
    let script = "mount -t tmpfs -o size=256k none \"$1\" && shift && exec \"$@\"";
    let mounted = |directory: &str, rest: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", directory]).args(rest);
        command
    };
    let trial = mounted("/mnt", &["true"]).stderr(Stdio::null()).status();
    if !trial.is_ok_and(|status| status.success()) {
        return println!("skipped: this user may not mount a file system");
    }
    let version = Version::new(7, LENGTH);
    let server = Server::honest(&version).await;
    beside_server(move || {
        let host = Host::founder();
        let directory = host.state().join("jobs");
        fs::create_dir(&directory).unwrap();
        let inner = host.command(&["node", "--json", "--listen", &host.address()]);
        let program = inner.get_program().to_str().unwrap();
        let args: Vec<&str> = inner.get_args().map(|arg| arg.to_str().unwrap()).collect();
        let mut command = mounted(directory.to_str().unwrap(), &[&[program], &args[..]].concat());
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(host.path("")).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let node = Daemon::spawn(&mut command);
        let fill = format!("/proc/{}/root{}/fill", node.id(), directory.display());
        let scene = Scene { host, node: Some(node), server, version };

        let running = scene.detach("one", &["--limit-rate", "300k"]);
        scene.process(running);
        let mut file = fs::File::create(&fill).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        drop(file);
        // Longer than what is left of the journal's last page.
        let url = format!("{}?{}", scene.server.url(), "x".repeat(9000));
        let refused = scene.host.fails(1, &["get", &url, "--path", "direct", "--detach"]);
        assert!(refused.contains("not on disk"), "{refused}");
        assert_eq!(scene.jobs().len(), 1, "it is not listed: {:?}", scene.jobs());
        until("the other one finishes", || scene.state(running) == "finished");
        assert!(scene.has("one"));

        fs::remove_file(&fill).unwrap();
        let next = scene.detach("two", &[]);
        until("the next one finishes", || scene.state(next) == "finished");
        assert!(scene.has("two"));
        scene.node.unwrap().end();
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
