//! `thalweg jobs`: shows and changes the transfers of this host's node.

mod child;
mod detach;
mod listing;
mod table;

pub use detach::{QueueOptions, detach};
pub use listing::{JobListing, report_event};

use super::{
    host::{self, StateDir},
    text::say,
};
use anyhow::{Context as _, bail};
use clap::ValueEnum;
use serde_json::json;
use std::process::ExitCode;
use thalweg_console::note;
use thalweg_jobs::{Job, JobState, Priority};
use thalweg_node::daemon::{JobChange, LocalClient};

const HELP: &str = "\
`thalweg get --detach`, and the same for gather, send, cast, submit and stream, gives the transfer
to the node of this host and returns at once. The node runs a few at a time, continues them after a
restart, and keeps their results. Transfers in terminals are listed too.

  thalweg get https://example.org/big.iso --detach
  thalweg gather fra:/data --into d --detach --between 23:00-06:00 --priority low
  thalweg jobs
  thalweg jobs watch 7

Times are of this host's clock. Exit codes: 0 done; 1 another failure, or the watched job failed;
2 usage; 4 no node runs.";

/// Arguments of `thalweg jobs`.
#[derive(clap::Args)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(clap::Subcommand)]
enum What {
    /// List the jobs: the running ones first, then the queue, then those that ended
    List(ListArgs),
    /// Show a job, with its last events
    Show(JobArgs),
    /// Follow a job until it ends, or all jobs
    Watch(WatchArgs),
    /// Let a job end in order, and keep it for `resume`
    Pause(JobsArgs),
    /// Put a paused, failed or cancelled job back into the queue
    Resume(JobsArgs),
    /// End a job for good; received data stays
    Cancel(JobsArgs),
    /// Change the priority of a job
    Priority(PriorityArgs),
    /// Remove an ended job from the list
    Forget(ForgetArgs),
    /// Run a job's command for the node
    #[command(hide = true)]
    RunChild(child::Args),
}

#[derive(clap::Args)]
struct ListArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

