//! Models of random loss.

use super::{Probability, TopologyError};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;

/// Random loss after the queue.
///
/// As text `"1 %"`, or a table `{ good_to_bad, bad_to_good, in_bad, in_good }`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Loss {
    /// No packet is lost.
    #[default]
    #[serde(serialize_with = "never")]
    None,
    /// Each packet is lost with this probability, independently.
    Random(Probability),
    /// Packets are lost in bursts.
    Gilbert(Gilbert),
}

/// A two-state Markov chain that steps once per packet (Gilbert 1960, Elliott 1963).
///
/// A packet is lost with the probability of the present state; then the chain steps. The mean stay in the bad state is
/// `1 / bad_to_good` packets, and the share of packets in it `good_to_bad / (good_to_bad + bad_to_good)`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gilbert {
    /// Probability of a step from good to bad.
    pub good_to_bad: Probability,
    /// Probability of a step from bad to good.
    pub bad_to_good: Probability,
    /// Probability of loss in the bad state; default 100 %.
    #[serde(default = "always")]
    pub in_bad: Probability,
    /// Probability of loss in the good state; default 0.
    #[serde(default)]
    pub in_good: Probability,
}

fn always() -> Probability {
    Probability::ALWAYS
}

fn never<S: serde::Serializer>(s: S) -> Result<S::Ok, S::Error> {
    Probability::NEVER.serialize(s)
}

impl Gilbert {
    /// The share of packets that are lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        let (p, r) = (self.good_to_bad.get(), self.bad_to_good.get());
        // A chain without transitions stays in the good state, in which it starts.
        let bad = if p + r > 0.0 { p / (p + r) } else { 0.0 };
        bad * self.in_bad.get() + (1.0 - bad) * self.in_good.get()
    }
}

impl Loss {
    /// Independent loss with probability `p`.
    pub fn random(p: f64) -> Self {
        Self::Random(Probability::new(p))
    }

    /// The share of packets that are lost in the long run.
    pub fn mean(&self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Random(p) => p.get(),
            Self::Gilbert(g) => g.mean_loss(),
        }
    }

    /// Parses a word of `lab set`: `1%`, `none`, or `gilbert:GOOD_TO_BAD,BAD_TO_GOOD[,IN_BAD[,IN_GOOD]]`.
    pub(crate) fn from_word(word: &str) -> Result<Self, TopologyError> {
        let fail = |why: String| TopologyError::value("loss", word, why);
        let number = |t: &str| t.parse::<Probability>().map_err(|e| fail(e.to_string()));
        if word == "none" {
            return Ok(Self::None);
        }
        let Some(chain) = word.strip_prefix("gilbert:") else {
            return number(word).map(Self::Random);
        };
        let p = chain.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
        let (&[good_to_bad, bad_to_good, ..], true) = (p.as_slice(), p.len() <= 4) else {
            return Err(fail("write gilbert:GOOD_TO_BAD,BAD_TO_GOOD[,IN_BAD[,IN_GOOD]]".into()));
        };
        let in_bad = p.get(2).copied().unwrap_or(Probability::ALWAYS);
        let in_good = p.get(3).copied().unwrap_or(Probability::NEVER);
        Ok(Self::Gilbert(Gilbert { good_to_bad, bad_to_good, in_bad, in_good }))
    }
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(LossVisitor)
    }
}

struct LossVisitor;

impl<'de> de::Visitor<'de> for LossVisitor {
    type Value = Loss;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a probability such as \"1 %\" or a table such as \
             { good_to_bad = \"0.1 %\", bad_to_good = \"10 %\" }",
        )
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Loss, E> {
        text.parse().map(Loss::Random).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, p: f64) -> Result<Loss, E> {
        self.visit_str(&p.to_string())
    }

    fn visit_i64<E: de::Error>(self, p: i64) -> Result<Loss, E> {
        self.visit_str(&p.to_string())
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Loss, A::Error> {
        Gilbert::deserialize(de::value::MapAccessDeserializer::new(map)).map(Loss::Gilbert)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_words_are_parsed_into_models() {
        assert_eq!(Loss::from_word("1%"), Ok(Loss::random(0.01)));
        assert_eq!(Loss::from_word("none"), Ok(Loss::None));
        let Ok(Loss::Gilbert(g)) = Loss::from_word("gilbert:0.1%,10%") else { panic!() };
        assert_eq!((g.in_bad.get(), g.in_good.get()), (1.0, 0.0));
        assert!((g.mean_loss() - 0.001 / 0.101).abs() < 1e-12);
        assert!(Loss::from_word("gilbert:0.1%").is_err());
        assert!(Loss::from_word("2").is_err());
    }
}
