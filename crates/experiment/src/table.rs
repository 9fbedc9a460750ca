//! Formats a result as Markdown that is readable as text, and inserts it into documents.

use crate::{
    error::{ExperimentError, Result},
    evaluate::CheckResult,
    plan::Plan,
    plot,
    report::{self, ArmReport, MetricReport, Report},
};
use std::{fs, path::Path};

/// The result as two tables, of arms and of checks, and its origin.
///
/// The rows of arms have median, smallest and largest value, the ratios to the best peer and to the network's bound,
/// and the paper's figure.
pub fn markdown(plan: &Plan, report: &Report) -> String {
    let mut parts = Vec::new();
    let rows = arm_rows(plan, report);
    if rows.len() > 1 {
        parts.push(table(&rows));
    }
    parts.extend(notes(report));
    if !report.checks.is_empty() {
        parts.push(table(&check_rows(report)));
    }
    let machine = &report.machine;
    let valid = if report.valid { "valid" } else { "**invalid**" };
    parts.push(format!(
        "`{}` at commit `{}`, {valid}; {} cores ({}), {}, Linux {}.\n",
        report.name, report.commit, machine.cores, machine.cpu, machine.memory, machine.kernel
    ));
    parts.join("\n")
}

/// The page of a committed result, which is stored beside it in `directory`: the claim, a link to the plan,
/// [`markdown`], and the existing plots.
///
/// # Errors
/// If the title of a plot is invalid.
pub fn page(plan: &Plan, report: &Report, directory: &Path) -> Result<String> {
    let name = &plan.name;
    let mut text = format!(
        "# {name}\n\nClaim: {}.\n\nPlan: [{name}.toml](../{name}.toml). This page is written by \
         `thalweg-bench experiment table {name}`; edits are lost.\n\n{}",
        plan.claim.trim_end_matches('.'),
        markdown(plan, report)
    );
    for drawing in &plan.plot {
        let file = format!("{name}-{}.svg", drawing.name);
        if directory.join(&file).is_file() {
            let title = plot::title(plan, drawing, false)?;
            text += &format!("\n![{}]({file})\n", title.replace(['[', ']'], ""));
        }
    }
    Ok(text)
}

fn arm_rows(plan: &Plan, report: &Report) -> Vec<Vec<String>> {
    let headline = plan.headline();
    let has = |name: &str| report.arms.iter().any(|a| a.metrics.contains_key(name));
    let ratios: Vec<(&str, String)> =
        [("× best peer", report::best_peer(headline)), ("× limit", report::of_limit(headline))]
            .into_iter()
            .filter(|(_, metric)| has(metric))
            .collect();
    let paper = plan.arm.iter().any(|a| a.paper.is_some());
    let mut head: Vec<String> =
        ["arm", "metric", "median", "min", "max", "n"].map(String::from).to_vec();
    head.extend(ratios.iter().map(|(title, _)| (*title).to_owned()));
    head.extend(paper.then(|| "paper".to_owned()));
    let mut rows = vec![head];
    for arm in &report.arms {
        for (nth, metric) in plan.headline.list().iter().enumerate() {
            let Some(values) = arm.metrics.get(metric) else { continue };
            let mut row = value_cells(arm, metric, values);
            row.extend(ratios.iter().map(|(_, name)| {
                arm.metrics
                    .get(name)
                    .filter(|_| nth == 0)
                    .map_or_else(String::new, |m| figure(m.median))
            }));
            row.extend(paper.then(|| paper_of(plan, &arm.name)));
            rows.push(row);
        }
    }
    rows
}

/// `metric, unit`; the unit of a plain number is not shown.
pub(crate) fn with_unit(metric: &str, unit: &str) -> String {
    let plain = matches!(unit, "" | "1" | "ratio");
    if plain { metric.to_owned() } else { format!("{metric}, {unit}") }
}

fn value_cells(arm: &ArmReport, metric: &str, m: &MetricReport) -> Vec<String> {
    let title = with_unit(metric, &m.unit);
    let (median, min, max) = (figure(m.median), figure(m.min), figure(m.max));
    let name = match &arm.scene {
        Some(scene) => format!("{scene}: {}", arm.name),
        None => arm.name.clone(),
    };
    vec![name, title, median, min, max, m.n.to_string()]
}

fn paper_of(plan: &Plan, arm: &str) -> String {
    let of = |a: &crate::plan::Arm| if a.name == arm { a.paper.clone() } else { None };
    plan.arm.iter().find_map(of).unwrap_or_default()
}

/// The arms that did not run, and why.
fn notes(report: &Report) -> Option<String> {
    let lines: Vec<String> = report
        .arms
        .iter()
        .filter_map(|a| Some(format!("- {}: not run, {}\n", a.name, a.skipped.as_ref()?)))
        .collect();
    (!lines.is_empty()).then(|| lines.concat())
}

