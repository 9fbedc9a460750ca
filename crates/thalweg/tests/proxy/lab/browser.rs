//! Headless Chromium with the PAC file: loads pages and saves files.
//!
//! The test controls it by the DevTools protocol over a pipe (`--remote-debugging-pipe`: JSON messages, each ended by a
//! zero byte).

use super::scene::{Scene, by_relays};
use crate::running_proxy::has;
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

/// A browser; killed when dropped.
struct Chromium {
    child: Child,
    say: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Chromium {
    fn start(scene: &Scene, proxy: &str) -> Self {
        // The protocol uses descriptors 3 and 4.
        let script = "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>chromium.log";
        let mut command = scene.program("sh");
        command.env("HOME", scene.dir.path()).args(["-c", script, "sh", "--headless=new"]);
        command.args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
        command.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
        command.arg("--ignore-certificate-errors").arg("--remote-debugging-pipe");
        command.arg(format!("--user-data-dir={}", scene.path("profile").display()));
        command.arg(format!("--proxy-pac-url={proxy}/proxy.pac")).arg("about:blank");
        let mut command = scene.on_client(&command);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let say = child.stdin.take().unwrap();
        let hear = BufReader::new(child.stdout.take().unwrap());
        Self { child, say, hear }
    }

    fn send_command(&mut self, method: &str, params: &Value) {
        let message = json!({ "id": 1, "method": method, "params": params });
        write!(self.say, "{message}\0").unwrap();
    }

    /// Reads up to the first message that matches `is`.
    fn read_until(&mut self, is: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut message = Vec::new();
            self.hear.read_until(0, &mut message).unwrap();
            assert_eq!(message.pop(), Some(0), "the browser ended");
            let message: Value = serde_json::from_slice(&message).unwrap();
            assert_ne!(message["params"]["state"], "canceled", "{message}");
            if is(&message) {
                return message;
            }
        }
    }

    /// Opens a page. Returns the path of the file that the page makes the browser save.
    fn save_from(&mut self, url: &str) -> String {
        self.send_command("Target.createTarget", &json!({ "url": url }));
        let saved = self.read_until(|message| message["params"]["state"] == "completed");
        saved["params"]["filePath"].as_str().unwrap().to_owned()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

const PAGE: &str = "<html><body><img src=picture.svg onload=\"document.title = 'seen';
    document.getElementById('big').click()\"><a id=big href=big.bin download>it</a></body></html>";

const PICTURE: &str = "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>";

#[tokio::test(flavor = "multi_thread")]
async fn chromium_saves_a_large_file_from_a_page_over_the_relays() {
    if !["chromium", "nginx", "openssl"].iter().all(|name| has(name)) {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    scene.learn_paths_to(&scene.tls_url("big.bin"));
    fs::write(scene.path("www/page.html"), PAGE).unwrap();
    fs::write(scene.path("www/picture.svg"), PICTURE).unwrap();
    fs::create_dir(scene.path("saved")).unwrap();
    let proxy = scene.proxy();
    let mut chromium = Chromium::start(&scene, &proxy.url());
    let into = json!({
        "behavior": "allowAndName", "downloadPath": scene.path("saved"), "eventsEnabled": true
    });
    chromium.send_command("Browser.setDownloadBehavior", &into);
    // Without TLS the file is fetched in ranges, with TLS through a tunnel.
    for url in [scene.url("page.html"), scene.tls_url("page.html")] {
        let saved = chromium.save_from(&url);
        assert!(fs::read(saved).unwrap() == scene.content, "{url}: other bytes");
    }
    drop(chromium);
    let (events, _) = proxy.end().await;
    let requests = by_relays(&events, "request");
    assert!(requests.iter().any(|e| e["split"] == true), "{events:?}");
    let large = |e: &&Value| e["down_bytes"].as_u64() > Some(scene.content.len() as u64);
    assert!(by_relays(&events, "tunnel").into_iter().any(|e| large(&e)), "{events:?}");
}
