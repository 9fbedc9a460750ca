//! Events as JSON on standard output, one object per line.

use super::{DisplayedEvent, ScreenMessage, lines, say};
use serde_json::{Value, json};
use std::io;
use thalweg_console::say_line;

/// Prints the events. A closed standard output ends the printing, not the transfer. Returns false if writing failed
/// otherwise, which has been reported.
pub fn run<E: DisplayedEvent>(notes: impl Iterator<Item = ScreenMessage<E>>) -> bool {
    let mut failed: Option<io::Error> = None;
    for note in notes {
        lines::print_trouble(&note);
        let Some(line) = object(&note).filter(|_| failed.is_none()) else { continue };
        failed = say_line(line).err();
    }
    if let Some(error) = &failed {
        say(&format!("thalweg: {error}"));
    }
    failed.is_none()
}

/// A message as an object.
pub fn object<E: DisplayedEvent>(note: &ScreenMessage<E>) -> Option<Value> {
    let mut object = match note {
        ScreenMessage::Event(event) => serde_json::to_value(event).ok()?,
        ScreenMessage::Failed(why, code) => {
            json!({ "event": "failed", "why": why, "exit_code": code })
        }
    };
    leave_out_null(&mut object);
    Some(object)
}

/// Removes null fields: an unknown value is absent, and so is a number that is not finite, which JSON cannot express.
fn leave_out_null(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(leave_out_null);
        }
        Value::Array(all) => all.iter_mut().for_each(leave_out_null),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_gather::{Event, Forecast};

    #[test]
    fn unknown_values_are_absent() {
        let forecast = Forecast { makespan_seconds: Some(f64::INFINITY), ..Forecast::default() };
        let line =
            object(&ScreenMessage::Event(Box::new(Event::Planned(forecast)))).unwrap().to_string();
        assert!(!line.contains("null") && line.contains("\"planned\""), "{line}");
    }

    #[test]
    fn a_failure_names_the_exit_code() {
        let failed = object(&ScreenMessage::<Event>::Failed("no such file".to_owned(), 6)).unwrap();
        assert_eq!(failed, json!({ "event": "failed", "why": "no such file", "exit_code": 6 }));
    }
}
