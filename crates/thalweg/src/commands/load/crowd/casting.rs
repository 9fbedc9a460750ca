//! One `thalweg cast`, and what it told.

use super::{
    mesh::{Mesh, SOURCE},
    process::{cpu_seconds, memory_mib},
    sockets::Seen,
};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// How often connections and memory are looked at: what the last bytes before the end say is lost.
const LOOK: Duration = Duration::from_millis(250);

/// Events that wait: a few seconds of hundreds of receivers.
const WAITING: usize = 1024;

/// What came of it.
#[derive(Debug, Default)]
pub struct Cast {
    /// Bytes of the object.
    pub bytes: f64,
    /// Bytes of symbols that the source has sent.
    pub served: f64,
    /// By receiver, its first planned parent.
    pub parents: BTreeMap<String, String>,
    /// What came to all, and of that what was of no use.
    pub received: (f64, f64),
    /// By receiver and parent, new bytes that came from there.
    pub came: BTreeMap<(String, String), f64>,
    /// By receiver, bit/s over its own span.
    pub rates: BTreeMap<String, f64>,
    /// How many have it.
    pub complete: f64,
    /// From the first offer on, s.
    pub seconds: f64,
    /// CPU time of the source, s.
    pub cpu: f64,
    /// The most that was resident of it, MiB.
    pub memory: f64,
    /// All that it sent and got by TCP.
    pub wire: (f64, f64),
}

/// Casts as the source, to the end.
///
/// # Errors
/// When not all have it.
pub fn cast(mesh: &Mesh, args: &[&str], core: Option<u32>) -> anyhow::Result<Cast> {
    let own = mesh.command(SOURCE, &[&["cast", "--json"], args].concat());
    let mut command = match core {
        Some(core) => {
            // It shares the core with receivers, and goes before none of them: what forwards by rings waits for
            // nobody, so with a receiver that is starved of its core another thing would be measured.
            let mut pinned = Command::new("nice");
            pinned
                .args(["-n", "19", "taskset", "-c", &core.to_string()])
                .arg(own.get_program())
                .args(own.get_args());
            pinned.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
            pinned
        }
        None => own,
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start the cast")?;
    let told = lines(&mut child)?;
    let mut cast = Cast::default();
    let (mut seen, id) = (Seen::default(), child.id());
    let mut looked = Instant::now();
    loop {
        match told.recv_timeout(LOOK) {
            Ok(event) => cast.hear(&event),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            cast.look(id, &mut seen)?;
        }
    }
    let ended = child.wait()?;
    ensure!(ended.success(), "the cast ended with {ended}");
    cast.wire = (seen.ours().0 as f64, seen.ours().1 as f64);
    Ok(cast)
}

/// Its events, read by a thread: it does not wait while connections are looked at.
fn lines(child: &mut Child) -> anyhow::Result<Receiver<Value>> {
    let out = BufReader::new(child.stdout.take().context("it has an output")?);
    let (tell, told) = mpsc::sync_channel(WAITING);
    thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            if let Ok(event) = serde_json::from_str(&line) {
                // Nobody listens any more: the caller has failed.
                let _ = tell.send(event);
            }
        }
    });
    Ok(told)
}

impl Cast {
    fn look(&mut self, id: u32, seen: &mut Seen) -> anyhow::Result<()> {
        seen.look(id)?;
        // Between its end and ours it has no times.
        if let (Ok(cpu), Ok(memory)) = (cpu_seconds(id), memory_mib(id, "VmHWM")) {
            (self.cpu, self.memory) = (cpu, self.memory.max(memory));
        }
        Ok(())
    }

    fn hear(&mut self, event: &Value) {
        let number = |name: &str| event[name].as_f64().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match event["event"].as_str().unwrap_or_default() {
            "planned" => {
                let all = event["receivers"].as_array().into_iter().flatten();
                let first = |one: &Value| (text(&one["name"]), text(&one["parents"][0]));
                self.parents = all.map(first).collect();
            }
            "received" => {
                self.received.0 += number("received_bytes");
                self.received.1 += number("duplicate_bytes");
                let receiver = text(&event["receiver"]);
                for parent in event["parents"].as_array().into_iter().flatten() {
                    let pair = (receiver.clone(), text(&parent["name"]));
                    self.came.insert(pair, parent["bytes"].as_f64().unwrap_or_default());
                }
                self.rates.insert(receiver, number("rate_bps"));
            }
            "ended" => {
                self.bytes = number("bytes");
                self.served = number("served_bytes");
                (self.complete, self.seconds) = (number("complete"), number("seconds"));
            }
            _ => {}
        }
    }

    /// Hops from the source to the farthest receiver by the plan.
    pub fn depth(&self) -> f64 {
        let hops = |receiver: &String| {
            let (mut at, mut hops) = (receiver, 0_usize);
            while let Some(parent) = self.parents.get(at).filter(|_| hops <= self.parents.len()) {
                (at, hops) = (parent, hops + 1);
            }
            hops
        };
        self.parents.keys().map(hops).max().unwrap_or_default() as f64
    }

    /// New bytes that a receiver got from this parent.
    pub fn came_from(&self, receiver: &str, parent: &str) -> f64 {
        let pair = (receiver.to_owned(), parent.to_owned());
        self.came.get(&pair).copied().unwrap_or_default()
    }

    /// Receivers whose first parent is the source.
    pub fn children(&self) -> f64 {
        self.parents.values().filter(|parent| *parent == SOURCE).count() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tree_has_a_depth() {
        let mut cast = Cast::default();
        let one = |name: &str, parent: &str| json!({"name": name, "parents": [parent, "b"]});
        let all = json!([one("a", SOURCE), one("b", "a"), one("c", "b"), one("d", SOURCE)]);
        cast.hear(&json!({"event": "planned", "receivers": all}));
        assert_eq!((cast.depth(), cast.children()), (3.0, 2.0));
    }

    #[test]
    fn what_came_is_told_by_parent() {
        let mut cast = Cast::default();
        let parents = json!([{"name": "a", "bytes": 70}, {"name": SOURCE, "bytes": 30}]);
        cast.hear(&json!({"event": "received", "receiver": "b", "parents": parents}));
        assert_eq!((cast.came_from("b", "a"), cast.came_from("b", SOURCE)), (70.0, 30.0));
        assert_eq!(cast.came_from("a", "b"), 0.0);
    }
}
