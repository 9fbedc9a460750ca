//! `thalweg proxy --transparent` and `thalweg run --transparent`, in an emulated Internet, for programs without proxy
//! support.

use crate::{
    files::bytes,
    host::{text, until},
    in_lab::{lab, within},
    running_proxy::{RunningProxy, has, program, thalweg},
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
    fn with(needed: &[&str]) -> Option<Self> {
        if !needed.iter().all(|name| has(name)) {
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

    /// A download by curl without a configured proxy.
    fn curl(&self, file: &str) -> Output {
        let mut curl = program("curl", self.dir.path());
        // The server listens on IPv4 only; over IPv6 curl would not learn of the refusal.
        curl.args(["-q", "-4", "-sS", "--fail", "-m", "20", "-o", file]);
        curl.arg("http://www.example:8080/file");
        within(&self.lab, "client", &curl).output().unwrap()
    }

    fn assert_download(&self, file: &str) {
        let output = self.curl(file);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(fs::read(self.dir.path().join(file)).unwrap() == bytes(LENGTH));
    }

    /// Runs a command with `thalweg run --transparent`. Returns its output.
    fn run(&self, command: &[&str]) -> Output {
        let mut run = thalweg(self.dir.path());
        run.args(["run", "-v", "--transparent", "--"]).args(command);
        within(&self.lab, "client", &run).output().unwrap()
    }

    fn rules(&self) -> String {
        let mut nft = Command::new("nft");
        nft.args(["list", "ruleset"]);
        let listed = within(&self.lab, "client", &nft).output().unwrap();
        assert!(listed.status.success(), "{}", text(&listed.stderr));
        text(&listed.stdout)
    }

    fn proxy(&self) -> RunningProxy {
        let mut command = thalweg(self.dir.path());
        command.args(["proxy", "--listen", "127.0.0.1:0", "--json", "--transparent"]);
        RunningProxy::spawn(within(&self.lab, "client", &command))
    }
}

#[test]
fn programs_are_redirected_to_the_proxy_and_rules_end_with_it() {
    let Some(scene) = Scene::with(&["curl", "python3", "nft"]) else { return };
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
    // Killed, without an orderly end.
    drop(killed);
    until("the rules of a killed proxy are gone", || !scene.rules().contains("redirect to"));
    scene.assert_download("after");
}

#[test]
fn lost_rules_are_set_again_and_another_proxy_is_reported() {
    let Some(scene) = Scene::with(&["curl", "python3", "nft"]) else { return };
    let proxy = scene.proxy();
    // Among all programs of that name, the one in this host of the lab.
    let find = "here=$(readlink /proc/self/ns/net)
        for p in /proc/[0-9]*; do
            [ \"$(cat $p/comm)\" = nft ] && [ \"$(readlink $p/ns/net)\" = $here ] && echo ${p#/proc/}
        done 2>&-; true";
    let sh = |script: &str| {
        let mut sh = Command::new("sh");
        sh.args(["-c", script]);
        let output = within(&scene.lab, "client", &sh).output().unwrap();
        assert!(output.status.success(), "{script}: {}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    };
    let holder = || sh(find);
    let first = holder();
    sh(&format!("kill -9 {first}"));
    until("the rules are set again", || {
        let now = holder();
        now != first && now.parse::<u32>().is_ok() && scene.rules().contains("redirect to")
    });
    scene.assert_download("again");
    let second = scene.proxy();
    let (_, told) = second.ended();
    assert!(told.contains("is a transparent proxy already"), "{told}");
    let (events, told) = proxy.ended();
    assert!(told.contains("they are set again"), "{told}");
    assert!(events.iter().any(|e| e["kind"] == "redirected"), "{events:?}");
}

/// Two threads and a child process, with blocking and other sockets; the program also connects to itself.
const CLIENT: &str = r#"
import asyncio, os, socket, threading
to = (socket.gethostbyname("www.example"), 8080)
ask = b"GET /file HTTP/1.0\r\n\r\n"
lengths = []
def blocking():
    with socket.create_connection(to) as s:
        s.sendall(ask)
        lengths.append(sum(iter(lambda: len(s.recv(65536)), 0)))
async def other():
    reader, writer = await asyncio.open_connection(*to)
    writer.write(ask)
    lengths.append(len(await reader.read()))
own = socket.create_server(("127.0.0.1", 0))
socket.create_connection(own.getsockname()).sendall(b"here")
assert own.accept()[0].recv(4) == b"here"
threads = [threading.Thread(target=blocking) for _ in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
asyncio.run(other())
child = os.fork()
if child == 0:
    blocking()
    os._exit(0 if lengths[-1] == lengths[0] else 1)
assert os.waitpid(child, 0)[1] == 0
try:
    socket.create_connection((to[0], 1), 5).recv(1)
    refused = False
except OSError:
    refused = True
print(min(lengths), max(lengths), len(lengths), refused)
"#;

#[test]
fn a_command_is_redirected_to_the_proxy_without_root() {
    let Some(scene) = Scene::with(&["curl", "python3"]) else { return };
    let output = scene.run(&["python3", "-c", CLIENT]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let words: Vec<&str> = out.split_whitespace().collect();
    let [least, most, "3", "True"] = words[..] else { panic!("{out}{err}") };
    assert_eq!(least, most);
    assert!(least.parse::<u32>().unwrap() > LENGTH, "{out}");
    // The connection to itself is not counted.
    assert!(err.contains("4 tunnels, 1 refused"), "{err}");
}

#[test]
fn a_command_that_binds_its_socket_is_not_redirected() {
    let Some(scene) = Scene::with(&["curl", "python3"]) else { return };
    let url = "http://www.example:8080/file";
    let curl = ["curl", "-q", "-4", "-sS", "--noproxy", "*", "-m", "20", "-o", "led", url];
    let led = scene.run(&curl);
    assert!(text(&led.stderr).contains("1 tunnels"), "{}", text(&led.stderr));
    assert!(fs::read(scene.dir.path().join("led")).unwrap() == bytes(LENGTH));
    let mut script = "import socket; s = socket.socket(); s.bind(('', 0)); ".to_owned();
    script += "s.connect((socket.gethostbyname('www.example'), 8080)); print(s.getpeername()[1])";
    let own = scene.run(&["python3", "-c", &script]);
    assert_eq!(text(&own.stdout).trim(), "8080", "{}", text(&own.stderr));
    assert!(text(&own.stderr).contains("0 tunnels"), "{}", text(&own.stderr));
}
