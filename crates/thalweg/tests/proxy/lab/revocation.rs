//! A relay that is revoked while it carries tunnels.

use super::scene::{Scene, by_relays, succeeds};
use crate::{host::until, running_proxy::has};
use std::{fs, process::Command};

/// A slow download with curl, through a tunnel over `nyc`.
fn slow_download(scene: &Scene, proxy: &str) -> Command {
    let mut curl = scene.program("curl");
    curl.args(["-q", "-sS", "--fail", "--cacert", "cert.pem", "-o", "part", "--no-buffer"]);
    curl.args(["--limit-rate", "100k", "-x", proxy, &scene.tls_url("huge.bin")]);
    scene.on_client(&curl)
}

/// Either the relay learns of its revocation from the oracle and closes its connections, or it never learns of it, and
/// the proxy closes them once this host's roster lacks the relay.
#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_over_a_revoked_relay_is_cut_and_the_next_avoids_it() {
    if !["curl", "nginx", "openssl"].iter().all(|name| has(name)) {
        return;
    }
    for hears in [true, false] {
        let scene = if hears { Scene::new() } else { Scene::of_nodes() };
        let Some(scene) = scene else { return };
        scene.learn_only("nyc");
        // More than all buffers on the path hold.
        let huge = fs::File::create(scene.path("www/huge.bin")).unwrap();
        huge.set_len(100_000_000).unwrap();
        let _daemon = (!hears).then(|| scene.daemon());
        let proxy = scene.proxy();
        let mut curl = slow_download(&scene, &proxy.url()).spawn().unwrap();
        let some = || fs::metadata(scene.path("part")).is_ok_and(|file| file.len() > 50_000);
        until("the download has begun", some);
        if !hears {
            scene.cut_off("nyc");
        }
        scene.on_oracle(&["mesh", "revoke", "nyc"]);
        let ended = curl.wait().unwrap();
        assert!(!ended.success(), "the tunnel went on to the end");
        let mut again = scene.program("curl");
        again.args(["-q", "-sS", "--fail", "--cacert", "cert.pem", "-r", "0-199999"]);
        again.args(["-x", &proxy.url(), &scene.tls_url("big.bin")]);
        let output = succeeds(scene.on_client(&again));
        assert!(output.stdout == scene.content[..200_000], "other bytes");
        let (events, _) = proxy.end().await;
        let [cut, next @ ..] = &by_relays(&events, "tunnel")[..] else { panic!("{events:?}") };
        assert!(cut["path"] == "nyc" && cut["broken"].is_string(), "{cut}");
        assert!(next.iter().all(|e| e["path"] != "nyc"), "{next:?}");
        if !hears {
            assert!(cut["broken"].as_str().unwrap().contains("no longer a member"), "{cut}");
        }
    }
}
