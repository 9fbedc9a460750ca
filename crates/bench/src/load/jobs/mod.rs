//! A node with a long queue of downloads, which is killed again and again, and an API under load meanwhile.
//!
//! The node is a real daemon on loopback; its jobs are real downloads of small files from a [`server`] in this process,
//! which counts the bytes that it sends of each file. The results are:
//!
//! - `lost`: jobs that are missing from the list or did not finish;
//! - `wrong`: files that are missing or have other bytes;
//! - `twice`: files that the server sent in full at least twice;
//! - `out_of_order`: downloads that began although more earlier jobs than run at once had not begun;
//! - `queued_per_second`: the rate at which jobs are accepted, each with its own sync;
//! - `request_p50`, `request_p99`: the time of requests to the API at a fixed rate.

pub mod server;

use super::{
    report::{Report, percentile},
    strangers::test_mesh::{Daemon, TestMesh, TestNode},
};
use anyhow::{Context as _, ensure};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use server::FileServer;
use std::{
    collections::BTreeMap,
    fs,
    num::NonZeroU64,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use thalweg_jobs::{Job, JobRequest, JobState, Priority};
use thalweg_node::daemon::LocalClient;
use tokio::time::{interval, sleep};

/// The interval at which the queue is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// The longest time without a job that ends.
const PATIENCE: Duration = Duration::from_secs(120);

/// The most requests whose times are kept: an hour's.
const MAX_RESULTS: usize = 1_000_000;

/// Arguments of `thalweg-bench load jobs`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of downloads
    #[arg(long, default_value = "1000")]
    count: NonZeroU64,
    /// Number of times that the node is killed
    #[arg(long, default_value_t = 10)]
    kills: u64,
    /// Number of jobs that run at once
    #[arg(long, default_value_t = 4)]
    parallel: u64,
    /// Size of a file, bytes
    #[arg(long, default_value_t = 200_000)]
    size: usize,
    /// Requests to the API per second
    #[arg(long, default_value_t = 200)]
    requests: u32,
    /// The seed of the times of kills
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Queues the downloads, kills the node, and prints the report.
///
/// # Errors
/// When the node does not start, or no job ends for two minutes.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let mesh = TestMesh::new()?;
    let count = args.count.get();
    let files = tempfile::tempdir()?;
    let server = FileServer::start(args.size).await?;
    let settings = format!(
        "[api]\nlisten = \"off\"\n[jobs]\nparallel = {}\nmax_open = {count}\nmax_ended = {count}\n",
        args.parallel
    );
    let node = mesh.create_mesh("hub", &settings)?;
    let mut running = RunningNode::start(&node).await?;
    let mut report = Report::default();
    let began = Instant::now();
    for n in 0..count {
        running.client.add_job(&request(&server.url(n), files.path(), n)?).await?;
    }
    report.add("queued_per_second", "1/s", count as f64 / began.elapsed().as_secs_f64());
    let load = ApiLoad::start(running.client.clone(), args.requests);
    let jobs = run_to_end(args, &node, &mut running).await?;
    report.add("seconds", "s", began.elapsed().as_secs_f64());
    load.end().await?.add_to(&mut report);
    add_results(args, &jobs, &server, files.path(), &mut report)?;
    report.print()?;
    Ok(())
}

fn request(url: &str, directory: &Path, n: u64) -> anyhow::Result<JobRequest> {
    let words = ["get", url, "--path", "direct", "--history", "none", "-o"];
    let arguments = words.iter().map(|&word| word.to_owned());
    Ok(JobRequest {
        arguments: arguments.chain([n.to_string()]).collect(),
        directory: fs::canonicalize(directory)?,
        priority: Priority::Normal,
        at: None,
        between: None,
    })
}

/// The daemon and a client of its socket.
struct RunningNode {
    daemon: Daemon,
    client: LocalClient,
}

impl RunningNode {
    async fn start(node: &TestNode) -> anyhow::Result<Self> {
        let daemon = node.start()?;
        let client = LocalClient::find(&node.state().join("node.sock")).await?;
        Ok(Self { daemon, client })
    }
}

/// Kills and restarts the node until all jobs have ended. Returns the jobs.
async fn run_to_end(
    args: &Args,
    node: &TestNode,
    running: &mut RunningNode,
) -> anyhow::Result<Vec<Job>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(args.seed);
    let (mut killed, mut most, mut last) = (0, 0, Instant::now());
    loop {
        let jobs = running.client.jobs().await?.jobs;
        let ended = jobs.iter().filter(|job| job.state.is_final()).count() as u64;
        if ended >= args.count.get() {
            return Ok(jobs);
        }
        if ended > most {
            (most, last) = (ended, Instant::now());
        }
        ensure!(last.elapsed() < PATIENCE, "no job ended for {PATIENCE:?}: {}", node.log()?);
        if killed < args.kills && ended * (args.kills + 1) >= args.count.get() * (killed + 1) {
            // Anywhere in a job's life.
            sleep(Duration::from_millis(random.next_u64() % 200)).await;
            kill(&running.daemon)?;
            *running = RunningNode::start(node).await?;
            killed += 1;
            thalweg_console::note!("kill {killed}: {ended} of {} jobs had ended", args.count);
        }
        sleep(LOOK).await;
    }
}

