//! Determines the rounds of a run, their order, and the estimated time.

use crate::{
    error::{ExperimentError, Result},
    pattern,
    plan::{Arm, AxisBy, Case, Kind, Plan, Scope, Seeds},
    template::{TextForm, Values},
};
use rand_core::Rng;
use std::{collections::BTreeMap, time::Duration};

/// The estimated time for start and end of a network and its services, besides `settle`: the kernel takes about 1.5 s
/// to remove ten namespaces.
const NETWORK_COST: Duration = Duration::from_millis(1800);

/// The user's options.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether to make the quick run.
    pub quick: bool,
    /// Patterns of arms; empty: all.
    pub arms: Vec<String>,
    /// Seeds that replace the plan's; empty: the plan's.
    pub seeds: Vec<u64>,
    /// Whether to run the whole matrix instead of its sample.
    pub all: bool,
}

/// One combination of the cases of all axes by cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// `rtt=10 ms,loss=1 %`; empty if nothing varies.
    pub label: String,
    /// Each axis with its case.
    pub cases: Vec<(String, Case)>,
}

/// A round: all arms once under the same conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// The number of the round in the order of running, from 0.
    pub index: usize,
    /// The cell of the matrix.
    pub cell: Cell,
    /// The seed of all random draws.
    pub seed: u64,
    /// The number of the repeat, from 0.
    pub repeat: u32,
}

impl Round {
    /// The seed of the network's draws (losses, other traffic): the round's seed in the first repeat, and a different
    /// one in each further repeat, because repeats of the same draw would show no random variation. It is the same for
    /// all arms of a round.
    pub const fn draw(&self) -> u64 {
        self.seed ^ ((self.repeat as u64) << 40)
    }
}

/// All rounds of a run: repeat by repeat, seed by seed, cell by cell, so that drift of the machine affects all cells
/// equally.
///
/// # Errors
/// If the options leave nothing to run.
pub fn rounds(plan: &Plan, options: &Options) -> Result<Vec<Round>> {
    let cells = cells(plan, options);
    let quick = options.quick.then_some(&plan.quick);
    let seeds = quick.and_then(|q| q.seeds.as_ref()).unwrap_or(&plan.seeds);
    let seeds =
        if options.seeds.is_empty() { seeds.clone() } else { Seeds::List(options.seeds.clone()) };
    let repeats = quick.and_then(|q| q.repeats).unwrap_or(plan.repeats);
    let headline = &plan.matrix.headline;
    let repeats_of = |cell: &Cell| {
        let more = !options.quick && pattern::any(&headline.cells, &cell.label);
        if more { headline.repeats.max(repeats) } else { repeats }
    };
    let most = cells.iter().map(repeats_of).max().unwrap_or(0);
    let mut rounds = Vec::new();
    for repeat in 0..most {
        for seed in seeds.list() {
            for cell in cells.iter().filter(|c| repeat < repeats_of(c)) {
                rounds.push(Round { index: rounds.len(), cell: cell.clone(), seed, repeat });
            }
        }
    }
    let nothing = || ExperimentError::Other("no cell or seed matches the options".into());
    if rounds.is_empty() { Err(nothing()) } else { Ok(rounds) }
}

fn cells(plan: &Plan, options: &Options) -> Vec<Cell> {
    let mut cells = all_cells(plan);
    if options.quick {
        if let Some(wanted) = &plan.quick.cells {
            cells.retain(|c| pattern::any(wanted, &c.label));
        }
    } else if let (Some(n), false) = (plan.matrix.sample, options.all) {
        cells = sample(cells, n, plan);
    }
    cells
}

/// Every combination of the cases of axes by cell; the last axis varies fastest.
pub fn all_cells(plan: &Plan) -> Vec<Cell> {
    let axes = plan.vary.iter().filter(|axis| axis.by == AxisBy::Cell);
    axes.fold(vec![Cell::default()], |cells, axis| {
        let extend = |cell: &Cell| {
            let with = |case: Case| {
                let mut cell = cell.clone();
                let comma = if cell.label.is_empty() { "" } else { "," };
                cell.label = format!("{}{comma}{}={}", cell.label, axis.name, case.label);
                cell.cases.push((axis.name.clone(), case));
                cell
            };
            axis.cases().into_iter().map(with).collect::<Vec<_>>()
        };
        cells.iter().flat_map(extend).collect()
    })
}

