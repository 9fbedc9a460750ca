//! What differs from round to round: seeds, drawn values, and the cells of a matrix.

use crate::error::{ExperimentError, Result};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Deserialize;

/// The seeds of the rounds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Seeds {
    /// `seeds = [1, 2, 3]`
    List(Vec<u64>),
    /// `seeds = { from = 1, count = 20 }`
    Range {
        /// The first.
        from: u64,
        /// How many.
        count: u64,
    },
}

impl Default for Seeds {
    fn default() -> Self {
        Self::List(vec![1])
    }
}

impl Seeds {
    /// All of them.
    pub fn list(&self) -> Vec<u64> {
        match self {
            Self::List(list) => list.clone(),
            Self::Range { from, count } => (*from..from.saturating_add(*count)).collect(),
        }
    }
}

/// A value drawn from the round's seed; a placeholder like any parameter.
///
/// Depends on the seed and its own name only, so that a further draw changes no other.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draw {
    /// Evenly between two quantities of the same unit, both included …
    pub between: Option<[String; 2]>,
    /// … on a logarithmic scale.
    #[serde(default)]
    pub log: bool,
    /// Or one of these.
    pub one_of: Option<Vec<String>>,
}

impl Draw {
    /// The value of the draw `name` for `seed`.
    ///
    /// # Errors
    /// When the plan's bounds are no quantities of one unit, or neither or both forms are given.
    pub fn value(&self, name: &str, seed: u64) -> Result<String> {
        let fault = |why: &str| ExperimentError::value(format!("draw.{name}"), why);
        let mut rng = generator(name, seed);
        match (&self.between, &self.one_of) {
            (Some([low, high]), None) => {
                let ((low, unit), (high, other)) = match (quantity(low), quantity(high)) {
                    (Some(low), Some(high)) => (low, high),
                    _ => return Err(fault("`between` takes two quantities")),
                };
                if unit != other || low > high || (self.log && low <= 0.0) {
                    return Err(fault("`between` takes two quantities of one unit, in order"));
                }
                let share = uniform(&mut rng);
                let value = if self.log {
                    low * (high / low).powf(share)
                } else {
                    low + (high - low) * share
                };
                Ok(format!("{} {unit}", rounded(value)).trim_end().to_owned())
            }
            (None, Some(list)) if !list.is_empty() => {
                let at = (uniform(&mut rng) * list.len() as f64) as usize;
                Ok(list[at.min(list.len() - 1)].clone())
            }
            _ => Err(fault("give either `between` or a non-empty `one_of`")),
        }
    }
}

/// A generator for one purpose: distinct names give independent sequences.
pub(crate) fn generator(name: &str, seed: u64) -> Xoshiro256PlusPlus {
    let mut hash = blake3::Hasher::new();
    hash.update(&seed.to_le_bytes()).update(name.as_bytes());
    Xoshiro256PlusPlus::from_seed(*hash.finalize().as_bytes())
}

/// In 0..1, 53 bits.
fn uniform(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn quantity(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || ".-".contains(c)));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    Some((number.parse().ok()?, unit.trim()))
}

/// Three decimals: a microsecond in milliseconds, a kbit/s in Mbit/s.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// How an axis takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AxisBy {
    /// Every combination with the other axes is a cell.
    #[default]
    Cell,
    /// The round's seed picks the case (seed n the n-th, around): any seed has one.
    Seed,
}

/// Something that varies.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Its name, also a placeholder: the case's label.
    pub name: String,
    /// How it takes part.
    #[serde(default)]
    pub by: AxisBy,
    /// Cases that set no more than the placeholder …
    #[serde(default)]
    pub values: Vec<toml::Value>,
    /// … or several things at once.
    #[serde(default)]
    pub case: Vec<Case>,
}

/// One value of an axis.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name in cells and plots.
    pub label: String,
    /// `topology.link.a.rate` and the like changes the topology; any other name is a parameter.
    #[serde(default)]
    pub set: toml::Table,
}

impl Axis {
    /// All cases, values and written ones.
    pub fn cases(&self) -> Vec<Case> {
        let plain = |v: &toml::Value| Case {
            label: v.as_str().map_or_else(|| v.to_string(), str::to_owned),
            set: toml::Table::new(),
        };
        self.values.iter().map(plain).chain(self.case.iter().cloned()).collect()
    }

    /// The case that `seed` picks.
    pub fn case_of_seed(&self, seed: u64) -> Option<Case> {
        let cases = self.cases();
        let n = cases.len() as u64;
        // Seed 1 gets the first case, seed 0 the last.
        let at = (seed.checked_rem(n)? + n - 1) % n;
        cases.into_iter().nth(at as usize)
    }
}

/// Cells that are repeated more often.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    /// Patterns of their labels.
    pub cells: Vec<String>,
    /// Rounds for each of them and each seed.
    pub repeats: u32,
}

/// Which cells of all combinations run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// So many, drawn with `seed` (headline cells come on top); absent: all. `--all` runs all.
    pub sample: Option<usize>,
    /// Of the sample.
    #[serde(default)]
    pub seed: u64,
    /// Those repeated more often.
    #[serde(default)]
    pub headline: Headline,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn between(low: &str, high: &str, log: bool) -> Draw {
        Draw { between: Some([low.into(), high.into()]), log, one_of: None }
    }

    #[test]
    fn draws_hang_on_seed_and_name_alone() {
        let d = between("10 Mbit/s", "20 Mbit/s", false);
        assert_eq!(d.value("a", 1).unwrap(), d.value("a", 1).unwrap());
        assert_ne!(d.value("a", 1).unwrap(), d.value("a", 2).unwrap());
        assert_ne!(d.value("a", 1).unwrap(), d.value("b", 1).unwrap());
        assert!(d.value("a", 1).unwrap().ends_with(" Mbit/s"));
    }

    #[test]
    fn faulty_draws_are_refused() {
        assert!(between("10 Mbit/s", "20 ms", false).value("a", 1).is_err());
        assert!(between("20 ms", "10 ms", false).value("a", 1).is_err());
        assert!(between("0 ms", "10 ms", true).value("a", 1).is_err());
        let empty = Draw { between: None, log: false, one_of: Some(vec![]) };
        assert!(empty.value("a", 1).is_err());
    }

    #[test]
    fn every_seed_picks_a_case() {
        let axis: Axis = toml::from_str("name='x'\nby='seed'\nvalues=['a','b','c']").unwrap();
        let label = |seed| axis.case_of_seed(seed).unwrap().label;
        assert_eq!([1, 2, 3, 4, 0, u64::MAX].map(label), ["a", "b", "c", "a", "c", "c"]);
    }

    proptest! {
        #[test]
        fn draws_stay_between_their_bounds(seed: u64, log: bool) {
            let text = between("5 ms", "80 ms", log).value("x", seed).unwrap();
            let (value, unit) = quantity(&text).unwrap();
            prop_assert!((5.0..=80.0).contains(&value) && unit == "ms", "{}", text);
        }
    }
}
