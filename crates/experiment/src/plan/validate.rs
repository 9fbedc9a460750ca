//! Validates a plan before it runs.

use super::{Aggregate, Arm, Check, Kind, Plan, PlotKind, Scope, Selector, Service};
use crate::{
    pattern,
    schedule::{self, Options},
    template::placeholders,
};
use std::{collections::BTreeSet, time::Duration};

/// The largest allowed estimate of a quick run.
const QUICK_MAX: Duration = Duration::from_secs(60);

/// The result of a validation: the error message, if any.
type Checked = Result<(), String>;

/// Validates the whole plan. Returns the first error.
pub(super) fn plan(plan: &Plan) -> Checked {
    names(plan)?;
    topology_and_hosts(plan)?;
    concurrent_rounds(plan)?;
    placeholders_known(plan)?;
    plan.arm.iter().try_for_each(|a| arm(plan, a))?;
    plan.service.iter().try_for_each(|s| service(plan, s))?;
    plan.check.iter().try_for_each(|c| check(plan, c))?;
    quick(plan)?;
    plots(plan)?;
    estimates(plan)
}

fn names(plan: &Plan) -> Checked {
    unique("arm", plan.arm.iter().map(|a| a.name.as_str()))?;
    unique("check", plan.check.iter().map(|c| c.name.as_str()))?;
    unique("service", plan.service.iter().map(|s| s.name.as_str()))?;
    unique("file", plan.file.iter().map(|f| f.name.as_str()))?;
    unique("plot", plan.plot.iter().map(|p| p.name.as_str()))?;
    if let Some(axis) = &plan.rows_by
        && !plan.vary.iter().any(|vary| vary.name == *axis)
    {
        return Err(format!("`rows_by` must name an axis of [[vary]], not `{axis}`"));
    }
    if plan.arm.is_empty() { Err("the plan has no arm".into()) } else { Ok(()) }
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Checked {
    let mut seen = BTreeSet::new();
    for name in names {
        // `{}` are for placeholders, `|` for tables, `*` for patterns.
        if name.is_empty() || name.contains(['{', '}', '|', '*', '\n']) {
            return Err(format!(
                "`{name}` is not a valid name for a {what}: it is empty or contains {{ }} | *"
            ));
        }
        if !seen.insert(name) {
            return Err(format!("two {what}s have the name `{name}`"));
        }
    }
    Ok(())
}

/// Concurrent rounds need labs, in which the ports of the plan and of its loads do not collide, and a bound on
/// lateness, which detects an overloaded machine.
fn concurrent_rounds(plan: &Plan) -> Checked {
    let is_lab = plan.kind == Kind::Lab || (plan.ports.is_empty() && plan.service.is_empty());
    let apart = is_lab && plan.validity.lateness_p99.is_some();
    match plan.abreast {
        1 => Ok(()),
        0 => Err("`abreast` must be at least 1".into()),
        _ if !apart => {
            Err("`abreast` needs labs without `ports` or services of this host, and validity.lateness_p99".into())
        }
        _ => Ok(()),
    }
}

/// Lab plans need a topology and hosts; host plans must have neither.
fn topology_and_hosts(plan: &Plan) -> Checked {
    let lab = plan.kind == Kind::Lab;
    if lab != plan.topology.is_some() {
        return Err("`topology` is required with kind = \"lab\", and not allowed otherwise".into());
    }
    let arms = plan.arm.iter().map(|a| (&a.name, a.host.list().is_empty()));
    let services = plan.service.iter().map(|s| (&s.name, s.host.list().is_empty()));
    match arms.chain(services).find(|(_, hostless)| *hostless == lab) {
        Some((name, true)) => Err(format!("{name} has no `host`, which kind = \"lab\" requires")),
        Some((name, false)) => {
            Err(format!("{name} has a `host`, which is not allowed with kind = \"host\""))
        }
        None => Ok(()),
    }
}

fn placeholders_known(plan: &Plan) -> Checked {
    let known = known_names(plan);
    let check = |at: &str, text: &str, own: &[&str]| {
        let strange = |n: &&str| {
            !known.contains(*n)
                && !own.contains(n)
                && !n.starts_with("ip.")
                && !n.starts_with("port.")
        };
        match placeholders(text).into_iter().find(strange) {
            Some(name) => Err(format!("{at}: unknown placeholder {{{name}}}")),
            None => Ok(()),
        }
    };
    for arm in &plan.arm {
        let own: Vec<&str> =
            arm.each.keys().map(String::as_str).chain(["out", "host", "arm"]).collect();
        let faults = arm.fault.iter().flat_map(|f| f.run.iter().flatten());
        let texts = arm.command.iter().chain(arm.env.values()).chain(arm.sample.iter().flatten());
        for text in texts.chain(faults).chain([&arm.expect]) {
            check(&format!("arm {}", arm.name), text, &own)?;
        }
    }
    if let Some(text) = &plan.validity.congestion_control {
        check("validity", text, &[])?;
    }
    for service in &plan.service {
        let texts = service.command.iter().chain(service.otherwise.iter().flatten());
        for text in texts.chain(&service.ready.expect) {
            check(&format!("service {}", service.name), text, &["host"])?;
        }
    }
    for file in &plan.file {
        let text = file.content.as_deref().or(file.size.as_deref()).unwrap_or_default();
        check(&format!("file {}", file.name), text, &[])?;
    }
    Ok(())
}

fn known_names(plan: &Plan) -> BTreeSet<String> {
    let mut known: BTreeSet<String> =
        ["scratch", "seed", "repeat", "thalweg", "bench", "thalweg-lab"].map(String::from).into();
    if plan.kind == Kind::Lab {
        known.insert("lab".to_owned());
    }
    known.extend(plan.params.keys().chain(plan.draw.keys()).cloned());
    for axis in &plan.vary {
        known.insert(axis.name.clone());
        known.extend(axis.cases().iter().flat_map(|c| c.set.keys().cloned()));
    }
    for file in &plan.file {
        let forms = ["", ".bytes", ".blake3"].map(|suffix| format!("{}{suffix}", file.name));
        known.extend(forms);
    }
    known
}

fn arm(plan: &Plan, arm: &Arm) -> Checked {
    let fault = |why: String| Err(format!("arm {}: {why}", arm.name));
    if arm.command.is_empty() {
        return fault("its command is empty".into());
    }
    if let Some(file) = &arm.verify
        && !plan.file.iter().any(|f| f.name == *file && f.size.is_some())
    {
        return fault(format!("`verify` names `{file}`, which is not a random file of the plan"));
    }
    for f in &arm.fault {
        let whens =
            [&f.when.at, &f.when.line, &f.when.bytes].iter().filter(|w| w.is_some()).count();
        let acts = [f.kill.is_some(), f.link.is_some(), f.run.is_some()];
        if whens != 1 || acts.iter().filter(|a| **a).count() != 1 {
            return fault(
                "a fault needs exactly one of at, line, bytes, and exactly one of kill, link, run"
                    .into(),
            );
        }
        if plan.network == Scope::Round {
            return fault(
                "faults need network = \"arm\", because otherwise they affect the next arm".into(),
            );
        }
    }
    Ok(())
}

fn service(plan: &Plan, service: &Service) -> Checked {
    if service.command.is_empty() {
        return Err(format!("service {}: its command is empty", service.name));
    }
    if service.arms.is_some() && plan.network == Scope::Round {
        return Err(format!("service {}: `arms` needs network = \"arm\"", service.name));
    }
    Ok(())
}

fn check(plan: &Plan, check: &Check) -> Checked {
    let fault = |why: String| Err(format!("check {}: {why}", check.name));
    if (check.aggregate == Aggregate::Fraction) != check.condition.is_some() {
        return fault(
            "`condition` is required with aggregate = \"fraction\", and not allowed otherwise"
                .into(),
        );
    }
    if check.aggregate == Aggregate::RatioOfMeans && check.over.is_none() {
        return fault("aggregate = \"ratio-of-means\" needs `over`".into());
    }
    if check.bound.is_some_and(|bound| !bound.is_finite()) {
        return fault("its bound is not a number".into());
    }
    for selector in [Some(&check.of), check.over.as_ref()].into_iter().flatten() {
        for p in
            selector_patterns(selector).map_err(|why| format!("check {}: {why}", check.name))?
        {
            if !plan.arm.iter().any(|a| pattern::matches(&p, &a.name)) {
                return fault(format!("no arm matches `{p}`"));
            }
        }
    }
    Ok(())
}

/// The arm patterns of a selector. A label in a `named` pattern matches any text.
fn selector_patterns(selector: &Selector) -> Result<Vec<String>, String> {
    match selector {
        Selector::Each(list) => Ok(list.list().to_vec()),
        Selector::Chosen(c) => match (c.choice(), &c.named, &c.by) {
            (Some((_, patterns)), None, None) => Ok(patterns.to_vec()),
            (None, Some(named), Some(by)) => {
                let mut wide = named.clone();
                for label in placeholders(named) {
                    wide = wide.replace(&format!("{{{label}}}"), "*");
                }
                Ok(vec![wide, by.clone()])
            }
            _ => Err("give one of best, worst, sum, median, or named with by".into()),
        },
    }
}

fn quick(plan: &Plan) -> Checked {
    let unknown = |n: &&String| !plan.check.iter().any(|c| c.name == **n);
    if let Some(lost) = plan.quick.not_evaluated.iter().find(unknown) {
        return Err(format!("quick.not_evaluated: there is no check `{lost}`"));
    }
    for p in plan.quick.arms.iter().flatten() {
        if !plan.arm.iter().any(|a| pattern::matches(p, &a.name)) {
            return Err(format!("quick.arms: no arm matches `{p}`"));
        }
    }
    if let Some(lost) = plan.quick.params.keys().find(|k| !plan.params.contains_key(*k)) {
        return Err(format!("quick.params: the plan has no param `{lost}`"));
    }
    Ok(())
}

fn plots(plan: &Plan) -> Checked {
    for plot in plan.plot.iter().filter(|p| p.kind == PlotKind::Lines) {
        if !plan.vary.iter().any(|axis| Some(&axis.name) == plot.x.as_ref()) {
            return Err(format!("plot {}: `x` must name an axis of [[vary]]", plot.name));
        }
    }
    let cells = schedule::all_cells(plan);
    for plot in &plan.plot {
        let is_one = |p: &&String| cells.iter().any(|cell| pattern::matches(p, &cell.label));
        if let Some(lost) = plot.cells.iter().flatten().find(|p| !is_one(p)) {
            return Err(format!("plot {}: no cell matches `{lost}`", plot.name));
        }
        for quick in [false, true] {
            let title = crate::plot::title(plan, plot, quick);
            title.map_err(|e| format!("plot {}: title: {e}", plot.name))?;
        }
    }
    Ok(())
}

fn estimates(plan: &Plan) -> Checked {
    for (quick, most) in [(false, plan.budget), (true, QUICK_MAX)] {
        let options = Options { quick, ..Options::default() };
        let rounds = schedule::rounds(plan, &options).map_err(|e| e.to_string())?;
        let took = schedule::estimate(plan, &options, &rounds).map_err(|e| e.to_string())?;
        if took > most {
            let (run, took, most) =
                (if quick { "quick" } else { "full" }, took.as_secs(), most.as_secs());
            return Err(format!("a {run} run is estimated at {took} s, more than {most} s"));
        }
    }
    Ok(())
}