/// `n` cells drawn without replacement, and the headline cells, in the order of the matrix.
fn sample(mut cells: Vec<Cell>, n: usize, plan: &Plan) -> Vec<Cell> {
    let mut rng = crate::plan::generator("matrix", plan.matrix.seed);
    let keys: Vec<u64> = cells.iter().map(|_| rng.next_u64()).collect();
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.sort_by_key(|&i| keys[i]);
    order.truncate(n);
    let mut at = 0;
    cells.retain(|c| {
        at += 1;
        order.contains(&(at - 1)) || pattern::any(&plan.matrix.headline.cells, &c.label)
    });
    cells
}

impl Round {
    /// The cases of this round, including those that its seed selects.
    pub fn cases(&self, plan: &Plan) -> Vec<(String, Case)> {
        let by_seed = plan.vary.iter().filter(|axis| axis.by == AxisBy::Seed);
        let picked = by_seed.filter_map(|a| Some((a.name.clone(), a.case_of_seed(self.seed)?)));
        self.cell.cases.iter().cloned().chain(picked).collect()
    }

    /// The parameters of this round: drawn ones, the plan's, those of the quick run, and those of its cases. Later ones
    /// replace earlier ones.
    ///
    /// # Errors
    /// If a draw or parameter is invalid.
    pub fn parameters(&self, plan: &Plan, quick: bool) -> Result<Values> {
        let mut values = Values::default();
        for (name, draw) in &plan.draw {
            values.set(name, draw.value(name, self.seed)?);
        }
        set_params(plan, quick, &mut values)?;
        for (axis, case) in self.cases(plan) {
            values.set(axis, &case.label);
            for (name, value) in case.set.iter().filter(|(k, _)| !k.starts_with("topology.")) {
                values.set_toml(name, value)?;
            }
        }
        values.set("seed", self.seed.to_string());
        values.set("repeat", self.repeat.to_string());
        Ok(values)
    }
}

/// Sets the plan's parameters; in a quick run, with its replacements.
///
/// # Errors
/// If a parameter is not a text, a number or a list of them.
pub fn set_params(plan: &Plan, quick: bool, values: &mut Values) -> Result<()> {
    let replaced = quick.then_some(&plan.quick.params).into_iter().flatten();
    plan.params.iter().chain(replaced).try_for_each(|(name, value)| values.set_toml(name, value))
}

/// Whether each parameter that `when` names has one of its values in this round.
///
/// # Errors
/// If a parameter is unknown.
pub fn applies(when: &BTreeMap<String, Vec<toml::Value>>, values: &Values) -> Result<bool> {
    for (name, wanted) in when {
        let value = values.render(&format!("{{{name}}}"), TextForm::Real)?;
        let text = |w: &toml::Value| w.as_str().map_or_else(|| w.to_string(), str::to_owned);
        if !wanted.iter().any(|w| text(w) == value) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The arms that the options select, in the plan's order.
///
/// # Errors
/// If a pattern of the user matches no arm.
pub fn chosen_arms<'a>(plan: &'a Plan, options: &Options) -> Result<Vec<&'a Arm>> {
    if let Some(lost) =
        options.arms.iter().find(|p| !plan.arm.iter().any(|a| pattern::matches(p, &a.name)))
    {
        let known: Vec<_> = plan.arm.iter().map(|a| a.name.as_str()).collect();
        let why = format!("there is no arm `{lost}`; {} has {}", plan.name, known.join(", "));
        return Err(ExperimentError::Other(why));
    }
    let quick = options.quick.then_some(plan.quick.arms.as_ref()).flatten();
    let wanted = if options.arms.is_empty() { quick } else { Some(&options.arms) };
    Ok(plan.arm.iter().filter(|a| wanted.is_none_or(|w| pattern::any(w, &a.name))).collect())
}

/// The order of arms in a round: the plan's order, rotated by one in each round, so that no arm always runs first.
pub fn rotated<'a>(arms: &[&'a Arm], round: usize) -> Vec<&'a Arm> {
    let start = round % arms.len().max(1);
    arms[start..].iter().chain(&arms[..start]).copied().collect()
}

