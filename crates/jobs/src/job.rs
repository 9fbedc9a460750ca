//! A job as the API shows it, and how the events of its command change it.

use crate::{command_line, window::DailyWindow};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use thalweg_base::verdict::Verdict;
use utoipa::{
    ToSchema,
    openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type},
};

/// The most paths or receivers of a job that are listed; a mesh has at most 300 members.
const MAX_LISTED: usize = 1000;

/// The longest text taken from an event, bytes.
const MAX_TEXT: usize = 4096;

/// A job: one command line of `thalweg`. Rates are in bits per second, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its number, which no later job gets.
    pub id: u64,
    pub state: JobState,
    /// Why a queued job does not run yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<WaitsFor>,
    pub origin: Origin,
    /// The command: `get`, `gather`, `send`, `cast`, `submit` or `stream`.
    pub verb: String,
    /// Sources, as far as they are known.
    pub from: Vec<String>,
    /// The target, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The equivalent command line, quoted for a shell.
    pub command: String,
    /// The arguments of `thalweg`, the verb first.
    pub arguments: Vec<String>,
    /// The directory in which the command runs.
    #[schema(value_type = String)]
    pub directory: PathBuf,
    pub priority: Priority,
    /// The job does not start before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Timestamp>,
    /// The job runs only in this window of the host's local time, `HH:MM-HH:MM`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub between: Option<DailyWindow>,
    #[schema(value_type = String, format = DateTime)]
    pub created: Timestamp,
    /// When its process was last started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended: Option<Timestamp>,
    /// How often its process was started.
    pub attempts: u32,
    /// The running process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// The paths of a download, or the sources of a collection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathProgress>,
    /// The receivers of a cast.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receivers: Vec<ReceiverProgress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u8>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why it took as long as it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub verdict: Option<Verdict>,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits for its turn.
    Queued,
    Running,
    /// Its process was asked to end, and will be continued later.
    Pausing,
    Paused,
    Finished,
    Failed,
    Cancelled,
}

impl JobState {
    /// Whether nothing will change any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::Cancelled)
    }

    /// Whether a process runs.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Pausing)
    }
}

/// What a queued job waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    /// As many jobs as allowed run already.
    Slot,
    /// `at`, or the begin of `between`.
    Time,
}

/// Who started a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The queue.
    Queue,
    /// A command in a terminal or a script, which registered itself.
    Terminal,
}

/// The priority of a job: those of a higher one start first, and take the slots of low ones.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    Low,
    #[default]
    Normal,
    High,
}

/// The progress of a job on one path, or from one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PathProgress {
    pub path: String,
    pub rate_bps: u64,
    pub bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// The progress of one receiver of a cast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReceiverProgress {
    pub name: String,
    pub done_bytes: u64,
    pub rate_bps: u64,
    pub state: String,
}

/// A request for a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// The arguments of `thalweg`, the verb first.
    #[schema(schema_with = arguments_schema)]
    pub arguments: Vec<String>,
    /// An absolute path: the directory in which the command runs.
    #[schema(value_type = String, pattern = "^/")]
    pub directory: PathBuf,
    #[serde(default)]
    pub priority: Priority,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub at: Option<Timestamp>,
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$")]
    pub between: Option<DailyWindow>,
}

/// The schema of a job's arguments: the verb, and others.
fn arguments_schema() -> Schema {
    let verb =
        ObjectBuilder::new().schema_type(Type::String).enum_values(Some(command_line::VERBS));
    let array = ArrayBuilder::new().prefix_items([Schema::from(verb)]);
    let array = array.items(ObjectBuilder::new().schema_type(Type::String));
    array.min_items(Some(1)).max_items(Some(4096)).into()
}

/// The registration of a command that runs in a terminal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TerminalRequest {
    /// The arguments of `thalweg`, the verb first.
    pub arguments: Vec<String>,
    #[schema(value_type = String)]
    pub directory: PathBuf,
    pub pid: u32,
}

