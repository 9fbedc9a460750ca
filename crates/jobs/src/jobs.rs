//! The handle of a daemon's jobs: takes requests, runs the queue, and tells of changes.

use crate::{
    changes::{Change, ChangeId, ChangeLog, Reset},
    command_line,
    job::{Downloads, Job, JobRequest, JobState, Origin, Priority, TerminalRequest},
    journal::{Content, Journal, Writing},
    queue::{Action, Entry, Intent, Limits, Queue},
    runner::{self, ChildOptions, JobResult},
};
use jiff::{Timestamp, tz::TimeZone};
use parking_lot::{Condvar, Mutex};
use rustix::process::Pid;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use thalweg_base::log::{Event, Log};
use thiserror::Error;
use tokio::sync::watch;

/// The most commands in terminals that are registered at once.
const MAX_TERMINALS: usize = 1000;

/// The shortest interval of a job's progress in the log of changes.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// A process that was asked to end is ended after this time. Commands need some seconds for a last sync.
const KILL_AFTER: Duration = Duration::from_secs(60);

/// The interval at which times and windows of jobs are looked at.
const TICK: Duration = Duration::from_secs(1);

/// After a failed write of the journal no job starts for this time.
const DISK_WAIT: Duration = Duration::from_secs(10);

/// What the jobs of a daemon need.
#[derive(Clone, Debug)]
pub struct JobsSettings {
    /// The directory of the journal; created if it is missing.
    pub directory: PathBuf,
    /// The program `thalweg`.
    pub program: PathBuf,
    /// Variables for the environment of commands, such as the state directory.
    pub environment: Vec<(String, String)>,
    /// The most jobs that run at once.
    pub parallel: usize,
    /// The most jobs that have not ended.
    pub max_open: usize,
    /// The most ended jobs that are kept.
    pub max_ended: usize,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct JobError {
    /// `no_job`, `bad_request`, `bad_state`, `queue_full` or `disk`.
    pub code: &'static str,
    pub message: String,
}

/// The jobs of a daemon. A handle: copies share them.
#[derive(Clone, Debug)]
pub struct Jobs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    settings: JobsSettings,
    log: Log,
    zone: TimeZone,
    state: Mutex<State>,
    /// Signalled when the queue has to be looked at, and when a process has ended.
    wake: Condvar,
    journal: Journal,
    changes: ChangeLog,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    /// The processes of running jobs.
    processes: BTreeMap<u64, Process>,
    /// Registered commands: set to true when they are cancelled.
    terminals: BTreeMap<u64, watch::Sender<bool>>,
    /// When the progress of a job was last put into the log of changes.
    shown: BTreeMap<u64, Instant>,
    /// No job starts before.
    hold_until: Option<Instant>,
    is_closing: bool,
}

/// The process of a running job.
#[derive(Debug, Default)]
struct Process {
    /// `None`: it is being started, or has just ended.
    pid: Option<Pid>,
    /// When it is ended, because it was asked to end before.
    kill_at: Option<Instant>,
}

