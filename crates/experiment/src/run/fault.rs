//! Injects faults while an arm runs: signals, changes of links, programs.

use super::{network::Network, process::Process, service::Services};
use crate::{
    error::{ExperimentError, Result},
    pattern,
    plan::{Arm, Fault, FaultSignal},
    template::{TextForm, Values},
};
use rustix::process::Signal;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use thalweg_units::{ByteSize, parse_duration};

/// The trigger of a fault.
#[derive(Debug)]
enum FaultTrigger {
    At(Duration),
    Line(String),
    Bytes(u64, PathBuf),
}

/// The faults of an arm that have not occurred yet.
#[derive(Debug)]
pub struct PendingFaults<'a>(Vec<(FaultTrigger, &'a Fault)>);

impl<'a> PendingFaults<'a> {
    /// Reads the faults of an arm; `out` is its output file.
    ///
    /// # Errors
    /// If a trigger is not a valid duration or size.
    pub fn from_arm(arm: &'a Arm, values: &Values, out: &Path) -> Result<Self> {
        let read = |fault: &'a Fault| Ok((when(arm, fault, values, out)?, fault));
        Ok(Self(arm.fault.iter().map(read).collect::<Result<_>>()?))
    }

    /// Whether no fault is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Injects the faults that are due, `elapsed` after the arm's start.
    ///
    /// # Errors
    /// If a fault cannot be injected, because the arm would then not run as the plan says.
    pub fn inject_due(
        &mut self,
        elapsed: Duration,
        processes: &[Process],
        network: &Network,
        services: &mut Services,
        values: &Values,
    ) -> Result<()> {
        let mut left = Vec::new();
        for (when, fault) in std::mem::take(&mut self.0) {
            if is_due(&when, elapsed, processes) {
                apply(fault, network, services, values)?;
            } else {
                left.push((when, fault));
            }
        }
        self.0 = left;
        Ok(())
    }
}

fn when(arm: &Arm, fault: &Fault, values: &Values, out: &Path) -> Result<FaultTrigger> {
    let bad = |e: &dyn ToString| {
        ExperimentError::value(format!("arm {}: fault", arm.name), e.to_string())
    };
    let trigger = &fault.when;
    if let Some(at) = &trigger.at {
        let at = values.render(at, TextForm::Real)?;
        return Ok(FaultTrigger::At(parse_duration(&at).map_err(|e| bad(&e))?));
    }
    if let Some(bytes) = &trigger.bytes {
        let bytes: ByteSize = values.render(bytes, TextForm::Real)?.parse().map_err(|e| bad(&e))?;
        let watched =
            trigger.watch.as_ref().map(|w| values.render(w, TextForm::Real)).transpose()?;
        return Ok(FaultTrigger::Bytes(
            bytes.as_bytes(),
            watched.map_or_else(|| out.to_owned(), Into::into),
        ));
    }
    let line = trigger.line.as_deref().unwrap_or_default();
    Ok(FaultTrigger::Line(values.render(line, TextForm::Real)?))
}

fn is_due(when: &FaultTrigger, elapsed: Duration, processes: &[Process]) -> bool {
    match when {
        FaultTrigger::At(at) => elapsed >= *at,
        FaultTrigger::Line(text) => {
            processes.iter().any(|p| p.stdout.contains(text) || p.stderr.contains(text))
        }
        FaultTrigger::Bytes(bytes, file) => largest(file) >= *bytes,
    }
}

/// The size of the largest matching file; the last component of `file` may be a pattern.
fn largest(file: &Path) -> u64 {
    let (Some(parent), Some(name)) = (file.parent(), file.file_name()) else { return 0 };
    let name = name.to_string_lossy();
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let matching = entries.filter(|e| pattern::matches(&name, &e.file_name().to_string_lossy()));
    matching.filter_map(|e| Some(e.metadata().ok()?.len())).max().unwrap_or(0)
}

fn apply(fault: &Fault, network: &Network, services: &mut Services, values: &Values) -> Result<()> {
    if let Some(wanted) = &fault.kill {
        let wanted = values.render(wanted, TextForm::Real)?;
        return services.signal(&wanted, signal(fault.signal));
    }
    if let Some(link) = &fault.link {
        let mut change = toml::Value::Table(fault.set.clone());
        values.render_toml(&mut change)?;
        let change = change.as_table().cloned().unwrap_or_default();
        return network.set(&values.render(link, TextForm::Real)?, &change);
    }
    let argv = values.render_args(fault.run.as_deref().unwrap_or_default(), TextForm::Real)?;
    let mut command = network.command(fault.host.as_deref(), &argv);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(ExperimentError::Other(format!("the fault `{}` failed: {status}", argv.join(" "))))
        }
        Err(e) => {
            Err(ExperimentError::Other(format!("the fault `{}` failed: {e}", argv.join(" "))))
        }
    }
}

fn signal(named: FaultSignal) -> Signal {
    match named {
        FaultSignal::Kill => Signal::KILL,
        FaultSignal::Term => Signal::TERM,
        FaultSignal::Stop => Signal::STOP,
        FaultSignal::Cont => Signal::CONT,
        FaultSignal::Int => Signal::INT,
        FaultSignal::Hup => Signal::HUP,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_matching_file_counts() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.part"), [0; 10]).unwrap();
        fs::write(dir.path().join("b.part"), [0; 20]).unwrap();
        fs::write(dir.path().join("c"), [0; 30]).unwrap();
        assert_eq!(largest(&dir.path().join("*.part")), 20);
        assert_eq!(largest(&dir.path().join("none")), 0);
    }

    #[test]
    fn an_unknown_signal_is_rejected_and_the_default_is_kill() {
        let fault = |rest: &str| {
            toml::from_str::<Fault>(&format!("when = {{ at = '1 s' }}\nkill = 'x'\n{rest}"))
        };
        assert_eq!(signal(fault("").unwrap().signal), Signal::KILL);
        assert_eq!(signal(fault("signal = 'hup'").unwrap().signal), Signal::HUP);
        let error = fault("signal = 'hop'").unwrap_err().to_string();
        assert!(error.contains("`hop`") && error.contains("`term`"), "{error}");
    }
}
