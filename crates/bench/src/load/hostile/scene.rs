//! The mesh: one node that runs all services, a member that may use it, and a member without rights.

use super::{
    messages::{BOX, MessageNames},
    peer::HonestPeer,
};
use crate::load::{
    process::memory_mib,
    server,
    strangers::test_mesh::{Daemon, TestMesh, TestNode},
};
use anyhow::Context as _;
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tempfile::TempDir;
use thalweg_lab::port::Port;
use thalweg_mesh::State;
use thalweg_units::NodeId;
use tokio::net::TcpListener;

/// The interval between two samples of memory and descriptors.
const LOOK: Duration = Duration::from_millis(25);

/// The mesh with the node under attack, which ends when this is dropped.
pub struct AttackedMesh {
    /// The node's process.
    pub daemon: Daemon,
    /// The node's address and port.
    pub at: SocketAddr,
    /// The port of its metrics.
    pub metrics: SocketAddr,
    /// The node's key.
    pub node: NodeId,
    /// The names that messages contain.
    pub names: MessageNames,
    bad: TestNode,
    good: TestNode,
    hub: TestNode,
    _mesh: TestMesh,
    _files: TempDir,
    _port: Port,
}

/// The resources of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resources {
    /// Resident memory, MiB.
    pub memory: f64,
    /// The number of open descriptors.
    pub descriptors: usize,
}

impl AttackedMesh {
    /// Founds the mesh and starts the node, on a core of its own if one is named.
    ///
    /// # Errors
    /// When a system call or a command fails.
    pub async fn new(core: Option<u32>) -> anyhow::Result<Self> {
        let listener = server::listen((Ipv4Addr::LOCALHOST, 0).into())?;
        let server = listener.local_addr()?;
        serve(listener);
        let files = tempfile::tempdir()?;
        let (test_mesh, port) = (TestMesh::new()?, Port::reserve(Ipv4Addr::LOCALHOST)?);
        let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
        let hub = test_mesh.create_mesh("hub", &settings(files.path(), server, metrics)?)?;
        let daemon = hub.start_on(core)?;
        let [good, bad] = [test_mesh.join(&hub, "good", &[])?, test_mesh.join(&hub, "bad", &[])?];
        let roster = State::open(good.state())?.membership()?.current();
        let roster = roster.context("the host has no roster")?;
        let node = roster.members.iter().find(|member| member.name.as_str() == "hub");
        let node = node.and_then(|member| member.node).context("the roster has no hub")?;
        let names = MessageNames { files: text(&files.path().join("pub"))?, server };
        let at = hub.address();
        Ok(Self {
            daemon,
            at,
            metrics,
            node,
            names,
            bad,
            good,
            hub,
            _mesh: test_mesh,
            _files: files,
            _port: port,
        })
    }

    /// The well-behaved member. It uses its node's key, because measured flows are only accepted from nodes.
    ///
    /// # Errors
    /// When its key cannot be read.
    pub fn peer(&self) -> anyhow::Result<HonestPeer> {
        let key = State::open(self.good.state())?.node_key()?;
        HonestPeer::new(&key, self.node, self.at, self.names.clone())
    }

    /// The last ten lines of the node's log.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn log(&self) -> anyhow::Result<String> {
        let log = self.hub.log()?;
        let lines: Vec<&str> = log.lines().collect();
        Ok(lines[lines.len().saturating_sub(10)..].join("\n"))
    }

    /// The state directory of the attacking member.
    pub fn attacker(&self) -> &Path {
        self.bad.state()
    }
}

fn text(path: &Path) -> anyhow::Result<String> {
    Ok(path.to_str().context("the path of the temporary directory is not valid UTF-8")?.to_owned())
}

/// The node's settings: all services, with rights for `good` only, and an open drop box.
fn settings(files: &Path, server: SocketAddr, metrics: SocketAddr) -> anyhow::Result<String> {
    let directory = |name: &str| -> anyhow::Result<PathBuf> {
        let path = files.join(name);
        fs::create_dir(&path)?;
        Ok(path)
    };
    let (offered, inbox, kept) = (directory("pub")?, directory("in")?, directory("box")?);
    fs::write(offered.join("small"), [7; 4096])?;
    let port = server.port();
    Ok(format!(
        "allow_to = [\"127.0.0.1/32\"]\nports = [\"{port}\"]\n\
         [metrics]\nlisten = \"{metrics}\"\n\
         [files]\noffer = [{{ path = {offered:?}, to = [\"good\"] }}]\n\
         [cast]\nkeep_free = \"0 B\"\ninbox = [{{ path = {inbox:?}, from = [\"good\"] }}]\n\
         [stream]\npublish = [\"good\"]\nsubscribe = [\"good\"]\n\
         [[drop_box]]\nname = \"{BOX}\"\nuntil = \"2099-01-01T00:00:00Z\"\nopen = true\n\
         max_bytes = \"1 MB\"\nmax_total = \"100 MB\"\ndirectory = {kept:?}\n"
    ))
}

/// Serves the connections that come through the relay, until this process ends.
fn serve(listener: TcpListener) {
    // If it fails to accept a connection, the operation fails.
    tokio::spawn(async move { drop(server::accept(listener, None).await) });
}

/// The present resources of a process.
///
/// # Errors
/// When the process does not exist.
pub fn resources(process: u32) -> anyhow::Result<Resources> {
    let memory = memory_mib(process, "VmRSS")?;
    let descriptors =
        fs::read_dir(format!("/proc/{process}/fd")).context("the process no longer exists")?;
    Ok(Resources { memory, descriptors: descriptors.count() })
}

/// A thread that samples the memory and descriptors of a process.
pub struct ResourceSampler {
    stop: Arc<AtomicBool>,
    looking: thread::JoinHandle<Resources>,
}

impl ResourceSampler {
    /// Starts the thread.
    pub fn begin(process: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let looking = thread::spawn(move || {
            let mut most = Resources::default();
            while !stopped.load(Ordering::Relaxed) {
                // A process that has ended is detected by its parent.
                let now = resources(process).unwrap_or_default();
                most.memory = most.memory.max(now.memory);
                most.descriptors = most.descriptors.max(now.descriptors);
                thread::sleep(LOOK);
            }
            most
        });
        Self { stop, looking }
    }

    /// Ends the thread and returns the greatest values.
    ///
    /// # Errors
    /// If the thread died.
    pub fn end(self) -> anyhow::Result<Resources> {
        self.stop.store(true, Ordering::Relaxed);
        self.looking.join().map_err(|_| anyhow::anyhow!("the observing thread panicked"))
    }
}