impl Jobs {
    /// Reads the journal and begins to run the queue. Jobs that ran when the daemon ended wait in their old order.
    ///
    /// # Errors
    /// The system's: the directory or the journal cannot be read or written, or there is no thread.
    pub fn open(settings: JobsSettings, log: Log) -> io::Result<Self> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&settings.directory)?;
        let (journal, content) = Journal::open(&settings.directory)?;
        if content.damaged > 1 {
            let file = settings.directory.join("journal.damaged");
            let event =
                Event::new("jobs_damaged").with("level", "alert").with("file", file.display());
            log.put(event.with_number("lines", content.damaged));
        }
        remove_stale_files(&settings.directory, &content);
        let shared = Arc::new(Shared {
            zone: TimeZone::system(),
            state: Mutex::new(State::new(&settings, content)),
            wake: Condvar::new(),
            journal,
            changes: ChangeLog::new(random_run()?),
            settings,
            log,
        });
        let runs = Arc::clone(&shared);
        thread::Builder::new().name("jobs".into()).spawn(move || runs.run())?;
        Ok(Self(shared))
    }

    /// Changes the numbers of jobs that run, that have not ended, and that are kept. Running jobs go on.
    pub fn set_limits(&self, parallel: usize, max_open: usize, max_ended: usize) {
        let limits = Limits { parallel, open: max_open, ended: max_ended };
        self.0.state.lock().queue.limits = limits;
        self.0.wake.notify_all();
    }

    /// The last change, and all jobs in the order of the queue, the ended ones last.
    pub fn list(&self) -> (ChangeId, Vec<Job>) {
        let state = self.0.state.lock();
        (self.0.changes.last(), state.queue.in_order().into_iter().cloned().collect())
    }

    /// The job with this number.
    pub fn job(&self, id: u64) -> Option<Job> {
        self.0.state.lock().queue.entries.get(&id).map(|entry| entry.job.clone())
    }

    /// The last events of a job, with their times.
    pub fn events(&self, id: u64) -> Option<Vec<Value>> {
        let state = self.0.state.lock();
        state.queue.entries.get(&id).map(|entry| entry.events.iter().cloned().collect())
    }

    /// The changes after `from`; waits until there is one.
    ///
    /// # Errors
    /// [`Reset`]: they are no longer known.
    pub async fn changes(&self, from: ChangeId) -> Result<Vec<(ChangeId, Change)>, Reset> {
        self.0.changes.after(from).await
    }

    /// Puts a job into the queue; it is on disk when this returns. Blocks.
    ///
    /// # Errors
    /// `bad_request`, `queue_full`, `disk`.
    pub fn add(&self, request: JobRequest) -> Result<Job, JobError> {
        command_line::check(&request.arguments).map_err(|e| error("bad_request", e))?;
        if !request.directory.is_absolute() {
            return Err(error("bad_request", "`directory` must be an absolute path"));
        }
        let (job, writing) = {
            let mut state = self.0.state.lock();
            if !state.queue.has_room() {
                let most = self.0.settings.max_open;
                let message = format!(
                    "the queue has {most} jobs, as many as are allowed; wait, or cancel some"
                );
                return Err(error("queue_full", message));
            }
            let job = Job::new(state.next_id(), request, Timestamp::now());
            let mut entry = Entry::new(job.clone());
            entry.is_new = true;
            let writing = self.0.journal.put(&entry);
            state.queue.entries.insert(job.id, entry);
            self.0.changes.push(Change::Job(Box::new(job.clone())));
            (job, writing)
        };
        if let Err(e) = writing.wait() {
            // The caller is told that it is not queued; a record that is on disk all the same is run after a restart.
            _ = self.0.remove(&mut self.0.state.lock(), job.id);
            return Err(disk(&e));
        }
        if let Some(entry) = self.0.state.lock().queue.entries.get_mut(&job.id) {
            entry.is_new = false;
        }
        self.0.wake.notify_all();
        Ok(job)
    }

    /// Lets a job end in order and keeps it for [`Jobs::resume`]. Blocks.
    ///
    /// # Errors
    /// `no_job`, `bad_state`, `disk`.
    pub fn pause(&self, id: u64) -> Result<Job, JobError> {
        self.change(id, |shared, state| {
            let entry = state.entry(id)?;
            match entry.job.state {
                JobState::Queued => entry.settle(JobState::Paused, Timestamp::now()),
                JobState::Running if entry.job.origin == Origin::Terminal => {
                    let message = format!(
                        "job {id} runs in a terminal: interrupt it there, and run it again later"
                    );
                    return Err(error("bad_state", message));
                }
                JobState::Running => shared.ask_to_end(state, id, Intent::Pause),
                JobState::Paused | JobState::Pausing => {}
                other => return Err(ended(id, other)),
            }
            Ok(())
        })
    }

    /// Puts a paused, failed or cancelled job back into the queue. Blocks.
    ///
    /// # Errors
    /// `no_job`, `bad_state`, `disk`.
    pub fn resume(&self, id: u64) -> Result<Job, JobError> {
        self.change(id, |_, state| {
            let entry = state.entry(id)?;
            match entry.job.state {
                JobState::Finished => return Err(ended(id, JobState::Finished)),
                _ if entry.job.origin == Origin::Terminal => {
                    let message =
                        format!("job {id} ran in a terminal; run it again: {}", entry.job.command);
                    return Err(error("bad_state", message));
                }
                JobState::Pausing => {
                    entry.intent = Some(Intent::Requeue);
                    entry.job.state = JobState::Running;
                }
                JobState::Running | JobState::Queued => {}
                JobState::Paused | JobState::Failed | JobState::Cancelled => {
                    entry.settle(JobState::Queued, Timestamp::now());
                    entry.job.error = None;
                    entry.job.exit_code = None;
                }
            }
            Ok(())
        })
    }

    /// Ends a job for good; what it has received stays on disk. Blocks.
    ///
    /// # Errors
    /// `no_job`, `bad_state`, `disk`.
    pub fn cancel(&self, id: u64) -> Result<Job, JobError> {
        self.change(id, |shared, state| {
            let entry = state.entry(id)?;
            match entry.job.state {
                JobState::Queued | JobState::Paused => {
                    entry.settle(JobState::Cancelled, Timestamp::now());
                }
                JobState::Running | JobState::Pausing => {
                    shared.ask_to_end(state, id, Intent::Cancel)
                }
                JobState::Cancelled => {}
                other => return Err(ended(id, other)),
            }
            Ok(())
        })
    }

    /// Changes the priority of a job that has not ended. Blocks.
    ///
    /// # Errors
    /// `no_job`, `bad_state`, `disk`.
    pub fn set_priority(&self, id: u64, priority: Priority) -> Result<Job, JobError> {
        self.change(id, |_, state| {
            let entry = state.entry(id)?;
            if entry.job.state.is_final() {
                return Err(ended(id, entry.job.state));
            }
            entry.job.priority = priority;
            Ok(())
        })
    }

    /// Removes an ended job from the list. Blocks.
    ///
    /// # Errors
    /// `no_job`, `bad_state`, `disk`.
    pub fn forget(&self, id: u64) -> Result<(), JobError> {
        let writing = {
            let mut state = self.0.state.lock();
            if !state.entry(id)?.job.state.is_final() {
                let message = format!("job {id} has not ended; cancel it first");
                return Err(error("bad_state", message));
            }
            self.0.remove(&mut state, id)
        };
        writing.wait().map_err(|e| disk(&e))
    }

    /// Lists a command that runs in a terminal.
    ///
    /// # Errors
    /// `bad_request`, `queue_full`.
    pub fn register(&self, request: TerminalRequest) -> Result<Registration, JobError> {
        let verb = request.arguments.first().map(String::as_str).unwrap_or_default();
        if !command_line::VERBS.contains(&verb) {
            return Err(error("bad_request", "this command is not listed as a job"));
        }
        let mut state = self.0.state.lock();
        if state.terminals.len() >= MAX_TERMINALS {
            return Err(error(
                "queue_full",
                format!("{MAX_TERMINALS} commands are registered already"),
            ));
        }
        let id = state.next_id();
        let entry = Entry::new(Job::of_terminal(id, request, Timestamp::now()));
        let (sender, cancelled) = watch::channel(false);
        state.terminals.insert(id, sender);
        // It is shown now; if it is lost, a restart shows nothing of it.
        _ = self.0.store(&entry);
        state.queue.entries.insert(id, entry);
        Ok(Registration { shared: Arc::clone(&self.0), id, cancelled, has_ended: false })
    }

    /// Asks all processes to end, and waits for them, at most for `patience`. The jobs continue when the daemon starts
    /// again. Blocks.
    pub fn close(&self, patience: Duration) {
        let mut state = self.0.state.lock();
        state.is_closing = true;
        let running: Vec<u64> = state.processes.keys().copied().collect();
        for id in running {
            if state.queue.entries.get(&id).is_some_and(|entry| entry.intent.is_none()) {
                self.0.ask_to_end(&mut state, id, Intent::Requeue);
            }
        }
        let until = Instant::now() + patience;
        self.0.wake.notify_all();
        while !state.processes.is_empty() {
            if self.0.wake.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
    }

    /// Changes a job, and returns it once the change is on disk.
    fn change(
        &self,
        id: u64,
        change: impl FnOnce(&Shared, &mut State) -> Result<(), JobError>,
    ) -> Result<Job, JobError> {
        let (job, writing) = {
            let mut state = self.0.state.lock();
            change(&self.0, &mut state)?;
            let entry = state.entry(id)?;
            (entry.job.clone(), self.0.store(entry))
        };
        self.0.wake.notify_all();
        writing.wait().map_err(|e| disk(&e))?;
        Ok(job)
    }
}

