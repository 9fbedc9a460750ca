//! The queue, pure: the time is an argument. It says which jobs to start and to stop; somebody else does it.

use crate::changes::json_bytes;
use crate::job::{Downloads, Job, JobState, Origin, Priority, WaitsFor};
use jiff::{Timestamp, tz::TimeZone};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// The most events of a job that are kept.
const MAX_EVENTS: usize = 256;

/// The most bytes of a job's events; with a thousand ended jobs 256 MB at the worst, and hardly ever more than 20.
const MAX_EVENT_BYTES: usize = 256 * 1024;

/// How many jobs run at once, and how many are kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most queued jobs that run at once.
    pub parallel: usize,
    /// The most jobs that have not ended.
    pub open: usize,
    /// The most ended jobs; the oldest are forgotten.
    pub ended: usize,
}

/// A job with what only the daemon needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub job: Job,
    /// What becomes of it when its process ends because it was told to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Intent>,
    /// Its last events, without progress.
    #[serde(skip)]
    pub events: VecDeque<Value>,
    /// About their size in memory.
    #[serde(skip)]
    event_bytes: usize,
    /// Whether it is not on disk yet: it must not start.
    #[serde(skip)]
    pub is_new: bool,
    #[serde(skip)]
    pub downloads: Downloads,
}

/// Why a running process was told to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    Pause,
    Cancel,
    /// It continues later by itself: its window has closed, or another job needs its slot.
    Requeue,
}

/// Something to do for the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start the process of this job.
    Start(u64),
    /// Ask the process of this job to end.
    Stop(u64),
}

/// All jobs, by number.
#[derive(Clone, Debug)]
pub struct Queue {
    pub entries: BTreeMap<u64, Entry>,
    pub next_id: u64,
    pub limits: Limits,
}

impl Entry {
    pub fn new(job: Job) -> Self {
        let (events, downloads) = (VecDeque::new(), Downloads::default());
        Self { job, intent: None, events, event_bytes: 0, is_new: false, downloads }
    }

    /// Applies an event. Returns it with its time if it is to be shown, `None` for a progress report.
    pub fn event(&mut self, mut event: Value, now: Timestamp) -> Option<Value> {
        if self.job.apply(&event, &mut self.downloads) {
            return None;
        }
        if let Some(fields) = event.as_object_mut() {
            fields.insert("time".into(), json!(now));
        }
        self.event_bytes += json_bytes(&event);
        self.events.push_back(event.clone());
        while self.events.len() > MAX_EVENTS || self.event_bytes > MAX_EVENT_BYTES {
            let Some(oldest) = self.events.pop_front() else { break };
            self.event_bytes -= json_bytes(&oldest);
        }
        Some(event)
    }

    /// The process has ended with this exit code; `None`: by a signal.
    pub fn ended(&mut self, exit_code: Option<u8>, now: Timestamp) {
        self.job.stop_moving();
        let intent = self.intent.take();
        let state = match (exit_code, intent) {
            // It was complete before the request reached it.
            (Some(0), _) => JobState::Finished,
            (_, Some(Intent::Pause)) => JobState::Paused,
            (_, Some(Intent::Cancel)) => JobState::Cancelled,
            (_, Some(Intent::Requeue)) => JobState::Queued,
            // Somebody else told it to end: a service manager that ends the daemon, too.
            (Some(130 | 143), None) if self.is_of_queue() => JobState::Queued,
            _ => JobState::Failed,
        };
        self.settle(state, now);
        self.job.exit_code = exit_code.filter(|_| state.is_final());
        if state == JobState::Failed && self.job.error.is_none() {
            self.job.error = Some(match exit_code {
                Some(code) => format!("the command ended with exit code {code}"),
                None => "the command was ended by a signal".to_owned(),
            });
        }
        if state != JobState::Failed {
            self.job.error = None;
        }
    }

    /// Enters a state in which no process runs.
    pub fn settle(&mut self, state: JobState, now: Timestamp) {
        self.job.state = state;
        self.job.waits_for = None;
        self.job.ended = state.is_final().then_some(now);
        if state == JobState::Finished && self.job.total_bytes.is_none() {
            self.job.total_bytes = self.job.done_bytes;
        }
    }

    fn is_of_queue(&self) -> bool {
        self.job.origin == Origin::Queue
    }

