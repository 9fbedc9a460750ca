//! Reads rates of legs from a file: TOML, or CSV like tables of measurements.
//!
//! ```text
//! [[leg]]                                 from,to,rate,rtt,loss
//! from = "fra"                            fra,nyc,40 Mbit/s,80 ms,0.05 %
//! to = "nyc"                              nyc,fra,38.5 Mbit/s,,
//! rate = "40 Mbit/s"
//! rtt = "80 ms"                           # or bps and rtt_ms, as plain numbers
//! loss = "0.05 %"
//!
//! [[host]]                                # in TOML alone, for casts
//! name = "fra"
//! egress = "100 Mbit/s"
//! ingress = "1 Gbit/s"
//! ```

use super::{Estimates, Leg};
use crate::table::{self, TableError, cells, lines};
use serde::Deserialize;
use std::time::Duration;
use thalweg_plan::tree::Access;
use thalweg_units::{Rate, parse_duration, parse_probability};
use thalweg_wire::mesh::Name;

/// The error for a file without a leg.
const EMPTY: TableError = TableError::Empty(
    "there is no leg in it: write a table with the header `from,to,rate,rtt`, or `[[leg]]` sections \
     with from, to and rate",
);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    leg: Vec<Entry>,
    #[serde(default)]
    host: Vec<HostEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    from: Name,
    to: Name,
    rate: Rate,
    rtt: Option<String>,
    loss: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostEntry {
    name: Name,
    egress: Option<Rate>,
    ingress: Option<Rate>,
}

/// The meaning of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    From,
    To,
    Rate,
    Bps,
    Rtt,
    RttMs,
    Loss,
}

/// The columns by their names in the first line.
const COLUMNS: &[(&str, Column)] = &[
    ("from", Column::From),
    ("to", Column::To),
    ("rate", Column::Rate),
    ("bps", Column::Bps),
    ("rtt", Column::Rtt),
    ("rtt_ms", Column::RttMs),
    ("loss", Column::Loss),
];

impl Estimates {
    /// Reads a file's text: TOML if it has sections, else a table.
    ///
    /// # Errors
    ///
    /// [`TableError`] names the line.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let estimates = match table::is_toml(text) {
            None => return Err(EMPTY),
            Some(true) => Self::parse_toml(text)?,
            Some(false) => Self::parse_table(text)?,
        };
        if estimates.is_empty() { Err(EMPTY) } else { Ok(estimates) }
    }

    fn parse_toml(text: &str) -> Result<Self, TableError> {
        let document: Document =
            toml::from_str(text).map_err(|e| TableError::Toml(e.to_string().trim_end().into()))?;
        let mut estimates = Self::default();
        for entry in document.leg {
            let rtt = entry.rtt.as_deref().map(parse_duration).transpose();
            let rtt = rtt.map_err(|e| TableError::Toml(e.to_string()))?;
            let loss = entry.loss.as_deref().map(parse_probability).transpose();
            let loss = loss.map_err(|e| TableError::Toml(e.to_string()))?;
            let leg = Leg { rate: Some(entry.rate), rtt, loss, ..Leg::default() };
            estimates.legs.insert((entry.from, entry.to), leg);
        }
        for HostEntry { name, egress, ingress } in document.host {
            let said = Access { egress, ingress };
            let why = match said {
                Access { egress: None, ingress: None } => "neither egress nor ingress is given",
                Access { egress: Some(Rate::ZERO), .. }
                | Access { ingress: Some(Rate::ZERO), .. } => "a rate of 0 is not allowed",
                _ if estimates.access.insert(name.clone(), said).is_some() => "it is given twice",
                _ => continue,
            };
            return Err(TableError::Toml(format!("[[host]] `{name}`: {why}")));
        }
        Ok(estimates)
    }

    fn parse_table(text: &str) -> Result<Self, TableError> {
        let mut lines = lines(text);
        let Some((line, head)) = lines.next() else { return Err(EMPTY) };
        let columns = columns(head).map_err(|why| TableError::Line { line, why })?;
        let mut estimates = Self::default();
        for (line, row) in lines {
            let (ends, leg) =
                read_row(&columns, row).map_err(|why| TableError::Line { line, why })?;
            estimates.legs.insert(ends, leg);
        }
        Ok(estimates)
    }
}

fn columns(head: &str) -> Result<Vec<Column>, String> {
    let expected =
        "the first line must name the columns: from,to,rate,rtt (or bps, rtt_ms), and loss";
    let column = |name: &str| {
        let known = COLUMNS.iter().find(|(known, _)| *known == name.trim());
        known.map(|(_, column)| *column)
    };
    let columns: Option<Vec<Column>> = head.split(',').map(column).collect();
    let columns = columns.ok_or_else(|| format!("`{head}`: {expected}"))?;
    let has = |column| columns.contains(&column);
    match has(Column::From) && has(Column::To) && (has(Column::Rate) || has(Column::Bps)) {
        true => Ok(columns),
        false => Err(format!("`{head}`: {expected}")),
    }
}

