//! curl, wget and aria2: forwarded, in ranges, through tunnels, by SOCKS, and with `thalweg run`.

use super::scene::{Scene, by_relays, succeeds};
use crate::running_proxy::has;

#[tokio::test(flavor = "multi_thread")]
async fn large_files_arrive_complete_over_the_relays() {
    if !["curl", "wget", "aria2c", "nginx", "openssl"].iter().all(|name| has(name)) {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    scene.learn_paths_to(&scene.tls_url("big.bin"));
    let proxy = scene.proxy();
    let (http, socks) = (proxy.url(), format!("socks5h://{}", proxy.at));
    let (plain, tls) = (scene.url("big.bin"), scene.tls_url("big.bin"));
    for (n, args) in
        [["-x", &http, &plain], ["-x", &http, &tls], ["-x", &socks, &plain]].into_iter().enumerate()
    {
        let (mut curl, file) = (scene.program("curl"), format!("curl-{n}"));
        curl.args(["-q", "-sS", "--fail", "--cacert", "cert.pem", "-o", &file]).args(args);
        succeeds(scene.on_client(&curl));
        scene.assert_complete(&file);
    }
    let mut wget = scene.program("wget");
    wget.env("http_proxy", &http).args(["--no-config", "-q", "-O", "wget", &plain]);
    succeeds(scene.on_client(&wget));
    scene.assert_complete("wget");
    let mut aria = scene.program("aria2c");
    aria.env("http_proxy", &http).args(["--no-conf", "-q", "-x", "3", "-s", "3", "-k", "1M"]);
    succeeds(scene.on_client(aria.args(["-o", "aria", &plain])));
    scene.assert_complete("aria");
    let (events, _) = proxy.end().await;
    let requests = by_relays(&events, "request");
    let split = requests.iter().filter(|e| e["split"] == true).count();
    assert!(split >= 2, "curl's and wget's: {events:?}");
    assert!(requests.len() > split, "aria2's ranges: {events:?}");
    assert_eq!(by_relays(&events, "tunnel").len(), 2, "TLS, SOCKS: {events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_with_its_own_proxy_uses_the_relays() {
    if !["curl", "nginx", "openssl"].iter().all(|name| has(name)) {
        return;
    }
    let Some(scene) = Scene::new() else { return };
    let mut curl = scene.program("curl");
    curl.args(["-q", "-sS", "--fail", "-o", "curl", &scene.url("big.bin")]);
    let said = scene.run_by_proxy(&curl);
    scene.assert_complete("curl");
    assert!(said.contains("in ranges") && said.contains("1 by detours"), "{said}");
}
