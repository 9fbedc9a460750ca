//! The messages of `thalweg send`: as those of `gather`, but with the files at the other end.

use crate::commands::{
    exit::Code,
    gather::{GatherDisplay, messages},
    text::counted,
};
use std::sync::Arc;
use thalweg_gather::{Event, EventSink, Outcome, Totals};

/// Shows events to people, with its own words for the beginning and the end.
#[derive(Debug)]
pub struct SendDisplay {
    pub display: Arc<GatherDisplay>,
    /// Whether nothing is sent.
    pub dry_run: bool,
}

impl EventSink for SendDisplay {
    fn event(&self, event: Event) {
        match event {
            Event::Started {
                into, files, bytes, present_files, present_bytes, changes, ..
            } => {
                let there = messages::present(present_files, present_bytes, "there");
                let amount = messages::amount(files, bytes, changes);
                self.display.note(format!("{amount}, to {into}{there}"));
            }
            Event::Ended(totals) if self.dry_run => {
                let code = code(&totals) as u8;
                match totals.outcome {
                    Outcome::Partial => {
                        let failed = counted(totals.failed_files, "file");
                        self.display.failed(format!("nothing was sent; {failed} would fail"), code);
                    }
                    Outcome::Planned => self.display.note("nothing was sent".to_owned()),
                    _ => self.display.failed(end_line(&totals), code),
                }
            }
            Event::Ended(totals) if totals.outcome == Outcome::Complete => {
                self.display.note(end_line(&totals));
            }
            Event::Ended(totals) => self.display.failed(end_line(&totals), code(&totals) as u8),
            event => self.display.event(event),
        }
    }
}

/// The exit code. If sending stops, the connection to the node failed: disk errors at both ends concern single files.
pub fn code(totals: &Totals) -> Code {
    match totals.outcome {
        Outcome::Failed => Code::Network,
        _ => Code::of(totals),
    }
}

fn end_line(totals: &Totals) -> String {
    let Totals { files, bytes, seconds, rate_bps, changes, failed_files, .. } = totals;
    let went = format!(
        "{}, in {} ({})",
        messages::amount(*files, *bytes, *changes),
        messages::time(*seconds),
        messages::rate(*rate_bps)
    );
    let again = "what was sent is kept there; the same command continues from there";
    match totals.outcome {
        Outcome::Complete => messages::complete(totals, "there"),
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
    use thalweg_gather::Changes;

    #[test]
    fn the_final_line_says_there_instead_of_here() {
        let totals = Totals {
            outcome: Outcome::Complete,
            files: 1,
            bytes: 2_000,
            seconds: 2.0,
            rate_bps: 8_000,
            ..Totals::default()
        };
        assert_eq!(end_line(&totals), "all is there: 1 file, 2 kB, in 2.0 s (8 kbit/s)");
        let failed = Totals { outcome: Outcome::Partial, failed_files: 2, ..totals.clone() };
        assert!(end_line(&failed).starts_with("not all is there: 2 files failed; 1 file, 2 kB"));
        let changes = Changes { directories: 2, ..Changes::default() };
        let made = Totals { files: 0, changes, ..totals.clone() };
        assert_eq!(end_line(&made), "all is there: 2 directories");
        let again = Totals { files: 0, present_files: 3, ..totals };
        assert_eq!(end_line(&again), "all is there already: 3 files");
    }
}
