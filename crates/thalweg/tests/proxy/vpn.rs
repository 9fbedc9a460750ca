//! A host with two cards and a VPN tunnel that has the default route: nothing of Thalweg bypasses the tunnel unless the
//! settings allow it.
//!
//! ```text
//! client ══ card0, card1 ══ router, which is also the server
//!           card0 carries the tunnel vpn0
//! ```

use crate::{
    host::{text, until},
    in_lab::{Running, within},
    odd_interfaces::ready,
    running_proxy::{has, program},
    second_interface,
    uplinks::{Scene, settings},
};
use std::fs;

const FILE: u64 = 600_000;

/// Background traffic of hosts in an IPv6 network, bytes.
const NOISE: u64 = 5_000;

/// Connections use the interfaces in turn, so that some would be assigned to the second one. Documentation addresses
/// count as near.
const IN_TURN: &str = "[interfaces]\nschedule = \"round-robin\"\naffinity = \"0 s\"\nnear = true\n";

/// Carries packets between a TUN device and UDP. Arguments: device name, own address, far address.
const TUNNEL: &str = r#"
import fcntl, os, select, socket, struct, sys
name, own, far = sys.argv[1:]
tun = os.open('/dev/net/tun', os.O_RDWR)
fcntl.ioctl(tun, 0x400454CA, struct.pack('16sH22x', name.encode(), 0x1001))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((own, 5999))
print('ready', flush=True)
while True:
    for end in select.select([tun, udp], [], [])[0]:
        try:
            if end is udp: os.write(tun, udp.recv(65536))
            else: udp.sendto(os.read(tun, 65536), (far, 5999))
        # A device that is down takes nothing, and an end that is not there yet refuses.
        except OSError: pass
"#;

const ROUTER: &str = "touch router.ns
    exec unshare -n sh -ec 'mount --bind /proc/self/ns/net router.ns; echo $$ > router.pid
        echo ready; exec sleep 600'";

/// Each card has a network of its own and a default route.
const CARDS: &str = "
    for n in 0 1; do
        ip link add card$n type veth peer name port$n; ip link set port$n netns $(cat router.pid)
        ip address add 192.168.7$n.2/24 dev card$n; ip link set card$n up
    done
    nsenter --net=router.ns sh -ec 'ip link set lo up; ip address add 203.0.113.1/32 dev lo
        for n in 0 1; do ip address add 192.168.7$n.1/24 dev port$n; ip link set port$n up; done'
    for n in 0 1; do ip route add default via 192.168.7$n.1 dev card$n metric 10$n; done";

/// Two routes to halves of the address space, more specific than the default route, which stays, as with OpenVPN's
/// `redirect-gateway def1`.
const VPN: &str = "
    nsenter --net=router.ns sh -ec 'ip address add 10.99.0.1/24 dev vpn0; ip link set vpn0 mtu 1400 up'
    ip address add 10.99.0.2/24 dev vpn0; ip link set vpn0 mtu 1400 up
    for half in 0.0.0.0/1 128.0.0.0/1; do ip route add $half via 10.99.0.1 dev vpn0; done";

/// The running processes; ended when dropped.
struct Vpn {
    _all: Vec<Running>,
}

impl Vpn {
    fn new(scene: &Scene) -> Self {
        let script = |text: &str| {
            let mut sh = program("sh", scene.dir.path());
            sh.args(["-ec", text]);
            within(&scene.lab, "client", &sh)
        };
        let router = ready(script(ROUTER).spawn().unwrap());
        let made = script(CARDS).output().unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        fs::write(scene.path("tunnel.py"), TUNNEL).unwrap();
        let tunnel = |within: &str, own: &str, far: &str| {
            ready(
                script(&format!("exec {within} python3 tunnel.py vpn0 {own} {far}"))
                    .spawn()
                    .unwrap(),
            )
        };
        let far = tunnel("nsenter --net=router.ns", "192.168.70.1", "192.168.70.2");
        let near = tunnel("", "192.168.70.2", "192.168.70.1");
        second_interface::change(&scene.lab, "client", &VPN.replace("router.ns", &path(scene)));
        let server = "cd www; exec nsenter --net=../router.ns python3 -u -m http.server 8080";
        let _all = vec![router, far, near, ready(script(server).spawn().unwrap())];
        Self { _all }
    }
}