    /// Whether its time has come.
    fn is_due(&self, now: Timestamp, zone: &TimeZone) -> bool {
        let job = &self.job;
        job.at.is_none_or(|at| at <= now) && job.between.is_none_or(|w| w.is_open(now, zone))
    }
}

impl Queue {
    pub fn new(limits: Limits) -> Self {
        Self { entries: BTreeMap::new(), next_id: 1, limits }
    }

    /// Whether there is room for another job.
    pub fn has_room(&self) -> bool {
        let open = self.entries.values().filter(|e| !e.job.state.is_final()).count();
        open < self.limits.open
    }

    /// The jobs in the order of the queue: by state, priority and number; the ended ones last, the newest first.
    pub fn in_order(&self) -> Vec<&Job> {
        let mut open: Vec<&Job> = Vec::new();
        let mut ended: Vec<&Job> = Vec::new();
        for entry in self.entries.values() {
            match entry.job.state.is_final() {
                true => ended.push(&entry.job),
                false => open.push(&entry.job),
            }
        }
        open.sort_by_key(|job| (!job.state.is_active(), std::cmp::Reverse(job.priority), job.id));
        ended.sort_by_key(|job| (std::cmp::Reverse(job.ended), job.id));
        open.into_iter().chain(ended).collect()
    }

    /// The ended jobs that are too many, the oldest first.
    pub fn surplus(&self) -> Vec<u64> {
        let ended = self.entries.values().filter(|e| e.job.state.is_final());
        let mut ended: Vec<_> = ended.map(|e| (e.job.ended, e.job.id)).collect();
        ended.sort_unstable();
        let surplus = ended.len().saturating_sub(self.limits.ended);
        ended.into_iter().take(surplus).map(|(_, id)| id).collect()
    }

    /// What is to be done now. It marks waiting jobs with what they wait for, and those to be stopped with the intent;
    /// `changed` gets the numbers of jobs that look different now.
    pub fn step(&mut self, now: Timestamp, zone: &TimeZone, changed: &mut Vec<u64>) -> Vec<Action> {
        let mut actions = Vec::new();
        self.close_windows(now, zone, &mut actions);
        let mut running =
            self.entries.values().filter(|e| e.is_of_queue() && e.job.state.is_active());
        let mut free = self.limits.parallel.saturating_sub(running.by_ref().count());
        let waiting = self.waiting(now, zone);
        let mut unserved = 0;
        for (priority, id) in waiting {
            if free > 0 {
                free -= 1;
                actions.push(Action::Start(id));
            } else {
                unserved += usize::from(priority > Priority::Low);
            }
        }
        // A low job gives its slot to a higher one.
        for id in self.lowest_running().into_iter().take(unserved.saturating_sub(self.leaving())) {
            self.ask_to_end(id, Intent::Requeue);
            actions.push(Action::Stop(id));
        }
        let starting: Vec<u64> = actions.iter().filter_map(Action::started).collect();
        for entry in self.entries.values_mut().filter(|e| e.job.state == JobState::Queued) {
            let waits = match entry.is_due(now, zone) {
                false => Some(WaitsFor::Time),
                true => Some(WaitsFor::Slot).filter(|_| !starting.contains(&entry.job.id)),
            };
            if entry.job.waits_for != waits {
                entry.job.waits_for = waits;
                changed.push(entry.job.id);
            }
        }
        changed.extend(actions.iter().map(Action::id));
        actions
    }

    /// Stops running jobs whose window has closed.
    fn close_windows(&mut self, now: Timestamp, zone: &TimeZone, actions: &mut Vec<Action>) {
        let late = |e: &&Entry| {
            e.is_of_queue()
                && e.intent.is_none()
                && e.job.state == JobState::Running
                && e.job.between.is_some_and(|window| !window.is_open(now, zone))
        };
        let late: Vec<u64> = self.entries.values().filter(late).map(|e| e.job.id).collect();
        for id in late {
            self.ask_to_end(id, Intent::Requeue);
            actions.push(Action::Stop(id));
        }
    }

