//! Plain lines on standard error, for logs.

use super::{Note, Queue, board::Board, say, words};
use std::time::{Duration, Instant};

/// Between two lines about how far it is.
const EVERY: Duration = Duration::from_secs(2);

/// Shows all.
pub fn run(queue: &Queue) {
    let mut board = Board::new(Instant::now());
    let mut last = Instant::now();
    while let Some(note) = queue.next() {
        let now = Instant::now();
        told(&note, &board).iter().for_each(|line| say(line));
        board.learn(&note, now);
        if note.progress_of().is_some() && now.saturating_duration_since(last) >= EVERY {
            last = now;
            board.line().iter().for_each(|line| say(line));
        }
    }
    board.summary(Instant::now()).iter().for_each(|line| say(line));
}

/// What is said of a note at once.
pub fn told(note: &Note, board: &Board) -> Vec<String> {
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
