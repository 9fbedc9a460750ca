//! Runs a whole tree of plain TCP for some time and measures each node's rate.

use super::{super::report::Report, legs::Legs, outcome::spread};
use crate::program;
use anyhow::{Context as _, ensure};
use std::{
    fs,
    path::PathBuf,
    process::{Child, Stdio},
    thread,
    time::Duration,
};
use thalweg_lab::client::Lab;

/// The port of all nodes.
const PORT: u16 = 9320;

/// Arguments of `thalweg-bench load cast tee`.
#[derive(clap::Args)]
pub struct Args {
    /// The lab's socket
    #[arg(long, value_name = "SOCKET")]
    lab: PathBuf,
    /// The tree; its first leg must begin at the source
    #[arg(long, value_name = "LEGS")]
    tree: Legs,
    /// The file to send
    #[arg(long)]
    file: PathBuf,
    /// Directory for received data; emptied first
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Time at the start that is not counted
    #[arg(long, value_name = "TIME", default_value = "2 s", value_parser = thalweg_units::parse_duration)]
    warmup: Duration,
    /// Counted time
    #[arg(long = "for", value_name = "TIME", default_value = "10 s", value_parser = thalweg_units::parse_duration)]
    span: Duration,
}

/// The running programs, killed on drop.
struct TeePrograms(Vec<Child>);

impl Drop for TeePrograms {
    fn drop(&mut self) {
        for child in &mut self.0 {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

/// Sends for some time and prints the report.
///
/// # Errors
/// When a node does not start or the file is complete before the end.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let lab = Lab::attach(&args.lab)?;
    if args.dir.exists() {
        fs::remove_dir_all(&args.dir)?;
    }
    fs::create_dir_all(&args.dir)?;
    let nodes = args.tree.children();
    let mut programs = TeePrograms(Vec::new());
    // Leaves first, so that every child listens before its parent connects.
    for node in nodes.iter().rev() {
        programs.0.push(start(args, &lab, node, true)?);
    }
    let (source, _) = args.tree.0.first().context("a tree")?;
    programs.0.push(start(args, &lab, source, false)?);
    thread::sleep(args.warmup);
    let before = sizes(args, &nodes);
    thread::sleep(args.span);
    let after = sizes(args, &nodes);
    let whole = fs::metadata(&args.file)?.len();
    ensure!(after.iter().all(|size| *size < whole), "the file is too short for this time");
    let mut report = Report::default();
    let rate = |at: usize| (after[at] - before[at]) as f64 * 8e-6 / args.span.as_secs_f64();
    for (at, node) in nodes.iter().enumerate() {
        report.add(format!("rate/{node}"), "Mbit/s", rate(at));
    }
    spread(&mut report, "rate", "Mbit/s", (0..nodes.len()).map(rate).collect());
    Ok(report.print()?)
}

fn start(args: &Args, lab: &Lab, node: &str, listens: bool) -> anyhow::Result<Child> {
    let mut command = lab.command(node, program::own()?);
    command.args(["load", "cast", "copy"]).stdin(Stdio::null());
    let children: Vec<String> =
        args.tree.children_of(node).iter().map(|child| format!("{child}:{PORT}")).collect();
    if !children.is_empty() {
        command.args(["--to", &children.join(",")]);
    }
    match listens {
        true => command
            .args(["--listen", &format!("0.0.0.0:{PORT}")])
            .arg("--file")
            .arg(args.dir.join(node)),
        false => command.arg("--file").arg(&args.file),
    };
    command.spawn().with_context(|| format!("cannot start {node}"))
}

fn sizes(args: &Args, nodes: &[String]) -> Vec<u64> {
    let size = |node: &String| fs::metadata(args.dir.join(node)).map_or(0, |file| file.len());
    nodes.iter().map(size).collect()
}
