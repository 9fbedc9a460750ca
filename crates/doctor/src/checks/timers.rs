//! How accurately this host wakes at a time: probe trains need tenths of a millisecond.

use std::time::Duration;
use thalweg_wire::doctor::Finding;

/// Timers of a tick: no high-resolution timers, or a virtual machine without them. Then even the better wake-ups are
/// late; on a busy host only some are.
const COARSE: Duration = Duration::from_millis(1);

/// A wake-up later than this blurs trains; other work does it.
const LATE: Duration = Duration::from_millis(5);

/// How much later than asked for a thread woke up, for each of several sleeps of 1 ms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimerFacts {
    pub overshoots: Vec<Duration>,
}

/// Whether measurements with probe trains can be timed.
pub fn check(facts: &TimerFacts) -> Finding {
    let mut sorted = facts.overshoots.clone();
    sorted.sort();
    let Some(median) = sorted.get(sorted.len() / 2) else {
        return Finding::unchecked("timers.accuracy", "no timer was tried");
    };
    let few = sorted.get(sorted.len() / 4).unwrap_or(median);
    let most = sorted.get(sorted.len() * 9 / 10).unwrap_or(median);
    let seen = format!(
        "of {} wake-ups half came within {} µs of their time, and nine of ten within {} µs",
        sorted.len(),
        median.as_micros(),
        most.as_micros()
    );
    if *few > COARSE {
        return Finding::warning("timers.coarse", seen)
            .means("probe trains cannot be timed; their results are marked as not valid")
            .remedy("cat /sys/devices/system/clocksource/clocksource0/current_clocksource # tsc or kvm-clock");
    }
    if *most > LATE {
        return Finding::note("timers.busy", seen)
            .means("the host is busy; results of probe trains may be marked as not valid")
            .remedy("uptime; top");
    }
    Finding::ok("timers.accuracy", seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::doctor::Severity;

    #[test]
    fn coarse_timers_are_told_from_a_busy_host() {
        let of = |overshoots: Vec<u64>| {
            let overshoots = overshoots.into_iter().map(Duration::from_micros).collect();
            check(&TimerFacts { overshoots })
        };
        assert_eq!(of(vec![60; 20]).severity, Severity::Ok);
        assert_eq!(of(vec![3_900; 20]).id, "timers.coarse");
        assert_eq!(of([vec![60; 17], vec![9_000; 3]].concat()).id, "timers.busy");
        assert_eq!(of(Vec::new()).severity, Severity::Unchecked);
    }
}
