//! Reads rates between places from a CSV file: a line for each ordered pair, columns found by name.
//!
//! Fields contain neither commas nor quotes, as in the published grids. An empty field means a pair that was not
//! measured.

use anyhow::{Context, bail, ensure};
use std::{collections::BTreeMap, fs, path::Path};
use thalweg_sim::matrix::Matrix;

/// The names of the columns.
pub struct Columns {
    /// The rate for planning, and its unit in Mbit/s; if the column is missing, the rate for evaluation is used.
    planned: (&'static str, f64),
    /// The rate for evaluation, and its unit in Mbit/s.
    judged: (&'static str, f64),
    /// The round-trip time, ms; the column may be missing.
    rtt: &'static str,
}

impl Columns {
    /// The grid of 71 regions with one measurement.
    pub const GRID: Self = Self {
        planned: ("gbps_2022_11", 1000.0),
        judged: ("gbps_2022_11", 1000.0),
        rtt: "rtt_ms_2022_04",
    };
    /// The grid with its earlier measurement as prediction of the later one.
    pub const GRID_PREDICTS: Self = Self { planned: ("gbps_2022_01", 1000.0), ..Self::GRID };
    /// The columns of any other file.
    pub const FILE: Self =
        Self { planned: ("planned_mbps", 1.0), judged: ("mbps", 1.0), rtt: "rtt_ms" };
}

/// The most places; the figures take O(places³).
const MOST_PLACES: usize = 1000;
/// The fewest places that leave room for detours, clients and servers.
const FEWEST_PLACES: usize = 20;

/// Reads the matrices for planning and for evaluation (Mbit/s), and of round-trip times (ms).
///
/// # Errors
/// When the file cannot be read, a column is missing or a value is not a number; the error names the line.
pub fn read(file: &Path, columns: &Columns) -> anyhow::Result<[Matrix; 3]> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text, columns).with_context(|| format!("{}", file.display()))
}

fn parse(text: &str, columns: &Columns) -> anyhow::Result<[Matrix; 3]> {
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines.next().context("the file is empty")?;
    let names: Vec<&str> = header.split(',').map(str::trim).collect();
    let places_of = columns_of(&names, columns)?;
    let rows: Vec<GridRow> = lines
        .map(|(number, line)| {
            row(line, names.len(), &places_of).with_context(|| format!("cannot read line {number}"))
        })
        .collect::<anyhow::Result<_>>()?;
    let mut places = BTreeMap::new();
    for row in &rows {
        for end in &row.ends {
            let next = places.len();
            places.entry(end.clone()).or_insert(next);
        }
    }
    ensure!(
        (FEWEST_PLACES..=MOST_PLACES).contains(&places.len()),
        "the file has {} places, but the figures need {FEWEST_PLACES} to {MOST_PLACES}",
        places.len()
    );
    let mut matrices = [(); 3].map(|()| Matrix::unknown(places.len()));
    for row in &rows {
        let [from, to] = [0, 1].map(|end| places[&row.ends[end]]);
        for (matrix, value) in matrices.iter_mut().zip(row.values) {
            matrix.set(from, to, value);
        }
    }
    Ok(matrices)
}

/// The position of a column and its factor.
type ColumnPosition = Option<(usize, f64)>;

/// The positions of the columns of the two ends and of the three values.
fn columns_of(
    names: &[&str],
    columns: &Columns,
) -> anyhow::Result<([usize; 2], [ColumnPosition; 3])> {
    let find = |name: &str| names.iter().position(|other| *other == name);
    let need = |name: &str| {
        find(name)
            .with_context(|| format!("there is no column {name}; available: {}", names.join(", ")))
    };
    let judged = (need(columns.judged.0)?, columns.judged.1);
    let planned = find(columns.planned.0).map(|at| (at, columns.planned.1)).unwrap_or(judged);
    let rtt = find(columns.rtt).map(|at| (at, 1.0));
    Ok(([need("src")?, need("dst")?], [Some(planned), Some(judged), rtt]))
}

struct GridRow {
    ends: [String; 2],
    values: [Option<f64>; 3],
}

fn row(
    line: &str,
    width: usize,
    (ends, at): &([usize; 2], [ColumnPosition; 3]),
) -> anyhow::Result<GridRow> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    ensure!(
        fields.len() == width,
        "the line has {} fields, but the header has {width}",
        fields.len()
    );
    let mut values = [None; 3];
    for (value, at) in values.iter_mut().zip(at) {
        if let Some((at, factor)) = at {
            *value = number(fields[*at])?.map(|number| number * factor);
        }
    }
    Ok(GridRow { ends: ends.map(|end| fields[end].to_owned()), values })
}

fn number(field: &str) -> anyhow::Result<Option<f64>> {
    if field.is_empty() {
        return Ok(None);
    }
    match field.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(Some(number)),
        _ => bail!("\"{field}\" is not a number above 0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(line: &str) -> String {
        let mut text = String::from("src,dst,mbps,rtt_ms\n");
        for i in 0..20 {
            for j in (0..20).filter(|j| *j != i) {
                text += &format!("p{i},p{j},{},{}\n", 10 * i + j + 1, i + j);
            }
        }
        text + line
    }

    #[test]
    fn columns_are_found_by_name() {
        let [planned, judged, rtt] = parse(&file(""), &Columns::FILE).unwrap();
        // p0 and p1 are the first two places.
        assert_eq!((judged.get(0, 1), judged.get(1, 0)), (Some(2.0), Some(11.0)));
        let cells = |m: &Matrix| [(0, 1), (7, 3), (19, 0)].map(|(i, j)| m.get(i, j));
        // With one rate per pair, it is used for planning and for evaluation.
        assert_eq!((cells(&planned), rtt.get(0, 1)), (cells(&judged), Some(1.0)));
        let [_, judged, _] = parse(&file("p0,p1,,"), &Columns::FILE).unwrap();
        assert_eq!(judged.get(0, 1), None, "an empty field is not measured");
    }

    #[test]
    fn errors_name_the_line_and_the_value() {
        let error_of = |text: &str| format!("{:#}", parse(text, &Columns::FILE).unwrap_err());
        assert!(error_of(&file("a,b,fast,")).contains("line 382: \"fast\" is not a number"));
        assert!(error_of(&file("a,b,-1,")).contains("line 382"));
        assert!(error_of(&file("a,b")).contains("2 fields, but the header has 4"));
        assert!(error_of("src,dst,gbps\n").contains("no column mbps; available: src, dst, gbps"));
        assert!(error_of("src,dst,mbps\na,b,1\n").contains("2 places"));
        assert!(error_of("").contains("empty"));
    }
}
