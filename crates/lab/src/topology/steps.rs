//! Step functions: rates over time.

use super::{TopologyError, text};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::time::Duration;
use thalweg_units::{Rate, parse_duration};

/// A rate over time: `steps[k] = (start, rate)`, with times since the lab's start.
///
/// Each step lasts until the next. With `every` the sequence repeats with that period, and the last step lasts until
/// the first step of the next round. Before the very first step there is no value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    /// (start, rate), starts strictly ascending, at least one.
    #[serde(with = "pairs")]
    pub steps: Vec<(Duration, Rate)>,
    /// The period, greater than the last start; absent: no repetition.
    #[serde(default, with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
}

/// The shortest period: shorter ones would be finer than any bin, and each change costs CPU time.
const EVERY_MIN: Duration = Duration::from_millis(1);

impl Steps {
    /// The largest rate of any step.
    pub fn peak(&self) -> Option<Rate> {
        self.steps.iter().map(|s| s.1).max()
    }

    /// Checks order and period; `key` names the table in errors.
    pub(crate) fn check(&self, key: &str) -> Result<(), TopologyError> {
        let bad = |value: String, why: &str| Err(TopologyError::value(key, value, why));
        let Some(last) = self.steps.last() else {
            return bad("[]".into(), "give at least one step: [[\"0 s\", \"5 Mbit/s\"]]");
        };
        if let Some(pair) = self.steps.windows(2).find(|p| p[0].0 >= p[1].0) {
            return bad(
                text::exact_duration(pair[1].0),
                "each step must start after the previous one",
            );
        }
        match self.every {
            Some(every) if every < EVERY_MIN => {
                bad(text::exact_duration(every), "`every` must be at least 1 ms")
            }
            Some(every) if every <= last.0 => bad(
                text::exact_duration(every),
                "`every` must be longer than the last step's start",
            ),
            _ => Ok(()),
        }
    }

    /// The changes in order, at O(1) each and without allocation.
    pub fn walk(&self) -> StepWalk {
        StepWalk { steps: self.clone(), next: 0, round: 0 }
    }
}

/// Iterates over the changes of [`Steps`], round after round.
#[derive(Clone, Debug)]
pub struct StepWalk {
    steps: Steps,
    next: usize,
    round: u64,
}

impl StepWalk {
    /// The next change, ns since the lab's start, and the rate from then on.
    pub fn peek(&self) -> Option<(u64, Rate)> {
        let (at, rate) = self.steps.steps.get(self.next)?;
        let base = self.steps.every.map_or(0, nanos).saturating_mul(self.round);
        Some((base.saturating_add(nanos(*at)), *rate))
    }

    /// Whether all rates are zero.
    pub fn is_silent(&self) -> bool {
        self.steps.steps.iter().all(|s| s.1 == Rate::ZERO)
    }

    /// Moves past the change that [`peek`](Self::peek) returns.
    pub fn advance(&mut self) {
        self.next += 1;
        if self.next == self.steps.steps.len() && self.steps.every.is_some() {
            self.next = 0;
            self.round += 1;
        }
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// `[["0 s", "20 Mbit/s"], …]`
pub(super) mod pairs {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        steps: &[(Duration, Rate)],
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_seq(steps.iter().map(|(at, rate)| (text::exact_duration(*at), rate)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Vec<(Duration, Rate)>, D::Error> {
        let pairs = Vec::<(String, Rate)>::deserialize(d)?;
        let read = |(at, rate): (String, Rate)| Ok((parse_duration(&at)?, rate));
        pairs
            .into_iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map_err(|e: thalweg_units::ParseError| de::Error::custom(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(every: Option<u64>) -> Steps {
        let s = |at, mbps| (Duration::from_secs(at), Rate::from_mbps(mbps));
        Steps { steps: vec![s(0, 20.0), s(30, 5.0)], every: every.map(Duration::from_secs) }
    }

    #[test]
    fn a_repeating_walk_starts_over() {
        let mut walk = steps(Some(60)).walk();
        let mut seen = Vec::new();
        for _ in 0..5 {
            let (at, rate) = walk.peek().unwrap();
            seen.push((at / 1_000_000_000, rate.as_mbps()));
            walk.advance();
        }
        assert_eq!(seen, [(0, 20.0), (30, 5.0), (60, 20.0), (90, 5.0), (120, 20.0)]);
        let mut once = steps(None).walk();
        once.advance();
        once.advance();
        assert_eq!(once.peek(), None);
    }

    #[test]
    fn unordered_steps_and_short_periods_are_rejected() {
        assert!(steps(Some(60)).check("trace").is_ok());
        assert!(steps(Some(30)).check("trace").is_err());
        let mut backwards = steps(None);
        backwards.steps.reverse();
        assert!(backwards.check("trace").is_err());
        assert!(Steps::default().check("trace").is_err());
    }
}
