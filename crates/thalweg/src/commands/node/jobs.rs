//! The node's queue of transfers: opened with the daemon, closed while it drains.

use std::{path::PathBuf, time::Duration};
use thalweg_base::log::{Event, Log};
use thalweg_jobs::{Jobs, JobsSettings};
use thalweg_mesh::State;
use thalweg_node::config::JobsSection;
use tokio::task::{JoinHandle, spawn_blocking};

/// How long the processes of jobs may take to end in order. They continue at the next start.
const PATIENCE: Duration = Duration::from_secs(20);

/// Opens the queue. Without it the node serves others all the same, so a failure is only logged.
pub fn open(settings: &JobsSection, state: &State, log: &Log) -> Option<Jobs> {
    let failed = |why: std::io::Error| {
        log.put(Event::new("no_jobs").with("level", "alert").with("why", why));
    };
    let program = std::env::current_exe().map_err(failed).ok()?;
    let settings = JobsSettings {
        directory: state.dir().join("jobs"),
        program: replaced(program),
        environment: vec![("THALWEG_STATE".to_owned(), state.dir().display().to_string())],
        parallel: settings.parallel,
        max_open: settings.max_open,
        max_ended: settings.max_ended,
    };
    Jobs::open(settings, log.clone()).map_err(failed).ok()
}

/// The program's file, also after an upgrade has replaced it: then the kernel's name of it has this ending.
fn replaced(program: PathBuf) -> PathBuf {
    let name = program.to_str().and_then(|name| name.strip_suffix(" (deleted)"));
    name.map_or(program.clone(), PathBuf::from)
}

/// Ends the running jobs, beside other work.
pub fn close(jobs: Option<Jobs>) -> JoinHandle<()> {
    spawn_blocking(move || jobs.iter().for_each(|jobs| jobs.close(PATIENCE)))
}
