//! The price of moving bytes over each leg, read from a file.
//!
//! ```text
//! from,to,per_gb          # in any currency; a gigabyte is 10⁹ bytes
//! fra,*,0.09              # data that leaves fra
//! *,nyc,0.02              # data that arrives at nyc
//! fra,nyc,0.01            # between these two: the most specific line applies
//! ```

use serde::Deserialize;
use std::collections::BTreeMap;
use thalweg_paths::{
    overlay::Overlay,
    table::{self, TableError, cells, lines},
};
use thalweg_plan::collection::{Prices, Problem};
use thalweg_units::ByteSize;
use thalweg_wire::mesh::Name;

/// Prices by leg. A leg without a matching line costs nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PriceList {
    per_gb: BTreeMap<(Option<Name>, Option<Name>), f64>,
}

/// The error for a file without prices.
const EMPTY: TableError = TableError::Empty(
    "it contains no prices: write a table with the header `from,to,per_gb`, or `[[price]]` \
     sections with from, to and per_gb; `*` stands for any node",
);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    price: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    from: String,
    to: String,
    per_gb: f64,
}

impl PriceList {
    /// Parses a file's text: TOML if it has sections, otherwise a table.
    ///
    /// # Errors
    ///
    /// Returns [`TableError`], which names the line.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let list = match table::is_toml(text) {
            None => return Err(EMPTY),
            Some(true) => Self::parse_toml(text)?,
            Some(false) => Self::parse_table(text)?,
        };
        if list.per_gb.is_empty() { Err(EMPTY) } else { Ok(list) }
    }

    fn parse_toml(text: &str) -> Result<Self, TableError> {
        let document: Document =
            toml::from_str(text).map_err(|e| TableError::Toml(e.to_string().trim_end().into()))?;
        let mut list = Self::default();
        for Entry { from, to, per_gb } in document.price {
            list.add(&from, &to, per_gb).map_err(TableError::Toml)?;
        }
        Ok(list)
    }

    fn parse_table(text: &str) -> Result<Self, TableError> {
        let mut list = Self::default();
        let mut lines = lines(text);
        match lines.next() {
            Some((_, head)) if cells(head) == ["from", "to", "per_gb"] => {}
            Some((line, head)) => {
                let why = format!("`{head}`: the first line must be from,to,per_gb");
                return Err(TableError::Line { line, why });
            }
            None => return Err(EMPTY),
        }
        for (line, row) in lines {
            let fault = |why| TableError::Line { line, why };
            let cells = cells(row);
            let [from, to, price] = &cells[..] else {
                return Err(fault(format!("{} columns instead of 3", cells.len())));
            };
            let price = price.parse().map_err(|_| fault(format!("`{price}` is not a number")))?;
            list.add(from, to, price).map_err(fault)?;
        }
        Ok(list)
    }

    fn add(&mut self, from: &str, to: &str, per_gb: f64) -> Result<(), String> {
        let end = |text: &str| match text {
            "*" => Ok(None),
            name => name.parse::<Name>().map(Some).map_err(|e| e.to_string()),
        };
        if !per_gb.is_finite() || per_gb < 0.0 {
            return Err(format!("`{per_gb}` is not a price: a price is a number, 0 or more"));
        }
        self.per_gb.insert((end(from)?, end(to)?), per_gb);
        Ok(())
    }

    /// Returns the price of a gigabyte on a leg: the line for both ends if there is one; otherwise the sum of the lines
    /// for each end; otherwise the line for all legs.
    pub fn per_gb(&self, from: &Name, to: &Name) -> f64 {
        let (sender, receiver) = (Some(from.clone()), Some(to.clone()));
        let said = |from: &Option<Name>, to: &Option<Name>| {
            self.per_gb.get(&(from.clone(), to.clone())).copied()
        };
        if let Some(exact) = said(&sender, &receiver) {
            return exact;
        }
        match (said(&sender, &None), said(&None, &receiver)) {
            (None, None) => said(&None, &None).unwrap_or(0.0),
            (out, into) => out.unwrap_or(0.0) + into.unwrap_or(0.0),
        }
    }

    /// Returns the prices of a problem's legs, per data unit.
    pub fn of(&self, problem: &Problem, overlay: &Overlay, unit: ByteSize) -> Prices {
        Prices::of(problem, |from, to| self.of_leg(overlay, from, to, unit))
    }

    /// Returns the price of moving `bytes` over a leg.
    pub fn of_leg(&self, overlay: &Overlay, from: u32, to: u32, bytes: ByteSize) -> f64 {
        let name = |host: u32| overlay.names.get(host as usize);
        let per_gb = name(from).zip(name(to)).map_or(0.0, |(from, to)| self.per_gb(from, to));
        per_gb * bytes.as_bytes() as f64 / 1e9
    }

    /// Whether a line gives the price of this leg.
    pub fn speaks_of(&self, from: &Name, to: &Name) -> bool {
        let (from, to) = (Some(from.clone()), Some(to.clone()));
        let lines = [(from.clone(), to.clone()), (from, None), (None, to), (None, None)];
        lines.iter().any(|line| self.per_gb.contains_key(line))
    }

    /// Returns the highest possible price of these amounts: each source's data goes directly or through one other node,
    /// whichever is most expensive.
    pub fn most(&self, overlay: &Overlay, amounts: &[ByteSize]) -> f64 {
        let here = overlay.destination();
        let dearest = |source: u32, amount: ByteSize| {
            let leg = |from, to| self.of_leg(overlay, from, to, amount);
            let by = |via| leg(source, via) + leg(via, here);
            overlay.intermediates(source).map(by).fold(leg(source, here), f64::max)
        };
        (0..here).zip(amounts).map(|(source, amount)| dearest(source, *amount)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_line_applies() {
        let table = "from,to,per_gb\nfra,*,0.09 # egress\n*,nyc,0.02\nfra,nyc,0.01\n";
        let toml = "[[price]]\nfrom = \"fra\"\nto = \"*\"\nper_gb = 0.09\n[[price]]\nfrom = \"*\"\n\
                    to = \"nyc\"\nper_gb = 0.02\n[[price]]\nfrom = \"fra\"\nto = \"nyc\"\n\
                    per_gb = 0.01\n";
        let list = PriceList::parse(table).unwrap();
        assert_eq!(PriceList::parse(toml).unwrap(), list);
        let price =
            |from: &str, to: &str| list.per_gb(&from.parse().unwrap(), &to.parse().unwrap());
        assert_eq!(
            (price("fra", "ber"), price("ber", "nyc"), price("fra", "nyc")),
            (0.09, 0.02, 0.01)
        );
        assert_eq!(price("ber", "lap"), 0.0);
        let both = PriceList::parse("from,to,per_gb\na,*,1\n*,b,2\n*,*,7\n").unwrap();
        let price =
            |from: &str, to: &str| both.per_gb(&from.parse().unwrap(), &to.parse().unwrap());
        assert_eq!((price("a", "b"), price("x", "y")), (3.0, 7.0));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, says) in [
            ("", "contains no prices"),
            ("from,to,per_gb\n", "contains no prices"),
            ("a,b,1\n", "line 1"),
            ("from,to,per_gb\na,b\n", "line 2: 2 columns"),
            ("from,to,per_gb\na,b,-1\n", "line 2: `-1` is not a price"),
            ("from,to,per_gb\na,b,x\n", "line 2: `x` is not a number"),
            ("from,to,per_gb\nA,b,1\n", "`A` is not a valid name"),
            ("[[prize]]\n", "unknown field"),
        ] {
            let error = PriceList::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