fn read_row(columns: &[Column], row: &str) -> Result<((Name, Name), Leg), String> {
    let cells = cells(row);
    if cells.len() != columns.len() {
        return Err(format!("{} columns, but the first line names {}", cells.len(), columns.len()));
    }
    let (mut from, mut to, mut leg) = (None, None, Leg::default());
    for (column, cell) in columns.iter().zip(cells) {
        match column {
            Column::From => from = Some(cell.parse::<Name>().map_err(|e| e.to_string())?),
            Column::To => to = Some(cell.parse::<Name>().map_err(|e| e.to_string())?),
            // An empty cell is a value that was not measured.
            _ if cell.is_empty() => {}
            Column::Rate => leg.rate = Some(cell.parse::<Rate>().map_err(|e| e.to_string())?),
            Column::Bps => leg.rate = Some(Rate::from_bps(number(cell)? as u64)),
            Column::Rtt => leg.rtt = Some(parse_duration(cell).map_err(|e| e.to_string())?),
            Column::RttMs => leg.rtt = Some(Duration::from_secs_f64(number(cell)? / 1000.0)),
            Column::Loss => leg.loss = Some(parse_probability(cell).map_err(|e| e.to_string())?),
        }
    }
    match (from, to) {
        (Some(from), Some(to)) => Ok(((from, to), leg)),
        _ => Err("from and to are missing".to_owned()),
    }
}

/// The largest number: far above any rate in bit/s, and any round trip on this planet in ms.
const LARGEST: f64 = 1e15;

fn number(cell: &str) -> Result<f64, String> {
    let number = cell.parse::<f64>().ok().filter(|n| (0.0..=LARGEST).contains(n));
    number.ok_or_else(|| format!("`{cell}` is not a number of at least 0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn toml_and_tables_are_equivalent() {
        let toml = "# measured on Monday\n[[leg]]\nfrom = \"fra\"\nto = \"nyc\"\n\
                    rate = \"40 Mbit/s\"\nrtt = \"80 ms\"\nloss = \"0.05 %\"\n[[leg]]\n\
                    from = \"nyc\"\nto = \"fra\"\nrate = \"2.5 Mbit/s\"\n";
        let table = "# measured on Monday\nfrom,to,rate,rtt,loss\nfra,nyc,40 Mbit/s,80 ms,0.05 %\n\n\
                     nyc, fra, 2.5 Mbit/s,,\n";
        let plain = "to,from,rtt_ms,bps,loss\nnyc,fra,80,4e7,0.0005\nfra,nyc,,2500000,\n";
        let read = Estimates::parse(toml).unwrap();
        assert_eq!(Estimates::parse(table).unwrap(), read);
        assert_eq!(Estimates::parse(plain).unwrap(), read);
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn the_access_rates_of_a_host_are_stated_in_toml() {
        let leg = "[[leg]]\nfrom = \"a\"\nto = \"b\"\nrate = \"40 Mbit/s\"\n";
        let said = "[[host]]\nname = \"a\"\negress = \"10 Mbit/s\"\n\
                    [[host]]\nname = \"b\"\ningress = \"20 Mbit/s\"\n";
        let mut read = Estimates::parse(&format!("{leg}{said}")).unwrap();
        let access = |read: &Estimates, name: &str| {
            let Access { egress, ingress } = read.access(&name.parse().unwrap());
            [egress, ingress].map(|rate| rate.map(Rate::as_mbps))
        };
        assert_eq!(access(&read, "a"), [Some(10.0), None]);
        assert_eq!(access(&read, "b"), [None, Some(20.0)]);
        assert_eq!(access(&read, "c"), [None, None]);
        read.state_egress("b".parse().unwrap(), Rate::from_mbps(5.0));
        assert_eq!(access(&read, "b"), [Some(5.0), Some(20.0)]);
        for (host, says) in [
            ("name = \"a\"", "`a`: neither egress nor ingress"),
            ("name = \"a\"\negress = \"0 bit/s\"", "`a`: a rate of 0"),
            ("name = \"a\"\negress = \"10\"", "10"),
            ("name = \"A\"\negress = \"1 Mbit/s\"", "`A` is not a valid name"),
            ("egress = \"1 Mbit/s\"", "missing field `name`"),
            ("name = \"a\"\nuplink = \"1 Mbit/s\"", "unknown field `uplink`"),
        ] {
            let error = Estimates::parse(&format!("{leg}[[host]]\n{host}\n")).unwrap_err();
            assert!(error.to_string().contains(says), "{host:?}: {error}");
        }
        let twice = Estimates::parse(&format!("{leg}{said}{said}")).unwrap_err().to_string();
        assert!(twice.contains("`a`: it is given twice"), "{twice}");
    }

    #[test]
    fn errors_name_their_line() {
        for (text, says) in [
            ("", "no leg in it"),
            ("# nothing\n", "no leg in it"),
            ("from,to,rate\n", "no leg in it"),
            ("fra,nyc,40 Mbit/s\n", "line 1: `fra,nyc,40 Mbit/s`: the first line must name"),
            ("from,to\na,b\n", "line 1"),
            ("from,to,rate\n\na,b,40\n", "line 3"),
            ("from,to,rate\na,B,4 Mbit/s\n", "line 2: `B` is not a valid name"),
            ("from,to,rate\na,b\n", "line 2: 2 columns, but the first line names 3"),
            ("from,to,bps\na,b,-1\n", "line 2: `-1` is not a number"),
            ("from,to,bps,rtt_ms\na,b,1,1e300\n", "line 2"),
            ("from,to,bps,loss\na,b,1,2\n", "line 2"),
            ("[[leg]]\nfrom = \"a\"\n", "missing field"),
            ("[[leg]]\nfrom = \"a\"\nto = \"b\"\nrate = \"1 Mbit/s\"\nrtt = \"5\"\n", "5"),
            ("[[legs]]\n", "unknown field"),
        ] {
            let error = Estimates::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(from,to,bps,rtt_ms\n)?[a-z0-9,.e\n-]{0,60}") {
            if let Ok(estimates) = Estimates::parse(&text) {
                prop_assert!(!estimates.is_empty());
            }
        }
    }
}