    /// Queued jobs whose time has come, in the order in which they start.
    fn waiting(&self, now: Timestamp, zone: &TimeZone) -> Vec<(Priority, u64)> {
        let due = |e: &&Entry| e.job.state == JobState::Queued && !e.is_new && e.is_due(now, zone);
        let due = self.entries.values().filter(due);
        let mut waiting: Vec<_> = due.map(|e| (e.job.priority, e.job.id)).collect();
        waiting.sort_by_key(|(priority, id)| (std::cmp::Reverse(*priority), *id));
        waiting
    }

    /// Running low jobs that may be stopped, the last started first.
    fn lowest_running(&self) -> Vec<u64> {
        let low = self.entries.values().filter(|e| {
            e.is_of_queue()
                && e.intent.is_none()
                && e.job.state == JobState::Running
                && e.job.priority == Priority::Low
        });
        let mut low: Vec<_> = low.map(|e| (std::cmp::Reverse(e.job.started), e.job.id)).collect();
        low.sort_unstable();
        low.into_iter().map(|(_, id)| id).collect()
    }

    /// The number of running jobs that will soon free their slots.
    fn leaving(&self) -> usize {
        let active = self.entries.values().filter(|e| e.is_of_queue() && e.job.state.is_active());
        active.filter(|e| e.intent.is_some()).count()
    }

    /// Marks a running job with what becomes of it once its process has ended.
    pub fn ask_to_end(&mut self, id: u64, intent: Intent) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.intent = Some(intent);
        if intent == Intent::Pause {
            entry.job.state = JobState::Pausing;
        }
    }
}

impl Action {
    fn id(&self) -> u64 {
        let (Self::Start(id) | Self::Stop(id)) = self;
        *id
    }

