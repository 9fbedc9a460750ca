//! A network of namespaces with real NAT: routers with nftables between members and a common segment.
//!
//! ```text
//!                    ┌── fra 10.99.0.1, nyc 10.99.0.2, hosts without a router
//! segment 10.99/16 ──┤
//!                    └── router 10.99.0.N ── 192.168.0.0/24 ── member 192.168.0.2
//! ```
//!
//! Each namespace lives as long as a process that holds it. All links are made inside of them, so that the machine's own
//! network stays as it is.

use crate::{
    host::{Daemon, Host, text},
    in_lab::Running,
};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Command, Stdio},
};

/// The address that all private networks give to their member; they overlap like those of homes.
pub const INSIDE: &str = "192.168.0.2";

/// How a router, or a member's own firewall, treats connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nat {
    /// No router.
    Open,
    /// A forwarded port: whoever knows the router's address reaches the member.
    FullCone,
    /// Masquerade that keeps ports: only answers come in.
    PortRestricted,
    /// Masquerade with a random port for each connection.
    Symmetric,
    /// Two masquerades, one behind the other.
    Carrier,
    /// A public address, and a firewall that drops what comes in unasked.
    Firewall,
}

/// A namespace, until it is dropped.
pub struct Namespace {
    holder: Running,
}

impl Namespace {
    /// Makes an empty namespace; `None` without the right to.
    fn new() -> Option<Self> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--net", "sleep", "infinity"]).stdin(Stdio::null()).stderr(Stdio::null());
        let mut holder = Running(unshare.spawn().ok()?);
        let own = network_of("self");
        let at = holder.0.id().to_string();
        // `unshare` becomes `sleep` once the namespace is there.
        while fs::read_to_string(format!("/proc/{at}/comm")).ok()?.trim() != "sleep" {
            if holder.0.try_wait().ok()?.is_some() {
                return None;
            }
            std::thread::yield_now();
        }
        let namespace = Self { holder };
        assert_ne!(network_of(&at), own);
        namespace.sh("ip link set lo up");
        Some(namespace)
    }

    fn id(&self) -> String {
        self.holder.0.id().to_string()
    }

    /// The same command inside the namespace.
    pub fn within(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.args(["--net", "--target", &self.id(), "--"]);
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside.current_dir(command.get_current_dir().unwrap_or(Path::new("/")));
        inside.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        inside
    }

    /// Runs a script, which must succeed.
    pub fn sh(&self, script: &str) {
        let mut sh = Command::new("sh");
        sh.args(["-ec", script]);
        let output = self.within(&sh).output().unwrap();
        assert!(output.status.success(), "{script}: {}", text(&output.stderr));
    }

    /// Runs a command of the host in this namespace; it must succeed. Returns standard output.
    pub fn ok(&self, host: &Host, args: &[&str]) -> String {
        let output = self.within(&host.command(args)).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Starts the host's daemon with these settings.
    pub fn start(&self, host: &Host, settings: &str) -> Daemon {
        let file = host.path("node.toml");
        fs::write(&file, settings).unwrap();
        let file = file.display().to_string();
        let args = ["node", "--json", "--listen", "0.0.0.0:7373", "--config", &file];
        Daemon::spawn(&mut self.within(&host.command(&args)))
    }

    /// Links this namespace, as `inner`, to a bridge or router, as `outer`.
    fn link(&self, inner: &str, to: &Self, outer: &str) {
        to.sh(&format!("ip link add {outer} type veth peer name {inner} netns {}", self.id()));
        to.sh(&format!("ip link set {outer} up"));
        self.sh(&format!("ip link set {inner} up"));
    }
}

fn network_of(process: &str) -> u64 {
    fs::metadata(format!("/proc/{process}/ns/net")).map_or(0, |one| one.ino())
}

/// The segment that all routers and open hosts share.
pub struct NatNetwork {
    segment: Namespace,
    routers: Vec<Namespace>,
    used: u8,
}