fn path(scene: &Scene) -> String {
    scene.path("router.ns").display().to_string()
}

/// The bytes that arrived by these interfaces of the client, as its kernel counts them.
fn came(scene: &Scene) -> [u64; 2] {
    let mut cat = program("cat", scene.dir.path());
    cat.arg("/proc/net/dev");
    let output = within(&scene.lab, "client", &cat).output().unwrap();
    let table = text(&output.stdout);
    ["vpn0", "card1"].map(|name| {
        let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}:")));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap_or_else(|| panic!("{name}: {table}"))
    })
}

/// The bytes that arrived by these interfaces during `work`.
fn during(scene: &Scene, work: impl FnOnce()) -> [u64; 2] {
    let before = came(scene);
    work();
    let now = came(scene);
    let each = [now[0] - before[0], now[1] - before[1]];
    println!("{each:?} bytes by the tunnel and beside it");
    each
}

const URL: &str = "http://203.0.113.1:8080/file";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_bypasses_a_vpn_unless_the_settings_allow_it() {
    let Some(scene) = Scene::new() else { return };
    if !["unshare", "nsenter"].iter().all(|name| has(name)) {
        return;
    }
    let _vpn = Vpn::new(&scene);
    // A policy that names the card, here for a cap, does not allow it to bypass the VPN.
    settings(
        &scene,
        &format!("{IN_TURN}[[interfaces.policy]]\nname = \"card1\"\ncap = \"1 GB\"\n"),
    );
    let get = || {
        let got = scene.thalweg(&["get", URL, "-o", "got", "--history", "none"]);
        assert!(got.status.success(), "{}", text(&got.stderr));
        scene.assert_complete("got");
        fs::remove_file(scene.path("got")).unwrap();
    };
    let proxy = scene.proxy(&[]);
    let asks = || {
        let mut curl = program("curl", scene.dir.path());
        curl.args(["-q", "-sS", "--fail", "-o", "got", "-m", "30", "-x", &proxy.url(), URL]);
        within(&scene.lab, "client", &curl).spawn().unwrap()
    };
    let curl = || {
        scene.assert_success(asks());
        scene.assert_complete("got");
        fs::remove_file(scene.path("got")).unwrap();
    };
    let each = during(&scene, || (0..4).for_each(|_| curl()));
    assert!(each[0] > 4 * FILE && each[1] < NOISE, "{each:?}");
    let each = during(&scene, get);
    assert!(each[0] > FILE && each[1] < NOISE, "{each:?}");
    let shown = text(&scene.thalweg(&["interfaces", "status"]).stdout);
    let line = shown.lines().find(|line| line.starts_with("card1")).expect("a line of it");
    assert!(line.contains("the tunnel vpn0 has the default route"), "{shown}");
    // When the tunnel ends, the cards are used automatically, once the change is noticed (until then nothing answers).
    second_interface::change(&scene.lab, "client", "ip link set vpn0 down");
    until("a card is used", || {
        let each = during(&scene, || drop(asks().wait_with_output().unwrap()));
        each[1] > FILE
    });
    proxy.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_bypasses_a_vpn_if_the_settings_allow_it() {
    let Some(scene) = Scene::new() else { return };
    if !["unshare", "nsenter"].iter().all(|name| has(name)) {
        return;
    }
    let _vpn = Vpn::new(&scene);
    let card = "[[interfaces.policy]]\nname = \"card1\"\nbeside_tunnel = true\n";
    settings(&scene, &format!("{IN_TURN}{card}"));
    let proxy = scene.proxy(&[]);
    let each = during(&scene, || {
        for _ in 0..4 {
            let mut curl = program("curl", scene.dir.path());
            curl.args(["-q", "-sS", "--fail", "-o", "got", "-m", "30", "-x", &proxy.url(), URL]);
            scene.assert_success(within(&scene.lab, "client", &curl).spawn().unwrap());
            scene.assert_complete("got");
        }
    });
    assert!(each.iter().all(|bytes| *bytes > FILE), "{each:?}");
    proxy.end().await;
}