impl Job {
    /// A new job in the state `queued`.
    pub(crate) fn new(id: u64, request: JobRequest, now: Timestamp) -> Self {
        let JobRequest { arguments, directory, priority, at, between } = request;
        let ends = command_line::ends(&arguments);
        Self {
            id,
            state: JobState::Queued,
            waits_for: None,
            origin: Origin::Queue,
            verb: arguments.first().cloned().unwrap_or_default(),
            from: ends.from,
            to: ends.to,
            command: command_line::for_shell(&arguments),
            arguments,
            directory,
            priority,
            at,
            between,
            created: now,
            started: None,
            ended: None,
            attempts: 0,
            pid: None,
            done_bytes: None,
            total_bytes: None,
            rate_bps: None,
            paths: Vec::new(),
            receivers: Vec::new(),
            exit_code: None,
            error: None,
            verdict: None,
        }
    }

    /// A command that runs in a terminal.
    pub(crate) fn of_terminal(id: u64, request: TerminalRequest, now: Timestamp) -> Self {
        let TerminalRequest { arguments, directory, pid } = request;
        let priority = Priority::default();
        let queued = JobRequest { arguments, directory, priority, at: None, between: None };
        let job = Self::new(id, queued, now);
        Self {
            state: JobState::Running,
            origin: Origin::Terminal,
            started: Some(now),
            attempts: 1,
            pid: Some(pid),
            ..job
        }
    }

    /// Applies an event of the command's `--json`. Returns whether it is only a progress report.
    pub(crate) fn apply(&mut self, event: &Value, downloads: &mut Downloads) -> bool {
        let name = event["event"].as_str().unwrap_or_default();
        match name {
            "started" => self.begin(event, downloads),
            "hashing" => self.copy_bytes(event),
            "progress" if event["receivers"].is_array() => self.cast_progress(event),
            "progress" => self.progress(event, downloads),
            "finished" => self.finish_download(event, downloads),
            "planned" if self.verb == "cast" => self.name_receivers(event),
            "chosen" => self.path_state(event, "chosen"),
            "path_failed" => self.path_state(event, "failed"),
            "busy" => self.path_state(event, "waiting"),
            "failed" => self.error = text(&event["why"]).or(self.error.take()),
            "ended" => self.end(event),
            "verdict" => self.verdict = serde_json::from_value(event.clone()).ok(),
            _ => {}
        }
        matches!(name, "progress" | "hashing")
    }

    fn begin(&mut self, event: &Value, downloads: &mut Downloads) {
        let target = text(&event["target"]).or_else(|| text(&event["into"]));
        if target.is_some() {
            self.to = target;
        }
        if let Some(paths) = event["paths"].as_array() {
            let path = |name: &Value| {
                let path = text(name)?;
                Some(PathProgress { path, rate_bps: 0, bytes: 0, state: None })
            };
            self.paths = paths.iter().take(MAX_LISTED).filter_map(path).collect();
        }
        if let Some(total) = event["total_bytes"].as_u64() {
            downloads.set(event, 0, Some(total));
            self.sum(downloads);
        } else if let Some(bytes) = event["bytes"].as_u64() {
            self.total_bytes = Some(bytes);
        }
    }

    fn copy_bytes(&mut self, event: &Value) {
        self.done_bytes = event["done_bytes"].as_u64();
        self.total_bytes = event["total_bytes"].as_u64();
    }

    fn progress(&mut self, event: &Value, downloads: &mut Downloads) {
        let done = event["done_bytes"].as_u64().unwrap_or(0);
        downloads.set(event, done, event["total_bytes"].as_u64());
        downloads.set_rate(event, event["rate_bps"].as_u64().unwrap_or(0));
        self.sum(downloads);
        let listed = event["paths"].as_array().or_else(|| event["sources"].as_array());
        for path in listed.into_iter().flatten().take(MAX_LISTED) {
            let Some(name) = text(&path["path"]).or_else(|| text(&path["source"])) else {
                continue;
            };
            let bytes = path["bytes"].as_u64().or_else(|| path["done_bytes"].as_u64());
            let progress = self.path(name);
            progress.rate_bps = path["rate_bps"].as_u64().unwrap_or(0);
            progress.bytes = bytes.unwrap_or(progress.bytes);
        }
    }

