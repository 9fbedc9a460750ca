//! Cross traffic: as written in a topology, and as the emulator gets it.

use super::{Steps, TopologyError, steps::pairs, text};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thalweg_units::{ByteSize, Rate};

/// `[[cross]]`: traffic that exists only as load on a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrossSpec {
    /// A link (both directions, each with its own random draws) or one direction of it.
    pub link: String,
    /// Its shape over time.
    pub kind: CrossKind,
    /// The mean rate while on; not for `steps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The size of each packet; default 1000 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
    /// `pareto`: the mean length of a burst.
    #[serde(default, with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub on: Option<Duration>,
    /// `pareto`: the mean length of a silence.
    #[serde(default, with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub off: Option<Duration>,
    /// `pareto`: the tail's exponent, > 1; default 1.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<f64>,
    /// `steps`: the rate over time, from `start`.
    #[serde(default, with = "pairs", skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<(Duration, Rate)>,
    /// `steps`: the period of repetition.
    #[serde(default, with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub every: Option<Duration>,
    /// The start, since the lab's start; default 0.
    #[serde(default, with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub start: Option<Duration>,
    /// The end, since the lab's start; default never.
    #[serde(default, with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub stop: Option<Duration>,
}

/// The shapes of cross traffic, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CrossKind {
    /// Constant bit rate.
    Cbr,
    /// Exponential gaps.
    Poisson,
    /// Bursts and silences of Pareto length, constant rate within a burst.
    Pareto,
    /// Constant bit rate that follows a step function.
    Steps,
}

/// Validated cross traffic with all defaults applied, as the emulator gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossConfig {
    /// Its shape over time.
    pub shape: CrossShape,
    /// Bytes per packet, > 0.
    pub size: u32,
    /// The start, since the link's start.
    pub start: Duration,
    /// The end, since the link's start; `None`: never.
    pub stop: Option<Duration>,
}

/// How cross traffic varies over time. All rates are > 0 except those of steps.
#[derive(Clone, Debug, PartialEq)]
pub enum CrossShape {
    /// Constant bit rate.
    Cbr(Rate),
    /// Poisson arrivals with this mean rate.
    Poisson(Rate),
    /// On–off with Pareto periods (Willinger et al. 1997: the sum of such sources is self-similar).
    Pareto {
        /// The rate within a burst.
        rate: Rate,
        /// Mean length of a burst.
        on: Duration,
        /// Mean length of a silence.
        off: Duration,
        /// The tail's exponent, > 1.
        shape: f64,
    },
    /// Constant bit rate that follows a step function; a rate may be 0.
    Steps(Steps),
}

/// The size of the largest IP packet, bytes.
const SIZE_MAX_BYTES: u64 = 65_535;
const SIZE_DEFAULT: ByteSize = ByteSize::from_bytes(1000);
/// The lowest mean rate, which keeps the time to the next packet below ten minutes.
const RATE_MIN: Rate = Rate::from_bps(1000);
/// The most packets a second; more would fully load a processor.
const PACKETS_PER_S_MAX: u64 = 1_000_000;
/// The shortest mean burst or silence; shorter bursts contain no packet but still cost CPU time.
const PERIOD_MIN: Duration = Duration::from_millis(1);

impl CrossSpec {
    /// Traffic of this kind and mean rate on `link`, with defaults for the rest.
    pub fn new(link: &str, kind: CrossKind, rate: Rate) -> Self {
        Self {
            link: link.to_owned(),
            kind,
            rate: Some(rate),
            size: None,
            on: None,
            off: None,
            shape: None,
            steps: Vec::new(),
            every: None,
            start: None,
            stop: None,
        }
    }

    /// Checks the keys of this kind and applies defaults. `at` names the table in errors.
    ///
    /// # Errors
    /// If a key is missing or belongs to another kind, or a value is out of range.
    pub(crate) fn config(&self, at: &str) -> Result<CrossConfig, TopologyError> {
        let size = self.size.unwrap_or(SIZE_DEFAULT);
        if !(1..=SIZE_MAX_BYTES).contains(&size.as_bytes()) {
            let why = "a packet has 1 to 65535 bytes";
            return Err(TopologyError::value(format!("{at}.size"), size, why));
        }
        self.refuse_foreign_keys(at)?;
        self.check_packets(at, size)?;
        Ok(CrossConfig {
            shape: self.shape_of(at)?,
            size: size.as_bytes() as u32,
            start: self.start.unwrap_or_default(),
            stop: self.stop,
        })
    }

