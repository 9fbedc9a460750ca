//! Draws the plots of a result as SVG.

use crate::{
    error::{ExperimentError, Result},
    pattern,
    plan::{Plan, Plot, PlotKind},
    record::RoundRecord,
    schedule, summary, table,
    template::{TextForm, Values},
};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::{
    fmt::Display,
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

/// The size of a plot, pixels; SVG is scalable.
const SIZE: (u32, u32) = (900, 520);
/// Colours that colour-blind readers can distinguish too (Okabe and Ito 2008, without yellow and black).
const COLOURS: [RGBColor; 9] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 56),
    RGBColor(90, 90, 90),
    RGBColor(148, 103, 189),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The curve of an arm.
struct Curve {
    arm: String,
    points: Vec<(f64, f64)>,
}

/// Draws all plots of the plan into `directory`. Returns their files.
///
/// # Errors
/// If a plot cannot be drawn or a file cannot be written.
pub fn draw_all(
    plan: &Plan,
    quick: bool,
    rounds: &[RoundRecord],
    directory: &Path,
) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(directory).map_err(ExperimentError::file("create", directory))?;
    plan.plot
        .iter()
        .map(|plot| {
            let file = directory.join(format!("{}-{}.svg", plan.name, plot.name));
            let plot = Plot { title: Some(title(plan, plot, quick)?), ..plot.clone() };
            let rounds = of_cells(&plot, rounds);
            let svg = draw(plan, &plot, &rounds)?;
            fs::write(&file, svg).map_err(ExperimentError::file("write", &file))?;
            Ok(file)
        })
        .collect()
}

/// Draws a plot. Returns the text of an SVG file.
///
/// # Errors
/// If the plotting library rejects the values.
pub fn draw(plan: &Plan, plot: &Plot, rounds: &[RoundRecord]) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(refused)?;
        match plot.kind {
            PlotKind::Bars => bars(&area, plan, plot, rounds)?,
            PlotKind::Cdf => {
                let unit = unit_of(plot, rounds);
                curves(&area, plan, plot, &cdf(plan, plot, rounds), (&unit, "share of rounds"))?;
            }
            PlotKind::Lines => {
                let (x, unit) = (plot.x.clone().unwrap_or_default(), unit_of(plot, rounds));
                curves(&area, plan, plot, &lines(plan, plot, rounds), (&x, &unit))?;
            }
            PlotKind::Series | PlotKind::Dots => {
                let (x, unit) = (plot.x.as_deref().unwrap_or("s"), plot.unit.clone());
                let unit = unit.unwrap_or_default();
                curves(&area, plan, plot, &series(plan, plot, rounds), (x, &unit))?;
            }
        }
        area.present().map_err(refused)?;
    }
    Ok(svg)
}

/// The rounds of the cells that the plot shows.
fn of_cells(plot: &Plot, rounds: &[RoundRecord]) -> Vec<RoundRecord> {
    let wanted = |round: &&RoundRecord| {
        plot.cells.as_ref().is_none_or(|patterns| pattern::any(patterns, &round.cell))
    };
    rounds.iter().filter(wanted).cloned().collect()
}

fn refused(error: impl Display) -> ExperimentError {
    ExperimentError::Other(format!("cannot draw the plot: {error}"))
}

/// The title with the values of the plan's parameters; without a title, the claim.
///
/// # Errors
/// If a placeholder is not a parameter: a plot shows all rounds, seeds and cells, so their values are not available.
pub(crate) fn title(plan: &Plan, plot: &Plot, quick: bool) -> Result<String> {
    let Some(title) = &plot.title else { return Ok(plan.claim.clone()) };
    let mut values = Values::default();
    schedule::set_params(plan, quick, &mut values)?;
    values.render(title, TextForm::Real)
}

fn heading<'a>(plan: &'a Plan, plot: &'a Plot) -> &'a str {
    plot.title.as_deref().unwrap_or(&plan.claim)
}

fn arms(plan: &Plan, plot: &Plot) -> Vec<String> {
    let wanted = |name: &str| plot.arms.as_ref().is_none_or(|p| pattern::any(p, name));
    plan.arm.iter().map(|a| a.name.clone()).filter(|n| wanted(n)).collect()
}

fn values(arm: &str, plot: &Plot, rounds: &[RoundRecord]) -> Vec<f64> {
    rounds.iter().filter_map(|r| r.value(arm, &plot.metric)).collect()
}

