//! A mesh of real nodes on loopback with transfers under way, to look at its page. With `--bond` one more member is in a
//! lab, and commands of a host with two interfaces there ([`uplinks`]).
//!
//! Prints a line with the page's link and with the URL of a file that a job may download, and keeps everything running
//! until standard input ends. `scripts/page --test` visits the page meanwhile.

mod uplinks;

use super::{
    jobs::server::FileServer,
    strangers::test_mesh::{Daemon, TestMesh, TestNode},
};
use anyhow::Context as _;
use serde_json::{Value, json};
use std::{
    fs,
    io::{self, Read as _, Write as _},
    num::NonZeroUsize,
    path::{Path, PathBuf},
};
use thalweg_jobs::{JobRequest, Priority};
use thalweg_node::daemon::LocalClient;
use uplinks::TwoUplinks;

/// The size of the files that are moved, bytes.
const SIZE: usize = 60_000_000;

/// Arguments of `thalweg-bench load page`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of nodes
    #[arg(long, default_value = "8")]
    nodes: NonZeroUsize,
    /// Run commands of a host with two interfaces as well; needs root or /dev/net/tun
    #[arg(long)]
    bond: bool,
}

/// Founds the mesh, starts the transfers, and waits for the end of standard input.
///
/// # Errors
/// When the mesh cannot be founded or a job is refused.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let server = FileServer::start(SIZE).await?;
    let files = tempfile::tempdir()?;
    let mesh = TestMesh::new()?;
    let settings_of_hub =
        format!("{}[api]\nlisten = \"127.0.0.1:0\"\n", settings(files.path(), "hub")?);
    let hub = mesh.create_mesh("hub", &settings_of_hub)?;
    let _hub_runs = hub.start()?;
    let others = (1..args.nodes.get()).map(|n| start_member(&mesh, &hub, files.path(), n));
    let _others_run = others.collect::<anyhow::Result<Vec<(TestNode, Daemon)>>>()?;
    let uplinks = args.bond.then(|| TwoUplinks::start(&mesh, &hub, files.path()));
    let _uplinks = uplinks.transpose()?;
    let client = LocalClient::find(&hub.state().join("node.sock")).await?;
    for line in transfers(&server, args.nodes.get()) {
        client.add_job(&request(&line, files.path())).await?;
    }
    let link: Value = serde_json::from_str(&hub.thalweg(&["page", "--json"])?)?;
    let ready = json!({ "event": "ready", "url": link["url"], "file": server.url(7) });
    writeln!(io::stdout().lock(), "{ready}")?;
    tokio::task::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

fn start_member(
    mesh: &TestMesh,
    hub: &TestNode,
    files: &Path,
    n: usize,
) -> anyhow::Result<(TestNode, Daemon)> {
    let name = format!("node{n}");
    let settings = format!("{}[api]\nlisten = \"off\"\n", settings(files, &name)?);
    let token =
        ["--role", "relay", "--tag", if n.is_multiple_of(2) { "region=eu" } else { "region=us" }];
    let node = mesh.join_with(hub, &name, &token, &settings)?;
    let daemon = node.start().with_context(|| format!("cannot start {name}"))?;
    Ok((node, daemon))
}

/// The settings of a node that offers a directory and has an inbox.
fn settings(files: &Path, name: &str) -> anyhow::Result<String> {
    let (offered, inbox) =
        (files.join(format!("{name}-data")), files.join(format!("{name}-inbox")));
    fs::create_dir(&offered)?;
    fs::create_dir(&inbox)?;
    fs::write(offered.join("run.bin"), vec![7; SIZE / 3])?;
    Ok(format!(
        "allow_to = [\"127.0.0.0/8\"]\nports = [\"1-65535\"]\n\
         [files]\noffer = [{{ path = {offered:?}, to = [\"*\"] }}]\n\
         [cast]\nkeep_free = \"0 B\"\ninbox = [{{ path = {inbox:?}, from = [\"*\"] }}]\n\
         [jobs]\nparallel = 4\n"
    ))
}

/// The command lines of the jobs: a download, a collection, a cast, one that fails, and some that wait.
fn transfers(server: &FileServer, nodes: usize) -> Vec<String> {
    let get = |n: u64, rate: &str| {
        format!("get {} --path direct --limit-rate {rate} -o file{n}.iso", server.url(n))
    };
    let sources = (1..nodes.min(4)).map(|n| format!("node{n}:{{files}}/node{n}-data"));
    let sources: Vec<String> = sources.collect();
    // A member in a lab reaches no other one.
    let receivers: Vec<String> = (1..nodes).map(|n| format!("--to node{n}")).collect();
    let mut all = vec![
        get(1, "400k"),
        "get http://127.0.0.1:1/gone.iso --retry 0 --path direct".to_owned(),
        get(2, "250k"),
        get(3, "1M"),
        get(4, "1M"),
    ];
    if !sources.is_empty() {
        all.insert(1, format!("cast hub-data {}", receivers.join(" ")));
        all.insert(1, format!("gather {} --into collected --bwlimit 8Mbit/s", sources.join(" ")));
    }
    all
}

fn request(line: &str, files: &Path) -> JobRequest {
    let words = line.split(' ').map(|word| word.replace("{files}", &files.display().to_string()));
    JobRequest {
        arguments: words.collect(),
        directory: PathBuf::from(files),
        priority: Priority::Normal,
        at: None,
        between: None,
    }
}