fn check_rows(report: &Report) -> Vec<Vec<String>> {
    let paper = report.checks.iter().any(|c| c.paper.is_some());
    let mut head: Vec<String> = ["check", "value", "bound", "holds"].map(String::from).to_vec();
    head.extend(paper.then(|| "paper".to_owned()));
    let row = |c: &CheckResult| {
        let holds = match c.pass {
            Some(true) => "yes",
            Some(false) => "**no**",
            None if c.is_figure() => "a figure, not judged",
            None => "not evaluated",
        };
        let value = c.value.map(figure).unwrap_or_default();
        let bound = c.bound.map(|bound| format!("{} {}", math(&c.op), figure(bound)));
        let mut row = vec![c.name.clone(), value, bound.unwrap_or_default(), holds.into()];
        row.extend(paper.then(|| c.paper.clone().unwrap_or_default()));
        row
    };
    [head].into_iter().chain(report.checks.iter().map(row)).collect()
}

fn math(op: &str) -> &str {
    match op {
        ">=" => "≥",
        "<=" => "≤",
        other => other,
    }
}

/// A number with four significant digits, and at most six decimals.
pub fn figure(value: f64) -> String {
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let decimals = (3 - magnitude).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A Markdown table with aligned columns; the first row is the header.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width =
        |c: usize| rows.iter().map(|r| r[c].replace('|', "\\|").chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells =
            row.iter().zip(&widths).map(|(cell, w)| format!(" {:<w$} ", cell.replace('|', "\\|")));
        format!("|{}|\n", cells.collect::<Vec<_>>().join("|"))
    };
    let rule: Vec<String> = widths.iter().map(|w| "-".repeat(w + 2)).collect();
    let mut lines = rows.iter().map(line);
    let head = lines.next().unwrap_or_default();
    format!("{head}|{}|\n{}", rule.join("|"), lines.collect::<String>())
}

/// The marker at the beginning of a generated part of a document.
fn marker(name: &str) -> String {
    format!("<!-- experiment: {name} -->")
}

/// The marker at the end of a generated part of a document.
const END: &str = "<!-- /experiment -->";

/// `document` with every part between the markers of `name` replaced by `content`; `None` if it has no such markers.
///
/// # Errors
/// If a beginning marker has no end marker.
pub fn replace_section(document: &str, name: &str, content: &str) -> Result<Option<String>> {
    let begin = marker(name);
    let (mut out, mut rest, mut any) = (String::new(), document, false);
    while let Some((before, after)) = rest.split_once(&begin) {
        let Some((_, tail)) = after.split_once(END) else {
            return Err(ExperimentError::Other(format!("`{begin}` has no `{END}` after it")));
        };
        out.push_str(&format!("{before}{begin}\n{}\n{END}", content.trim_end()));
        (rest, any) = (tail, true);
    }
    out.push_str(rest);
    Ok(any.then_some(out))
}

/// Writes `text` to `file`. Returns whether the text differs; writes nothing if `check_only`.
///
/// # Errors
/// If the file cannot be written.
pub fn write(file: &Path, text: &str, check_only: bool) -> Result<bool> {
    let changed = fs::read_to_string(file).ok().is_none_or(|old| old != text);
    if changed && !check_only {
        fs::write(file, text).map_err(ExperimentError::file("write", file))?;
    }
    Ok(changed)
}

/// Writes `content` into `file` between the markers of `name`. Returns whether the text differs, or `None` if the file
/// has no such markers; writes nothing if `check_only`.
///
/// # Errors
/// If the file cannot be read or written, or a beginning marker has no end marker.
pub fn update(file: &Path, name: &str, content: &str, check_only: bool) -> Result<Option<bool>> {
    let old = fs::read_to_string(file).map_err(ExperimentError::file("read", file))?;
    let Some(new) = replace_section(&old, name, content)? else { return Ok(None) };
    write(file, &new, check_only).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        for (value, text) in [
            (0.96512, "0.9651"),
            (38.123, "38.12"),
            (1234.6, "1235"),
            (0.0, "0"),
            (2.0, "2"),
            (0.000_123_4, "0.000123"),
            (-1.5, "-1.5"),
            (100.0, "100"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn only_the_marked_parts_of_a_document_change() {
        let document = "a\n<!-- experiment: x -->\nold\n<!-- /experiment -->\nb <!-- experiment: y -->\n1\n<!-- /experiment -->";
        let new = replace_section(document, "x", "new\n").unwrap().unwrap();
        assert_eq!(new, document.replace("old", "new"));
        assert_eq!(replace_section(document, "z", "new").unwrap(), None);
        assert!(replace_section("<!-- experiment: x -->", "x", "new").is_err());
    }
}
