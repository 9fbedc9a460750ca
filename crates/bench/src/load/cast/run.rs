//! Runs one cast through a mesh of its own.

use super::{
    cause::ConnectionSampler,
    content,
    fault::{FaultAction, PlannedFault},
    legs::{self, LegRates, Legs},
    mesh::{CastMesh, MeshOptions},
    network::LabNetwork,
    outcome::{self, CausedFault},
    record::CastRecord,
};
use crate::program;
use anyhow::{Context as _, bail, ensure};
use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use thalweg_units::Rate;

/// The rate of a leg whose links have no rate; then only the tree's shape matters.
const SOME: f64 = 10e6;

/// Arguments of `thalweg-bench load cast run`.
#[derive(clap::Args)]
pub struct Args {
    /// The lab's socket; the command runs in the source's host
    #[arg(long, value_name = "SOCKET")]
    lab: PathBuf,
    /// Directory for the mesh and the inboxes; emptied first
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The file to cast
    #[arg(long)]
    pub file: PathBuf,
    /// The source's host
    #[arg(long, value_name = "HOST")]
    pub from: String,
    /// The receivers (default: all hosts of --tree)
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    pub to: Vec<String>,
    /// Hosts that only forward and keep nothing
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    via: Vec<String>,
    /// The tree, such as `s>a>b,s>c` or `chain:s:n:20`, or `widest` for the paper's; each receiver then has
    /// one parent (default: as `cast` plans it)
    #[arg(long, value_name = "LEGS")]
    tree: Option<String>,
    /// Plan without any known rates
    #[arg(long, conflicts_with = "tree")]
    blind: bool,
    /// Rates of legs measured by `solo`, for the plan and each receiver's slowest hop (default: the links' rates)
    #[arg(long, value_name = "FILE")]
    solo: Option<PathBuf>,
    /// The rate of each leg of the tree, if TCP reaches less than the links' rates
    #[arg(long, value_name = "RATE", requires = "tree", conflicts_with = "solo")]
    each: Option<Rate>,
    /// Compare with the best simultaneous rates under all links
    #[arg(long)]
    bound: bool,
    /// Compare with Eq. (2) and (3) for the round trips and losses of the tree's hops
    #[arg(long, requires = "tree")]
    model: bool,
    /// `kill=NODE@SHARE:RECEIVER`, `start=…` or `rate=LINK/RATE@…`
    #[arg(long, value_name = "FAULT")]
    fault: Vec<PlannedFault>,
    /// The best rate of a receiver that a fault leaves possible
    #[arg(long, value_name = "RATE", requires = "fault")]
    left: Option<Rate>,
    /// Nodes that only a fault starts
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    late: Vec<String>,
    /// End when these receivers have the file
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    until: Vec<String>,
    /// Compare rates by depth; the tree is a chain
    #[arg(long, requires = "tree")]
    depth: bool,
    /// Interval at which to sample the chain's connections: which have nothing to send, and their time-outs
    #[arg(long, value_name = "TIME", requires = "depth", value_parser = thalweg_units::parse_duration)]
    watch: Option<Duration>,
    /// Further settings of all nodes, as TOML
    #[arg(long, value_name = "TOML", default_value = "")]
    settings: String,
    /// Further arguments of `thalweg cast`
    #[arg(last = true)]
    flags: Vec<String>,
}

/// What is known before the cast begins.
pub struct CastSetup {
    /// The source, then the receivers, then the relays.
    pub hosts: Vec<String>,
    /// The tree, if one is given.
    pub tree: Option<Legs>,
    /// The rates of single legs.
    pub rates: LegRates,
}