/// The metric with its unit, from the first arm that has the metric.
fn unit_of(plot: &Plot, rounds: &[RoundRecord]) -> String {
    let mut units = rounds.iter().flat_map(|r| &r.arms).filter_map(|a| a.metrics.get(&plot.metric));
    let unit = plot.unit.clone().or_else(|| units.next().map(|s| s.unit.clone()));
    table::with_unit(&plot.metric, &unit.unwrap_or_default())
}

/// Draws the median and range of each arm as horizontal bars, so that long names fit.
fn bars(area: &Area<'_>, plan: &Plan, plot: &Plot, rounds: &[RoundRecord]) -> Result<()> {
    let mut arms: Vec<(String, Vec<f64>)> = arms(plan, plot)
        .into_iter()
        .map(|arm| (arm.clone(), values(&arm, plot, rounds)))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    arms.reverse();
    let top = arms.iter().flat_map(|(_, v)| v).fold(0.0, |a: f64, b| a.max(*b));
    let x = 0.0..(if top > 0.0 { top * 1.12 } else { 1.0 });
    let y = -0.5..(arms.len().max(1) as f64 - 0.5);
    let mut chart = ChartBuilder::on(area)
        .caption(heading(plan, plot), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(45)
        .y_label_area_size(190)
        .build_cartesian_2d(x, y)
        .map_err(refused)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .max_light_lines(0)
        // The names are at the bars.
        .y_labels(0)
        .x_desc(unit_of(plot, rounds))
        .draw()
        .map_err(refused)?;
    for (nth, (arm, values)) in arms.iter().enumerate() {
        let (at, colour) = (nth as f64, COLOURS[(arms.len() - 1 - nth) % COLOURS.len()]);
        let median = summary::median(values).unwrap_or(0.0);
        let (low, high) =
            (summary::min(values).unwrap_or(0.0), summary::max(values).unwrap_or(0.0));
        let bar = Rectangle::new([(0.0, at - 0.3), (median, at + 0.3)], colour.filled());
        let range = PathElement::new([(low, at), (high, at)], BLACK.stroke_width(2));
        chart.draw_series([bar]).map_err(refused)?;
        let text = |side, size: i32| {
            let style = ("sans-serif", size).into_text_style(area);
            style.pos(Pos::new(side, VPos::Center))
        };
        let name =
            EmptyElement::at((0.0, at)) + Text::new(arm.clone(), (-8, 0), text(HPos::Right, 13));
        // Beside the end of the range, so that nothing is drawn over it.
        let value = EmptyElement::at((high.max(median), at))
            + Text::new(table::figure(median), (6, 0), text(HPos::Left, 14));
        chart.draw_series([name]).map_err(refused)?;
        chart.draw_series([range]).map_err(refused)?;
        chart.draw_series([value]).map_err(refused)?;
    }
    Ok(())
}

/// The cumulative distributions. A round without a value counts in the total, so that the curve ends below 1.
fn cdf(plan: &Plan, plot: &Plot, rounds: &[RoundRecord]) -> Vec<Curve> {
    let curve = |arm: String| {
        let mut sorted = values(&arm, plot, rounds);
        sorted.sort_by(f64::total_cmp);
        let ran = rounds.iter().filter(|r| r.arm(&arm).is_some_and(|a| a.ran())).count().max(1);
        let mut points = Vec::with_capacity(sorted.len() * 2);
        for (i, value) in sorted.iter().enumerate() {
            points.push((*value, i as f64 / ran as f64));
            points.push((*value, (i + 1) as f64 / ran as f64));
        }
        Curve { arm, points }
    };
    arms(plan, plot).into_iter().map(curve).collect()
}

/// Medians against an axis. Its labels are parsed as numbers or, if that fails for any of them, replaced by their
/// index.
fn lines(plan: &Plan, plot: &Plot, rounds: &[RoundRecord]) -> Vec<Curve> {
    let axis = plan.vary.iter().find(|a| Some(&a.name) == plot.x.as_ref());
    let labels: Vec<String> =
        axis.map(|a| a.cases().into_iter().map(|c| c.label).collect()).unwrap_or_default();
    let numbers: Option<Vec<f64>> = labels.iter().map(|l| leading_number(l)).collect();
    let numbers = numbers.unwrap_or_else(|| (0..labels.len()).map(|i| i as f64).collect());
    let name = plot.x.clone().unwrap_or_default();
    let median = |arm: &str, label: &String| {
        let here = rounds.iter().filter(|r| r.cases.get(&name) == Some(label));
        let values: Vec<f64> = here.filter_map(|r| r.value(arm, &plot.metric)).collect();
        summary::median(&values)
    };
    let curve = |arm: String| {
        let points = labels.iter().zip(&numbers);
        let points = points.filter_map(|(label, x)| Some((*x, median(&arm, label)?))).collect();
        Curve { arm, points }
    };
    arms(plan, plot).into_iter().map(curve).collect()
}

fn leading_number(label: &str) -> Option<f64> {
    let end = label.find(|c: char| !(c.is_ascii_digit() || ".-".contains(c)));
    label[..end.unwrap_or(label.len())].parse().ok()
}

/// The series of each arm, from the round in which their mean is the median of all rounds. With a pattern each matching
/// series has its own curve.
fn series(plan: &Plan, plot: &Plot, rounds: &[RoundRecord]) -> Vec<Curve> {
    let several = plot.metric.contains('*');
    let of = |arm: String| {
        let wanted = |(name, _): &(&String, &Vec<[f64; 2]>)| pattern::matches(&plot.metric, name);
        let matching = rounds.iter().filter_map(|r| r.arm(&arm)).filter_map(|record| {
            let all: Vec<_> = record.series.iter().filter(wanted).collect();
            (!all.is_empty()).then_some(all)
        });
        let mut matching: Vec<_> = matching.map(|all| (mean(&all), all)).collect();
        matching.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let middle = matching.len().saturating_sub(1) / 2;
        let found = matching.into_iter().nth(middle).map(|(_, all)| all);
        let curve = |(name, points): (&String, &Vec<[f64; 2]>)| Curve {
            arm: if several { format!("{arm} {name}") } else { arm.clone() },
            points: points.iter().map(|[x, y]| (*x, *y)).collect(),
        };
        found.into_iter().flatten().map(curve).collect::<Vec<_>>()
    };
    arms(plan, plot).into_iter().flat_map(of).collect()
}

/// The mean of all points of several series.
fn mean(series: &[(&String, &Vec<[f64; 2]>)]) -> f64 {
    let values = || series.iter().flat_map(|(_, points)| points.iter().map(|[_, y]| *y));
    values().sum::<f64>() / values().count().max(1) as f64
}

fn curves(
    area: &Area<'_>,
    plan: &Plan,
    plot: &Plot,
    curves: &[Curve],
    (x_desc, y_desc): (&str, &str),
) -> Result<()> {
    let all = || curves.iter().flat_map(|c| &c.points);
    let (x, y) = (span(all().map(|p| p.0)), span(all().map(|p| p.1).chain([0.0])));
    let mut chart = ChartBuilder::on(area)
        .caption(heading(plan, plot), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(45)
        .y_label_area_size(70)
        .build_cartesian_2d(x, y)
        .map_err(refused)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_desc(x_desc)
        .y_desc(y_desc)
        .draw()
        .map_err(refused)?;
    for (nth, curve) in curves.iter().filter(|c| !c.points.is_empty()).enumerate() {
        let colour = COLOURS[nth % COLOURS.len()];
        let points = curve.points.iter().copied();
        let drawn = match plot.kind {
            PlotKind::Dots => {
                chart.draw_series(points.map(|point| Circle::new(point, 2, colour.filled())))
            }
            _ => chart.draw_series(LineSeries::new(points, colour.stroke_width(2))),
        };
        drawn
            .map_err(refused)?
            .label(&curve.arm)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()
        .map_err(refused)
}

/// The range from the smallest value to a little above the largest; never empty.
fn span(values: impl Iterator<Item = f64>) -> Range<f64> {
    let finite: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    let (low, high) = (summary::min(&finite).unwrap_or(0.0), summary::max(&finite).unwrap_or(1.0));
    if high > low { low..high + (high - low) * 0.05 } else { low..low + 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{ArmRecord, Outcome, Sample};
    use std::collections::BTreeMap;

    const PLAN: &str = "name='x'\nclaim='x'\nkind='host'\nheadline='v'\n[validity]\n\
        [quick]\ncells=['rtt=10 ms']\n[[vary]]\nname='rtt'\nvalues=['10 ms','100 ms']\n\
        [[arm]]\nname='one'\nrole='ours'\ncommand=['x']\ntimeout='1 s'\nexpect='1 s'\n\
        [[arm]]\nname='two'\nrole='ours'\ncommand=['x']\ntimeout='1 s'\nexpect='1 s'\n\
        [[check]]\nname='k'\nmetric='v'\nof='one'\nop='>='\nbound=1\n";

    fn plan() -> Plan {
        let plot = |(kind, metric): (&str, &str)| {
            format!("[[plot]]\nname='{kind}'\nkind='{kind}'\nmetric='{metric}'\nx='rtt'\n")
        };
        let kinds = [("bars", "v"), ("cdf", "v"), ("lines", "v"), ("series", "s"), ("dots", "s*")];
        Plan::parse(&format!("{PLAN}{}", kinds.map(plot).concat()), "x").unwrap()
    }

    fn round(rtt: &str, values: [f64; 2]) -> RoundRecord {
        let arm = |(name, value): (&str, f64)| {
            let mut arm = ArmRecord::new(name, vec![], Outcome::Done);
            arm.metrics.insert("v".into(), Sample { unit: "Mbit/s".into(), value });
            arm.series.insert("s".into(), vec![[0.0, value], [1.0, value * 2.0]]);
            arm
        };
        let arms = ["one", "two"].into_iter().zip(values).map(arm).collect();
        let cases: BTreeMap<_, _> = [("rtt".to_owned(), rtt.to_owned())].into();
        RoundRecord { cell: format!("rtt={rtt}"), cases, seed: 1, repeat: 0, limit: None, arms }
    }

    #[test]
    fn every_kind_names_its_arms_and_works_without_rounds() {
        let plan = plan();
        let rounds = [round("10 ms", [1.0, 2.0]), round("100 ms", [3.0, 4.0])];
        for plot in &plan.plot {
            let svg = draw(&plan, plot, &rounds).unwrap();
            assert!(svg.contains("one") && svg.contains("two"), "{:?}: {svg}", plot.kind);
            let empty = draw(&plan, plot, &[]).unwrap();
            assert!(empty.trim_end().ends_with("</svg>"), "{:?}", plot.kind);
        }
    }

    #[test]
    fn a_plot_shows_its_cells_and_the_series_that_match_its_pattern() {
        let plan = plan();
        let mut rounds = vec![round("10 ms", [1.0, 2.0]), round("100 ms", [3.0, 4.0])];
        let plot = Plot { cells: Some(vec!["rtt=100 ms".into()]), ..plan.plot[4].clone() };
        let of = of_cells(&plot, &rounds);
        assert_eq!((of.len(), series(&plan, &plot, &of)[0].points[0]), (1, (0.0, 3.0)));
        rounds[1].arms[0].series.insert("s2".into(), vec![[0.0, 9.0]]);
        let of = of_cells(&plot, &rounds);
        let names: Vec<String> =
            series(&plan, &plot, &of).into_iter().map(|curve| curve.arm).collect();
        assert_eq!(names, ["one s", "one s2", "two s"]);
    }

    #[test]
    fn bars_show_their_values_and_titles_their_parameters() {
        let more = "[params]\nsize='40 MB'\n[quick.params]\nsize='4 MB'\n[[plot]]\nname='t'\n\
            kind='bars'\nmetric='v'\ntitle='of {size}'\n";
        let plan = Plan::parse(&format!("{PLAN}{more}"), "x").unwrap();
        let mut rounds = vec![round("10 ms", [1.25, 2.0])];
        let one = &mut rounds[0].arms[0].metrics;
        one.insert("v".into(), Sample { unit: "1".into(), value: 1.25 });
        let dir = tempfile::tempdir().unwrap();
        for (quick, heading) in [(false, "of 40 MB"), (true, "of 4 MB")] {
            let files = draw_all(&plan, quick, &rounds, dir.path()).unwrap();
            let svg = fs::read_to_string(&files[0]).unwrap();
            assert!(svg.contains(heading) && svg.contains("\n1.25\n"), "{svg}");
            assert!(!svg.contains("v, 1"), "{svg}");
        }
        let unknown = PLAN.to_owned() + &more.replace("of {size}", "of {seed}");
        assert!(Plan::parse(&unknown, "x").unwrap_err().to_string().contains("{seed}"));
    }

    #[test]
    fn curves_have_the_expected_points() {
        let plan = plan();
        let mut rounds = vec![round("10 ms", [1.0, 2.0]), round("100 ms", [3.0, 4.0])];
        let by_rtt = lines(&plan, &plan.plot[2], &rounds);
        assert_eq!(by_rtt[1].points, [(10.0, 2.0), (100.0, 4.0)]);
        rounds[0].arms[0].metrics.clear();
        let steps = cdf(&plan, &plan.plot[1], &rounds);
        assert_eq!(steps[0].points, [(3.0, 0.0), (3.0, 0.5)], "one of two never got there");
        assert_eq!(leading_number("1.5 %"), Some(1.5));
        assert_eq!(leading_number("fast"), None);
    }
}
