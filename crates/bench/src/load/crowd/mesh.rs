//! A mesh of nodes on this machine, each a process of its own.

use crate::program;
use anyhow::{Context as _, ensure};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    net::Ipv4Addr,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};
use tempfile::TempDir;
use thalweg_lab::port::Port;
use thalweg_mesh::{MeshFile, Oracle, State};
use thalweg_net::PrivateKey;
use thalweg_units::WallTime;
use thalweg_wire::{
    Destination, Signed, Signer as _,
    mesh::{Member, Role, Roster},
};

/// The longest wait until a node serves; hundreds start at once.
const STARTS: Duration = Duration::from_secs(60);

/// The interval between two checks whether it serves.
const LOOK: Duration = Duration::from_millis(20);

/// The validity of the roster, longer than any run.
const VALID: Duration = Duration::from_secs(7 * 24 * 3600);

/// How many nodes start at a time.
const AT_ONCE: usize = 8;

/// Where the hosts' files are.
pub enum FilePlace {
    /// A temporary directory.
    Disk,
    /// In memory, so that disks do not affect the result.
    Memory,
}

/// The source, which runs no node, the founder, and receivers. Dropping it kills the nodes.
pub struct CrowdMesh {
    dir: TempDir,
    program: PathBuf,
    nodes: Vec<CrowdNode>,
    address_of: fn(&str) -> Ipv4Addr,
}

struct CrowdNode {
    name: String,
    address: (Ipv4Addr, Port),
    child: Option<Child>,
}

/// How a node is started.
#[derive(Clone, Copy, Default)]
pub struct NodeStart<'a> {
    /// The only core that it may use.
    pub core: Option<u32>,
    /// The control group that it joins (its `cgroup.procs`).
    pub group: Option<&'a Path>,
    /// The process whose network namespace it joins.
    pub beside: Option<u32>,
}

/// The name of the source.
pub const SOURCE: &str = "src";

/// The tag of all receivers; the founder has none.
pub const TAG: &str = "crowd";

const FOUNDER: &str = "hub";

impl CrowdMesh {
    /// Founds a mesh as [`CrowdMesh::create_at`] does, with all nodes on loopback.
    ///
    /// # Errors
    /// As [`CrowdMesh::create_at`].
    pub fn create(files: &FilePlace, receivers: &[String]) -> anyhow::Result<Self> {
        Self::create_at(files, receivers, |_| Ipv4Addr::LOCALHOST)
    }

    /// Founds a mesh of the source and receivers with these names, whose nodes do not run yet, and starts the founder's
    /// node.
    ///
    /// The roster is signed here, because an oracle lets only twenty hosts per minute join from one address, and all of
    /// these hosts have the same one.
    ///
    /// # Errors
    /// When a file cannot be written or the founder's node does not start.
    pub fn create_at(
        files: &FilePlace,
        receivers: &[String],
        address_of: fn(&str) -> Ipv4Addr,
    ) -> anyhow::Result<Self> {
        let dir = match files {
            FilePlace::Memory if Path::new("/dev/shm").is_dir() => TempDir::new_in("/dev/shm")?,
            _ => TempDir::new()?,
        };
        let (program, nodes) = (program::product()?, Vec::new());
        let mut mesh = Self { dir, program, nodes, address_of };
        let mut members = vec![mesh.member(SOURCE, None)?];
        for name in [FOUNDER.to_owned()].iter().chain(receivers) {
            let address = mesh.write_settings(name)?;
            members.push(mesh.member(name, Some(address))?);
        }
        members.sort_by(|one, other| one.name.cmp(&other.name));
        mesh.sign(members)?;
        mesh.start(FOUNDER, NodeStart::default())?;
        Ok(mesh)
    }

    fn state(&self, name: &str) -> anyhow::Result<State> {
        Ok(State::create(&self.dir.path().join("state").join(name))?)
    }

    /// Creates the keys of a host and its entry of the roster; a host without an address runs no node.
    fn member(&self, name: &str, at: Option<(Ipv4Addr, u16)>) -> anyhow::Result<Member> {
        let state = self.state(name)?;
        let mut roles = BTreeSet::from([Role::Client]);
        let mut tags = BTreeSet::new();
        let mut node = None;
        if at.is_some() {
            roles.insert(Role::Relay);
            node = Some(state.make_node_key()?.id());
        }
        if name == FOUNDER {
            roles.extend([Role::Oracle, Role::Admin]);
        } else if at.is_some() {
            tags.insert(TAG.parse()?);
        }
        let address = at.map(|(address, port)| format!("{address}:{port}").parse::<Destination>());
        let addresses = address.into_iter().collect::<Result<Vec<_>, _>>()?;
        let client = state.make_client_key()?.id();
        Ok(Member { name: name.parse()?, node, client, addresses, roles, tags })
    }

