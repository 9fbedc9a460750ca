//! A mesh of three members behind a router, each in a namespace, built anew for each fault.
//!
//! ```text
//! lap 10.77.1.2 ──┐                ┌── 10.77.2.2 fra: founder and oracle
//!   (the fault)   ├── router ──────┤
//!                 │  (names, NAT)  └── 10.77.3.2 nyc: a relay
//! ```
//!
//! Packets between the namespaces pass two veth pairs and the router's own rules; nothing leaves the testbed.

use super::{
    faults::{Fault, Place, Step},
    namespace::{Namespace, Running},
};
use crate::program;
use anyhow::{Context as _, ensure};
use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use thalweg_mesh::State;
use thalweg_net::{Ed25519, PrivateKey};
use thalweg_units::WallTime;
use thalweg_wire::{Signed, mesh::Roster};

/// The members, in the order of their networks: the first one has the faults.
pub const MEMBERS: [&str; 3] = ["lap", "fra", "nyc"];

/// The settings of all members. Nothing is measured, so that the hosts are idle.
const SETTINGS: &str = "[measure]\nenabled = false\n";

/// How long all members may take to know each other.
const KNOWN: Duration = Duration::from_secs(60);

/// The interval between two questions whether they do.
const LOOK: Duration = Duration::from_millis(200);

/// The state directories that each fault begins with.
pub struct Testbed {
    dir: TempDir,
    product: PathBuf,
    own: PathBuf,
}

/// The hosts of one fault; dropping them ends all their processes.
pub struct Hosts<'a> {
    testbed: &'a Testbed,
    dir: TempDir,
    router: Namespace,
    members: Vec<Namespace>,
    /// By member.
    nodes: Vec<Option<Running>>,
    others: Vec<Running>,
}

impl Testbed {
    /// Founds the mesh, and keeps its state directories.
    ///
    /// # Errors
    /// Without the privileges, or without `ip`, `unshare` and `nsenter`.
    pub fn new() -> anyhow::Result<Self> {
        let (product, own) = (program::product()?, program::own()?);
        let testbed = Self { dir: tempfile::tempdir()?, product, own };
        let mut hosts = Hosts::build(&testbed)?;
        let address = |member: usize| format!("{}:7373", address(member));
        hosts.thalweg(1, &["mesh", "init", "--name", "fra", "--address", &address(1)])?;
        hosts.start(1, &[])?;
        for member in [0, 2] {
            let token = hosts.thalweg(1, &["mesh", "token", "--role", "relay"])?;
            let (name, at) = (MEMBERS[member], address(member));
            let join = ["mesh", "join", token.trim(), "--name", name, "--address", &at];
            hosts.thalweg(member, &join)?;
            hosts.start(member, &[])?;
        }
        let since = Instant::now();
        while !hosts.all_known()? {
            ensure!(since.elapsed() < KNOWN, "the members do not know each other");
            thread::sleep(LOOK);
        }
        for (member, name) in MEMBERS.into_iter().enumerate() {
            hosts.nodes[member] = None;
            copy(&hosts.state(member), &testbed.dir.path().join(name))?;
        }
        drop(hosts);
        Ok(testbed)
    }

    /// Builds the hosts of a fault, and runs its steps.
    ///
    /// # Errors
    /// When a step fails.
    pub fn hosts(&self, fault: &Fault) -> anyhow::Result<Hosts<'_>> {
        let mut hosts = Hosts::build(self)?;
        for (member, name) in MEMBERS.into_iter().enumerate() {
            copy(&self.dir.path().join(name), &hosts.state(member))?;
        }
        hosts.steps(fault, true)?;
        for member in [1, 2, 0] {
            if !fault.has(&Step::NoNode(MEMBERS[member])) {
                hosts.start(member, &fault.node_wrapper(member))?;
            }
        }
        hosts.steps(fault, false)?;
        Ok(hosts)
    }
}

/// The address of a member.
fn address(member: usize) -> String {
    format!("10.77.{}.2", member + 1)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let output = Command::new("cp").arg("-aT").args([from, to]).output()?;
    ensure!(output.status.success(), "cp: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The name of the control groups that a fault makes.
fn group_name() -> String {
    format!("thalweg-doctor-{}", std::process::id())
}

/// The place of a fault's control group, below that of this process; `None` if the machine has no such hierarchy
/// (control groups of version 1).
fn group(controller: &str) -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.split_once(&format!(":{controller}:")))?.1;
    let root = Path::new("/sys/fs/cgroup").join(controller);
    Some(root.join(path.trim_start_matches('/')).join(group_name()))
}