    fn shape_of(&self, at: &str) -> Result<CrossShape, TopologyError> {
        Ok(match self.kind {
            CrossKind::Cbr => CrossShape::Cbr(self.mean_rate(at)?),
            CrossKind::Poisson => CrossShape::Poisson(self.mean_rate(at)?),
            CrossKind::Pareto => CrossShape::Pareto {
                rate: self.mean_rate(at)?,
                on: period(self.on, at, "on")?,
                off: period(self.off, at, "off")?,
                shape: self.tail(at)?,
            },
            CrossKind::Steps => {
                let steps = Steps { steps: self.steps.clone(), every: self.every };
                steps.check(&format!("{at}.steps"))?;
                CrossShape::Steps(steps)
            }
        })
    }

    fn mean_rate(&self, at: &str) -> Result<Rate, TopologyError> {
        match self.rate {
            Some(rate) if rate >= RATE_MIN => Ok(rate),
            Some(rate) => {
                let why = format!("must be at least {RATE_MIN}");
                Err(TopologyError::value(format!("{at}.rate"), rate, why))
            }
            None => Err(TopologyError::conflict(at, "`rate` is missing; for example \"4 Mbit/s\"")),
        }
    }

    fn check_packets(&self, at: &str, size: ByteSize) -> Result<(), TopologyError> {
        let rates = self.rate.into_iter().chain(self.steps.iter().map(|s| s.1));
        let Some(peak) = rates.max() else { return Ok(()) };
        if peak.as_bps() / size.as_bits() <= PACKETS_PER_S_MAX {
            return Ok(());
        }
        let why =
            format!("gives more than {PACKETS_PER_S_MAX} packets a second at {peak}; increase it");
        Err(TopologyError::value(format!("{at}.size"), size, why))
    }

    fn tail(&self, at: &str) -> Result<f64, TopologyError> {
        let shape = self.shape.unwrap_or(1.5);
        // At 1 and below the mean is infinite, so that a mean period has no meaning.
        if shape > 1.0 && shape <= 100.0 {
            return Ok(shape);
        }
        let why = "must be above 1 (the mean is infinite there) and at most 100";
        Err(TopologyError::value(format!("{at}.shape"), shape, why))
    }

    fn refuse_foreign_keys(&self, at: &str) -> Result<(), TopologyError> {
        let pareto = self.kind == CrossKind::Pareto;
        let steps = self.kind == CrossKind::Steps;
        let foreign = [
            ("rate", self.rate.is_some() && steps),
            ("on", self.on.is_some() && !pareto),
            ("off", self.off.is_some() && !pareto),
            ("shape", self.shape.is_some() && !pareto),
            ("steps", !self.steps.is_empty() && !steps),
            ("every", self.every.is_some() && !steps),
        ];
        match foreign.iter().find(|(_, wrong)| *wrong) {
            Some((key, _)) => {
                let kind = format!("{:?}", self.kind).to_lowercase();
                Err(TopologyError::conflict(at, format!("`{key}` cannot be used with `{kind}`")))
            }
            None => Ok(()),
        }
    }
}

fn period(value: Option<Duration>, at: &str, key: &str) -> Result<Duration, TopologyError> {
    match value {
        Some(d) if d >= PERIOD_MIN => Ok(d),
        Some(d) => {
            let value = text::exact_duration(d);
            Err(TopologyError::value(format!("{at}.{key}"), value, "must be at least 1 ms"))
        }
        None => {
            Err(TopologyError::conflict(at, format!("`{key}` is missing; for example \"500 ms\"")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pareto() -> CrossSpec {
        let mut spec = CrossSpec::new("core", CrossKind::Pareto, Rate::from_mbps(4.0));
        spec.on = Some(Duration::from_millis(500));
        spec.off = Some(Duration::from_millis(500));
        spec
    }

    #[test]
    fn invalid_keys_of_each_kind_are_named() {
        assert!(pareto().config("cross 1").is_ok());
        let refused = |change: &dyn Fn(&mut CrossSpec), word: &str| {
            let mut spec = pareto();
            change(&mut spec);
            let e = spec.config("cross 1").unwrap_err().to_string();
            assert!(e.contains(word) && e.contains("cross 1"), "{e}");
        };
        refused(&|s| s.off = None, "off");
        refused(&|s| s.shape = Some(1.0), "shape");
        refused(&|s| s.rate = None, "rate");
        refused(&|s| s.size = Some(ByteSize::ZERO), "size");
        refused(&|s| s.rate = Some(Rate::from_mbps(1e5)), "packets a second");
        refused(&|s| s.on = Some(Duration::from_nanos(1)), "1 ms");
        refused(&|s| s.rate = Some(Rate::from_bps(9)), "1 kbit/s");
        refused(&|s| s.kind = CrossKind::Cbr, "on");
        refused(&|s| s.every = Some(Duration::from_secs(1)), "every");
    }
}
