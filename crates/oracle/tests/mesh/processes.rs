//! Several processes on one database, which are killed.

use crate::harness::{Host, Mesh, database, peer, token_request};
use std::{
    env,
    io::{BufRead as _, BufReader, Lines},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};
use thalweg_oracle::{Caller, Config, Oracle};
use thalweg_units::NodeId;
use thalweg_wire::{Signer as _, mesh::Token};

const DIR: &str = "THALWEG_TEST_ORACLE_DIR";
const URL: &str = "THALWEG_TEST_ORACLE_URL";
const NODE: &str = "THALWEG_TEST_ORACLE_NODE";
const OWN_NAME: &str = "processes::versions_grow_over_kills_with_two_processes_at_once";

/// The body of a child process: lets hosts join until it is killed, and prints each.
async fn join_hosts_until_killed(dir: &Path, node: NodeId) {
    // Long, so that a busy machine does not look like a locked database.
    let database = database(env::var(URL).ok().as_deref());
    let config = Config { patience: Duration::from_secs(60), database, ..Config::default() };
    let oracle = Oracle::open(dir, node, config).await.unwrap();
    for n in 0.. {
        let reply = match oracle.create_token(&Caller::Local, token_request()).await {
            Ok(reply) => reply,
            Err(error) => panic!("{error}"),
        };
        let token: Token = reply.token.parse().unwrap();
        let host = Host::new(&format!("h{}-{n}", std::process::id()));
        let request = host.request(&token, reply.expires);
        let joined = oracle.join(&peer(host.node.id()), request).await.unwrap();
        let bytes = data_encoding::HEXLOWER.decode(joined.roster.as_bytes()).unwrap();
        let roster = crate::harness::verified(&bytes, oracle.mesh());
        println!("\njoined {} {}", joined.name, roster.version);
    }
}

struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(mesh: &Mesh) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", OWN_NAME, "--nocapture"]).stdout(Stdio::piped());
        command.env(DIR, mesh.path()).env(NODE, mesh.founder.node.id().to_string());
        command.envs(mesh.url.iter().map(|url| (URL, url)));
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The name and the version of the next host that joined.
    fn joined(&mut self) -> (String, u64) {
        let mut lines = self.lines.by_ref().map(|line| line.unwrap());
        let line = lines.find(|line| line.starts_with("joined ")).unwrap();
        let mut words = line.split(' ').skip(1);
        (words.next().unwrap().into(), words.next().unwrap().parse().unwrap())
    }
}

impl Drop for Process {
    /// SIGKILL.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_grow_over_kills_with_two_processes_at_once() {
    if let (Ok(dir), Ok(node)) = (env::var(DIR), env::var(NODE)) {
        return join_hosts_until_killed(Path::new(&dir), node.parse().unwrap()).await;
    }
    let mut mesh = Mesh::found().await;
    let mut joined_hosts = Vec::new();
    for round in 1..=3 {
        let mut both = [Process::start(&mesh), Process::start(&mesh)];
        for process in &mut both {
            let joined: Vec<_> = (0..2 * round).map(|_| process.joined()).collect();
            assert!(joined.is_sorted_by_key(|(_, version)| *version), "{joined:?}");
            joined_hosts.extend(joined);
        }
        drop(both);
        mesh.reopen().await;
        let roster = mesh.newest();
        for (name, version) in &joined_hosts {
            assert!(roster.version > *version, "{version}");
            assert!(roster.by_name(&name.parse().unwrap()).is_some(), "{name} is lost");
        }
    }
    let mut versions: Vec<_> = joined_hosts.iter().map(|(_, version)| version).collect();
    versions.sort();
    versions.dedup();
    assert_eq!(versions.len(), joined_hosts.len(), "two rosters with one version");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_twenty_racing_hosts_joins_at_two_oracles() {
    let mesh = Mesh::found().await;
    let (first, second) = (mesh.open().await.unwrap(), mesh.open().await.unwrap());
    let token = second.create_token(&Caller::Local, token_request()).await.unwrap();
    let token: Token = token.token.parse().unwrap();
    let race = (0..20).map(|n| {
        let oracle = if n % 2 == 0 { first.clone() } else { second.clone() };
        let token = token.clone();
        tokio::spawn(async move {
            let host = Host::new(&format!("host-{n}"));
            let request = host.request(&token, thalweg_units::WallTime::from_unix_nanos(0));
            oracle.join(&peer(host.node.id()), request).await.map_err(|error| error.code())
        })
    });
    let mut done = Vec::new();
    for one in race.collect::<Vec<_>>() {
        done.push(one.await.unwrap().err().unwrap_or("won"));
    }
    done.sort();
    let mut expected = vec!["token_used"; 19];
    expected.push("won");
    assert_eq!(done, expected);
}