impl Shared {
    /// Runs the queue until the daemon closes.
    fn run(self: &Arc<Self>) {
        let mut state = self.state.lock();
        while !state.is_closing {
            self.end_late_processes(&mut state);
            self.step(&mut state);
            self.drop_surplus(&mut state);
            self.wake.wait_for(&mut state, TICK);
        }
        // Processes that do not end are still ended.
        while !state.processes.is_empty() {
            self.end_late_processes(&mut state);
            self.wake.wait_for(&mut state, TICK);
        }
    }

    fn step(self: &Arc<Self>, state: &mut State) {
        if state.hold_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let mut changed = Vec::new();
        for action in state.queue.step(Timestamp::now(), &self.zone, &mut changed) {
            match action {
                Action::Start(id) => self.start(state, id),
                Action::Stop(id) => self.ask_to_end(state, id, Intent::Requeue),
            }
        }
        for id in changed {
            self.show(state, id);
        }
    }

    /// Starts a job on a thread of its own, with which its process would end.
    fn start(self: &Arc<Self>, state: &mut State, id: u64) {
        let Some(entry) = state.queue.entries.get_mut(&id) else { return };
        let job = &mut entry.job;
        job.state = JobState::Running;
        job.waits_for = None;
        job.started = Some(Timestamp::now());
        job.attempts = job.attempts.saturating_add(1);
        job.error = None;
        job.verdict = None;
        entry.downloads = Downloads::default();
        entry.intent = None;
        let options = self.child_options(&entry.job);
        // On disk before the process starts: the number of an attempt is used once.
        let writing = self.journal.put(entry);
        state.processes.insert(id, Process::default());
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name(format!("job-{id}"));
        if let Err(e) = thread.spawn(move || shared.run_job(&options, writing)) {
            self.postpone(state, id, &e);
        }
    }

