//! The variation between rounds: seeds, drawn values, and the cells of a matrix.

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
        from: u64,
        /// The number of seeds.
        count: u64,
    },
}

impl Default for Seeds {
    fn default() -> Self {
        Self::List(vec![1])
    }
}

impl Seeds {
    /// All seeds.
    pub fn list(&self) -> Vec<u64> {
        match self {
            Self::List(list) => list.clone(),
            Self::Range { from, count } => (*from..from.saturating_add(*count)).collect(),
        }
    }
}

/// A value drawn from the round's seed; it is a placeholder like any parameter.
///
/// It depends only on the seed and its name, so that adding a draw does not change others.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draw {
    /// Uniform between two quantities of the same unit, inclusive …
    pub between: Option<[String; 2]>,
    /// … on a logarithmic scale.
    #[serde(default)]
    pub log: bool,
    /// … or one of these values.
    pub one_of: Option<Vec<String>>,
}

impl Draw {
    /// The value of the draw `name` for `seed`.
    ///
    /// # Errors
    /// If the bounds are not quantities of the same unit in order, or neither or both forms are given.
    pub fn value(&self, name: &str, seed: u64) -> Result<String> {
        let fault = |why: &str| ExperimentError::value(format!("draw.{name}"), why);
        let mut rng = generator(name, seed);
        match (&self.between, &self.one_of) {
            (Some([low, high]), None) => {
                let ((low, unit), (high, other)) = match (quantity(low), quantity(high)) {
                    (Some(low), Some(high)) => (low, high),
                    _ => return Err(fault("`between` must be two quantities")),
                };
                if unit != other || low > high || (self.log && low <= 0.0) {
                    return Err(fault(
                        "`between` must be two quantities of the same unit, the smaller one first",
                    ));
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

/// A random generator for one purpose: distinct names give independent sequences.
pub(crate) fn generator(name: &str, seed: u64) -> Xoshiro256PlusPlus {
    let mut hash = blake3::Hasher::new();
    hash.update(&seed.to_le_bytes()).update(name.as_bytes());
    Xoshiro256PlusPlus::from_seed(*hash.finalize().as_bytes())
}

/// Uniform in [0, 1), with 53 bits.
fn uniform(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn quantity(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || ".-".contains(c)));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    Some((number.parse().ok()?, unit.trim()))
}

/// Rounds to three decimals: a microsecond in milliseconds, a kbit/s in Mbit/s.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// How the case of an axis is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AxisBy {
    /// Every combination with the cases of other axes is a cell.
    #[default]
    Cell,
    /// The round's seed selects the case: seed n the n-th, cyclically.
    Seed,
}

/// An axis along which the rounds vary.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// The name; also a placeholder for the label of the case.
    pub name: String,
    /// How the case is chosen.
    #[serde(default)]
    pub by: AxisBy,
    /// Cases that set only the placeholder …
    #[serde(default)]
    pub values: Vec<toml::Value>,
    /// … or cases that set several parameters.
    #[serde(default)]
    pub case: Vec<Case>,
}

/// One value of an axis.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The name in cells and plots.
    pub label: String,
    /// A name like `topology.link.a.rate` changes the topology; any other name is a parameter.
    #[serde(default)]
    pub set: toml::Table,
}

impl Axis {
    /// All cases: those of `values`, then those of `case`.
    pub fn cases(&self) -> Vec<Case> {
        let plain = |v: &toml::Value| Case {
            label: v.as_str().map_or_else(|| v.to_string(), str::to_owned),
            set: toml::Table::new(),
        };
        self.values.iter().map(plain).chain(self.case.iter().cloned()).collect()
    }

    /// The case that `seed` selects.
    pub fn case_of_seed(&self, seed: u64) -> Option<Case> {
        let cases = self.cases();
        let n = cases.len() as u64;
        // Seed 1 gets the first case, seed 0 the last.
        let at = (seed.checked_rem(n)? + n - 1) % n;
        cases.into_iter().nth(at as usize)
    }
}

/// Cells that have more rounds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    /// Patterns of the cells' labels.
    pub cells: Vec<String>,
    /// Rounds per cell and seed.
    pub repeats: u32,
}

/// Selects the cells that run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// The number of cells, drawn with `seed`, besides the headline cells; absent: all. `--all` runs all.
    pub sample: Option<usize>,
    /// The seed of the sample.
    #[serde(default)]
    pub seed: u64,
    /// Cells that have more rounds and always run.
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
    fn draws_depend_only_on_seed_and_name() {
        let d = between("10 Mbit/s", "20 Mbit/s", false);
        assert_eq!(d.value("a", 1).unwrap(), d.value("a", 1).unwrap());
        assert_ne!(d.value("a", 1).unwrap(), d.value("a", 2).unwrap());
        assert_ne!(d.value("a", 1).unwrap(), d.value("b", 1).unwrap());
        assert!(d.value("a", 1).unwrap().ends_with(" Mbit/s"));
    }

    #[test]
    fn invalid_draws_are_rejected() {
        assert!(between("10 Mbit/s", "20 ms", false).value("a", 1).is_err());
        assert!(between("20 ms", "10 ms", false).value("a", 1).is_err());
        assert!(between("0 ms", "10 ms", true).value("a", 1).is_err());
        let empty = Draw { between: None, log: false, one_of: Some(vec![]) };
        assert!(empty.value("a", 1).is_err());
    }

    #[test]
    fn every_seed_selects_a_case() {
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
