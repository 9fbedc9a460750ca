//! Connections of programs on a host whose second interface is unusual, and the status of that interface.

use crate::{
    host::{text, until},
    in_lab::{Running, serve, within},
    running_proxy::{has, program},
    second_interface,
    two_links::{came, came_since},
    uplinks::{Scene, settings, status},
};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader},
    process::Child,
};

const FILE: u64 = 600_000;

/// Connections use the interfaces in turn, so that some are assigned to the second one.
const IN_TURN: &str = "[interfaces]\nschedule = \"round-robin\"\naffinity = \"0 s\"\n";

/// The line of an interface in the status.
fn line(scene: &Scene, name: &str) -> String {
    let shown = text(&scene.thalweg(&["interfaces", "status"]).stdout);
    println!("{shown}");
    let mut lines = shown.lines().filter(|line| line.starts_with(name));
    lines.next().unwrap_or_else(|| panic!("no line of {name}: {shown}")).to_owned()
}

fn interface(scene: &Scene, name: &str) -> Value {
    let said = status(scene);
    let all = said["interfaces"].as_array().unwrap();
    all.iter().find(|found| found["name"] == name).cloned().unwrap_or(Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interface_without_a_route_is_not_used_and_named() {
    let Some(scene) = Scene::new() else { return };
    settings(&scene, IN_TURN);
    let proxy = scene.proxy(&[]);
    scene.download(&proxy, "aB", false);
    second_interface::change(&scene.lab, "client", second_interface::NO_ROUTE);
    until("it is not used any more", || interface(&scene, "wan1").is_null());
    let each = scene.during(|| scene.download(&proxy, "cDeF", false));
    assert!(each[0] > 4 * FILE && each[1] < 20_000, "{each:?}");
    let line = line(&scene, "wan1");
    assert!(line.contains("no route uses it"), "{line}");
    second_interface::change(&scene.lab, "client", "ip link set wan1 down");
    until("it says why", || {
        text(&scene.thalweg(&["interfaces", "status"]).stdout).contains("it is down")
    });
    proxy.end().await;
}

/// As on hosts with several providers: packets with the address of an interface leave by that interface.
#[tokio::test(flavor = "multi_thread")]
async fn an_interface_with_routes_only_for_its_own_address_is_used() {
    let Some(scene) = Scene::new() else { return };
    settings(&scene, IN_TURN);
    second_interface::change(&scene.lab, "client", second_interface::ROUTE_BY_SOURCE);
    let proxy = scene.proxy(&[]);
    let each = scene.during(|| scene.download(&proxy, "aBcD", false));
    assert!(each.iter().all(|bytes| *bytes > 2 * FILE), "{each:?}");
    let from = interface(&scene, "wan1");
    assert_eq!(from["doubted"], false, "{from}");
    proxy.end().await;
}

/// A server on another port that speaks only IPv6.
fn by_v6(scene: &Scene) -> Running {
    let mut python = program("python3", &scene.path("www"));
    python.args(["-m", "http.server", "--bind", "::", "8086"]);
    serve(&scene.lab, &python, 8086)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ipv6_only_interface_is_used_for_ipv6_destinations() {
    let Some(scene) = Scene::new() else { return };
    let _by_v6 = by_v6(&scene);
    settings(&scene, IN_TURN);
    // A name without an IPv6 address.
    let at = scene.lab.address("server");
    second_interface::change(
        &scene.lab,
        "client",
        &format!("echo '{at} old.example' >> /etc/hosts"),
    );
    second_interface::change(&scene.lab, "client", second_interface::V6_ALONE);
    let proxy = scene.proxy(&[]);
    let get = |url: &str| {
        let mut curl = program("curl", scene.dir.path());
        curl.args(["-q", "-sS", "--fail", "--proxytunnel", "-m", "30", "-o", "got", "-x"]);
        curl.args([&proxy.url(), url]);
        scene.assert_success(within(&scene.lab, "client", &curl).spawn().unwrap());
        scene.assert_complete("got");
    };
    let each = scene.during(|| (0..4).for_each(|_| get("http://old.example:8080/file")));
    assert!(each[0] > 4 * FILE && each[1] < 20_000, "{each:?}");
    let said = status(&scene);
    let newest = &said["connections"][0];
    assert_eq!(newest["interface"], "wan0", "{said}");
    let why = said["connections"].to_string();
    assert!(why.contains("have no route there"), "{why}");
    // The interface is not at fault: destinations that it can reach use it.
    assert_eq!(interface(&scene, "wan1")["doubted"], false);
    let each = scene.during(|| (0..4).for_each(|_| get("http://a.example:8086/file")));
    assert!(each.iter().all(|bytes| *bytes > FILE), "{each:?}");
    let line = line(&scene, "wan1");
    assert!(line.contains("IPv6 only") && !line.contains("left out"), "{line}");
    proxy.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_mtu_does_not_impair_the_proxy() {
    let Some(scene) = Scene::new() else { return };
    second_interface::change(&scene.lab, "client", second_interface::SMALL_PACKETS);
    let proxy = scene.proxy(&[]);
    let each = scene.during(|| scene.download(&proxy, "aBcDeF", true));
    assert!(each.iter().all(|bytes| *bytes > 2 * FILE), "{each:?}");
    assert!(!line(&scene, "wan1").contains("left out"));
    proxy.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flapping_interface_breaks_no_connection_and_leaks_no_memory() {
    let Some(scene) = Scene::new() else { return };
    settings(&scene, IN_TURN);
    let proxy = scene.proxy(&[]);
    scene.download(&proxy, "aB", true);
    let before = second_interface::memory_below(proxy.id());
    let mut flapping: Child = second_interface::flaps(&scene.lab, scene.dir.path());
    let mut rounds = 0;
    while flapping.try_wait().unwrap().is_none() {
        scene.download(&proxy, "aBcD", true);
        rounds += 1;
    }
    let after = second_interface::memory_below(proxy.id());
    println!("{rounds} rounds; {before} bytes of memory before, {after} after");
    assert!(after < before + (16 << 20), "{before} bytes before, {after} after");
    let said = status(&scene);
    assert!(said["connections"].as_array().unwrap().len() <= 64);
    until("it is used again", || {
        let each = scene.during(|| scene.download(&proxy, "aBcD", true));
        each[1] > FILE
    });
    let (events, errors) = proxy.end().await;
    assert!(errors.lines().count() < 20, "{errors}");
    assert!(events.iter().all(|event| event["event"] != "refused"), "{events:?}");
}

/// Two cards in one network, and a router that is also the server. Ended when dropped.
struct OneNetwork {
    _router: Running,
    _server: Running,
}

const ROUTER: &str = "touch router.ns
    exec unshare -n sh -ec 'mount --bind /proc/self/ns/net router.ns; echo $$ > router.pid
        echo ready; exec sleep 600'";

const CARDS: &str = "
    for n in 0 1; do
        ip link add card$n type veth peer name port$n; ip link set port$n netns $(cat router.pid)
    done
    nsenter --net=router.ns sh -ec 'ip link set lo up; ip link add br0 type bridge
        for n in 0 1; do ip link set port$n master br0; ip link set port$n up; done
        ip link set br0 up; ip address add 192.168.7.1/24 dev br0; ip address add 203.0.113.1/32 dev lo'
    for n in 0 1; do
        ip address add 192.168.7.1$n/24 dev card$n; ip link set card$n up
        ip route add default via 192.168.7.1 dev card$n metric 10$n
    done";

/// Waits until a process prints a line.
pub fn ready(mut child: Child) -> Running {
    let mut line = String::new();
    let out = child.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "it ended");
    Running(child)
}

impl OneNetwork {
    fn new(scene: &Scene) -> Option<Self> {
        let script = |text: &str| {
            let mut sh = program("sh", scene.dir.path());
            sh.args(["-ec", text]);
            within(&scene.lab, "client", &sh)
        };
        let _router = ready(script(ROUTER).spawn().unwrap());
        let made = script(CARDS).output().unwrap();
        if !made.status.success() {
            eprintln!("skipped: no bridge here: {}", text(&made.stderr));
            return None;
        }
        let server = "cd www; exec nsenter --net=../router.ns python3 -u -m http.server 8080";
        Some(Self { _router, _server: ready(script(server).spawn().unwrap()) })
    }

    /// Makes the router forget the hardware addresses, so that it asks: both cards answer for both addresses (arp(7),
    /// `arp_ignore`).
    fn forget_neighbours(&self, scene: &Scene) {
        let file = scene.path("router.ns").display().to_string();
        second_interface::change(
            &scene.lab,
            "client",
            &format!("nsenter --net={file} ip neigh flush all"),
        );
    }
}

/// A packet that arrives at the other card reaches no socket bound to the first one. So only one card is used, and the
/// other one when the first is gone.
#[tokio::test(flavor = "multi_thread")]
async fn only_one_of_two_interfaces_in_one_network_is_used_at_a_time() {
    let Some(scene) = Scene::new() else { return };
    if !["unshare", "nsenter"].iter().all(|name| has(name)) {
        return;
    }
    let Some(network) = OneNetwork::new(&scene) else { return };
    // Documentation addresses count as near.
    settings(&scene, &format!("{IN_TURN}near = true\n"));
    let proxy = scene.proxy(&[]);
    let get = || {
        network.forget_neighbours(&scene);
        let mut curl = program("curl", scene.dir.path());
        // After a second the next interface would be tried.
        curl.args(["-q", "-sS", "--fail", "-o", "got", "-m", "20", "-w", "%{time_total}", "-x"]);
        curl.args([&proxy.url(), "http://203.0.113.1:8080/file"]);
        let output = within(&scene.lab, "client", &curl).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        scene.assert_complete("got");
        println!("{} s", text(&output.stdout));
    };
    (0..6).for_each(|_| get());
    let shown = line(&scene, "card1");
    assert!(shown.contains("in the same network as card0"), "{shown}");
    assert!(interface(&scene, "card1").is_null() && !interface(&scene, "card0").is_null());
    second_interface::change(&scene.lab, "client", "ip link set card0 down");
    until("the other is used", || interface(&scene, "card1")["name"] == "card1");
    (0..3).for_each(|_| get());
    proxy.end().await;
}

/// A TLS server on another port, with an untrusted certificate.
fn by_tls(scene: &Scene) -> Running {
    let mut make = program("openssl", scene.dir.path());
    make.args(["req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=a.example"]);
    make.args(["-keyout", "key.pem", "-out", "cert.pem"]);
    let made = make.output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let mut openssl = program("openssl", &scene.path("www"));
    openssl.args(["s_server", "-WWW", "-quiet", "-accept", "8443"]);
    openssl.args(["-key", "../key.pem", "-cert", "../cert.pem"]);
    serve(&scene.lab, &openssl, 8443)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_captive_portal_is_avoided_once_tls_reveals_it() {
    let Some(scene) = Scene::new() else { return };
    if !["nft", "openssl"].iter().all(|name| has(name)) {
        return;
    }
    let _by_tls = by_tls(&scene);
    let _portal = second_interface::portal(&scene.lab, &["server"]);
    settings(&scene, IN_TURN);
    let proxy = scene.proxy(&[]);
    let get = || {
        let mut curl = program("curl", scene.dir.path());
        curl.args(["-q", "-sS", "-k", "-m", "20", "-o", "got", "-x", &proxy.url()]);
        curl.arg("https://a.example:8443/file");
        within(&scene.lab, "client", &curl).output().unwrap()
    };
    // A portal answers one of the first two connections; TLS rejects it.
    let failed = (0..2).filter(|_| !get().status.success()).count();
    assert_eq!(failed, 1);
    until("it is known", || interface(&scene, "wan1")["doubt"] == "impostor");
    let before = came(&scene.lab);
    for _ in 0..3 {
        let output = get();
        assert!(output.status.success(), "{}", text(&output.stderr));
        scene.assert_complete("got");
    }
    let each = came_since(&scene.lab, before);
    assert!(each[0] > 3 * FILE && each[1] < 20_000, "{each:?}");
    let line = line(&scene, "wan1");
    assert!(line.contains("another host answers than the one that was asked"), "{line}");
    proxy.end().await;
}

/// The portal's answer to HTTP is recognised; programs get it once.
#[tokio::test(flavor = "multi_thread")]
async fn a_captive_portal_that_answers_511_is_avoided() {
    let Some(scene) = Scene::new() else { return };
    if !has("nft") {
        return;
    }
    let _portal = second_interface::portal_with(
        &scene.lab,
        &["server"],
        "511 Network Authentication Required",
    );
    settings(&scene, IN_TURN);
    let proxy = scene.proxy(&[]);
    // Through a tunnel, and as a request in absolute form; connections use the interfaces in turn. Two hosts must give
    // the same evidence, and the evidence of both is remembered.
    for (tunnel, by_it) in [(true, 2), (false, 1)] {
        // A kept connection to the same server would be used again.
        let failed = ["a", "b", "c", "d"].iter().filter(|host| {
            let curl = scene.curl(&proxy, host, "got", tunnel);
            !curl.wait_with_output().unwrap().status.success()
        });
        assert_eq!(failed.count(), by_it, "tunnel: {tunnel}");
        until("it is known", || interface(&scene, "wan1")["doubt"] == "impostor");
        if tunnel {
            until("it is tried again", || interface(&scene, "wan1")["doubt"].is_null());
        }
    }
    let each = scene.during(|| scene.download(&proxy, "aBc", false));
    assert!(each[0] > 3 * FILE && each[1] < 20_000, "{each:?}");
    proxy.end().await;
}
