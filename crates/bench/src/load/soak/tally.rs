//! Counts the results of all connections.

use super::{
    super::report::Report,
    end::{ScriptEnd, ScriptError},
    script::{ConnectionScript, Ending},
};
use anyhow::ensure;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most faults of a kind that are printed.
const MAX_PRINTED: u64 = 20;

/// Counts over all connections and their ends.
#[derive(Debug, Default)]
pub struct SoakTally {
    whole: AtomicU64,
    half_closed: AtomicU64,
    stalled: AtomicU64,
    open: AtomicU64,
    reset: AtomicU64,
    connections: AtomicU64,
    bytes: AtomicU64,
    far_ends: AtomicU64,
    /// Ends of undisturbed connections that did not receive all bytes.
    lost: AtomicU64,
    /// Ends that took a connection that was broken off for a complete one.
    undetected: AtomicU64,
    hung: AtomicU64,
    undialled: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl SoakTally {
    /// Records the client's end of a connection.
    pub fn record_near(&self, script: &ConnectionScript, done: Result<ScriptEnd, ScriptError>) {
        self.connections.fetch_add(1, Relaxed);
        let add = |to: &AtomicU64, is: bool| to.fetch_add(u64::from(is), Relaxed);
        add(&self.half_closed, matches!(script.ending, Ending::NearFirst | Ending::FarFirst));
        add(&self.stalled, script.stalls());
        add(&self.open, script.open);
        add(&self.reset, !script.ending.is_whole());
        if done.as_ref().is_ok_and(|played| *played == ScriptEnd::Whole) {
            self.whole.fetch_add(1, Relaxed);
            self.bytes.fetch_add(script.near().sends + script.near().receives, Relaxed);
        }
        self.judge("near", script, script.near().resets, done);
    }

    /// Records the far end of a connection.
    pub fn record_far(&self, script: &ConnectionScript, done: Result<ScriptEnd, ScriptError>) {
        self.far_ends.fetch_add(1, Relaxed);
        self.judge("far", script, script.far().resets, done);
    }

    /// Judges the result of an end; `breaks`: this end had to break the connection off.
    fn judge(
        &self,
        end: &str,
        script: &ConnectionScript,
        breaks: bool,
        done: Result<ScriptEnd, ScriptError>,
    ) {
        let fault = match done {
            Ok(ScriptEnd::BrokeOff) => return,
            Ok(ScriptEnd::Whole) if script.ending.is_whole() => return,
            // The connection had to be broken off by the other end but looked complete.
            Ok(ScriptEnd::Whole) => &self.undetected,
            Err(ScriptError::Dial(_)) => &self.undialled,
            Err(ScriptError::Hung) => &self.hung,
            Err(ScriptError::WrongBytes(ref what)) => {
                self.wrong.lock().push(what.clone());
                return;
            }
            Err(ScriptError::Truncated) if !script.ending.is_whole() => &self.undetected,
            // The other end broke it off, or both did at the same time.
            Err(ScriptError::Io(_)) if !script.ending.is_whole() && !breaks => return,
            Err(_) => &self.lost,
        };
        if fault.fetch_add(1, Relaxed) < MAX_PRINTED {
            let done = done.map_or_else(|broken| broken.to_string(), |_| "complete".to_owned());
            thalweg_console::note!("thalweg-bench: load soak: the {end} end {done}: {script:?}");
        }
    }

    /// Reports all counts; returns the number of connections.
    ///
    /// # Errors
    /// When a byte was wrong.
    pub fn report(&self, report: &mut Report) -> anyhow::Result<u64> {
        let wrong = self.wrong.lock();
        ensure!(wrong.is_empty(), "WRONG BYTES in {} ends: {}", wrong.len(), wrong[0]);
        for (name, count) in [
            ("connections", &self.connections),
            ("whole", &self.whole),
            ("half_closed", &self.half_closed),
            ("stalled", &self.stalled),
            ("open_legs", &self.open),
            ("reset", &self.reset),
            ("far_ends", &self.far_ends),
            ("lost", &self.lost),
            ("truncations_unseen", &self.undetected),
            ("hung", &self.hung),
            ("undialled", &self.undialled),
        ] {
            report.add(name, "1", count.load(Relaxed) as f64);
        }
        report.add("bytes_whole", "MB", self.bytes.load(Relaxed) as f64 / 1e6);
        Ok(self.connections.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn ending(wanted: impl Fn(&ConnectionScript) -> bool) -> ConnectionScript {
        (0..).map(|n| ConnectionScript::new(1, n)).find(wanted).unwrap()
    }

    #[test]
    fn each_fault_is_counted_and_expected_ends_are_not() {
        let tally = SoakTally::default();
        let whole = ending(|s| s.ending == Ending::Whole);
        let reset = ending(|s| s.ending == Ending::FarResets);
        let broken = || ScriptError::Io(io::ErrorKind::ConnectionReset.into());
        tally.record_near(&whole, Ok(ScriptEnd::Whole));
        tally.record_far(&reset, Ok(ScriptEnd::BrokeOff));
        tally.record_near(&reset, Err(broken()));
        let faults = || [&tally.lost, &tally.undetected, &tally.hung].map(|n| n.load(Relaxed));
        assert_eq!(faults(), [0, 0, 0]);
        tally.record_near(&whole, Err(broken()));
        tally.record_far(&whole, Err(ScriptError::Truncated));
        assert_eq!(faults(), [2, 0, 0]);
        tally.record_near(&reset, Err(ScriptError::Truncated));
        tally.record_near(&reset, Ok(ScriptEnd::Whole));
        tally.record_near(&reset, Err(ScriptError::Hung));
        assert_eq!(faults(), [2, 2, 1]);
        tally.record_far(&whole, Err(ScriptError::WrongBytes("here".into())));
        assert!(tally.report(&mut Report::default()).is_err());
    }
}
