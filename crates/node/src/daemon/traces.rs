//! Traces of jobs by OTLP (feature `otel`): a span for each time that a job ran, and below it one for each of its paths,
//! sources and receivers.
//!
//! ```text
//! Jobs::changes ─► JobTraces: when each leg moved first and last ─► spans of an ended run ─► POST …/v1/traces
//! ```
//!
//! All runs of a job are in one trace. Names in spans are few; what differs is in attributes. Command lines are left out,
//! because they can hold secrets.

use opentelemetry::{
    InstrumentationScope, KeyValue, SpanId, TraceFlags, TraceId,
    trace::{SpanContext, SpanKind, Status, TraceState},
};
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, SpanExporter,
};
use opentelemetry_sdk::{
    Resource,
    trace::{SpanData, SpanExporter as _},
};
use std::{
    collections::BTreeMap,
    env,
    time::{Instant, SystemTime},
};
use thalweg_base::{
    log::{Event, Log},
    throttle::Throttle,
};
use thalweg_jobs::{Change, Job, JobState, Jobs};

/// The exporter that the environment asks for (OTEL_EXPORTER_OTLP_ENDPOINT and the other variables of the OpenTelemetry
/// specification); `None` if it names no endpoint.
///
/// # Errors
/// What is wrong with the variables.
pub fn exporter(node: &str) -> Result<Option<SpanExporter>, String> {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    if !is_set(OTEL_EXPORTER_OTLP_ENDPOINT) && !is_set(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) {
        return Ok(None);
    }
    let exporter = SpanExporter::builder().with_http().build();
    exporter.map(|exporter| Some(named(exporter, node))).map_err(|e| e.to_string())
}

/// Says whose spans these are, unless the environment does.
fn named(mut exporter: SpanExporter, node: &str) -> SpanExporter {
    let mut resource = Resource::builder();
    if env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("thalweg");
    }
    let instance = KeyValue::new("service.instance.id", node.to_owned());
    exporter.set_resource(&resource.with_attribute(instance).build());
    exporter
}

/// Exports the spans of jobs as they end, until the future is dropped. Spans that cannot be sent are lost, which is
/// logged.
pub async fn export(jobs: Jobs, exporter: SpanExporter, log: Log) {
    let (mut at, _) = jobs.list();
    let (mut traces, failures) = (JobTraces::new(at.run), Throttle::default());
    loop {
        let Ok(changes) = jobs.changes(at).await else {
            // Too far behind: runs that ended meanwhile have no spans.
            at = jobs.list().0;
            traces = JobTraces::new(at.run);
            continue;
        };
        let mut spans = Vec::new();
        for (id, change) in changes {
            at = id;
            spans.extend(traces.change(&change, SystemTime::now()));
        }
        if spans.is_empty() {
            continue;
        }
        let count = spans.len();
        if let Err(why) = exporter.export(spans).await
            && let Some(others) = failures.pass(Instant::now())
        {
            let event = Event::new("no_traces").with_number("spans", count).with("why", why);
            log.put(event.with_number("others", others));
        }
    }
}

/// The running jobs, and when their legs moved. Pure.
#[derive(Debug)]
struct JobTraces {
    /// Part of all identifiers, so that those of two runs of the daemon differ.
    run: u64,
    running: BTreeMap<u64, BTreeMap<Leg, Movement>>,
}

/// A path, source or receiver of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Leg {
    kind: &'static str,
    name: String,
}

/// What a leg has moved.
#[derive(Clone, Debug)]
struct Movement {
    first: SystemTime,
    last: SystemTime,
    bytes: u64,
    state: Option<String>,
}

impl JobTraces {
    fn new(run: u64) -> Self {
        Self { run, running: BTreeMap::new() }
    }

    /// Applies a change. Returns the spans of a run that it ends.
    fn change(&mut self, change: &Change, now: SystemTime) -> Vec<SpanData> {
        match change {
            Change::Job(job) if job.state.is_active() => {
                let legs = self.running.entry(job.id).or_default();
                moved(legs, job, now);
                Vec::new()
            }
            Change::Job(job) => match self.running.remove(&job.id) {
                Some(mut legs) => {
                    moved(&mut legs, job, now);
                    self.spans(job, legs, now)
                }
                None => Vec::new(),
            },
            Change::JobRemoved { id } => {
                self.running.remove(id);
                Vec::new()
            }
            Change::JobEvent { .. } => Vec::new(),
        }
    }