/// Estimates how long the rounds take if every arm takes the time that its plan expects. Each round is assigned to the
/// lane that is free first.
///
/// # Errors
/// If the `expect` of an arm is not a duration.
pub fn estimate(plan: &Plan, options: &Options, rounds: &[Round]) -> Result<Duration> {
    let arms = chosen_arms(plan, options)?;
    let mut lanes = vec![Duration::ZERO; plan.abreast.max(1)];
    for round in rounds {
        let took = round_estimate(plan, options, &arms, round)?;
        if let Some(first) = lanes.iter_mut().min() {
            *first += took;
        }
    }
    Ok(lanes.into_iter().max().unwrap_or_default())
}

fn round_estimate(
    plan: &Plan,
    options: &Options,
    arms: &[&Arm],
    round: &Round,
) -> Result<Duration> {
    let values = round.parameters(plan, options.quick)?;
    let mut total = Duration::ZERO;
    if plan.network == Scope::Round {
        total += NETWORK_COST + services_estimate(plan, None, &values)?;
    }
    for arm in arms {
        total += arm_estimate(plan, arm, &values)?;
    }
    Ok(total)
}

fn arm_estimate(plan: &Plan, arm: &Arm, values: &Values) -> Result<Duration> {
    if !applies(&arm.when, values)? {
        return Ok(Duration::ZERO);
    }
    let expect = span(&arm.expect, values, || format!("arm {}: expect", arm.name))?;
    let services = match plan.network {
        Scope::Arm => services_estimate(plan, Some(&arm.name), values)?,
        Scope::Round => Duration::ZERO,
    };
    let own_network = plan.network == Scope::Arm && plan.kind == Kind::Lab;
    let network = if own_network { NETWORK_COST } else { Duration::ZERO };
    Ok(expect + network + services + plan.settle)
}

/// The expected total time for services to become ready: those of `arm`, or all for `None`.
fn services_estimate(plan: &Plan, arm: Option<&str>, values: &Values) -> Result<Duration> {
    let mut total = Duration::ZERO;
    for service in &plan.service {
        let serves = match (&service.arms, arm) {
            (Some(patterns), Some(arm)) => pattern::any(patterns, arm),
            _ => true,
        };
        if let Some(expect) = service.ready.expect.as_ref().filter(|_| serves)
            && applies(&service.when, values)?
        {
            let at = || format!("service {}: ready.expect", service.name);
            total += span(expect, values, at)?;
        }
    }
    Ok(total)
}