    fn cast_progress(&mut self, event: &Value) {
        let receivers = event["receivers"].as_array().map_or(&[][..], Vec::as_slice);
        let total = event["total_bytes"].as_u64().unwrap_or(0);
        let receiver = |value: &Value| {
            Some(ReceiverProgress {
                name: text(&value["name"])?,
                done_bytes: value["held_bytes"].as_u64().unwrap_or(0),
                rate_bps: value["rate_bps"].as_f64().unwrap_or(0.0).max(0.0) as u64,
                state: text(&value["state"]).unwrap_or_default(),
            })
        };
        self.receivers = receivers.iter().take(MAX_LISTED).filter_map(receiver).collect();
        let count = self.receivers.len() as u64;
        self.done_bytes = Some(self.receivers.iter().map(|r| r.done_bytes.min(total)).sum());
        self.total_bytes = Some(total.saturating_mul(count));
        self.rate_bps = Some(self.receivers.iter().map(|r| r.rate_bps).sum());
    }

    fn name_receivers(&mut self, event: &Value) {
        let names = event["receivers"].as_array().into_iter().flatten();
        let waiting = |value: &Value| {
            let name = text(&value["name"])?;
            Some(ReceiverProgress { name, done_bytes: 0, rate_bps: 0, state: "waiting".into() })
        };
        self.receivers = names.take(MAX_LISTED).filter_map(waiting).collect();
    }

    fn finish_download(&mut self, event: &Value, downloads: &mut Downloads) {
        let bytes = event["bytes"].as_u64().unwrap_or(0);
        if self.to.is_none() {
            self.to = text(&event["target"]);
        }
        downloads.set(event, bytes, Some(bytes));
        downloads.set_rate(event, 0);
        self.sum(downloads);
    }

    /// The end of a collection or a cast.
    fn end(&mut self, event: &Value) {
        if let Some(why) = text(&event["why"]) {
            self.error = Some(why);
        }
    }

    fn path_state(&mut self, event: &Value, state: &str) {
        let Some(name) = text(&event["path"]) else { return };
        let detail = text(&event["reason"]).or_else(|| text(&event["why"]));
        let state = detail.map_or(state.to_owned(), |detail| format!("{state}: {detail}"));
        if self.paths.len() < MAX_LISTED {
            self.path(name).state = Some(state);
        }
    }

    fn path(&mut self, name: String) -> &mut PathProgress {
        let found = self.paths.iter().position(|path| path.path == name);
        let index = found.unwrap_or_else(|| {
            self.paths.push(PathProgress { path: name, rate_bps: 0, bytes: 0, state: None });
            self.paths.len() - 1
        });
        &mut self.paths[index]
    }

    fn sum(&mut self, downloads: &Downloads) {
        let all = || downloads.0.values();
        self.done_bytes = Some(all().map(|d| d.done).sum());
        self.total_bytes = all().map(|d| d.total).sum();
        self.rate_bps = Some(all().map(|d| d.rate_bps).sum());
    }

    /// Forgets what only holds while a process runs.
    pub(crate) fn stop_moving(&mut self) {
        self.pid = None;
        self.rate_bps = None;
        self.paths.iter_mut().for_each(|path| path.rate_bps = 0);
        self.receivers.iter_mut().for_each(|receiver| receiver.rate_bps = 0);
    }
}

/// The most downloads of one job that are counted apart.
const MAX_DOWNLOADS: usize = 100_000;

/// The progress of each download of a job, by its number in the events.
#[derive(Clone, Debug, Default)]
pub struct Downloads(std::collections::BTreeMap<u64, Download>);

#[derive(Clone, Copy, Debug, Default)]
struct Download {
    done: u64,
    total: Option<u64>,
    rate_bps: u64,
}

impl Downloads {
    fn entry(&mut self, event: &Value) -> Option<&mut Download> {
        let number = event["download"].as_u64().unwrap_or(0);
        let known = self.0.contains_key(&number);
        (known || self.0.len() < MAX_DOWNLOADS).then(|| self.0.entry(number).or_default())
    }

