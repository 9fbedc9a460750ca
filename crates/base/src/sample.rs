//! Selects which of many failures are listed individually. Pure.

use std::collections::BTreeMap;

/// The most failures listed per kind.
const MAX_LISTED_PER_KIND: u64 = 10;

/// The most failures listed in all: a screen, with the counts of the rest.
const MAX_LISTED: u64 = 50;

/// The most kinds that are distinguished. Other hosts' messages about each file may all differ; beyond this bound they
/// are counted together.
const MAX_KINDS: usize = 64;

/// Selects the first failures of each kind and counts the others: 5,000 files that fail for one reason become ten lines
/// and a number.
#[derive(Debug, Default)]
pub struct FailureSample {
    kinds: BTreeMap<(String, String), FailureKind>,
    others: u64,
    named: u64,
}

#[derive(Debug, Default)]
struct FailureKind {
    why: String,
    named: u64,
    more: u64,
}

/// A number of failures that were not listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedFailures {
    /// The host or item that they concern; empty for those of all.
    pub whose: String,
    /// The reason of the first of them; empty: several reasons.
    pub why: String,
    pub count: u64,
}

impl FailureSample {
    /// Whether to list this failure. `whose` and `why` without its numbers determine the kind.
    pub fn takes(&mut self, whose: &str, why: &str) -> bool {
        let key = (whose.to_owned(), without_numbers(why));
        if self.kinds.len() >= MAX_KINDS && !self.kinds.contains_key(&key) {
            self.others += 1;
            return false;
        }
        let kind = self.kinds.entry(key).or_default();
        let is_named = kind.named < MAX_LISTED_PER_KIND && self.named < MAX_LISTED;
        if is_named {
            kind.named += 1;
            self.named += 1;
        } else {
            if kind.more == 0 {
                why.clone_into(&mut kind.why);
            }
            kind.more += 1;
        }
        is_named
    }

    /// The failures that were not listed, by kind.
    pub fn more(&self) -> Vec<UnlistedFailures> {
        let rest = self.kinds.iter().filter(|(_, kind)| kind.more > 0);
        let mut more: Vec<UnlistedFailures> = rest
            .map(|((whose, _), kind)| UnlistedFailures {
                whose: whose.clone(),
                why: kind.why.clone(),
                count: kind.more,
            })
            .collect();
        if self.others > 0 {
            let (whose, why) = Default::default();
            more.push(UnlistedFailures { whose, why, count: self.others });
        }
        more
    }
}

impl std::fmt::Display for UnlistedFailures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = group_digits(self.count);
        match self.why.as_str() {
            "" => write!(f, "… and {count} more, for several reasons"),
            why => write!(f, "… and {count} more of this kind: {why}"),
        }
    }
}

/// Formats `1234567` as `1,234,567`.
pub fn group_digits(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Replaces each run of digits by one `0`.
fn without_numbers(why: &str) -> String {
    let mut text = String::with_capacity(why.len());
    for c in why.chars() {
        match c.is_ascii_digit() {
            true if text.ends_with('0') => {}
            true => text.push('0'),
            false => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failures_of_each_kind_are_listed_and_the_rest_counted() {
        let mut sample = FailureSample::default();
        let mut named = 0;
        for n in 0..5000 {
            named += u64::from(sample.takes("fra", &format!("it needs {n} kB")));
        }
        assert_eq!((named, MAX_LISTED_PER_KIND), (10, 10));
        assert!(sample.takes("fra", "no permission") && sample.takes("nyc", "it needs 1 kB"));
        let more = sample.more();
        assert_eq!(more.len(), 1);
        assert_eq!(more[0].to_string(), "… and 4,990 more of this kind: it needs 10 kB");
    }

    #[test]
    fn reasons_given_by_others_are_bounded() {
        let mut sample = FailureSample::default();
        let words = |n: u32| char::from_u32(0x4e00 + n).unwrap().to_string();
        let named = (0..1000).filter(|n| sample.takes("fra", &words(*n))).count();
        assert_eq!(named as u64, MAX_LISTED);
        let more = sample.more();
        let counted: u64 = more.iter().map(|more| more.count).sum();
        assert_eq!(counted, 1000 - MAX_LISTED);
        assert!(more.len() <= MAX_KINDS + 1);
        assert!(more.last().unwrap().to_string().contains("936 more, for several reasons"));
    }

    #[test]
    fn digits_are_grouped_by_thousands() {
        let told = [0, 12, 999, 1000, 4990, 1_234_567].map(group_digits);
        assert_eq!(told, ["0", "12", "999", "1,000", "4,990", "1,234,567"]);
    }
}
