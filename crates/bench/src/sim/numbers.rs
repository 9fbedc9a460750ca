//! Prints the metrics of one run, as a table or as JSON for the experiments.

use serde_json::{Value, json};
use std::fs;
use thalweg_console::say;

/// A metric: its name, its unit and its value.
pub type Number = (&'static str, &'static str, f64);

/// Prints the metrics that are finite, with the peak memory of this process.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(mut numbers: Vec<Number>, json: bool) -> anyhow::Result<()> {
    numbers.push(("peak_memory", "MiB", peak_memory().unwrap_or(f64::NAN)));
    numbers.retain(|number| number.2.is_finite());
    if json {
        let metric = |(name, unit, value): (&str, &str, f64)| {
            (name.to_owned(), json!({"unit": unit, "value": value}))
        };
        let metrics: serde_json::Map<String, Value> = numbers.into_iter().map(metric).collect();
        say(&format!("{}\n", json!({"metrics": metrics})))?;
    } else {
        let line = |(name, unit, value): &(&str, &str, f64)| {
            format!("{:<20} {value:>12.3} {unit}\n", name.replace('_', " "))
        };
        say(&numbers.iter().map(line).collect::<String>())?;
    }
    Ok(())
}

/// The peak memory of this process in MiB; `None` if the kernel does not report it.
fn peak_memory() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}