impl Drop for Hosts<'_> {
    fn drop(&mut self) {
        // A group can be removed once its processes have ended.
        self.nodes.clear();
        for path in ["memory", "pids"].into_iter().filter_map(group).filter(|path| path.exists()) {
            _ = fs::remove_dir(path);
        }
    }
}

impl<'a> Hosts<'a> {
    /// Creates the namespaces and joins them.
    fn build(testbed: &'a Testbed) -> anyhow::Result<Self> {
        let router = Namespace::new()?;
        let members: anyhow::Result<Vec<Namespace>> =
            MEMBERS.iter().map(|_| Namespace::new()).collect();
        let (dir, nodes) = (tempfile::tempdir()?, MEMBERS.map(|_| None).into());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711))?;
        let mut hosts = Self { testbed, dir, router, members: members?, nodes, others: Vec::new() };
        hosts.router.script("ip link set lo up; sysctl -qw net.ipv4.ip_forward=1", &[])?;
        for (member, name) in MEMBERS.into_iter().enumerate() {
            hosts.join(member, name)?;
        }
        let listen = ["load", "doctor", "names", "--listen", "0.0.0.0:53"];
        let names = Running::start(hosts.router.command(&testbed.own).args(listen))?;
        hosts.others.push(names);
        Ok(hosts)
    }

    fn join(&self, member: usize, name: &str) -> anyhow::Result<()> {
        let (network, id) = (member + 1, self.members[member].id());
        fs::create_dir_all(self.path(member, "inbox"))?;
        fs::create_dir_all(self.path(member, "config/thalweg"))?;
        let inbox = self.path(member, "inbox");
        let settings =
            format!("{SETTINGS}[cast]\ninbox = [{{ path = {inbox:?}, from = [\"*\"] }}]\n");
        fs::write(self.settings(member), settings)?;
        let resolv = self.path(member, "resolv.conf");
        fs::write(&resolv, format!("nameserver 10.77.{network}.1\n"))?;
        self.router.script(
            &format!(
                "ip link add to-{name} type veth peer name eth0 netns {id}
                 ip addr add 10.77.{network}.1/24 dev to-{name}
                 ip link set to-{name} up"
            ),
            &[],
        )?;
        self.members[member].script(
            &format!(
                "ip link set lo up
                 ip addr add 10.77.{network}.2/24 dev eth0
                 ip link set eth0 up
                 until ip link show eth0 | grep -q 'state UP'; do sleep 0.02; done
                 ip route add default via 10.77.{network}.1
                 mount --bind {} /etc/resolv.conf",
                resolv.display()
            ),
            &[],
        )
    }

    fn path(&self, member: usize, name: &str) -> PathBuf {
        self.dir.path().join(MEMBERS[member]).join(name)
    }

    fn state(&self, member: usize) -> PathBuf {
        self.path(member, "state")
    }

    fn settings(&self, member: usize) -> PathBuf {
        self.path(member, "config/thalweg/config.toml")
    }

    /// A command of the product on a member, started by `wrapper`.
    fn command(&self, member: usize, wrapper: &[String], args: &[&str]) -> Command {
        let product = self.testbed.product.display().to_string();
        let line: Vec<&str> = wrapper.iter().map(String::as_str).chain([&*product]).collect();
        let mut command = self.members[member].command(line[0]);
        command.args(&line[1..]).args(args).env("THALWEG_STATE", self.state(member));
        command.env("XDG_CONFIG_HOME", self.path(member, "config")).env("GROUP", group_name());
        for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env_remove(name);
        }
        command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
        command
    }

    fn thalweg(&self, member: usize, args: &[&str]) -> anyhow::Result<String> {
        let output = self.command(member, &[], args).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "thalweg {args:?}: {}", said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn start(&mut self, member: usize, wrapper: &[String]) -> anyhow::Result<()> {
        let log = File::create(self.path(member, "log"))?;
        let mut node = self.command(member, wrapper, &["node"]);
        let started = Running::start(node.stderr(log));
        let log = || fs::read_to_string(self.path(member, "log")).unwrap_or_default();
        self.nodes[member] = Some(started.with_context(log)?);
        Ok(())
    }

    fn all_known(&self) -> anyhow::Result<bool> {
        for member in 0..MEMBERS.len() {
            let listed = self.thalweg(member, &["mesh", "members"])?;
            if !MEMBERS.iter().all(|name| listed.contains(name)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Runs the fault's steps before or after the nodes start.
    fn steps(&mut self, fault: &Fault, early: bool) -> anyhow::Result<()> {
        for step in &fault.steps {
            match step {
                Step::Before(place, script) if early => self.script(*place, script)?,
                Step::After(place, script) if !early => self.script(*place, script)?,
                Step::Kill(name) if !early => {
                    let member = MEMBERS.iter().position(|member| member == name);
                    self.nodes[member.context("no such member")?] = None;
                }
                Step::Beside(place, args) if !early => self.beside(*place, args)?,
                Step::ExpireRoster if early => expire(&self.state(0), &self.state(1))?,
                _ => {}
            }
        }
        Ok(())
    }

    fn place(&self, place: Place) -> (&Namespace, usize) {
        match place {
            Place::Router => (&self.router, 0),
            Place::Lap => (&self.members[0], 0),
            Place::Fra => (&self.members[1], 1),
            Place::Nyc => (&self.members[2], 2),
        }
    }

    fn script(&self, place: Place, script: &str) -> anyhow::Result<()> {
        let (namespace, member) = self.place(place);
        let shown = |path: PathBuf| path.display().to_string();
        let product = shown(self.testbed.product.clone());
        let variables = [
            ("STATE", shown(self.state(member))),
            ("INBOX", shown(self.path(member, "inbox"))),
            ("CONFIG", shown(self.settings(member))),
            ("RESOLV", shown(self.path(member, "resolv.conf"))),
            ("THALWEG", product),
            ("THALWEG_STATE", shown(self.state(member))),
            ("XDG_CONFIG_HOME", shown(self.path(member, "config"))),
        ];
        namespace.script(script, &variables)
    }

    /// Starts this program with arguments in a place; it runs until the hosts are dropped.
    fn beside(&mut self, place: Place, args: &str) -> anyhow::Result<()> {
        let (namespace, member) = self.place(place);
        let state = self.state(member).display().to_string();
        let args = args.split(' ').map(|arg| arg.replace("$STATE", &state));
        let mut command = namespace.command(&self.testbed.own);
        let running = Running::start(command.args(args).stderr(Stdio::null()))?;
        self.others.push(running);
        Ok(())
    }

    /// Runs `thalweg doctor` on the faulty host; returns what it prints.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn doctor(&self, fault: &Fault) -> anyhow::Result<String> {
        let mut args = vec!["doctor", "--json"];
        args.extend(
            fault
                .steps
                .iter()
                .filter_map(|step| match step {
                    Step::Peer(name) => Some(["--peer", *name]),
                    _ => None,
                })
                .flatten(),
        );
        let mut command = self.command(0, &[], &args);
        for step in &fault.steps {
            if let Step::Environment(name, value) = step {
                command.env(name, value);
            }
        }
        let output = command.output().context("cannot run `thalweg doctor`")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.stdout.is_empty(), "thalweg doctor: {}", said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Gives a host a roster that expired an hour ago, signed with the mesh's key.
fn expire(of: &Path, oracle: &Path) -> anyhow::Result<()> {
    let key = PrivateKey::load(&oracle.join("oracle/mesh.key"))?;
    let file = State::open(of)?.roster_file();
    let signed = Signed::<Roster>::open(&fs::read(&file)?, &Ed25519);
    let mut roster = signed.ok().context("a roster is corrupt")?.into_value();
    let now = thalweg_base::clock::WallClock::default().now().as_unix_nanos();
    let hour = 3_600_000_000_000;
    roster.not_before = WallTime::from_unix_nanos(now.saturating_sub(9 * hour));
    roster.expiry = WallTime::from_unix_nanos(now.saturating_sub(hour));
    Ok(fs::write(file, Signed::sign(roster, &key).encode())?)
}