    fn started(&self) -> Option<u64> {
        match self {
            Self::Start(id) => Some(*id),
            Self::Stop(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobRequest;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { parallel: 2, open: 100, ended: 3 };

    fn now() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn request(priority: Priority) -> JobRequest {
        let arguments = vec!["get".to_owned(), "https://a/b".to_owned()];
        JobRequest { arguments, directory: "/".into(), priority, at: None, between: None }
    }

    fn queue(priorities: &[Priority]) -> Queue {
        let mut queue = Queue::new(LIMITS);
        priorities.iter().for_each(|p| _ = add(&mut queue, request(*p)));
        queue
    }

    fn add(queue: &mut Queue, request: JobRequest) -> u64 {
        let id = queue.next_id;
        queue.next_id += 1;
        queue.entries.insert(id, Entry::new(Job::new(id, request, now())));
        id
    }

    fn step(queue: &mut Queue) -> Vec<Action> {
        let actions = queue.step(now(), &TimeZone::UTC, &mut Vec::new());
        for id in actions.iter().filter_map(Action::started) {
            let entry = queue.entries.get_mut(&id).unwrap();
            entry.job.state = JobState::Running;
            entry.job.started = Some(now());
        }
        actions
    }

    fn end(queue: &mut Queue, id: u64, code: Option<u8>) -> JobState {
        let entry = queue.entries.get_mut(&id).unwrap();
        entry.ended(code, now());
        entry.job.state
    }

    #[test]
    fn jobs_start_by_priority_and_number_as_slots_are_free() {
        use Priority::{High, Low, Normal};
        let mut queue = queue(&[Low, Normal, Normal, High]);
        assert_eq!(step(&mut queue), [Action::Start(4), Action::Start(2)]);
        assert_eq!(queue.entries[&3].job.waits_for, Some(WaitsFor::Slot));
        assert_eq!(step(&mut queue), []);
        assert_eq!(end(&mut queue, 4, Some(0)), JobState::Finished);
        assert_eq!(step(&mut queue), [Action::Start(3)]);
        let order: Vec<u64> = queue.in_order().iter().map(|job| job.id).collect();
        assert_eq!(order, [2, 3, 1, 4]);
    }

    #[test]
    fn a_low_job_gives_its_slot_and_continues_later() {
        use Priority::{Low, Normal};
        let mut queue = queue(&[Low, Low]);
        step(&mut queue);
        let third = add(&mut queue, request(Normal));
        let stopped = step(&mut queue);
        assert!(matches!(stopped[..], [Action::Stop(1 | 2)]), "{stopped:?}");
        assert_eq!(step(&mut queue), [], "one low job is enough");
        let Action::Stop(stopped) = stopped[0] else { unreachable!() };
        assert_eq!(end(&mut queue, stopped, Some(130)), JobState::Queued);
        assert_eq!(step(&mut queue), [Action::Start(third)]);
        end(&mut queue, third, Some(0));
        assert_eq!(step(&mut queue), [Action::Start(stopped)]);
    }

    #[test]
    fn a_job_waits_for_its_time_and_stops_at_the_end_of_its_window() {
        let mut queue = queue(&[]);
        let later = JobRequest {
            at: Some("2026-03-01T13:00:00Z".parse().unwrap()),
            ..request(Priority::High)
        };
        let later = add(&mut queue, later);
        let window = JobRequest {
            between: Some("11:00-12:30".parse().unwrap()),
            ..request(Priority::Normal)
        };
        let window = add(&mut queue, window);
        assert_eq!(step(&mut queue), [Action::Start(window)]);
        assert_eq!(queue.entries[&later].job.waits_for, Some(WaitsFor::Time));
        let at_one = "2026-03-01T13:00:00Z".parse().unwrap();
        let actions = queue.step(at_one, &TimeZone::UTC, &mut Vec::new());
        assert_eq!(actions, [Action::Stop(window), Action::Start(later)]);
        assert_eq!(end(&mut queue, window, Some(130)), JobState::Queued);
    }

    #[test]
    fn the_end_of_a_process_means_what_was_asked_for() {
        let cases = [
            (Some(0), None, JobState::Finished),
            (Some(0), Some(Intent::Cancel), JobState::Finished),
            (Some(130), Some(Intent::Cancel), JobState::Cancelled),
            (Some(130), Some(Intent::Pause), JobState::Paused),
            (None, Some(Intent::Pause), JobState::Paused),
            (Some(130), None, JobState::Queued),
            (Some(143), None, JobState::Queued),
            (Some(1), None, JobState::Failed),
            (None, None, JobState::Failed),
        ];
        for (code, intent, wanted) in cases {
            let mut queue = queue(&[Priority::Normal]);
            step(&mut queue);
            queue.entries.get_mut(&1).unwrap().intent = intent;
            assert_eq!(end(&mut queue, 1, code), wanted, "{code:?} {intent:?}");
            assert_eq!(queue.entries[&1].job.error.is_some(), wanted == JobState::Failed);
        }
    }

    #[test]
    fn only_the_newest_ended_jobs_are_kept() {
        let mut queue = queue(&[Priority::Normal; 5]);
        for id in 1..=5 {
            let at = now() + jiff::SignedDuration::from_secs(10 - id as i64);
            queue.entries.get_mut(&id).unwrap().settle(JobState::Cancelled, at);
        }
        assert_eq!(queue.surplus(), [5, 4]);
    }

    #[test]
    fn the_last_events_are_kept_with_their_time() {
        let mut entry = Entry::new(Job::new(1, request(Priority::Normal), now()));
        for n in 0..300 {
            entry.event(json!({ "event": "note", "text": n.to_string() }), now());
        }
        assert!(entry.event(json!({ "event": "progress" }), now()).is_none());
        assert_eq!((entry.events.len(), &entry.events[0]["text"]), (MAX_EVENTS, &json!("44")));
        assert_eq!(entry.events[0]["time"], json!("2026-03-01T12:00:00Z"));
    }

    proptest! {
        /// Whatever happens, at most as many run as are allowed, and in the end all have run.
        #[test]
        fn all_jobs_run_and_never_too_many_at_once(
            priorities in prop::collection::vec(0..3_u8, 1..20), choices in prop::collection::vec(any::<u8>(), 200)
        ) {
            let priority = |p: &u8| [Priority::Low, Priority::Normal, Priority::High][usize::from(*p)];
            let mut queue = queue(&priorities.iter().map(priority).collect::<Vec<_>>());
            for choice in choices {
                step(&mut queue);
                let running: Vec<u64> =
                    queue.entries.values().filter(|e| e.job.state.is_active()).map(|e| e.job.id).collect();
                prop_assert!(running.len() <= LIMITS.parallel);
                let Some(id) = running.get(usize::from(choice) % running.len().max(1)) else { break };
                let code = if queue.entries[id].intent.is_some() { 130 } else { 0 };
                end(&mut queue, *id, Some(code));
            }
            prop_assert!(queue.entries.values().all(|e| e.job.state == JobState::Finished));
        }
    }
}