    fn spans(&self, job: &Job, legs: BTreeMap<Leg, Movement>, now: SystemTime) -> Vec<SpanData> {
        let end = job.ended.and_then(|at| at.try_into().ok()).unwrap_or(now);
        let start =
            job.started.and_then(|at| at.try_into().ok()).map_or(end, |at: SystemTime| at.min(end));
        let mut whole = self.span(job, 0, "job", (start, end));
        whole.attributes = attributes(job);
        whole.status = match job.state {
            JobState::Failed => Status::error(job.error.clone().unwrap_or_default()),
            JobState::Finished => Status::Ok,
            _ => Status::Unset,
        };
        let parent = whole.span_context.span_id();
        let mut spans = vec![whole];
        for (number, (leg, movement)) in (1..).zip(legs) {
            // The clocks of the job's times and of these may have been set meanwhile.
            let first = movement.first.clamp(start, end);
            let last = movement.last.clamp(first, end);
            let mut span = self.span(job, number, leg.kind, (first, last));
            span.parent_span_id = parent;
            span.attributes = leg_attributes(leg, movement);
            spans.push(span);
        }
        spans
    }

    /// The span number `number` of a run of the job.
    fn span(
        &self,
        job: &Job,
        number: u32,
        name: &'static str,
        (start_time, end_time): (SystemTime, SystemTime),
    ) -> SpanData {
        let trace = self.identifier(&[job.id]);
        let span = self.identifier(&[job.id, job.attempts.into(), number.into()]);
        let half = |id: [u8; 16]| u64::from_be_bytes(std::array::from_fn(|i| id[i]));
        let context = SpanContext::new(
            TraceId::from(u128::from_be_bytes(trace)),
            SpanId::from(half(span)),
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        );
        let scope =
            InstrumentationScope::builder("thalweg").with_version(env!("CARGO_PKG_VERSION"));
        SpanData {
            span_context: context,
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time,
            end_time,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: Default::default(),
            links: Default::default(),
            status: Status::Unset,
            instrumentation_scope: scope.build(),
        }
    }

    fn identifier(&self, numbers: &[u64]) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new();
        [&[self.run], numbers].concat().iter().for_each(|n| _ = hasher.update(&n.to_be_bytes()));
        std::array::from_fn(|i| hasher.finalize().as_bytes()[i])
    }
}

/// Notes what has moved since the last change.
fn moved(legs: &mut BTreeMap<Leg, Movement>, job: &Job, now: SystemTime) {
    let mut note = |kind, name: &str, bytes: u64, state: Option<&String>| {
        let leg = Leg { kind, name: name.to_owned() };
        let known = legs.get(&leg).map_or(0, |movement| movement.bytes);
        if bytes == 0 && state.is_none() && known == 0 {
            // It was not used so far, and is perhaps never.
            return;
        }
        let movement = legs.entry(leg).or_insert_with(|| Movement {
            first: now,
            last: now,
            bytes: 0,
            state: None,
        });
        if bytes > movement.bytes {
            (movement.bytes, movement.last) = (bytes, now);
        }
        movement.state = state.cloned().or(movement.state.take());
    };
    let kind = if job.verb == "gather" { "source" } else { "path" };
    for path in &job.paths {
        note(kind, &path.path, path.bytes, path.state.as_ref());
    }
    for receiver in &job.receivers {
        note("receiver", &receiver.name, receiver.done_bytes, Some(&receiver.state));
    }
}

fn attributes(job: &Job) -> Vec<KeyValue> {
    let mut all = vec![
        KeyValue::new("thalweg.job.id", job.id as i64),
        KeyValue::new("thalweg.job.attempt", i64::from(job.attempts)),
        KeyValue::new("thalweg.job.verb", job.verb.clone()),
        KeyValue::new("thalweg.job.state", word(job.state)),
        KeyValue::new("thalweg.job.priority", word(job.priority)),
        KeyValue::new("thalweg.job.origin", word(job.origin)),
    ];
    let bytes = [("thalweg.bytes", job.done_bytes), ("thalweg.total_bytes", job.total_bytes)];
    let bytes = bytes.into_iter().filter_map(|(name, n)| Some((name, n? as i64)));
    all.extend(bytes.map(|(name, bytes)| KeyValue::new(name, bytes)));
    all.extend(job.exit_code.map(|code| KeyValue::new("process.exit.code", i64::from(code))));
    let verdict = job.verdict.as_ref().map(|verdict| verdict.bound.word());
    all.extend(verdict.map(|bound| KeyValue::new("thalweg.bound", bound)));
    all
}