#[derive(clap::Args)]
struct JobArgs {
    /// The job's number
    #[arg(value_name = "JOB")]
    id: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

#[derive(clap::Args)]
struct WatchArgs {
    /// The job's number [default: all jobs, until interrupted]
    #[arg(value_name = "JOB")]
    id: Option<u64>,
    /// Print one JSON object for each change
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

#[derive(clap::Args)]
struct JobsArgs {
    /// The jobs' numbers
    #[arg(value_name = "JOB", required = true)]
    ids: Vec<u64>,
    /// Print one JSON object for each job
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

#[derive(clap::Args)]
struct PriorityArgs {
    #[arg(value_name = "JOB")]
    id: u64,
    #[arg(value_name = "PRIORITY")]
    priority: PriorityName,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

#[derive(clap::Args)]
struct ForgetArgs {
    /// The jobs' numbers
    #[arg(value_name = "JOB", required_unless_present = "ended")]
    ids: Vec<u64>,
    /// All jobs that have ended
    #[arg(long, conflicts_with = "ids")]
    ended: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

/// The priority of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PriorityName {
    /// Runs only while no other job waits
    Low,
    Normal,
    /// Starts before the others
    High,
}

impl From<PriorityName> for Priority {
    fn from(name: PriorityName) -> Self {
        match name {
            PriorityName::Low => Self::Low,
            PriorityName::Normal => Self::Normal,
            PriorityName::High => Self::High,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        None => list(&args.list),
        Some(What::List(args)) => list(&args),
        Some(What::Show(args)) => show(&args),
        Some(What::Watch(args)) => watch(&args),
        Some(What::Pause(args)) => change(&args, "pause"),
        Some(What::Resume(args)) => change(&args, "resume"),
        Some(What::Cancel(args)) => change(&args, "cancel"),
        Some(What::Priority(args)) => set_priority(&args),
        Some(What::Forget(args)) => forget(&args),
        Some(What::RunChild(args)) => child::run(&args),
    }
}

/// Runs `work` with the client of the node; exit code 4 if none runs.
fn with_node(
    state_dir: &StateDir,
    work: impl AsyncFnOnce(LocalClient) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let state = state_dir.open()?;
    host::block_on(async {
        match host::daemon(&state).await? {
            Some(node) => work(node).await,
            None => {
                note!(
                    "thalweg: no node runs on this host, so there are no jobs: start it with `thalweg node`"
                );
                Ok(super::exit::Code::Network.into())
            }
        }
    })
}

fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    with_node(&args.state_dir, async |node| {
        let list = node.jobs().await?;
        if args.json {
            print_json(&json!({ "change": list.change, "jobs": list.jobs }))?;
        } else if list.jobs.is_empty() {
            note!("no jobs; `thalweg get URL --detach` makes one");
        } else {
            say(&table::jobs(&list.jobs))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn show(args: &JobArgs) -> anyhow::Result<ExitCode> {
    with_node(&args.state_dir, async |node| {
        let (job, events) = (node.job(args.id).await?, node.job_events(args.id).await?);
        match args.json {
            true => print_json(&json!({ "job": job, "events": events }))?,
            false => say(&table::details(&job, &events))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn change(args: &JobsArgs, action: &str) -> anyhow::Result<ExitCode> {
    with_node(&args.state_dir, async |node| {
        for id in &args.ids {
            print_changed(&node.change_job(*id, action).await?, args.json)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn set_priority(args: &PriorityArgs) -> anyhow::Result<ExitCode> {
    with_node(&args.state_dir, async |node| {
        let job = node.set_job_priority(args.id, args.priority.into()).await?;
        print_changed(&job, args.json)?;
        Ok(ExitCode::SUCCESS)
    })
}

fn forget(args: &ForgetArgs) -> anyhow::Result<ExitCode> {
    with_node(&args.state_dir, async |node| {
        let mut ids = args.ids.clone();
        if args.ended {
            let jobs = node.jobs().await?.jobs;
            ids = jobs.iter().filter(|job| job.state.is_final()).map(|job| job.id).collect();
        }
        for id in &ids {
            node.forget_job(*id).await?;
        }
        note!("{} forgotten", super::text::counted(ids.len() as u64, "job"));
        Ok(ExitCode::SUCCESS)
    })
}

fn watch(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    with_node(&args.state_dir, async |node| {
        let list = node.jobs().await?;
        if let Some(id) = args.id {
            let job = node.job(id).await?;
            print_progress(&job, args.json)?;
            if job.state.is_final() {
                return Ok(exit_code(&job));
            }
        }
        let mut changes = node.job_changes(&list.change).await?;
        let mut screen = table::Watching::default();
        while let Some(change) = changes.next().await {
            if change.name == "reset" {
                bail!("more happened than could be read; run the command again");
            }
            if change.name == "job_removed"
                && args.id.is_some()
                && change.data["id"].as_u64() == args.id
            {
                bail!("the job was forgotten");
            }
            if let Some(job) = watched(&change, args.id)? {
                match args.json {
                    true => print_json(&json!(job))?,
                    false => screen.show(&job),
                }
                if args.id.is_some() && job.state.is_final() {
                    return Ok(exit_code(&job));
                }
            }
        }
        bail!("the node has ended; its jobs continue when it starts again")
    })
}

/// The job of a change, if it is watched.
fn watched(change: &JobChange, id: Option<u64>) -> anyhow::Result<Option<Job>> {
    if change.name != "job" {
        return Ok(None);
    }
    let job: Job = serde_json::from_value(change.data.clone()).context("an unreadable job")?;
    Ok(Some(job).filter(|job| id.is_none_or(|id| id == job.id)))
}

fn exit_code(job: &Job) -> ExitCode {
    match job.state {
        JobState::Finished => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn print_changed(job: &Job, as_json: bool) -> anyhow::Result<()> {
    match as_json {
        true => print_json(&json!(job)),
        false => say(&format!("{}\n", table::line(job))),
    }
}

fn print_progress(job: &Job, as_json: bool) -> anyhow::Result<()> {
    match as_json {
        true => print_json(&json!(job)),
        false => {
            note!("{}", table::line(job));
            Ok(())
        }
    }
}

fn print_json(value: &serde_json::Value) -> anyhow::Result<()> {
    say(&format!("{value}\n"))
}
