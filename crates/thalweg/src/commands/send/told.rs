//! What is said of sending: everything that is there is at the other end.

use crate::commands::{
    exit::Code,
    gather::{Display, words},
    text::counted,
};
use std::sync::Arc;
use thalweg_gather::{Event, EventSink, Outcome, Totals};

/// A display for people, to whom beginning and end are told in words of their own.
#[derive(Debug)]
pub struct Told(pub Arc<Display>);

impl EventSink for Told {
    fn event(&self, event: Event) {
        match event {
            Event::Started { into, files, bytes, present_files, present_bytes, .. } => {
                let there = match (present_files, present_bytes) {
                    (0, 0) => String::new(),
                    (n, b) => {
                        format!("; {}, {}, there already", counted(n, "file"), words::size(b))
                    }
                };
                let files = counted(files, "file");
                self.0.note(format!("{files}, {}, to {into}{there}", words::size(bytes)));
            }
            Event::Ended(totals) if totals.outcome == Outcome::Complete => {
                self.0.note(ended(&totals));
            }
            Event::Ended(totals) => self.0.failed(ended(&totals), Code::of(&totals) as u8),
            event => self.0.event(event),
        }
    }
}

fn ended(totals: &Totals) -> String {
    let Totals { files, bytes, seconds, rate_bps, present_files, failed_files, .. } = totals;
    let went = format!(
        "{}, {}, in {} ({})",
        counted(*files, "file"),
        words::size(*bytes),
        words::time(*seconds),
        words::rate(*rate_bps)
    );
    let again = "what is there is kept; the same command goes on from there";
    match totals.outcome {
        Outcome::Complete if *files == 0 => {
            format!("all is there already: {}", counted(*present_files, "file"))
        }
        Outcome::Complete => format!("all is there: {went}"),
        Outcome::Partial => {
            format!("not all is there: {} failed; {went}", counted(*failed_files, "file"))
        }
        Outcome::Interrupted => format!("interrupted: {went}; {again}"),
        Outcome::Planned | Outcome::Failed => {
            let why = totals.why.as_deref().unwrap_or("nothing was sent");
            format!("failed: {why}; {went}; {again}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_there_not_here() {
        let totals = Totals {
            outcome: Outcome::Complete,
            files: 1,
            bytes: 2_000,
            seconds: 2.0,
            rate_bps: 8_000,
            ..Totals::default()
        };
        assert_eq!(ended(&totals), "all is there: 1 file, 2 kB, in 2.0 s (8 kbit/s)");
        let failed = Totals { outcome: Outcome::Partial, failed_files: 2, ..totals.clone() };
        assert!(ended(&failed).starts_with("not all is there: 2 files failed; 1 file, 2 kB"));
        let again = Totals { files: 0, present_files: 3, ..totals };
        assert_eq!(ended(&again), "all is there already: 3 files");
    }
}