    /// Makes all hosts members of one mesh, whose oracle has this roster and nothing else.
    fn sign(&self, members: Vec<Member>) -> anyhow::Result<()> {
        let key = PrivateKey::generate()?;
        let oracle = self.state(FOUNDER)?.oracle_dir();
        fs::DirBuilder::new().mode(0o700).create(&oracle)?;
        key.save_new(&oracle.join("mesh.key"))?;
        let now = SystemTime::UNIX_EPOCH.elapsed().context("the clock is before 1970")?;
        let date = |at: Duration| WallTime::from_unix_nanos(at.as_nanos() as u64);
        let (not_before, expiry) = (date(now.saturating_sub(VALID)), date(now + VALID));
        let roster = Roster {
            version: 1,
            not_before,
            expiry,
            members,
            rules: vec![],
            endorsement: None,
            predecessor: None,
        };
        let bytes = Signed::sign(roster.clone(), &key).encode();
        fs::write(oracle.join("roster"), &bytes)?;
        for member in &roster.members {
            let state = self.state(&member.name.to_string())?;
            fs::write(state.roster_file(), &bytes)?;
            let oracles = Oracle::of(&roster, Some(&member.name));
            state.set_mesh(&MeshFile { mesh: key.id(), name: member.name.clone(), oracles })?;
        }
        Ok(())
    }

    /// Creates a host's directories and settings; returns its address and port.
    fn write_settings(&mut self, name: &str) -> anyhow::Result<(Ipv4Addr, u16)> {
        let inbox = self.inbox(name);
        fs::create_dir_all(&inbox)?;
        let settings = format!(
            "[measure]\nenabled = false\n[oracle.measure]\nenabled = false\n\
             [cast]\nrelay = true\nkeep_free = \"0 B\"\ninbox = [{{ path = {inbox:?}, from = [\"*\"] }}]\n",
        );
        fs::write(self.file(name, "toml"), settings)?;
        // Some addresses belong to another namespace, so the port is chosen on the unspecified address.
        let (ip, port) = ((self.address_of)(name), Port::reserve(Ipv4Addr::UNSPECIFIED)?);
        let address = (ip, port.number());
        self.nodes.push(CrowdNode { name: name.to_owned(), address: (ip, port), child: None });
        Ok(address)
    }

    /// The path of a host's file with this extension.
    pub fn file(&self, name: &str, ending: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.{ending}"))
    }

    /// The directory in which casts to a host arrive.
    pub fn inbox(&self, name: &str) -> PathBuf {
        self.dir.path().join("in").join(name)
    }

    /// The command `thalweg` with a host's state.
    pub fn command(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env("THALWEG_STATE", self.dir.path().join("state").join(name));
        command.env("XDG_CONFIG_HOME", self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Starts one node, waits until it serves, and returns its process id.
    ///
    /// # Errors
    /// When it does not serve in time.
    pub fn start(&mut self, name: &str, start: NodeStart<'_>) -> anyhow::Result<u32> {
        let node = self.nodes.iter().position(|node| node.name == name);
        let node = node.with_context(|| format!("there is no host {name}"))?;
        let child = self.spawn(node, start)?;
        let id = child.id();
        self.nodes[node].child = Some(child);
        self.wait(node)?;
        Ok(id)
    }

    /// Starts the nodes of all receivers.
    ///
    /// # Errors
    /// When a node does not serve in time.
    pub fn start_all(&mut self) -> anyhow::Result<()> {
        let mut next = 1;
        while next < self.nodes.len() {
            let end = (next + AT_ONCE).min(self.nodes.len());
            for node in next..end {
                self.nodes[node].child = Some(self.spawn(node, NodeStart::default())?);
            }
            (next..end).try_for_each(|node| self.wait(node))?;
            next = end;
        }
        Ok(())
    }

    fn spawn(&self, node: usize, start: NodeStart<'_>) -> anyhow::Result<Child> {
        let name = &self.nodes[node].name;
        let (ip, port) = &self.nodes[node].address;
        let address = format!("{ip}:{}", port.number());
        let settings = self.file(name, "toml");
        let (group, core) = (start.group, start.core);
        let node = ["node", "--listen", &address, "--config"];
        let own = self.command(name, &node);
        // `exec` keeps the process, so the node has its group, its core and the process id that we know.
        let mut command = Command::new("sh");
        command.args(["-c", "[ -z \"$0\" ] || echo $$ > \"$0\"; exec \"$@\""]);
        command.arg(group.unwrap_or(Path::new("")));
        if let Some(process) = start.beside {
            command.args(["nsenter", "--target", &process.to_string(), "--net"]);
        }
        if let Some(core) = core {
            command.args(["taskset", "-c", &core.to_string()]);
        }
        command.arg(own.get_program()).args(own.get_args()).arg(settings);
        command.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).stdout(File::create(self.file(name, "out"))?);
        command.stderr(File::create(self.file(name, "log"))?);
        command.spawn().with_context(|| format!("cannot start the node of {name}"))
    }

    fn wait(&mut self, node: usize) -> anyhow::Result<()> {
        let since = Instant::now();
        let (out, log) =
            ["out", "log"].map(|ending| self.file(&self.nodes[node].name, ending)).into();
        while !fs::read_to_string(&out)?.contains("ready") {
            let child = self.nodes[node].child.as_mut().context("the node was not started")?;
            let has_ended = child.try_wait()?.is_some();
            ensure!(
                !has_ended && since.elapsed() < STARTS,
                "the node did not start: {}",
                fs::read_to_string(&log).unwrap_or_default().trim()
            );
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for CrowdMesh {
    fn drop(&mut self) {
        let mut children: Vec<Child> =
            self.nodes.iter_mut().filter_map(|node| node.child.take()).collect();
        children.iter_mut().for_each(|child| drop(child.kill()));
        children.iter_mut().for_each(|child| drop(child.wait()));
    }
}