/// Casts, compares the received files, and prints the report.
///
/// # Errors
/// When the mesh does not start, the cast fails, or received bytes are wrong.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let network = LabNetwork::attach(&args.lab)?;
    let setup = setup(args, &network)?;
    let others: Vec<String> = setup.hosts[1..].to_vec();
    let kinds = MeshOptions { relays: &args.via, more: &args.settings, wrapped: None };
    let mut mesh = CastMesh::create(&network.lab, &args.dir, &args.from, &others, &kinds)?;
    let early: Vec<String> = others.iter().filter(|h| !args.late.contains(h)).cloned().collect();
    mesh.start(&early)?;
    let before = outcome::memory(&mesh, &early, "VmRSS");
    let senders = &setup.hosts[..setup.hosts.len() - 1];
    let watch =
        |period| ConnectionSampler::begin(&network.lab, &mesh, senders, (&args.dir, period));
    let watch = args.watch.map(watch).transpose()?;
    let (mut record, mut struck) = (CastRecord::default(), Vec::new());
    let began = Instant::now();
    let mut child = cast(args, &setup, &mesh)?;
    let stdout = child.stdout.take().context("cannot read the output of `thalweg cast`")?;
    let mut faults: Vec<&PlannedFault> = args.fault.iter().collect();
    for line in BufReader::new(stdout).lines() {
        record.add_line(&line?, began.elapsed().as_secs_f64())?;
        faults.retain(|fault| {
            record.share(&fault.of) < fault.share || {
                struck.push(CausedFault::record(fault, &record));
                false
            }
        });
        for new in struck.iter_mut().filter(|new: &&mut CausedFault| !new.is_done) {
            new.is_done = true;
            new.fault.cause(&mut mesh, &network.lab)?;
        }
        let has = |host: &String| record.received.contains_key(host);
        if !args.until.is_empty() && args.until.iter().all(has) {
            child.kill()?;
            // The last line may be cut off.
            break;
        }
    }
    let status = child.wait()?;
    let wanted = if args.until.is_empty() { receivers(args, &setup) } else { args.until.clone() };
    if let Some(lacks) = wanted.iter().find(|host| !record.received.contains_key(*host)) {
        let why = record.failed.clone().unwrap_or_else(|| mesh.log(lacks));
        bail!("{lacks} does not have the object ({status}): {why}");
    }
    ensure!(faults.is_empty(), "the cast ended before a fault was due");
    let ended = mesh.ended();
    ensure!(ended.is_empty(), "nodes ended unexpectedly: {}", mesh.log(&ended.join(",")));
    let name = args.file.file_name().context("the file's path has no file name")?;
    for host in &wanted {
        content::compare_files(&args.file, &mesh.inbox(host).join(name))?;
    }
    let alive: Vec<String> = early.iter().filter(|h| !is_killed(&struck, h)).cloned().collect();
    let after = outcome::memory(&mesh, &alive, "VmHWM");
    let results =
        outcome::CastResults { setup: &setup, wanted: &wanted, record: &record, struck: &struck };
    let mut report = results.report(args.left);
    outcome::add_memory(&mut report, &before, &after);
    if args.model {
        results.add_model(&network, &mut report);
    }
    if args.bound {
        results.add_bound(&network.several(&setup.hosts)?, &mut report);
    }
    if args.depth {
        super::depth::add(&wanted, &record, &mut report);
    }
    if let Some(watch) = watch {
        watch.report(&mesh, record.bytes, &mut report)?;
    }
    Ok(report.print()?)
}

fn is_killed(struck: &[CausedFault], host: &String) -> bool {
    struck
        .iter()
        .any(|struck| matches!(&struck.fault.what, FaultAction::Kill(node) if node == host))
}

fn receivers(args: &Args, setup: &CastSetup) -> Vec<String> {
    let relays = |host: &&String| !args.via.contains(host);
    setup.hosts[1..].iter().filter(relays).cloned().collect()
}

fn setup(args: &Args, network: &LabNetwork) -> anyhow::Result<CastSetup> {
    let given = args.tree.as_deref().filter(|text| *text != "widest");
    let mut tree: Option<Legs> = given.map(str::parse).transpose()?;
    let mut hosts = vec![args.from.clone()];
    match &tree {
        Some(tree) if args.to.is_empty() => hosts.extend(tree.children()),
        _ => hosts.extend(args.to.iter().chain(&args.via).cloned()),
    }
    ensure!(hosts.len() > 1, "there are no receivers; give --to or --tree");
    let rates = match (&args.solo, &tree) {
        (Some(file), _) => legs::read(file)?,
        (None, Some(tree)) => match args.each {
            Some(rate) => tree.0.iter().map(|leg| (leg.clone(), rate.as_bps() as f64)).collect(),
            None => network.rates(tree),
        },
        (None, None) => network.rates(&Legs::between_all(&hosts)),
    };
    if tree.is_none() && args.tree.is_some() {
        tree = Some(network.widest(&hosts, &rates));
    }
    Ok(CastSetup { hosts, tree, rates })
}

/// Starts the cast.
fn cast(args: &Args, setup: &CastSetup, mesh: &CastMesh<'_>) -> anyhow::Result<Child> {
    let mut command = Command::new(program::product()?);
    command.arg("cast").arg(&args.file).arg("--state").arg(mesh.state(&args.from)).arg("--json");
    command.args(["--to", &receivers(args, setup).join(",")]);
    if !args.via.is_empty() {
        command.args(["--via", &args.via.join(",")]);
    }
    if !args.blind {
        let file = args.dir.join("rates.csv");
        legs::write(&file, &planned(setup))?;
        command.arg("--rates").arg(file);
    }
    if setup.tree.is_some() {
        command.args(["--parents", "1"]);
    }
    command.args(&args.flags).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().context("cannot run `thalweg cast`")
}

/// The rates that the plan gets; for a given tree only those of its legs.
fn planned(setup: &CastSetup) -> LegRates {
    match &setup.tree {
        Some(tree) => {
            let rate = |leg: &legs::Leg| setup.rates.get(leg).copied().unwrap_or(SOME);
            tree.0.iter().map(|leg| (leg.clone(), rate(leg))).collect()
        }
        None => setup.rates.clone(),
    }
}