fn leg_attributes(leg: Leg, movement: Movement) -> Vec<KeyValue> {
    let name = KeyValue::new("thalweg.name", leg.name);
    let bytes = KeyValue::new("thalweg.bytes", movement.bytes as i64);
    let state = movement.state.map(|state| KeyValue::new("thalweg.state", state));
    [name, bytes].into_iter().chain(state).collect()
}

/// The word that the API has for this value.
fn word(value: impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_otlp::WithExportConfig as _;
    use opentelemetry_proto::tonic::{
        collector::trace::v1::ExportTraceServiceRequest,
        common::v1::any_value::Value as Proto,
        trace::v1::{Span, status::StatusCode},
    };
    use prost::Message as _;
    use serde_json::json;
    use std::time::Duration;
    use thalweg_jobs::{JobsSettings, TerminalRequest};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
        time::timeout,
    };

    /// Reads a request, and answers that all was taken. Returns its head and body.
    async fn collect(mut tcp: TcpStream) -> (String, Vec<u8>) {
        let mut bytes = Vec::new();
        loop {
            assert!(tcp.read_buf(&mut bytes).await.unwrap() > 0, "the request ends");
            let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.unwrap().trim().parse().unwrap();
            if bytes.len() == end + 4 + length {
                tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                return (head, bytes.split_off(end + 4));
            }
        }
    }

    fn value(span: &Span, name: &str) -> Option<Proto> {
        let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
        found.value.clone()?.value
    }

    #[tokio::test]
    async fn an_ended_command_is_a_trace_with_a_span_for_each_path() {
        let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = collector.local_addr().unwrap();
        let exporter = SpanExporter::builder().with_http();
        let exporter = exporter.with_endpoint(format!("http://{at}/v1/traces")).build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let settings = JobsSettings {
            directory: dir.path().join("jobs"),
            program: "/nonexistent/thalweg".into(),
            environment: Vec::new(),
            parallel: 0,
            max_open: 10,
            max_ended: 10,
        };
        let (log, _events) = Log::to_queue();
        let jobs = Jobs::open(settings, log.clone()).unwrap();
        let exporting = tokio::spawn(export(jobs.clone(), named(exporter, "fra"), log));

        let words = ["get", "https://user:secret@example.org/a"].map(str::to_owned).to_vec();
        let request = TerminalRequest { arguments: words, directory: "/".into(), pid: 1 };
        // The exporter must have seen the beginning.
        tokio::task::yield_now().await;
        let command = jobs.register(request).unwrap();
        command.event(json!({ "event": "started", "total_bytes": 90, "paths": ["direct", "via nyc", "via syd"] }));
        command.event(json!({ "event": "chosen", "path": "via nyc", "reason": "fastest" }));
        command.event(json!({ "event": "progress", "done_bytes": 90, "total_bytes": 90, "paths": [
            { "path": "direct", "bytes": 20 }, { "path": "via nyc", "bytes": 70 }] }));
        command.end(0);

        let (tcp, _) = timeout(Duration::from_secs(20), collector.accept()).await.unwrap().unwrap();
        let (head, body) = timeout(Duration::from_secs(20), collect(tcp)).await.unwrap();
        assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
        assert!(!String::from_utf8_lossy(&body).contains("secret"));
        let request = ExportTraceServiceRequest::decode(&*body).unwrap();
        let resource = request.resource_spans[0].resource.as_ref().unwrap();
        let has = |key: &str| resource.attributes.iter().any(|a| a.key == key);
        assert!(has("service.name") && has("service.instance.id"), "{resource:?}");
        let spans = &request.resource_spans[0].scope_spans[0].spans;
        let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
        assert_eq!(names, ["job", "path", "path"], "a path that moved nothing has none");
        let [job, direct, via] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!(job.status.as_ref().unwrap().code, StatusCode::Ok as i32);
        assert_eq!(value(job, "thalweg.job.verb"), Some(Proto::StringValue("get".into())));
        assert_eq!(value(job, "thalweg.bytes"), Some(Proto::IntValue(90)));
        assert!(job.parent_span_id.is_empty());
        for (leg, name, bytes) in [(direct, "direct", 20), (via, "via nyc", 70)] {
            assert_eq!((&leg.parent_span_id, &leg.trace_id), (&job.span_id, &job.trace_id));
            assert_eq!(value(leg, "thalweg.name"), Some(Proto::StringValue(name.into())));
            assert_eq!(value(leg, "thalweg.bytes"), Some(Proto::IntValue(bytes)));
            assert!(leg.start_time_unix_nano >= job.start_time_unix_nano);
            assert!(leg.end_time_unix_nano <= job.end_time_unix_nano);
        }
        assert_eq!(value(direct, "thalweg.state"), None);
        exporting.abort();
    }
}