    fn child_options(&self, job: &Job) -> ChildOptions {
        ChildOptions {
            program: self.settings.program.clone(),
            directory: self.settings.directory.clone(),
            environment: self.settings.environment.clone(),
            id: job.id,
            attempt: job.attempts,
            arguments: job.arguments.clone(),
            working_directory: job.directory.clone(),
            is_low: job.priority == Priority::Low,
        }
    }

    /// The thread of a running job.
    fn run_job(&self, options: &ChildOptions, writing: Writing) {
        let id = options.id;
        if let Err(e) = writing.wait() {
            self.postpone(&mut self.state.lock(), id, &e);
            return;
        }
        let command = crate::command_line::for_shell(&options.arguments);
        self.log.put(Event::new("job_started").with_number("job", id).with("command", command));
        let started = |pid: Option<Pid>| self.process_started(id, pid);
        let event = |value: Value, now: Timestamp| self.event(id, value, now);
        let ended = runner::run(options, &started, &event);
        match ended.exit_code {
            Some(runner::NOT_NOW) => {
                let why = ended.message.as_deref().unwrap_or("the command could not be run");
                self.postpone(&mut self.state.lock(), id, &io::Error::other(why));
            }
            _ => self.job_ended(id, &ended),
        }
    }

    fn process_started(&self, id: u64, pid: Option<Pid>) {
        let mut state = self.state.lock();
        let Some(process) = state.processes.get_mut(&id) else { return };
        process.pid = pid;
        if let (Some(pid), Some(_)) = (pid, process.kill_at) {
            runner::ask_to_end(pid);
        }
        if let Some(entry) = state.queue.entries.get_mut(&id) {
            entry.job.pid = pid.and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok());
            self.show(&state, id);
        }
    }

    /// Applies an event of a command.
    fn event(&self, id: u64, value: Value, now: Timestamp) {
        let mut state = self.state.lock();
        let Some(entry) = state.queue.entries.get_mut(&id) else { return };
        match entry.event(value, now) {
            Some(event) => {
                self.changes.push(Change::JobEvent { id, event });
                self.show(&state, id);
            }
            None => {
                let last = state.shown.get(&id);
                if last.is_none_or(|last| last.elapsed() >= PROGRESS_INTERVAL) {
                    state.shown.insert(id, Instant::now());
                    self.show(&state, id);
                }
            }
        }
    }

    fn job_ended(&self, id: u64, ended: &runner::Ended) {
        let mut state = self.state.lock();
        state.processes.remove(&id);
        state.shown.remove(&id);
        let State { queue, hold_until, .. } = &mut *state;
        if let Some(entry) = queue.entries.get_mut(&id) {
            let reported = entry.job.error.take();
            entry.job.error = reported.or_else(|| ended.message.clone());
            let is_unasked = entry.intent.is_none();
            entry.ended(ended.exit_code, Timestamp::now());
            if entry.job.state == JobState::Queued && is_unasked {
                // The daemon is probably about to be told, too.
                *hold_until = Some(Instant::now() + DISK_WAIT);
            }
            self.log_end(&entry.job);
            // If this fails, the process's own record of its exit code is found at the next start.
            _ = self.store(entry);
        }
        self.wake.notify_all();
    }

    fn log_end(&self, job: &Job) {
        let state = serde_json::to_value(job.state).unwrap_or_default();
        let event = Event::new("job_ended").with_number("job", job.id);
        let event = event.with("state", state.as_str().unwrap_or_default());
        match &job.error {
            Some(why) => self.log.put(event.with("why", why)),
            None => self.log.put(event),
        }
    }

    /// Puts a job that could not be started back, and starts none for a while.
    fn postpone(&self, state: &mut State, id: u64, why: &io::Error) {
        state.processes.remove(&id);
        state.hold_until = Some(Instant::now() + DISK_WAIT);
        self.log.put(Event::new("jobs_wait").with("level", "alert").with("why", why));
        if let Some(entry) = state.queue.entries.get_mut(&id) {
            let next = match entry.intent.take() {
                Some(Intent::Cancel) => JobState::Cancelled,
                Some(Intent::Pause) => JobState::Paused,
                Some(Intent::Requeue) | None => JobState::Queued,
            };
            entry.job.stop_moving();
            entry.settle(next, Timestamp::now());
            entry.job.error = Some(format!("cannot start yet: {why}"));
            // If the disk takes it, so much the better; the next start writes it again.
            _ = self.store(entry);
        }
    }

    fn ask_to_end(&self, state: &mut State, id: u64, intent: Intent) {
        state.queue.ask_to_end(id, intent);
        if let Some(cancelled) = state.terminals.get(&id) {
            cancelled.send_replace(true);
        }
        if let Some(process) = state.processes.get_mut(&id) {
            process.kill_at.get_or_insert_with(|| Instant::now() + KILL_AFTER);
            process.pid.into_iter().for_each(runner::ask_to_end);
        }
    }

    fn end_late_processes(&self, state: &mut State) {
        let now = Instant::now();
        for process in state.processes.values_mut() {
            if let (Some(pid), Some(at)) = (process.pid, process.kill_at)
                && at <= now
            {
                runner::kill_all(pid);
            }
        }
    }

    fn drop_surplus(&self, state: &mut State) {
        for id in state.queue.surplus() {
            // The journal forgets it with the next write that succeeds.
            _ = self.remove(state, id);
        }
    }

    /// Begins to write a job, and tells of it.
    fn store(&self, entry: &Entry) -> Writing {
        self.changes.push(Change::Job(Box::new(entry.job.clone())));
        self.journal.put(entry)
    }

    fn show(&self, state: &State, id: u64) {
        if let Some(entry) = state.queue.entries.get(&id) {
            self.changes.push(Change::Job(Box::new(entry.job.clone())));
        }
    }

    fn remove(&self, state: &mut State, id: u64) -> Writing {
        state.queue.entries.remove(&id);
        self.changes.push(Change::JobRemoved { id });
        let directory = &self.settings.directory;
        for file in [JobResult::file(directory, id), runner::lock_file(directory, id)] {
            // It may never have run.
            _ = fs::remove_file(file);
        }
        self.journal.forget(id)
    }
}

