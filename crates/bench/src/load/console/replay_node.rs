//! A node whose API serves a replayed mesh and replayed commands. Its queue runs real ones.

use super::{
    Args,
    paced_server::PacedServer,
    replay::{ReplayedMesh, progress},
};
use crate::program;
use anyhow::{Context as _, ensure};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use thalweg_base::log::Log;
use thalweg_jobs::{
    JobRequest, JobState, Jobs, JobsSettings, Priority, Registration, TerminalRequest,
};
use thalweg_mesh::Membership;
use thalweg_net::PrivateKey;
use thalweg_node::daemon::{
    ApiConfig, Daemon, DaemonConfig, HandshakeLimits, LocalClient, NoReload, Node, OracleDown,
    Services, Summary,
};
use thalweg_units::WallTime;
use thalweg_wire::{
    Signed, Signer as _,
    mesh::{Member, Name, Role, Roster},
};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{interval, sleep},
};

/// The interval of a command's progress reports.
const REPORT: Duration = Duration::from_millis(250);

/// The longest time of a download.
const PATIENCE: Duration = Duration::from_secs(300);

/// A running node.
pub struct ReplayNode {
    /// A client of its socket.
    pub client: LocalClient,
    page: SocketAddr,
    directory: TempDir,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Summary>,
    commands: JoinHandle<()>,
}

impl ReplayNode {
    /// Starts it on loopback.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn start(args: &Args) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let key = PrivateKey::from_seed(&[1; 32]);
        let names = (0..args.nodes.get()).map(|n| Ok(format!("n{n:05}").parse()?));
        let names = names.collect::<anyhow::Result<Vec<Name>>>()?;
        let membership = membership(&names, &key)?;
        // Nobody reads it.
        let (log, _) = Log::to_queue();
        let jobs = Jobs::open(queue(&directory)?, log.clone())?;
        let commands = replay_commands(&jobs, args.jobs)?;
        let node = Node {
            name: names[0].clone(),
            key,
            membership: membership.clone(),
            services: Services::default(),
            control: Arc::new(OracleDown::new(membership, "this mesh is replayed")),
            jobs: Some(jobs),
            documents: Arc::new(ReplayedMesh::new(&names, args.changes, args.seed)),
            registry: Default::default(),
            settings: Arc::new(NoReload),
            legs: None,
            reach: None,
            log,
        };
        let config = settings(&directory);
        let socket = config.socket.clone();
        let daemon = Daemon::bind(config, node).await?;
        let page = daemon.api_addr().context("the node has no page")?;
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(daemon.run(async { _ = stopped.await }, std::future::pending()));
        let client = LocalClient::find(&socket).await?;
        Ok(Self { client, page, directory, stop, running, commands })
    }

    /// The address of its API on loopback.
    pub fn page_address(&self) -> SocketAddr {
        self.page
    }

    /// Runs a download as a job, and removes the file. Returns its rate, bit/s.
    ///
    /// # Errors
    /// When it fails or takes five minutes.
    pub async fn download(&self, server: &PacedServer, number: usize) -> anyhow::Result<f64> {
        let url = server.url(number);
        let words = ["get", &url, "--path", "direct", "--history", "none", "-o", "download"];
        let request = JobRequest {
            arguments: words.iter().map(|&word| word.to_owned()).collect(),
            directory: self.directory.path().to_owned(),
            priority: Priority::Normal,
            at: None,
            between: None,
        };
        let began = Instant::now();
        let id = self.client.add_job(&request).await?.id;
        let seconds = loop {
            ensure!(began.elapsed() < PATIENCE, "the download takes longer than {PATIENCE:?}");
            let job = self.client.job(id).await?;
            match job.state {
                JobState::Finished => break server.seconds(number),
                state if state.is_final() => anyhow::bail!("the download failed: {:?}", job.error),
                _ => sleep(Duration::from_millis(100)).await,
            }
        };
        let file = self.directory.path().join("download");
        ensure!(fs::metadata(&file)?.len() == server.size, "the file has the wrong size");
        fs::remove_file(file)?;
        self.client.forget_job(id).await?;
        let seconds = seconds.context("the server was not asked for the file")?;
        Ok(server.size as f64 * 8.0 / seconds)
    }

    /// Stops it.
    ///
    /// # Errors
    /// When it has failed.
    pub async fn end(self) -> anyhow::Result<()> {
        self.commands.abort();
        _ = self.stop.send(());
        self.running.await?;
        Ok(())
    }
}

/// A signed roster of these names; the first member is this node.
fn membership(names: &[Name], own: &PrivateKey) -> anyhow::Result<Membership> {
    let mesh_key = PrivateKey::from_seed(&[3; 32]);
    let member = |(n, name): (usize, &Name)| {
        let mut seed = [9; 32];
        seed[..8].copy_from_slice(&(n as u64).to_le_bytes());
        let client = PrivateKey::from_seed(&seed);
        seed[8] = 1;
        let node = if n == 0 { own.id() } else { PrivateKey::from_seed(&seed).id() };
        Ok(Member {
            name: name.clone(),
            node: Some(node),
            client: client.id(),
            addresses: vec![format!("198.18.{}.{}:7373", n / 256 % 256, n % 256).parse()?],
            roles: [Role::Client, Role::Relay].into(),
            tags: [].into(),
        })
    };
    let roster = Roster {
        version: 1,
        not_before: WallTime::from_unix_nanos(0),
        expiry: WallTime::from_unix_nanos(u64::MAX),
        members: names.iter().enumerate().map(member).collect::<anyhow::Result<_>>()?,
        rules: Vec::new(),
        endorsement: None,
        predecessor: None,
    };
    let membership = Membership::new(mesh_key.id(), None);
    membership.offer(&Signed::sign(roster, &mesh_key).encode())?;
    Ok(membership)
}

fn queue(directory: &TempDir) -> anyhow::Result<JobsSettings> {
    let state = directory.path().join("state");
    fs::create_dir(&state)?;
    Ok(JobsSettings {
        directory: directory.path().join("jobs"),
        program: program::product()?,
        environment: vec![("THALWEG_STATE".to_owned(), state.display().to_string())],
        parallel: 1,
        max_open: 100,
        max_ended: 100,
    })
}

fn settings(directory: &TempDir) -> DaemonConfig {
    let listen = (Ipv4Addr::LOCALHOST, 0).into();
    let token_file = directory.path().join("api.token");
    DaemonConfig {
        listen: Vec::new(),
        riding: None,
        handshake: Duration::from_secs(10),
        limits: HandshakeLimits::default(),
        drain: Duration::ZERO,
        metrics: None,
        socket: directory.path().join("node.sock"),
        api: Some(ApiConfig { listen, is_optional: false, token_file }),
        socks: None,
    }
}

/// Registers commands, as terminals do, and reports their progress until the task is aborted.
fn replay_commands(jobs: &Jobs, count: u32) -> anyhow::Result<JoinHandle<()>> {
    let command = |n: u32| {
        let arguments = vec!["get".to_owned(), format!("https://mirror{n}.example/big.iso")];
        let directory = PathBuf::from("/srv");
        jobs.register(TerminalRequest { arguments, directory, pid: std::process::id() })
    };
    let commands = (0..count).map(command).collect::<Result<Vec<Registration>, _>>()?;
    Ok(tokio::spawn(async move {
        let (began, mut ticks) = (Instant::now(), interval(REPORT));
        loop {
            ticks.tick().await;
            for (n, command) in (0..).zip(&commands) {
                command.event(progress(n, began.elapsed().as_secs_f64()));
            }
        }
    }))
}