impl NatNetwork {
    /// Makes the segment. `None` if it is not possible; the reason is printed. In CI it must be possible, unless
    /// THALWEG_SKIP is set.
    pub fn new() -> Option<Self> {
        let Some(segment) = Namespace::new() else {
            let set = |name| std::env::var_os(name).is_some();
            assert!(!set("CI") || set("THALWEG_SKIP"), "no namespaces here");
            eprintln!("skipped: no namespaces here");
            return None;
        };
        segment.sh("ip link add segment type bridge; ip link set segment up");
        Some(Self { segment, routers: Vec::new(), used: 0 })
    }

    /// Joins a new namespace to the segment. Returns it with its address there.
    fn join(&mut self) -> (Namespace, String) {
        self.used += 1;
        let (own, outer) = (Namespace::new().unwrap(), format!("port{}", self.used));
        own.link("wan", &self.segment, &outer);
        self.segment.sh(&format!("ip link set {outer} master segment"));
        let address = format!("10.99.0.{}", self.used);
        own.sh(&format!("ip address add {address}/16 dev wan"));
        (own, address)
    }

    /// A host behind this kind of NAT. Returns its namespace, and the address at which others might dial it.
    pub fn host(&mut self, nat: Nat) -> (Namespace, String) {
        let (outer, address) = self.join();
        match nat {
            Nat::Open => return (outer, address),
            Nat::Firewall => {
                rules(
                    &outer,
                    "table inet wall {\nchain input {\n\
                    type filter hook input priority 0; policy drop;\n\
                    iif lo accept\nct state established,related accept\n}\n}\n",
                );
                return (outer, address);
            }
            _ => {}
        }
        let carrier = (nat == Nat::Carrier).then(|| {
            masquerade(&outer, "");
            self.behind(&outer, "100.64.0")
        });
        let router = match carrier {
            None => outer,
            Some(home) => {
                self.routers.push(outer);
                home
            }
        };
        masquerade(&router, if nat == Nat::Symmetric { "random,fully-random" } else { "" });
        if nat == Nat::FullCone {
            rules(
                &router,
                &format!(
                    "table ip ports {{\nchain pre {{\n\
                type nat hook prerouting priority -100;\n\
                iifname wan tcp dport 7373 dnat to {INSIDE}:7373\n}}\n}}\n"
                ),
            );
        }
        let member = self.behind(&router, "192.168.0");
        self.routers.push(router);
        (member, address)
    }

    /// Another member of the same private network as `member`, which is behind the last router.
    pub fn neighbour(&mut self, member: &Namespace) -> Namespace {
        let own = Namespace::new().unwrap();
        // The member is the neighbour's way out: it forwards, and the router sees its address.
        own.link("wan", member, "near");
        member.sh("ip address add 192.168.9.1/24 dev near; sysctl -q net.ipv4.ip_forward=1");
        own.sh("ip address add 192.168.9.2/24 dev wan; ip route add default via 192.168.9.1");
        masquerade(member, "");
        own
    }

    /// A namespace in a private network behind the router.
    fn behind(&self, router: &Namespace, network: &str) -> Namespace {
        let inner = Namespace::new().unwrap();
        inner.link("wan", router, "lan");
        router.sh(&format!("ip address add {network}.1/24 dev lan"));
        router.sh("sysctl -q net.ipv4.ip_forward=1");
        inner.sh(&format!(
            "ip address add {network}.2/24 dev wan; ip route add default via {network}.1"
        ));
        inner
    }
}

/// Lets only what is asked for through, with the router's own address.
fn masquerade(router: &Namespace, how: &str) {
    rules(
        router,
        &format!(
            "table ip home {{\nchain post {{\n\
        type nat hook postrouting priority 100;\noifname wan masquerade {how}\n}}\n\
        chain forward {{\ntype filter hook forward priority 0; policy drop;\n\
        ct state established,related accept\nct status dnat accept\n\
        iifname {{ \"lan\", \"near\" }} accept\n}}\n}}\n"
        ),
    );
}

fn rules(namespace: &Namespace, rules: &str) {
    namespace.sh(&format!("nft -f - <<'END'\n{rules}END\n"));
}
