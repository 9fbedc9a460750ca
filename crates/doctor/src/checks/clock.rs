//! The clock: against other members, and whether something keeps it right.

use std::time::Duration;
use thalweg_wire::doctor::Finding;

/// The difference to one other host, seconds, from which on it is reported: more than a question takes.
const ALIKE_S: f64 = 2.0;

/// The difference, seconds, from which on a roster may count as not yet valid or expired.
const WRONG_S: f64 = 60.0;

/// What is known of the clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClockFacts {
    /// What the kernel says (adjtimex(2)), or why it does not.
    pub kernel: Option<Result<KernelClock, String>>,
    /// The clocks of other hosts.
    pub others: Vec<OtherClock>,
}

/// The kernel's own judgement of its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelClock {
    /// Whether a program (NTP, PTP) keeps it synchronised.
    pub synchronised: bool,
    /// The largest error that it estimates.
    pub error: Duration,
}

/// Another host's clock, compared with this host's.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherClock {
    /// The member's name.
    pub of: String,
    /// How far it is ahead of this host's, in seconds.
    pub ahead_s: f64,
    /// How far the comparison may be wrong, in seconds: half of what the question took.
    pub doubt_s: f64,
}

impl OtherClock {
    /// The difference that is certain, in seconds.
    fn certain_s(&self) -> f64 {
        (self.ahead_s.abs() - self.doubt_s).max(0.0)
    }
}

/// Compares the clocks and reports whether this one is kept right.
pub fn check(facts: &ClockFacts) -> Vec<Finding> {
    let offset = offset(&facts.others);
    let differs = offset.severity >= thalweg_wire::doctor::Severity::Warning;
    vec![offset, kept(facts.kernel.as_ref(), differs)]
}

fn offset(others: &[OtherClock]) -> Finding {
    let worst = others.iter().max_by(|a, b| a.certain_s().total_cmp(&b.certain_s()));
    let Some(worst) = worst else {
        return Finding::unchecked("clock.offset", "no other member's clock could be asked");
    };
    let off = worst.certain_s();
    let way = |other: &OtherClock| if other.ahead_s > 0.0 { "ahead of" } else { "behind" };
    let said = |other: &OtherClock| {
        format!(
            "the clock of {} is {:.1} s {} this host's",
            other.of,
            other.ahead_s.abs(),
            way(other)
        )
    };
    if off < ALIKE_S {
        let all: Vec<&str> = others.iter().map(|other| &*other.of).collect();
        let seen = format!("within {ALIKE_S} s of {}", all.join(", "));
        return Finding::ok("clock.offset", seen);
    }
    let differing: Vec<&OtherClock> = others.iter().filter(|o| o.certain_s() >= ALIKE_S).collect();
    let seen = differing.iter().map(|other| said(other)).collect::<Vec<_>>().join("; ");
    let alone = differing.len() < others.len();
    let remedy = match alone {
        true => format!("on {}: timedatectl set-ntp true", worst.of),
        false => "timedatectl set-ntp true".to_owned(),
    };
    let found = match off >= WRONG_S {
        true => Finding::error("clock.offset", seen)
            .means("rosters and tokens count as expired or not yet valid on one of the hosts"),
        false => Finding::warning("clock.offset", seen)
            .means("ages of measurements and of logs are wrong by this much"),
    };
    found.remedy(remedy)
}

fn kept(kernel: Option<&Result<KernelClock, String>>, differs: bool) -> Finding {
    match kernel {
        None => Finding::unchecked("clock.synchronised", "the kernel was not asked"),
        Some(Err(why)) => Finding::unchecked("clock.synchronised", why),
        Some(Ok(clock)) if clock.synchronised => {
            let seen = format!("synchronised, error at most {:?}", clock.error);
            Finding::ok("clock.synchronised", seen)
        }
        Some(Ok(_)) => {
            let seen = "no time service keeps this clock right (adjtimex: STA_UNSYNC)";
            let found = match differs {
                true => Finding::warning("clock.unsynchronised", seen),
                false => Finding::note("clock.unsynchronised", seen),
            };
            found.means("it drifts by seconds a week").remedy("timedatectl set-ntp true")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::doctor::Severity;

    fn other(of: &str, ahead_s: f64) -> OtherClock {
        OtherClock { of: of.to_owned(), ahead_s, doubt_s: 0.1 }
    }

    fn found(others: Vec<OtherClock>) -> Finding {
        check(&ClockFacts { kernel: None, others }).remove(0)
    }

    #[test]
    fn the_host_that_differs_from_all_others_is_to_be_set() {
        assert_eq!(found(vec![other("fra", 0.5)]).severity, Severity::Ok);
        let own = found(vec![other("fra", 301.0), other("nyc", 300.0)]);
        assert_eq!((own.severity, &*own.remedy), (Severity::Error, "timedatectl set-ntp true"));
        let theirs = found(vec![other("fra", -0.1), other("nyc", -5.0)]);
        assert_eq!(theirs.severity, Severity::Warning);
        assert!(theirs.seen.contains("nyc is 5.0 s behind") && theirs.remedy.starts_with("on nyc"));
        assert_eq!(found(Vec::new()).severity, Severity::Unchecked);
    }

    #[test]
    fn a_slow_answer_is_no_difference() {
        let slow = OtherClock { of: "fra".to_owned(), ahead_s: 3.0, doubt_s: 2.5 };
        assert_eq!(found(vec![slow]).severity, Severity::Ok);
    }

    #[test]
    fn an_unsynchronised_clock_is_a_note_while_it_is_right() {
        let kernel = Some(Ok(KernelClock { synchronised: false, error: Duration::from_secs(16) }));
        let facts = ClockFacts { kernel, others: vec![other("fra", 0.0)] };
        assert_eq!(check(&facts)[1].severity, Severity::Note);
        let facts = ClockFacts { others: vec![other("fra", 9.0)], ..facts };
        assert_eq!(check(&facts)[1].severity, Severity::Warning);
    }
}
