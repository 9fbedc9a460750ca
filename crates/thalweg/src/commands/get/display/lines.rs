//! Plain lines on standard error, for logs.

use super::{Note, Queue, board::Board, say, words};
use std::time::{Duration, Instant};
use thalweg_node::job::Event;

/// Between two lines about how far it is.
const EVERY: Duration = Duration::from_secs(2);

/// Shows all.
pub fn run(queue: &Queue) {
    let mut board = Board::new(Instant::now());
    let mut telling = Telling::default();
    let mut last = Instant::now();
    while let Some(note) = queue.next() {
        let now = Instant::now();
        telling.lines(&note, &board).iter().for_each(|line| say(line));
        board.learn(&note, now);
        if note.progress_of().is_some() && now.saturating_duration_since(last) >= EVERY {
            last = now;
            board.line().iter().for_each(|line| say(line));
        }
    }
    board.summary(Instant::now()).iter().for_each(|line| say(line));
}

/// Puts notes into lines. That a path failed waits for the next note: if it is the failure of
/// the whole for the same reason, once is enough.
#[derive(Default)]
pub struct Telling {
    waiting: Vec<(String, String)>,
}

impl Telling {
    /// What is to be said now.
    pub fn lines(&mut self, note: &Note, board: &Board) -> Vec<String> {
        if let Note::Event { event: Event::PathFailed { why, .. }, .. } = note {
            let line = told(note, board).into_iter().map(|line| (why.clone(), line));
            self.waiting.extend(line);
            return Vec::new();
        }
        let whole = match note {
            Note::Failed { why, .. } | Note::Again { why, .. } => why.as_str(),
            _ => "",
        };
        let waiting = self.waiting.drain(..).filter(|(why, _)| !whole.contains(why.as_str()));
        let mut lines: Vec<String> = waiting.map(|(_, line)| line).collect();
        lines.extend(told(note, board));
        lines
    }
}

/// A note in words, if it has any.
fn told(note: &Note, board: &Board) -> Vec<String> {
    let several = board.is_several();
    match note {
        Note::Said(text) => vec![format!("thalweg get: {text}")],
        Note::Event { item, event } if several => {
            words::event_of_several(board.name(*item), event).into_iter().collect()
        }
        Note::Event { event, .. } => words::event(event).into_iter().collect(),
        Note::Again { .. } => words::again(note, several).into_iter().collect(),
        Note::Failed { .. } => words::failure(note, several),
        Note::Planned { .. } | Note::Begun { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::get::exit::Code;

    #[test]
    fn one_reason_is_told_once() {
        let board = Board::new(Instant::now());
        let path = |path: &str, why: &str| Note::Event {
            item: 0,
            event: Event::PathFailed { path: path.into(), why: why.into() },
        };
        let mut telling = Telling::default();
        assert!(telling.lines(&path("direct", "404"), &board).is_empty());
        assert!(telling.lines(&path("fra", "silence"), &board).is_empty());
        let failed = Note::Failed {
            item: 0,
            url: String::new(),
            why: "direct: 404".into(),
            code: Code::Refused,
            kept: 0,
            hints: Vec::new(),
        };
        let lines = telling.lines(&failed, &board);
        assert_eq!(lines, ["fra failed: silence", "thalweg get: direct: 404"]);
    }
}