impl State {
    fn new(settings: &JobsSettings, content: Content) -> Self {
        let limits = Limits {
            parallel: settings.parallel,
            open: settings.max_open,
            ended: settings.max_ended,
        };
        let mut queue = Queue::new(limits);
        queue.next_id = content.next_id;
        queue.entries = content.entries;
        for entry in queue.entries.values_mut() {
            restore(entry, settings);
        }
        Self {
            queue,
            processes: BTreeMap::new(),
            terminals: BTreeMap::new(),
            shown: BTreeMap::new(),
            hold_until: None,
            is_closing: false,
        }
    }

    fn next_id(&mut self) -> u64 {
        let id = self.queue.next_id;
        self.queue.next_id += 1;
        id
    }

    fn entry(&mut self, id: u64) -> Result<&mut Entry, JobError> {
        let absent = || error("no_job", format!("there is no job {id}; `thalweg jobs` lists them"));
        self.queue.entries.get_mut(&id).ok_or_else(absent)
    }
}

/// Removes results and locks of jobs that the journal does not know: a later job must not take them for its own.
fn remove_stale_files(directory: &Path, content: &Content) {
    let files = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    for file in files.map(|entry| entry.path()) {
        let is_ours = file.extension().is_some_and(|end| end == "result" || end == "lock");
        let id = file.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        if is_ours && id.is_some_and(|id: u64| !content.entries.contains_key(&id)) {
            // One that stays is of no number that is used again.
            _ = fs::remove_file(file);
        }
    }
}

