//! Selects the casts to show.

use anyhow::bail;
use serde_json::{Value, json};
use std::cmp::Reverse;
use thalweg_cast::source::{CastEnd, ListedCast};

/// How many casts that ended well are shown; the newest.
const ENDED: usize = 10;

/// The minimum number of digits that identify a cast.
const MIN_DIGITS: usize = 4;

/// Casts from and to this host, newest first.
#[derive(Debug)]
pub struct CastSelection {
    /// Casts from this host.
    pub sources: Vec<ListedCast>,
    /// The daemon's report of casts to this host; null without a daemon.
    pub casts: Value,
}

impl CastSelection {
    /// Selects all casts; `sources` is newest first.
    pub fn new(sources: Vec<ListedCast>, mut casts: Value) -> Self {
        if let Some(all) = casts["casts"].as_array_mut() {
            all.sort_by_key(|cast| Reverse(cast["job"]["created"].as_u64()));
        }
        Self { sources, casts }
    }

    /// Keeps only casts with this name, or whose number begins with it.
    ///
    /// # Errors
    /// If there is none.
    pub fn keep_only(&mut self, what: &str) -> anyhow::Result<()> {
        let is_it = |name: &str, number: &str| {
            name == what || (what.len() >= MIN_DIGITS && number.starts_with(what))
        };
        self.sources.retain(|found| is_it(&found.record.name, &found.record.cast));
        let mut is_empty = self.sources.is_empty();
        if let Some(all) = self.casts["casts"].as_array_mut() {
            let text = |cast: &Value, key: &str| cast[key].as_str().unwrap_or_default().to_owned();
            all.retain(|cast| is_it(&text(cast, "name"), &text(cast, "cast")));
            is_empty &= all.is_empty();
        }
        if is_empty {
            bail!("no cast from or to this host has the name or number `{what}`");
        }
        Ok(())
    }

    /// Leaves out the older casts that ended well. Returns how many.
    pub fn drop_older(&mut self) -> usize {
        let has_ended = |found: &ListedCast| {
            let end = found.record.end;
            !found.is_running && matches!(end, Some(CastEnd::Complete | CastEnd::GivenUp))
        };
        let left_out = shorten(&mut self.sources, has_ended);
        let all = self.casts["casts"].as_array_mut();
        left_out + all.map_or(0, |all| shorten(all, |cast| cast["state"] == "complete"))
    }

    /// One JSON object, whose keys name their units.
    ///
    /// # Errors
    /// None that is known.
    pub fn json(&self) -> serde_json::Result<Value> {
        let mut all = self.casts.clone();
        all["sources"] = serde_json::to_value(&self.sources)?;
        for key in ["sources", "casts"] {
            all[key].as_array_mut().into_iter().flatten().for_each(with_unit);
        }
        Ok(all)
    }
}

/// Of the casts that ended, keeps only the first [`ENDED`].
fn shorten<T>(all: &mut Vec<T>, has_ended: impl Fn(&T) -> bool) -> usize {
    let (before, mut ended) = (all.len(), 0);
    all.retain(|one| {
        ended += usize::from(has_ended(one));
        !has_ended(one) || ended <= ENDED
    });
    before - all.len()
}

/// Converts the start of a job from nanoseconds, as it is stored, to seconds.
fn with_unit(cast: &mut Value) {
    let Some(job) = cast["job"].as_object_mut() else { return };
    if let Some(nanos) = job.remove("created").and_then(|created| created.as_u64()) {
        job.insert("created_unix_s".to_owned(), json!(nanos / 1_000_000_000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(states: &[&str]) -> CastSelection {
        let cast = |(i, state): (u64, &&str)| {
            json!({"name": format!("n{i}"), "cast": format!("{i:08}"), "state": state,
                   "job": {"created": i * 1_000_000_000}})
        };
        let casts: Vec<Value> = (1..).zip(states).map(cast).collect();
        CastSelection::new(Vec::new(), json!({ "inboxes": 1, "casts": casts }))
    }

    fn names(chosen: &CastSelection) -> Vec<&str> {
        let all = chosen.casts["casts"].as_array().into_iter().flatten();
        all.filter_map(|cast| cast["name"].as_str()).collect()
    }

    #[test]
    fn all_running_casts_and_the_newest_ended_ones_are_shown() {
        let states = [&["fetching", "complete", "failed"][..], &["complete"; 10]].concat();
        let mut chosen = chosen(&states);
        assert_eq!(chosen.drop_older(), 1);
        let shown = names(&chosen);
        assert_eq!((shown.len(), shown[0], &shown[10..]), (12, "n13", &["n3", "n1"][..]));
    }

    #[test]
    fn a_cast_is_found_by_name_and_by_number() {
        for what in ["n2", "00000002"] {
            let mut chosen = chosen(&["complete", "complete"]);
            chosen.keep_only(what).unwrap();
            assert_eq!(names(&chosen), ["n2"], "{what}");
        }
        let error = chosen(&["complete"]).keep_only("000").unwrap_err().to_string();
        assert!(error.contains("the name or number `000`"), "{error}");
    }

    #[test]
    fn keys_name_their_unit() {
        let all = chosen(&["complete"]).json().unwrap();
        assert_eq!(all["casts"][0]["job"], json!({"created_unix_s": 1}));
    }
}