    fn set(&mut self, event: &Value, done: u64, total: Option<u64>) {
        if let Some(download) = self.entry(event) {
            download.done = done;
            download.total = total;
        }
    }

    fn set_rate(&mut self, event: &Value, rate_bps: u64) {
        if let Some(download) = self.entry(event) {
            download.rate_bps = rate_bps;
        }
    }
}

/// The text of a JSON string, cut to [`MAX_TEXT`].
fn text(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    let end = (0..=text.len().min(MAX_TEXT)).rev().find(|end| text.is_char_boundary(*end));
    Some(text[..end.unwrap_or(0)].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(arguments: &[&str]) -> Job {
        let request = JobRequest {
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
            directory: "/srv".into(),
            priority: Priority::Normal,
            at: None,
            between: None,
        };
        Job::new(1, request, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_download_counts_its_bytes_by_path() {
        let (mut job, mut downloads) = (job(&["get", "https://a/b"]), Downloads::default());
        let events = [
            json!({ "event": "started", "target": "/srv/b", "total_bytes": 100, "paths": ["direct", "fra"] }),
            json!({ "event": "progress", "done_bytes": 40, "total_bytes": 100, "rate_bps": 8,
                    "paths": [{ "path": "fra", "rate_bps": 8, "bytes": 40 }] }),
            json!({ "event": "chosen", "path": "fra", "reason": "fastest" }),
        ];
        let progress: Vec<bool> = events.iter().map(|e| job.apply(e, &mut downloads)).collect();
        assert_eq!(progress, [false, true, false]);
        assert_eq!((job.done_bytes, job.total_bytes, job.rate_bps), (Some(40), Some(100), Some(8)));
        assert_eq!(job.to.as_deref(), Some("/srv/b"));
        assert_eq!((job.paths.len(), job.paths[1].bytes), (2, 40));
        assert_eq!(job.paths[1].state.as_deref(), Some("chosen: fastest"));
    }

    #[test]
    fn downloads_of_one_job_are_added_and_an_unknown_size_makes_the_sum_unknown() {
        let (mut job, mut downloads) =
            (job(&["get", "https://a/b", "https://a/c"]), Downloads::default());
        let progress = |n, total: Option<u64>| json!({ "event": "progress", "download": n, "done_bytes": 10, "total_bytes": total });
        job.apply(&progress(0, Some(20)), &mut downloads);
        job.apply(&progress(1, Some(30)), &mut downloads);
        assert_eq!((job.done_bytes, job.total_bytes), (Some(20), Some(50)));
        job.apply(&progress(2, None), &mut downloads);
        assert_eq!((job.done_bytes, job.total_bytes), (Some(30), None));
    }

    #[test]
    fn a_cast_counts_the_bytes_of_all_receivers() {
        let (mut job, mut downloads) =
            (job(&["cast", "file", "--to", "a,b"]), Downloads::default());
        let event = json!({ "event": "progress", "total_bytes": 100, "receivers": [
            { "name": "a", "state": "receiving", "held_bytes": 30, "rate_bps": 5.5 },
            { "name": "b", "state": "complete", "held_bytes": 100 } ] });
        assert!(job.apply(&event, &mut downloads));
        assert_eq!(
            (job.done_bytes, job.total_bytes, job.rate_bps),
            (Some(130), Some(200), Some(5))
        );
        assert_eq!(job.receivers[1].state, "complete");
    }

    #[test]
    fn events_of_any_shape_are_taken() {
        let (mut job, mut downloads) = (job(&["get", "https://a/b"]), Downloads::default());
        for event in [
            json!(null),
            json!([]),
            json!({ "event": 1 }),
            json!({ "event": "progress", "paths": {} }),
            json!({ "event": "started", "paths": [1, {}] }),
            json!({ "event": "failed", "why": "x".repeat(9000) }),
        ] {
            job.apply(&event, &mut downloads);
        }
        assert_eq!(job.error.map(|e| e.len()), Some(MAX_TEXT));
    }
}
