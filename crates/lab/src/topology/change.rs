//! Changes of a link at run time.

use super::{Loss, Probability, Queue, Reorder, TopologyError, text};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};
use thalweg_units::{ParseError, Rate, parse_duration};

/// A change of a link at run time. Absent properties stay as they are.
///
/// As words (`lab set`): `rate=20Mbit/s delay=10ms loss=1% queue=100kB reorder=1%,5ms duplicate=0.1% corrupt=0.1%`,
/// `up` or `down`; `none` turns an impairment off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// The new rate, > 0, also for queued packets. Ends a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The new size of the queue; queued packets stay. A BDP is computed from the rate after the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// The new delay for packets that enter from now on; order is kept.
    #[serde(default, with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// The new loss model, which starts in its initial state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// The new reordering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// The new probability of duplication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Probability>,
    /// The new probability of a flipped bit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<Probability>,
    /// Up or down. Taking the link down drops packets that are queued or in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
}

const KEYS: [&str; 9] =
    ["rate", "queue", "delay", "loss", "reorder", "duplicate", "corrupt", "up", "down"];

impl LinkChange {
    /// A change of the rate alone.
    pub fn rate(rate: Rate) -> Self {
        Self { rate: Some(rate), ..Self::default() }
    }

    /// A change to up or down alone.
    pub fn up(up: bool) -> Self {
        Self { up: Some(up), ..Self::default() }
    }

    /// Parses the words of `lab set LINK …`.
    ///
    /// # Errors
    /// If there is no word, a key is unknown (the message names the nearest one) or given twice, or a value is invalid.
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Self, TopologyError> {
        let mut change = Self::default();
        let mut seen = BTreeSet::new();
        for word in words.iter().map(AsRef::as_ref) {
            change.read(word)?;
            let key = word.split_once('=').map_or("up or down", |(key, _)| key);
            if !seen.insert(key) {
                return Err(TopologyError::conflict("change", "a key is given twice"));
            }
        }
        if words.is_empty() {
            let why = "give the changes, such as rate=20Mbit/s, delay=10ms, loss=1%, queue=100kB, up, down";
            return Err(TopologyError::conflict("change", why));
        }
        Ok(change)
    }

    fn read(&mut self, word: &str) -> Result<(), TopologyError> {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "up" | "down" if word == key => self.up = Some(key == "up"),
            "up" | "down" => {
                return Err(TopologyError::value(key, value, "write just `up` or `down`"));
            }
            "rate" => self.rate = Some(rate(value)?),
            "queue" => {
                let queue: Queue = name_key(key, value, value.parse())?;
                queue.check(key)?;
                self.queue = Some(queue);
            }
            "delay" => self.delay = Some(name_key(key, value, parse_duration(value))?),
            "loss" => self.loss = Some(Loss::from_word(value)?),
            "reorder" => self.reorder = Some(reorder(value)?),
            "duplicate" => self.duplicate = Some(probability(key, value)?),
            "corrupt" => self.corrupt = Some(probability(key, value)?),
            _ => return Err(TopologyError::unknown("change", "key", key, KEYS)),
        }
        Ok(())
    }
}

fn name_key<T>(key: &str, value: &str, read: Result<T, ParseError>) -> Result<T, TopologyError> {
    read.map_err(|e| TopologyError::value(key, value, e.to_string()))
}

fn rate(value: &str) -> Result<Rate, TopologyError> {
    match name_key("rate", value, value.parse())? {
        Rate::ZERO => {
            Err(TopologyError::value("rate", value, "must not be zero; use `down` to stop traffic"))
        }
        rate => Ok(rate),
    }
}

fn probability(key: &str, value: &str) -> Result<Probability, TopologyError> {
    if value == "none" { Ok(Probability::NEVER) } else { name_key(key, value, value.parse()) }
}

fn reorder(value: &str) -> Result<Reorder, TopologyError> {
    if value == "none" {
        return Ok(Reorder::default());
    }
    let Some((p, by)) = value.split_once(',') else {
        return Err(TopologyError::value("reorder", value, "write it like 1%,5ms"));
    };
    let by = name_key("reorder", value, parse_duration(by))?;
    Ok(Reorder { probability: name_key("reorder", value, p.parse())?, by })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_parsed_into_a_change() {
        let words = [
            "rate=20Mbit/s",
            "delay=10 ms",
            "loss=1%",
            "queue=1 BDP of 40 ms",
            "reorder=1%,5ms",
            "duplicate=none",
            "corrupt=0.1%",
            "down",
        ];
        let change = LinkChange::parse(&words).unwrap();
        assert_eq!(change.rate, Some(Rate::from_mbps(20.0)));
        assert_eq!(change.delay, Some(Duration::from_millis(10)));
        assert_eq!(change.up, Some(false));
        assert_eq!(change.reorder.unwrap().by, Duration::from_millis(5));
        let json = serde_json::to_string(&change).unwrap();
        assert_eq!(serde_json::from_str::<LinkChange>(&json).unwrap(), change);
    }

    #[test]
    fn contradictory_words_are_rejected() {
        assert!(LinkChange::parse(&["up", "down"]).is_err());
        assert!(LinkChange::parse(&["rate=1Mbit/s", "rate=2Mbit/s"]).is_err());
    }

    #[test]
    fn parse_errors_name_the_cause() {
        let error = |word: &str| LinkChange::parse(&[word]).unwrap_err().to_string();
        assert!(error("rat=1Mbit/s").contains("did you mean `rate`"), "{}", error("rat=1Mbit/s"));
        assert!(error("rate=5").contains("unit is missing"));
        assert!(error("rate=0bit/s").contains("down"));
        assert!(error("reorder=1%").contains("1%,5ms"));
        assert!(error("queue=0B").contains("1500 B"));
        assert!(error("up=1").contains("just `up` or `down`"));
        assert!(LinkChange::parse::<&str>(&[]).is_err());
    }
}
