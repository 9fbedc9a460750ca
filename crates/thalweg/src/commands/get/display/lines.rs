//! Plain lines on standard error, for logs.

use super::{Note, Queue, download_states::DownloadStates, messages, say};
use std::time::{Duration, Instant};
use thalweg_base::job::Event;

/// The time between two progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// A progress line that is due while there is nothing to report is looked at again after this time.
const SHORTEST: Duration = Duration::from_millis(100);

/// Prints the events until the queue is closed.
pub fn run(queue: &Queue) {
    let mut states = DownloadStates::new(Instant::now());
    let mut formatter = LineFormatter::default();
    let mut last = Instant::now();
    loop {
        let left = PROGRESS_INTERVAL.saturating_sub(last.elapsed());
        let note = match queue.next_within(left.max(SHORTEST)) {
            Ok(None) => break,
            Ok(Some(note)) => Some(note),
            Err(()) => None,
        };
        let now = Instant::now();
        if let Some(note) = &note {
            formatter.lines(note, &states).iter().for_each(|line| say(line));
            states.update(note, now);
        }
        if now.saturating_duration_since(last) < PROGRESS_INTERVAL {
            continue;
        }
        let waited = states.silence(now);
        if let Some(waited) = waited {
            say(&format!("waiting for the first answer, {:.0} s", waited.as_secs_f64()));
        } else if note.as_ref().and_then(Note::progress_of).is_some() {
            states.line().iter().for_each(|line| say(line));
        } else {
            continue;
        }
        last = now;
    }
    states.summary(Instant::now()).iter().for_each(|line| say(line));
}

/// Converts notes to lines. The line about a failed path waits for the next note of the same download: if that note is
/// the failure of the whole download for the same reason, the reason is shown only once.
#[derive(Default)]
pub struct LineFormatter {
    waiting: Vec<PendingLine>,
}

/// A line that waits.
struct PendingLine {
    item: usize,
    why: String,
    line: String,
}

impl LineFormatter {
    /// The lines to print now.
    pub fn lines(&mut self, note: &Note, states: &DownloadStates) -> Vec<String> {
        if let Note::Event { item, event: Event::PathFailed { why, .. } } = note {
            let waiting = |line| PendingLine { item: *item, why: why.clone(), line };
            self.waiting.extend(lines_of(note, states).into_iter().map(waiting));
            return Vec::new();
        }
        let whole = match note {
            Note::Failed { why, .. } | Note::Again { why, .. } => why.as_str(),
            _ => "",
        };
        let same = |w: &mut PendingLine| note.item() == Some(w.item);
        let waiting = self.waiting.extract_if(.., same);
        let waiting = waiting.filter(|w| !whole.contains(w.why.as_str()));
        let mut lines: Vec<String> = waiting.map(|w| w.line).collect();
        lines.extend(lines_of(note, states));
        lines
    }
}

/// The lines for a note, if it has any.
fn lines_of(note: &Note, states: &DownloadStates) -> Vec<String> {
    let several = states.is_several();
    match note {
        Note::Text(text) => vec![format!("thalweg: {text}")],
        Note::Event { item, event: event @ Event::Finished { .. } } => {
            messages::finished(event, states.sampled(*item)).into_iter().collect()
        }
        Note::Event { item, event: Event::Chosen { .. } | Event::PathSampled { .. } }
            if states.has_one_path(*item) =>
        {
            Vec::new()
        }
        Note::Event { item, event } if several => {
            messages::event_of_several(states.name(*item), event).into_iter().collect()
        }
        Note::Event { event, .. } => messages::event(event).into_iter().collect(),
        Note::Again { .. } => messages::retry_line(note, several).into_iter().collect(),
        Note::Failed { .. } => messages::failure(note, several),
        Note::Relays { choice, aloud: true, .. } => vec![choice.words()],
        Note::Verdict { url, verdict, aloud: true, .. } => {
            let of = if several { format!("{url}: ") } else { String::new() };
            vec![format!("{of}bound: {}: {}", verdict.bound, verdict.text)]
        }
        Note::Relays { .. } | Note::Verdict { .. } | Note::Planned { .. } | Note::Begun { .. } => {
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::get::exit::Code;

    #[test]
    fn the_same_reason_is_shown_once() {
        let states = DownloadStates::new(Instant::now());
        let path = |path: &str, why: &str| Note::Event {
            item: 0,
            event: Event::PathFailed { path: path.into(), why: why.into() },
        };
        let mut formatter = LineFormatter::default();
        assert!(formatter.lines(&path("direct", "404"), &states).is_empty());
        assert!(formatter.lines(&path("fra", "silence"), &states).is_empty());
        let failed = Note::Failed {
            item: 0,
            url: String::new(),
            why: "direct: 404".into(),
            code: Code::Refused,
            kept: 0,
            hints: Vec::new(),
        };
        let lines = formatter.lines(&failed, &states);
        assert_eq!(lines, ["fra failed: silence", "thalweg: direct: 404"]);
    }
}