fn kill(daemon: &Daemon) -> anyhow::Result<()> {
    let pid = i32::try_from(daemon.id()).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.context("the node has no process id")?;
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL)?)
}

fn add_results(
    args: &Args,
    jobs: &[Job],
    server: &FileServer,
    directory: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    let count = args.count.get();
    let finished = jobs.iter().filter(|job| job.state == JobState::Finished).count() as u64;
    let right = |n: &u64| {
        let file = directory.join(n.to_string());
        fs::read(file).is_ok_and(|bytes| bytes == server.content(*n))
    };
    let wrong = (0..count).filter(|n| !right(n)).count();
    let sent = server.sent();
    let size = args.size as u64;
    let twice = sent.values().filter(|file| file.bytes >= 2 * size).count();
    let all: u64 = sent.values().map(|file| file.bytes).sum();
    report.add("jobs", "", count as f64);
    report.add("lost", "", count.saturating_sub(finished) as f64);
    report.add("wrong", "", wrong as f64);
    report.add("twice", "", twice as f64);
    report.add("sent_ratio", "", all as f64 / (size * count) as f64);
    report.add("out_of_order", "", out_of_order(&sent, args.parallel) as f64);
    let attempts: u64 = jobs.iter().map(|job| u64::from(job.attempts)).sum();
    report.add("attempts", "", attempts as f64);
    for job in jobs.iter().filter(|job| job.state != JobState::Finished).take(3) {
        thalweg_console::note!("job {}: {:?}, {:?}", job.id, job.state, job.error);
    }
    Ok(())
}

/// The number of files that were first asked for although a file further ahead in the queue than `parallel` was not.
fn out_of_order(sent: &BTreeMap<u64, server::SentFile>, parallel: u64) -> usize {
    let mut by_time: Vec<(Instant, u64)> = sent.iter().map(|(n, file)| (file.first, *n)).collect();
    by_time.sort_unstable();
    let numbers = by_time.iter().map(|(_, n)| *n).enumerate();
    numbers.filter(|(position, n)| *n > *position as u64 + parallel).count()
}

/// Requests to the API at a fixed rate; those that fail because the node was just killed are not counted.
struct ApiLoad {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<ApiTimes>,
}

#[derive(Default)]
struct ApiTimes {
    times: Vec<Duration>,
    /// Requests while no node answered.
    away: u64,
}

impl ApiLoad {
    fn start(client: LocalClient, per_second: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut ticks = interval(Duration::from_secs(1) / per_second.max(1));
            let (sender, mut results) = tokio::sync::mpsc::channel(MAX_RESULTS);
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                number += 1;
                let (client, sender) = (client.clone(), sender.clone());
                tokio::spawn(async move {
                    let began = Instant::now();
                    let answer = client.job(number % 50 + 1).await;
                    _ = sender.try_send(answer.is_ok().then(|| began.elapsed()));
                });
            }
            drop(sender);
            let mut all = ApiTimes::default();
            while let Some(result) = results.recv().await {
                match result {
                    Some(time) => all.times.push(time),
                    None => all.away += 1,
                }
            }
            all
        });
        Self { stop, task }
    }

    async fn end(self) -> anyhow::Result<ApiTimes> {
        self.stop.store(true, Ordering::Relaxed);
        Ok(self.task.await?)
    }
}

impl ApiTimes {
    fn add_to(mut self, report: &mut Report) {
        self.times.sort_unstable();
        report.add("requests", "", self.times.len() as f64);
        report.add("requests_while_away", "", self.away as f64);
        for percent in [50, 99] {
            if let Some(time) = percentile(&self.times, percent) {
                report.add(format!("request_p{percent}"), "ms", time.as_secs_f64() * 1e3);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_asked_for_too_early_are_counted() {
        let begin = Instant::now();
        let sent = |order: &[u64]| {
            let file = |(i, n): (usize, &u64)| {
                let first = begin + Duration::from_millis(i as u64);
                (*n, server::SentFile { first, bytes: 0 })
            };
            order.iter().enumerate().map(file).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(out_of_order(&sent(&[1, 0, 3, 2, 4]), 2), 0);
        assert_eq!(out_of_order(&sent(&[4, 0, 1, 2, 3]), 2), 1);
    }
}
