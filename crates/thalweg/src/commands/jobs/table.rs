//! Jobs as text.

use crate::commands::text::{self, aligned, plain, rough, size};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};
use thalweg_console::note;
use thalweg_jobs::{Job, JobState, Origin, Priority, WaitsFor};

/// The table of all jobs.
pub fn jobs(jobs: &[Job]) -> String {
    let row = |job: &Job| {
        [
            job.id.to_string(),
            state(job),
            job.verb.clone(),
            progress(job),
            rate(job),
            left(job),
            what(job),
        ]
    };
    let rows: Vec<_> = jobs.iter().map(row).collect();
    aligned(["JOB", "STATE", "VERB", "DONE", "RATE", "LEFT", "WHAT"], &rows)
}

/// A job in one line.
pub fn line(job: &Job) -> String {
    let mut parts = vec![format!("job {}", job.id), state(job)];
    parts.extend([progress(job), rate(job)].into_iter().filter(|part| part != "-"));
    if let Some(why) = &job.error {
        parts.push(plain(why));
    }
    format!("{}: {}", parts[0], parts[1..].join(", "))
}

/// Everything about a job, in lines.
pub fn details(job: &Job, events: &[Value]) -> String {
    let mut lines = vec![line(job), format!("  {}", plain(&job.command))];
    lines.push(format!("  in {}", plain(&job.directory.to_string_lossy())));
    let times = [
        ("not before", job.at.map(|t| t.to_string())),
        ("only between", job.between.map(|w| w.to_string())),
        ("created", Some(job.created.to_string())),
        ("started", job.started.map(|t| t.to_string())),
        ("ended", job.ended.map(|t| t.to_string())),
    ];
    lines.extend(times.into_iter().filter_map(|(name, time)| Some(format!("  {name} {}", time?))));
    for path in &job.paths {
        let state = path.state.as_deref().unwrap_or("");
        let (bytes, name) = (size(path.bytes), plain(&path.path));
        lines.push(format!("  {name}: {bytes}, {} {}", text::rate(path.rate_bps), plain(state)));
    }
    for receiver in &job.receivers {
        let (bytes, rate) = (size(receiver.done_bytes), text::rate(receiver.rate_bps));
        let (name, state) = (plain(&receiver.name), plain(&receiver.state));
        lines.push(format!("  {name}: {state}, {bytes}, {rate}"));
    }
    if let Some(verdict) = &job.verdict {
        lines.push(format!("  {}: {}", verdict.bound, plain(&verdict.text)));
    }
    lines.extend(events.iter().map(|event| format!("  {}", plain(&event.to_string()))));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Prints jobs as they change: each change of state, and the progress every two seconds.
#[derive(Debug, Default)]
pub struct Watching(BTreeMap<u64, (JobState, std::time::Instant)>);

/// The interval of lines about the progress of one job.
const INTERVAL: Duration = Duration::from_secs(2);

impl Watching {
    /// Prints a line if the state has changed, or the interval has passed.
    pub fn show(&mut self, job: &Job) {
        let now = std::time::Instant::now();
        let is_due = self.0.get(&job.id).is_none_or(|(state, at)| {
            *state != job.state || now.saturating_duration_since(*at) >= INTERVAL
        });
        if is_due {
            self.0.insert(job.id, (job.state, now));
            note!("{}", line(job));
        }
    }
}

fn state(job: &Job) -> String {
    let state = match (job.state, job.waits_for) {
        (JobState::Queued, Some(WaitsFor::Time)) => "waits for its time",
        (JobState::Queued, _) => "queued",
        (JobState::Running, _) if job.origin == Origin::Terminal => "in a terminal",
        (JobState::Running, _) => "running",
        (JobState::Pausing, _) => "pausing",
        (JobState::Paused, _) => "paused",
        (JobState::Finished, _) => "finished",
        (JobState::Failed, _) => "failed",
        (JobState::Cancelled, _) => "cancelled",
    };
    match job.priority {
        Priority::Normal => state.to_owned(),
        Priority::Low => format!("{state}, low"),
        Priority::High => format!("{state}, high"),
    }
}

fn progress(job: &Job) -> String {
    match (job.done_bytes, job.total_bytes) {
        (None, None) => "-".to_owned(),
        (done, None | Some(0)) => size(done.unwrap_or(0)),
        (done, Some(total)) => {
            let done = done.unwrap_or(0).min(total);
            let percent = u128::from(done) * 100 / u128::from(total);
            format!("{percent} % of {}", size(total))
        }
    }
}

fn rate(job: &Job) -> String {
    job.rate_bps.filter(|rate| *rate > 0).map_or("-".to_owned(), text::rate)
}

fn left(job: &Job) -> String {
    let (Some(done), Some(total), Some(rate)) = (job.done_bytes, job.total_bytes, job.rate_bps)
    else {
        return "-".to_owned();
    };
    if rate == 0 || done >= total {
        return "-".to_owned();
    }
    rough(Duration::from_secs_f64((total - done) as f64 * 8.0 / rate as f64))
}

fn what(job: &Job) -> String {
    let from = match job.from.as_slice() {
        [] => "-".to_owned(),
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    };
    match &job.to {
        Some(to) => format!("{from} → {to}"),
        None => from,
    }
}
