//! Headless Chromium with the PAC file.

use crate::{
    files::Files,
    running_proxy::{RunningProxy, has, program, succeeds},
};
use std::{fs, net::IpAddr};
use tempfile::TempDir;

/// An address of this host for which browsers use a proxy, unlike loopback.
fn outer() -> Option<IpAddr> {
    let own = thalweg_net::interfaces().ok()?;
    let mut all = own.into_iter().flat_map(|interface| interface.addresses);
    all.find(|ip| ip.is_ipv4() && !ip.is_loopback())
}

#[tokio::test]
async fn chromium_loads_a_page_and_its_script_through_the_pac_file() {
    let Some(ip) = outer() else {
        return eprintln!("skipped: this host has no address but loopback's");
    };
    if !has("chromium") {
        return;
    }
    let dir = TempDir::new().unwrap();
    let page = "<html><body><p id=x>before</p><script src=s.js></script></body></html>";
    fs::write(dir.path().join("page.html"), page).unwrap();
    let script = "document.getElementById('x').textContent = 'the script ran';";
    fs::write(dir.path().join("s.js"), script).unwrap();
    let proxy = RunningProxy::new(dir.path(), &[]);
    let files = Files::serve(dir.path(), &format!("{ip}:0")).await;
    let mut chromium = program("chromium", dir.path());
    chromium.env("HOME", dir.path());
    chromium.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    chromium.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
    chromium.arg(format!("--user-data-dir={}", dir.path().join("profile").display()));
    chromium.arg(format!("--proxy-pac-url={}/proxy.pac", proxy.url()));
    chromium.args(["--timeout=60000", "--dump-dom", &files.url("page.html")]);
    let shown = String::from_utf8(succeeds(chromium).await.stdout).unwrap();
    assert!(shown.contains("the script ran"), "{shown}");
    let paths: Vec<_> = files.asks().into_iter().map(|ask| ask.path).collect();
    assert!(paths.contains(&"/page.html".to_owned()) && paths.contains(&"/s.js".to_owned()));
    assert_eq!(files.asks().len(), files.by_proxy(), "{:?}", files.asks());
}
