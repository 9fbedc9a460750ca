//! Events as JSON on standard output, one object per line.

use super::{Note, lines};
use serde_json::{Value, json};
use std::{
    io::{self, Write as _},
    sync::mpsc::Receiver,
};

/// Shows all. A closed standard output ends the printing, not the collection.
pub fn run(command: &str, notes: &Receiver<Note>) {
    let mut open = true;
    for note in notes {
        lines::of_trouble(command, &note);
        let Some(line) = object(&note) else { continue };
        let mut out = io::stdout().lock();
        open = open && writeln!(out, "{line}").and_then(|()| out.flush()).is_ok();
    }
}

fn object(note: &Note) -> Option<Value> {
    match note {
        Note::Event(event) => serde_json::to_value(event).ok(),
        Note::Failed(why, code) => {
            Some(json!({ "event": "failed", "why": why, "exit_code": code }))
        }
    }
}