fn span(text: &str, values: &Values, at: impl FnOnce() -> String) -> Result<Duration> {
    let text = values.render(text, TextForm::Real)?;
    thalweg_units::parse_duration(&text).map_err(|e| ExperimentError::value(at(), e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const ARM: &str = "[[arm]]\nname='a'\nrole='ours'\ncommand=['x']\ntimeout='1 s'\nexpect='2 s'\n\
                       [[check]]\nname='k'\nmetric='v'\nof='a'\nop='>='\nbound=1\n";

    fn plan(top: &str, rest: &str) -> Plan {
        let head = "name='x'\nclaim='x'\nkind='host'\nheadline='v'\n";
        Plan::parse(&format!("{head}{top}\n[validity]\n{rest}\n{ARM}"), "x").unwrap()
    }

    fn all(plan: &Plan, options: &Options) -> Vec<(String, u64, u32)> {
        let rounds = rounds(plan, options).unwrap();
        rounds.into_iter().map(|r| (r.cell.label, r.seed, r.repeat)).collect()
    }

    const CELLS: &str = "[quick]\nseeds=[9]\nrepeats=1\ncells=['p=1,*']\n\
        [[vary]]\nname='p'\nvalues=[1,2]\n[[vary]]\nname='q'\nvalues=['u','v']";

    #[test]
    fn cells_are_all_combinations_and_repeats_vary_slowest() {
        let plan = plan("seeds=[1,2]\nrepeats=2", CELLS);
        let got = all(&plan, &Options::default());
        assert_eq!(got.len(), 2 * 2 * 4);
        let labels: Vec<_> = got[..4].iter().map(|r| r.0.as_str()).collect();
        assert_eq!(labels, ["p=1,q=u", "p=1,q=v", "p=2,q=u", "p=2,q=v"]);
        assert!(got[..8].iter().all(|r| r.2 == 0) && got[8..].iter().all(|r| r.2 == 1));
        let quick = all(&plan, &Options { quick: true, ..Options::default() });
        assert_eq!(quick, [("p=1,q=u".into(), 9, 0), ("p=1,q=v".into(), 9, 0)]);
        let seeded = all(&plan, &Options { seeds: vec![77], ..Options::default() });
        assert!(seeded.len() == 8 && seeded.iter().all(|r| r.1 == 77));
    }

    #[test]
    fn a_sample_depends_only_on_its_seed_and_contains_the_headline_cells() {
        let values: Vec<String> = (0..30).map(|i| i.to_string()).collect();
        let text = format!(
            "[quick]\ncells=['p=0']\n[matrix]\nsample=5\nseed=3\nheadline={{cells=['p=29'],repeats=5}}\n\
             [[vary]]\nname='p'\nvalues=[{}]",
            values.join(",")
        );
        let plan = plan("", &text);
        let got = all(&plan, &Options::default());
        let cells: BTreeSet<_> = got.iter().map(|r| &r.0).collect();
        assert!(cells.len() == 5 || cells.len() == 6, "{cells:?}");
        assert_eq!(got.iter().filter(|r| r.0 == "p=29").count(), 5);
        assert_eq!(got, all(&plan, &Options::default()));
        let whole = all(&plan, &Options { all: true, ..Options::default() });
        assert_eq!(whole.iter().map(|r| &r.0).collect::<BTreeSet<_>>().len(), 30);
    }

    #[test]
    fn values_of_a_round_come_from_params_draws_and_cases() {
        let text = "[quick]\nparams={size='1'}\n[params]\nsize='40'\nboth='{size}-{p}'\n\
                    [draw]\nd={one_of=['only']}\n[[vary]]\nname='p'\nby='seed'\n\
                    case=[{label='odd',set={extra='x'}},{label='even',set={extra='y',size='7'}}]";
        let plan = plan("seeds=[1,2]", text);
        let rounds = rounds(&plan, &Options::default()).unwrap();
        let render = |round: &Round, quick| {
            let values = round.parameters(&plan, quick).unwrap();
            values.render("{both} {d} {extra} {seed}", TextForm::Real).unwrap()
        };
        assert_eq!(render(&rounds[0], false), "40-odd only x 1");
        assert_eq!(render(&rounds[0], true), "1-odd only x 1");
        assert_eq!(render(&rounds[1], false), "7-even only y 2");
    }

    #[test]
    fn the_estimate_counts_only_arms_that_apply() {
        let plan =
            plan("seeds=[1,2,3]\nsettle='1 s'", "[[vary]]\nname='p'\nby='seed'\nvalues=[1,2]");
        let mut narrow = plan.clone();
        narrow.arm[0].when = [("p".to_owned(), vec![toml::Value::Integer(2)])].into();
        let seconds = |plan: &Plan| {
            let rounds = rounds(plan, &Options::default()).unwrap();
            estimate(plan, &Options::default(), &rounds).unwrap().as_secs()
        };
        assert_eq!((seconds(&plan), seconds(&narrow)), (9, 3));
    }

    #[test]
    fn concurrent_rounds_take_the_time_of_the_busiest_lane() {
        let lab = "kind='lab'\ntopology='t.toml'\nnetwork='round'\nabreast=2\nseeds=[1,2,3]\n";
        let text = format!(
            "name='x'\nclaim='x'\nheadline='v'\n{lab}[validity]\nlateness_p99='2 ms'\n{}",
            ARM.replace("role=", "host='h'\nrole=")
        );
        let plan = Plan::parse(&text, "x").unwrap();
        let rounds = rounds(&plan, &Options::default()).unwrap();
        let took = estimate(&plan, &Options::default(), &rounds).unwrap();
        assert_eq!(took, 2 * (NETWORK_COST + Duration::from_secs(2)));
        let alone = text.replace("lateness_p99='2 ms'", "");
        let refused = Plan::parse(&alone, "x").unwrap_err().to_string();
        assert!(refused.contains("abreast"), "{refused}");
    }

    #[test]
    fn in_as_many_rounds_as_arms_every_arm_is_first_once() {
        let plan = plan("", "");
        let arms: Vec<Arm> = vec![plan.arm[0].clone(); 3];
        let refs: Vec<&Arm> = arms.iter().collect();
        let firsts: BTreeSet<*const Arm> =
            (0..3).map(|n| std::ptr::from_ref(rotated(&refs, n)[0])).collect();
        assert_eq!(firsts.len(), 3);
        assert!(rotated(&[], 5).is_empty());
    }
}