/// Gives a job that ran when the daemon ended the state in which it is now.
fn restore(entry: &mut Entry, settings: &JobsSettings) {
    if !entry.job.state.is_active() {
        return;
    }
    let now = Timestamp::now();
    if entry.job.origin == Origin::Terminal {
        entry.job.error = Some("the node restarted while this command ran".to_owned());
        entry.settle(JobState::Failed, now);
        return entry.job.stop_moving();
    }
    let result = JobResult::read(&JobResult::file(&settings.directory, entry.job.id));
    let exit_code = result.filter(|r| r.attempt == entry.job.attempts).map(|r| r.exit_code);
    match exit_code {
        // It was ended together with the daemon.
        Some(130 | 143) | None => {
            entry.intent.get_or_insert(Intent::Requeue);
            entry.ended(None, now);
        }
        code => entry.ended(code, now),
    }
}

/// A command in a terminal that is listed as a job. Dropping it marks the job failed.
#[derive(Debug)]
pub struct Registration {
    shared: Arc<Shared>,
    id: u64,
    cancelled: watch::Receiver<bool>,
    has_ended: bool,
}

impl Registration {
    /// The number of the job.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Applies an event of the command.
    pub fn event(&self, event: Value) {
        self.shared.event(self.id, event, Timestamp::now());
    }

    /// Waits until the job is cancelled.
    pub async fn cancelled(&self) {
        // The sender stays until the registration ends.
        _ = self.cancelled.clone().wait_for(|cancelled| *cancelled).await;
    }

    /// The command has ended.
    pub fn end(mut self, exit_code: u8) {
        self.finish(Some(exit_code), None);
    }

    fn finish(&mut self, exit_code: Option<u8>, why: Option<String>) {
        self.has_ended = true;
        let mut state = self.shared.state.lock();
        state.terminals.remove(&self.id);
        state.shown.remove(&self.id);
        if let Some(entry) = state.queue.entries.get_mut(&self.id) {
            entry.job.error = entry.job.error.take().or(why);
            if exit_code == Some(130) && entry.intent.is_none() {
                entry.intent = Some(Intent::Cancel);
            }
            entry.ended(exit_code, Timestamp::now());
            // A terminal's job is shown, not continued: a lost record is found as one that ran.
            _ = self.shared.store(entry);
        }
        self.shared.wake.notify_all();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.has_ended {
            self.finish(None, Some("the command ended without a result".to_owned()));
        }
    }
}

fn error(code: &'static str, message: impl ToString) -> JobError {
    JobError { code, message: message.to_string() }
}

fn disk(error: &io::Error) -> JobError {
    let message = format!("the change is not on disk: {error}; make room in the state directory");
    JobError { code: "disk", message }
}

fn ended(id: u64, state: JobState) -> JobError {
    let word = match state {
        JobState::Finished => "has finished",
        JobState::Cancelled => "was cancelled",
        _ => "has failed",
    };
    error("bad_state", format!("job {id} {word} already"))
}

/// A number that another run of the daemon has hardly ever; JavaScript keeps it exactly.
fn random_run() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(u64::from_le_bytes(bytes) >> 11)
}
