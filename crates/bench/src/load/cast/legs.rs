//! Trees and rates of legs, as arguments and files express them.

use anyhow::{Context as _, bail, ensure};
use std::{collections::BTreeMap, fmt, fs, path::Path, str::FromStr};

/// A leg from one host to another.
pub type Leg = (String, String);

/// Rates of legs, bit/s.
pub type LegRates = BTreeMap<Leg, f64>;

/// A list of legs, such as `s>a,a>b`, each with the parent first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Legs(pub Vec<Leg>);

impl FromStr for Legs {
    type Err = anyhow::Error;

    /// Parses `s>a,a>b`, a chain `s>a>b`, and `chain:s:n:20`, a chain from `s` over `n1`, `n2` … to `n20`.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        if let Some(rest) = text.strip_prefix("chain:") {
            return chain(rest);
        }
        let mut legs = Vec::new();
        for part in text.split(',') {
            let hosts: Vec<&str> = part.split('>').map(str::trim).collect();
            ensure!(
                hosts.len() > 1 && hosts.iter().all(|h| !h.is_empty()),
                "`{part}` is not a leg"
            );
            for pair in hosts.windows(2) {
                legs.push((pair[0].to_owned(), pair[1].to_owned()));
            }
        }
        Ok(Self(legs))
    }
}

impl fmt::Display for Legs {
    /// The form that `from_str` parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leg = |(from, to): &Leg| format!("{from}>{to}");
        f.write_str(&self.0.iter().map(leg).collect::<Vec<_>>().join(","))
    }
}

fn chain(text: &str) -> anyhow::Result<Legs> {
    let mut parts = text.split(':');
    let (Some(first), Some(name), Some(count)) = (parts.next(), parts.next(), parts.next()) else {
        bail!("a chain must have the form `chain:FIRST:NAME:COUNT`")
    };
    let count: usize = count.parse().with_context(|| format!("`{count}` is not a number"))?;
    let host = |at: usize| if at == 0 { first.to_owned() } else { format!("{name}{at}") };
    Ok(Legs((1..=count).map(|at| (host(at - 1), host(at))).collect()))
}

impl Legs {
    /// All legs between these hosts, in both directions.
    pub fn between_all(hosts: &[String]) -> Self {
        let pairs = hosts.iter().flat_map(|from| hosts.iter().map(move |to| (from, to)));
        let others = pairs.filter(|(from, to)| from != to);
        Self(others.map(|(from, to)| (from.clone(), to.clone())).collect())
    }

    /// The hosts that have a parent, in the order of the legs.
    pub fn children(&self) -> Vec<String> {
        self.0.iter().map(|(_, child)| child.clone()).collect()
    }

    /// The children of a host.
    pub fn children_of(&self, parent: &str) -> Vec<String> {
        let own = self.0.iter().filter(|(from, _)| from == parent);
        own.map(|(_, child)| child.clone()).collect()
    }

    /// The legs from the root to this host, the last one first.
    pub fn path_to_root(&self, host: &str) -> Vec<Leg> {
        let mut way: Vec<Leg> = Vec::new();
        let mut at = host.to_owned();
        while let Some(leg) = self.0.iter().find(|(_, child)| *child == at) {
            if way.contains(leg) {
                break;
            }
            at = leg.0.clone();
            way.push(leg.clone());
        }
        way
    }

    /// The rate of the leg from this host's parent; `None` if it is unknown.
    pub fn parent_rate(&self, host: &str, rates: &LegRates) -> Option<f64> {
        let leg = self.0.iter().find(|(_, child)| child == host)?;
        rates.get(leg).copied()
    }

    /// The rate of the slowest leg from the root to this host; `None` if any leg's rate is unknown.
    pub fn min_hop(&self, host: &str, rates: &LegRates) -> Option<f64> {
        let way = self.path_to_root(host);
        let hops: Option<Vec<f64>> = way.iter().map(|leg| rates.get(leg).copied()).collect();
        hops?.into_iter().reduce(f64::min)
    }
}

/// Writes rates in the format of the option `--rates` of other commands.
///
/// # Errors
/// When it cannot be written.
pub fn write(file: &Path, rates: &LegRates) -> anyhow::Result<()> {
    let line = |((from, to), bps): (&Leg, &f64)| format!("{from},{to},{}\n", bps.round());
    let text: String = rates.iter().map(line).collect();
    fs::write(file, format!("from,to,bps\n{text}"))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Reads a file that [`write()`] wrote.
///
/// # Errors
/// When it cannot be read or has another format.
pub fn read(file: &Path) -> anyhow::Result<LegRates> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let line = |line: &str| -> anyhow::Result<(Leg, f64)> {
        let mut parts = line.split(',');
        let (Some(from), Some(to), Some(bps)) = (parts.next(), parts.next(), parts.next()) else {
            bail!("{}: `{line}` is not the rate of a leg", file.display())
        };
        Ok(((from.to_owned(), to.to_owned()), bps.parse()?))
    };
    text.lines().skip(1).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn legs(text: &str) -> Legs {
        text.parse().unwrap()
    }

    #[test]
    fn trees_and_chains_are_parsed() {
        let leg = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let tree = [leg("s", "a"), leg("a", "b"), leg("s", "c")];
        assert_eq!(legs("s>a>b,s>c").0, tree);
        assert_eq!(legs("chain:s:n:2").0, [leg("s", "n1"), leg("n1", "n2")]);
        assert_eq!(legs("s>a>b,s>c").children_of("s"), ["a", "c"]);
        assert!("s".parse::<Legs>().is_err() && "s>".parse::<Legs>().is_err());
        let hosts = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(Legs::between_all(&hosts).0.len(), 6);
        assert!(Legs::between_all(&hosts).0.iter().all(|(from, to)| from != to));
    }

    #[test]
    fn the_slowest_hop_is_found_and_written_rates_are_read_back() {
        let tree = legs("s>a>b");
        let rate = |at: usize, bps: f64| (tree.0[at].clone(), bps);
        let rates: LegRates = [rate(0, 5e6), rate(1, 7e6)].into();
        assert_eq!(tree.min_hop("b", &rates), Some(5e6));
        assert_eq!(tree.parent_rate("b", &rates), Some(7e6));
        assert_eq!(tree.to_string().parse::<Legs>().unwrap(), tree);
        assert_eq!(legs("s>a>b>c").min_hop("c", &rates), None);
        let file = tempfile::NamedTempFile::new().unwrap();
        write(file.path(), &rates).unwrap();
        assert_eq!(read(file.path()).unwrap(), rates);
    }
}
